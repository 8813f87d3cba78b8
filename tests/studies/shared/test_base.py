"""Studies by name: the package's, a plugin's, another package's; and what a broken one says."""

from importlib.metadata import EntryPoint

import pytest
from made_runs import change_manifest, make_run

import lookback
from lookback import registry
from lookback.registry import PluginError, SettingError
from lookback.studies import STUDIES, Result, Runs, StudyError, get_study, title

PLUGIN = '''
from lookback.studies import Result, Table, study, title

@study("lengths", title="How <long> they are", paper="fig:none")
def lengths(runs, least: int = 0):
    """Tokens per response."""
    rows = [{"benchmark": title(run), "tokens": float(run.lengths.mean())} for run in runs.largest]
    lines = [[row["benchmark"], f"{row['tokens']:.2f}"] for row in rows]
    return Result(rows, [Table([("", "Benchmark"), ("", "Tokens")], lines, "Lengths.")])
'''


@pytest.fixture
def plugin(tmp_path, monkeypatch, own_studies):
    file = tmp_path / "lengths.py"
    file.write_text(PLUGIN, encoding="utf-8")
    monkeypatch.setenv(registry.PLUGINS_VARIABLE, str(file))
    return file


@pytest.fixture
def succeed(command):
    """Runs a command that must succeed, and gives what it prints."""

    def run(*arguments):
        status, out, err = command(*arguments)
        assert status == 0, err
        return out

    return run


def test_all_of_the_package_are_registered_in_the_papers_order():
    names = STUDIES.names()
    assert names[:5] == ["main", "scaling", "budget", "ablation", "sensitivity"]
    assert names[-2:] == ["disagreements", "tokens"]
    assert len(names) == 17
    for name in names:
        study = get_study(name)
        assert study.name == name
        assert study.about
        assert not study.own
    assert get_study("pos").title == "Parts of speech"
    assert get_study("image-sensitivity").title == "Image sensitivity"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'mian'; there are: main, .*tokens, human, all.*'main'"):
        get_study("mian")
    with pytest.raises(ValueError, match="study 'human' is of votes, not of runs"):
        get_study("human")


def test_a_plugin_is_listed_and_done(plugin, tmp_path, succeed):
    run = make_run(tmp_path / "run", n=3)
    study = get_study("lengths")
    assert (study.title, study.params, study.own) == ("How <long> they are", ("least",), True)
    assert STUDIES.names()[-1] == "lengths"
    assert "Tokens per response." in succeed("studies")
    out = succeed("study", "lengths", run.path, "--out", tmp_path / "out")
    assert f"{run.lengths.mean():.2f}" in out
    assert (tmp_path / "out" / "lengths.csv").exists()


def test_a_plugin_is_on_the_page_of_all(plugin, tmp_path, succeed):
    run = make_run(tmp_path / "run", items=3, n=3)
    out = tmp_path / "out"
    succeed("study", "all", run.path, "--out", out, "--items", 1)
    assert f"{run.lengths.mean():.2f}" in (out / "lengths.md").read_text("utf-8")
    page = (out / "report.html").read_text("utf-8")
    assert 'id="study-lengths"' in page
    assert "Tokens per response." in page


def test_another_packages_study(monkeypatch, own_studies):
    here = EntryPoint("far", f"{__name__}:far", STUDIES.group)
    gone = EntryPoint("gone", "no_such_package:study", STUDIES.group)
    points = {"far": here, "gone": gone}
    monkeypatch.setattr(STUDIES, "_points", lambda: points)
    assert get_study("far").about == "Far away."
    with pytest.raises(PluginError, match=r"the study 'gone' .* cannot be loaded"):
        get_study("gone")
    with pytest.warns(UserWarning, match="gone"):
        assert "gone" not in STUDIES.all()


def far(runs):
    """Far away."""
    return Result([{"runs": len(runs)}])


def test_names_that_are_taken(own_studies):
    for name in ("all", "human"):
        with pytest.raises(ValueError, match=f"cannot be named '{name}'"):
            lookback.study(name)
    with pytest.raises(ValueError, match="already a study named 'main'"):
        lookback.study("main")(far)


def test_a_study_of_ones_own_that_fails_is_named(tmp_path, own_studies):
    run = make_run(tmp_path / "run", n=2)

    @lookback.study("broken")
    def broken(runs, empty=False):
        return Runs([]) if empty else {}["missing"]

    @lookback.study("wordy")
    def wordy(runs):
        return "a table"

    with pytest.raises(StudyError, match="study 'broken' failed: KeyError: 'missing'"):
        get_study("broken")([run])

    @lookback.study("ending")
    def ending(runs):
        raise SystemExit(0)

    with pytest.raises(StudyError, match="study 'ending' failed: SystemExit: 0"):
        get_study("ending")([run])
    with pytest.raises(StudyError, match=r"^no runs given$"):  # says enough by itself
        get_study("broken")([run], {"empty": True})
    with pytest.raises(StudyError, match="'wordy' gave 'a table': it must give a"):
        get_study("wordy")([run])


def test_one_that_needs_quality_is_given_the_items_that_have_it(tmp_path, own_studies):
    run = make_run(tmp_path / "run", n=2)

    @lookback.study("judged", needs_quality=True)
    def judged(runs):
        return Result([{"items": len(runs[0].ids)}], notes=["Mine."])

    result = get_study("judged")([run])
    assert (result.rows, result.notes) == ([{"items": 12}], ["Mine."])


def test_titles_of_benchmarks(tmp_path):
    run = make_run(tmp_path / "a", "chair", items=1, n=1)
    assert title(run) == "CHAIR"  # the registry's
    assert title(make_run(tmp_path / "b", "zzz", items=1, n=1)) == "zzz"  # nobody knows it
    assert title(change_manifest(run.path, title="My captions")) == "My captions"


def test_two_benchmarks_of_one_title_are_not_mixed(tmp_path):
    first = make_run(tmp_path / "a", "scenes-vqa", items=2, n=2)
    make_run(tmp_path / "b", "mine", items=2, n=2)
    second = change_manifest(tmp_path / "b", title="Scenes VQA")
    with pytest.raises(StudyError, match="'scenes-vqa' and 'mine' are both called 'Scenes VQA'"):
        get_study("main")([first, second])


def test_a_setting_of_the_wrong_kind_is_named(tmp_path):
    run = make_run(tmp_path / "run", n=3)
    with pytest.raises(
        SettingError, match=r"study 'disagreements' cannot work with cases = 'x' \("
    ):
        get_study("disagreements")([run], {"cases": "x"})
