"""All studies select from the same N candidates: by default, as asked for, and as they say."""

import numpy as np
import pytest
from made_runs import make_run
from slow_outcomes import cells, slow_percent

from lookback.studies import STUDIES, Runs, StudyError, get_study
from lookback.studies.common.budgets import (
    budget_notes,
    check_budgets,
    default_budgets,
    parse_budgets,
)

ONE_N = (
    "ablation",
    "image-sensitivity",
    "random-image",
    "decomposition",
    "pos",
    "layers",
    "overhead",
    "disagreements",
    "tokens",
)
SEVERAL = ("main", "sensitivity", "oracle")


def make_runs(folder, n, benchmark="scenes-caption", seed=42, **more):
    """A run, its two controls, and one with another seed."""
    settings = {"benchmark": benchmark, "items": 8, "n": n, "layers": 3, "length": 5}
    own = make_run(folder / f"{benchmark}-{n}", seed=seed, **settings, **more)
    made = [own]
    for image in ("none", "random"):
        path = folder / f"{benchmark}-{n}-{image}"
        made.append(make_run(path, seed=seed, image=image, controls=own, **settings))
    made.append(make_run(folder / f"{benchmark}-{n}-other", seed=seed + 1, **settings))
    return made


def do_all(runs):
    """Every study's result that these runs allow."""
    found = {}
    for name, study in STUDIES.all().items():
        try:
            found[name] = study(runs)
        except StudyError:
            assert name == "judge"
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("one-n")


@pytest.fixture(scope="module")
def eight(folder):
    return make_runs(folder / "eight", 8)


@pytest.fixture(scope="module")
def mixed(folder):
    long = make_runs(folder / "mixed", 25, "scenes-vqa", recorded=("judge@5",))
    return [*make_runs(folder / "mixed", 8, recorded=("vauq",)), *long]


@pytest.fixture(scope="module")
def results(eight, mixed):
    alone = [run for run in mixed if run.benchmark == "scenes-vqa"]
    given = {"eight": eight, "25": alone, "mixed": mixed, "asked": Runs(eight, ns=(5, 8))}
    return {name: do_all(runs) for name, runs in given.items()}


def shown(result, benchmark):
    return {row["N"] for row in result.rows if row["benchmark"] == benchmark}


@pytest.mark.parametrize(
    ("given", "benchmark", "several"),
    [
        ("eight", "Scenes Caption", {8}),
        ("25", "Scenes VQA", {5, 25}),
        ("mixed", "Scenes Caption", {8}),
        ("mixed", "Scenes VQA", {5, 25}),
        ("asked", "Scenes Caption", {5, 8}),
    ],
)
def test_sections_agree_on_n(results, given, benchmark, several):
    found = results[given]
    for name in SEVERAL:
        assert shown(found[name], benchmark) == several, name
    for name in ONE_N:
        measured = [r for r in found[name].rows if r.get("source", "measured now") != "recorded"]
        numbers = {r["N"] for r in measured if r["benchmark"] == benchmark}
        assert numbers == {max(several)}, name
    assert shown(found["seeds"], benchmark) == {max(several)}
    assert shown(found["scaling"], benchmark) == set(range(1, max(several) + 1))
    if "judge" in found:
        assert shown(found["judge"], "Scenes VQA") == {5}  # what was recorded


@pytest.mark.parametrize("given", ["eight", "25", "mixed", "asked"])
def test_the_same_quantity_is_the_same_number(results, given, eight, mixed):
    """LookBack on a benchmark at N, in every study that has it; and worked out by plain loops."""
    found = results[given]
    given_runs = eight if given in ("eight", "asked") else mixed
    runs = {(run.benchmark, run.seed): run for run in given_runs}
    titles = {"Scenes Caption": "scenes-caption", "Scenes VQA": "scenes-vqa"}
    values = {}
    for name, result in found.items():
        for row in result.rows:
            if is_lookback(name, row):
                number = row["original"] if name == "random-image" else row["value"]
                values.setdefault((row["benchmark"], row["N"]), {})[name] = number
    for (benchmark, n), by_study in values.items():
        run = runs[titles[benchmark], 42]
        expected = slow_percent(run, "lookback", n)
        assert by_study == pytest.approx(dict.fromkeys(by_study, expected)), (benchmark, n)
    one = max(values, key=lambda setup: setup[1])
    expected = {
        "main",
        "scaling",
        "budget",
        "random-image",
        "decomposition",
        "layers",
        "ablation",
        "seeds",
    }
    assert expected <= set(values[one])


def is_lookback(name, row):
    """Whether a row has LookBack's outcome with the run's own settings."""
    if row["benchmark"] == "Average" or row.get("seed", 42) != 42:
        return False
    if name == "decomposition":
        return (row["measure"], row["what"]) == ("outcome", "none")
    if name == "layers":
        return (row["measure"], row["what"]) == ("outcome", "all layers")
    if name == "budget":
        return row["method"] == "best of N"
    if name == "ablation":
        return (row["varied"], row["alpha"], row["lam"]) == ("alpha", 0.5, 1.25)
    return row.get("method") == "lookback"


@pytest.mark.parametrize("given", ["eight", "25", "mixed", "asked"])
def test_every_section_says_its_n(results, given):
    for name, result in results[given].items():
        (said,) = [note for note in result.notes if note.startswith("N = ")]
        for n in {row["N"] for row in result.rows} - {0}:
            assert str(n) in said or name in ("scaling", "budget"), name
    assert "N = 1 to 8: of each item's" in results["eight"]["scaling"].notes[0]
    said = results["mixed"]["main"].notes[0]
    assert said == (
        "N = 5, 25 (Scenes VQA, made-up); 8 (Scenes Caption, made-up): of each item's candidates "
        "the first N."
    )


def test_an_average_of_one_is_not_shown(results):
    main, leads = results["eight"]["main"].tables
    assert main.columns == [("", "Method"), ("Scenes Caption", "N=8")]
    assert [name for _, name in leads.columns] == ["LookBack's lead", "N=8"]
    assert "on Scenes Caption" in leads.caption
    main, leads = results["asked"]["main"].tables
    assert [group for group, _ in main.columns][1:] == ["Scenes Caption"] * 2 + ["Average"]
    assert [name for _, name in leads.columns][1:] == ["N=5", "N=8", "Average"]
    for table in results["eight"]["oracle"].tables:
        assert list(cells(table)) == ["Scenes Caption"]
    assert list(cells(results["eight"]["random-image"].tables[0])) == ["Scenes Caption"]
    names = [name for _, name in results["25"]["judge"].tables[0].columns]
    assert names == ["Method", "Scenes VQA"]
    assert "Average" in cells(results["mixed"]["oracle"].tables[0])


def test_more_than_a_run_has_is_an_error_that_names_it(mixed, command, tmp_path):
    small = next(run for run in mixed if run.benchmark == "scenes-caption")
    with pytest.raises(StudyError, match=r"N = 25: .*scenes-caption-8 .* has 8 candidates"):
        Runs(mixed, ns=(5, 25))
    status, _, err = command("study", "all", small.path, "--n", "5,9", "--out", tmp_path / "out")
    assert status == 1
    assert f"N = 9: {small.path} (Scenes Caption, made-up) has 8 candidates per item" in err
    assert not (tmp_path / "out").exists()


def test_a_smaller_run_with_another_seed_may_have_less(tmp_path):
    """It is not the one that the studies are of."""
    first = make_run(tmp_path / "1", items=6, n=8, seed=1)
    second = make_run(tmp_path / "2", items=6, n=5, seed=2)
    runs = Runs([first, second], ns=(5, 8))
    assert shown(get_study("main")(runs), "Scenes Caption") == {5, 8}
    assert shown(get_study("seeds")(runs), "Scenes Caption") == {5}  # what both have
    with pytest.raises(StudyError, match="at least 8 candidates"):
        get_study("seeds")(Runs([first, second], ns=(8,)))


@pytest.mark.parametrize("name", ["main", "ablation", "tokens"])
def test_the_command_sets_them(eight, command, tmp_path, name):
    out = tmp_path / "out"
    status, _, err = command("study", name, eight[0].path, "--n", "4, 2", "--out", out)
    assert status == 0, err
    said = (out / f"{name}.md").read_text("utf-8")
    assert ("N = 2, 4: " if name == "main" else "N = 4: ") in said


@pytest.mark.parametrize("wrong", ["", "5,", "0", "x", "5.0", "-5", "5 8", "²", "9" * 5000])
def test_what_is_no_list_of_n_is_refused(wrong):
    with pytest.raises(ValueError, match=r"N = 0|--n "):
        parse_budgets(wrong)


def test_lists_of_n():
    assert parse_budgets("8,5, 8") == (5, 8)
    for wrong in ([], [0], [2.5], [True], ["5"]):
        with pytest.raises(ValueError, match=r"^(no )?N"):
            check_budgets(wrong)


def test_a_recording_for_fewer_candidates_brings_its_n(tmp_path):
    """No other N could show it; of the paper's two it is one."""
    run = make_run(tmp_path / "8", items=3, n=8, recorded=("judge@5", "usc@5", "vauq"))
    assert default_budgets(run) == [5, 8]
    assert shown(get_study("judge")([run]), "Scenes Caption") == {5}
    assert shown(get_study("main")([run]), "Scenes Caption") == {5, 8}
    with pytest.raises(
        StudyError, match=r"for N = 8 \(judge@5 is there: ask for that N with --n\)"
    ):
        get_study("judge")(Runs([run], ns=(8,)))
    large = make_run(tmp_path / "25", items=3, n=25, recorded=("usc@10",), length=2)
    assert default_budgets(large) == [5, 25]


def test_another_run_that_is_judged_or_has_layers_is_named(tmp_path):
    """Its numbers are not those of the other sections: it says which run it is."""
    large = make_run(tmp_path / "large", items=4, n=8, seed=1)
    small = make_run(tmp_path / "small", items=4, n=5, seed=2, recorded=("judge@5",), layers=2)
    for name in ("judge", "layers"):
        notes = get_study(name)([large, small]).notes
        assert any("Scenes Caption, made-up: of small, which has" in note for note in notes)
    judged = make_run(tmp_path / "judged", items=4, n=8, seed=1, recorded=("judge@5",), layers=2)
    for name in ("judge", "layers"):  # the largest is preferred, wherever it stands
        result = get_study(name)([small, judged])
        assert not any("which has" in note for note in result.notes)
        ours = [
            r for r in result.rows if r.get("method", r.get("what")) in ("lookback", "all layers")
        ]
        value = slow_percent(judged, "lookback", ours[0]["N"])
        assert ours[0]["value"] == pytest.approx(value)


def test_a_control_of_fewer_items_is_told(tmp_path):
    own = make_run(tmp_path / "own", items=8, n=4)
    control = make_run(tmp_path / "random", items=8, n=4, controls=own, image="random", failed=(2,))
    for name in ("random-image", "decomposition"):
        notes = get_study(name)([own, control]).notes
        assert "Scenes Caption, made-up: of the 7 of 8 items that random has too." in notes


def test_notes_of_rows_without_n():
    assert budget_notes([{"tokens": 3.0}, {"N": 0}, {"N": np.nan}, {"N": "many"}]) == []
    (said,) = budget_notes([{"N": 5}])
    assert said == "N = 5: of each item's candidates the first N."
