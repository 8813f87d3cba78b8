"""HallusionBench: rows, ids, figures, and the four accuracies worked by hand."""

import json

import pytest
from PIL import Image
from shared_data import shared

from lookback.benchmarks import get_benchmark
from lookback.benchmarks.files import MissingFile
from lookback.benchmarks.hallusionbench import HallusionBench
from lookback.benchmarks.judge import RuleJudge
from lookback.runs.plan import Plan


def row(category, set_id, figure, question, answer="1", **more):
    visual = "0" if category == "VS" and figure == "0" else "1"
    return {
        "category": category,
        "subcategory": "chart",
        "visual_input": visual,
        "set_id": set_id,
        "figure_id": figure,
        "sample_note": "",
        "question_id": question,
        "question": f"Is it {question}?",
        "gt_answer_details": f"It is {question}.",
        "gt_answer": answer,
        "filename": None if visual == "0" else f"./{category}/chart/{set_id}_{figure}.png",
    } | more


# Two figures with the same two questions each; one VS question without and with its figure.
ROWS = [
    row("VS", "0", "0", "0"),
    row("VS", "0", "1", "0", "0"),
    row("VD", "0", "0", "0"),
    row("VD", "0", "0", "1", "0"),
    row("VD", "0", "1", "0", "0"),
    row("VD", "0", "1", "1"),
]


class Told:
    """A judge whose verdict is the response itself."""

    name = "told"
    notes = ()

    def verdicts(self, cases):
        return [case.prediction for case in cases]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "LOOKBACK_JUDGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "HallusionBench.json").write_text(json.dumps(ROWS))
    return tmp_path


def test_visual_dependent_rows_are_the_default_and_all_are_to_be_had(folder):
    benchmark = HallusionBench(folder)
    assert [item.id for item in benchmark.items()] == [
        "VD_chart_0_0_0",
        "VD_chart_0_0_1",
        "VD_chart_0_1_0",
        "VD_chart_0_1_1",
    ]
    assert [item.id for item in benchmark.items("all")][:2] == ["VS_chart_0_0_0", "VS_chart_0_1_0"]
    item = benchmark.items()[0]
    assert item.aliases == ("VD_chart_1_0_0_0", "2")  # the row's number counts all rows
    assert item.question == "Is it 0?"
    assert (item.truth["answer"], item.truth["details"]) == ("yes", "It is 0.")


def test_a_figure_is_its_row_s_file_and_missed_only_when_loaded(folder):
    text_only, item = HallusionBench(folder).items("all")[0:3:2]
    with pytest.raises(MissingFile, match=r"VD/chart/0_0.png .*tianyi-lab/HallusionBench"):
        _ = item.image
    for place in ("", "hallusion_bench/"):
        path = folder / place / "VD/chart/0_0.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 3)).save(path)
        assert item.load.path == path
        assert (item.image.mode, item.image.size) == ("RGB", (2, 3))
        path.unlink()
    assert text_only.image is None


def test_four_accuracies_of_the_visual_dependent_rows(folder):
    benchmark = HallusionBench(folder, judge=Told())
    items = benchmark.items()
    # Figure 0: both right; figure 1: one. Question 0: right for both figures; question 1: not.
    for wrong in ("incorrect", "unclear", "unparsable"):
        verdicts = ["correct", "correct", "correct", wrong]
        assert benchmark.aggregate(items, verdicts) == {
            "correctness": 75,
            "aAcc": 75,
            "fAcc": 50,
            "qAcc": 50,
        }
        scores = [benchmark.score(i, v) for i, v in zip(items, verdicts, strict=True)]
        assert scores == [1, 1, 1, 0]
    # One figure's second question and the other's first: no group is all right.
    crossed = benchmark.aggregate(items, ["correct", "unclear", "unclear", "correct"])
    assert crossed == {"correctness": 50, "aAcc": 50, "fAcc": 0, "qAcc": 0}
    with pytest.raises(ValueError, match="no items"):
        benchmark.aggregate([], [])


def test_without_a_figure_an_open_answer_is_officially_right_and_no_figure_s(folder):
    benchmark = HallusionBench(folder, judge=Told())
    items = benchmark.items("all")[:2]
    # Right by the script, without the figure: its verdict 2, for what is unclear or cannot be read.
    # The paper counts what is correct.
    for open_or_unread in ("unclear", "unparsable"):
        assert benchmark.aggregate(items, [open_or_unread, "correct"]) == {
            "correctness": 50,
            "aAcc": 100,
            "fAcc": 100,
            "qAcc": 100,
        }
    assert benchmark.aggregate(items, ["incorrect", "correct"]) == {
        "correctness": 50,
        "aAcc": 50,
        "fAcc": 100,  # the row without a figure belongs to none
        "qAcc": 0,
    }
    # With the figure 2 is wrong.
    for open_or_unread in ("unclear", "unparsable"):
        assert benchmark.aggregate(items, ["unparsable", open_or_unread]) == {
            "correctness": 0,
            "aAcc": 50,
            "fAcc": 0,
            "qAcc": 0,
        }


class Deaf(Told):
    """One that cannot be asked about "lost"."""

    def verdicts(self, cases):
        return ["unparsable" if c.prediction == "lost" else c.prediction for c in cases]

    def unjudged(self, cases):
        return {n: "no text" for n, c in enumerate(cases) if c.prediction == "lost"}


def test_what_nobody_judged_is_wrong_by_any_count(folder):
    benchmark = HallusionBench(folder, judge=Deaf())
    without_figure, with_figure = benchmark.items("all")[:2]
    found = benchmark.aggregate([without_figure, with_figure], ["lost", "correct"])
    assert found == {"correctness": 50, "aAcc": 50, "fAcc": 100, "qAcc": 0}


def test_unread_judgements_are_right_on_the_178_rows_without_a_figure():
    """By the official script; docs/benchmarks.md says so."""
    benchmark = HallusionBench(shared("hallusionbench"), judge=Told())
    items = benchmark.items("all")
    found = benchmark.aggregate(items, ["unparsable"] * len(items))
    assert found["correctness"] == 0
    assert found["aAcc"] == pytest.approx(100 * 178 / 1129)
    assert benchmark.aggregate(benchmark.items(), ["unparsable"] * 591)["aAcc"] == 0


def test_rules_judge_without_an_endpoint_and_say_so(folder):
    benchmark = HallusionBench(folder)
    result = benchmark.aggregate(benchmark.items(), ["Yes.", "No.", "Yes", "It is 1."])
    assert (result["correctness"], benchmark.judge.name) == (50, "rules")
    assert "rules" in benchmark.notes[0]


def test_listing_items_needs_no_judge(folder, monkeypatch):
    monkeypatch.setenv("LOOKBACK_JUDGE_MODEL", "gpt")  # without any key
    benchmark = get_benchmark("hallusionbench", folder)
    assert len(benchmark.items()) == 4
    with pytest.raises(ValueError, match="neither a URL nor a key"):
        benchmark.score(benchmark.items()[0], "Yes")


def test_a_wrong_file_is_named(tmp_path):
    with pytest.raises(MissingFile, match=r"no file HallusionBench.json .*tianyi-lab"):
        HallusionBench(tmp_path).items()
    (tmp_path / "HallusionBench.json").write_text('[{"category": "VD"}]')
    with pytest.raises(ValueError, match=r"HallusionBench.json' is not HallusionBench's list"):
        HallusionBench(tmp_path).items()


def test_the_real_file_has_the_paper_s_591_rows():
    benchmark = HallusionBench(shared("hallusionbench"), judge=Told())
    items, everything = benchmark.items(), benchmark.items("all")
    assert (len(items), len(everything)) == (591, 1129)
    names = [name for item in everything for name in (item.id, *item.aliases)]
    assert len(set(names)) == 3 * 1129
    # Published leaderboards count 346 figures and 455 questions: one that is all right shows it.
    for key, right, groups in (("fAcc", "VD_illusion_0_0_", 346), ("qAcc", "VD_math_0_", 455)):
        members = [item for item in everything if item.id.startswith(right)]
        if key == "qAcc":
            members = [item for item in members if item.truth["question_id"] == "0"]
        verdicts = ["correct" if item in members else "incorrect" for item in everything]
        assert benchmark.aggregate(everything, verdicts)[key] == pytest.approx(100 / groups)


@pytest.mark.parametrize(
    ("split", "answer", "correctness", "f_acc", "q_acc"),
    [("test", "Yes, it is.", 42.13, 5.22, 2.17), ("all", "No.", 57.13, 12.14, 19.34)],
)
def test_constant_answers_on_the_real_file(split, answer, correctness, f_acc, q_acc):
    """As docs/benchmarks.md has them."""
    benchmark = HallusionBench(shared("hallusionbench"), judge=RuleJudge())
    items = benchmark.items(split)
    found = benchmark.aggregate(items, [answer] * len(items))
    assert found["correctness"] == pytest.approx(correctness, abs=0.01)
    assert found["fAcc"] == pytest.approx(f_acc, abs=0.01)
    assert found["qAcc"] == pytest.approx(q_acc, abs=0.01)


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "./../secret.png", "out/a.png"])
def test_a_figure_stays_in_the_folder(folder, monkeypatch, name):
    elsewhere = folder.parent / f"{folder.name}-elsewhere"
    elsewhere.mkdir()
    Image.new("RGB", (4, 3)).save(elsewhere / "a.png")
    (folder / "out").symlink_to(elsewhere)
    rows = [row("VD", "0", "0", "0", filename=name)]
    (folder / "HallusionBench.json").write_text(json.dumps(rows))
    (item,) = get_benchmark("hallusionbench", folder).items("all")
    with pytest.raises(ValueError, match="files that data name stay in the folder of the data"):
        _ = item.image
    if name == "out/a.png":
        monkeypatch.setenv("LOOKBACK_ALLOW_OUTSIDE", "1")
        assert item.image.size == (4, 3)


def test_a_run_s_settings_name_the_judge_s_prompt(folder, monkeypatch, tmp_path):
    """A run goes on with the same settings alone, so that verdicts on two prompts never mix."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("LOOKBACK_CACHE", str(tmp_path / "cache"))
    names = [
        Plan("hallusionbench", data=str(folder), judge={"model": "m"} | more)
        .load_benchmark()
        .judge_name()
        for more in ({}, {"prompt": "brief"})
    ]
    assert names == ["m (official prompt)", "m (brief prompt)"]
