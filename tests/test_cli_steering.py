"""`lookback ask --prune` and `--search`: options, what is shown on the way, and what comes out."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace

import pytest
from timeouts import HANG_SECONDS

from lookback.benchmarks.base import get_benchmark
from lookback.cli.ask import describe_checkpoint, draw_answers
from lookback.cli.options import parse_schedule
from lookback.embedded import LVLM
from lookback.engines import AbilityError
from lookback.steering import Decision
from lookback.steering.pruning import Pruning
from lookback.steering.search import Search

NO_MODEL = ("--model", "/no/such/model")
FEW = ("-n", "6", "--max-new-tokens", "24", "--seed", "7")
ASKED = "Describe the picture."
SETTINGS = json.loads((LVLM / "config.json").read_text(encoding="utf-8"))["lookback"]


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    path = tmp_path_factory.mktemp("asked") / "scene.png"
    get_benchmark("scenes-caption").items("test", 1)[0].image.save(path)
    return path


def test_a_schedule_is_a_word_or_pairs():
    assert parse_schedule(" half ") == "half"
    assert parse_schedule("16:12") == [(16, 12)]
    assert parse_schedule("16:12, 32 : 6") == [(16, 12), (32, 6)]


@pytest.mark.parametrize("given", ["", "16", "16:12:3", "16:12,", "a:b", "16:-1", "1.5:2", "²:1"])
def test_what_is_no_schedule_is_said_with_one_that_is(given):
    with pytest.raises(ValueError, match=r"--prune .*e\.g\. 16:12,32:6"):
        parse_schedule(given)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prune", "quarter"), "--prune quarter: write half, or"),
        (("--prune", "16:12,8:6"), "tokens must rise"),
        (("--prune", "0:12"), "must be a whole number of at least 1"),
        (("--prune", "half", "--prune-by", "nobody"), "no scorer named 'nobody'"),
        (("--prune", "half", "--prune-by", "vauq"), "cannot judge what is still being written"),
        (("--prune", "half", "--alpha", "-1"), "alpha"),
        (("--search", "--keep", "0"), "keep = 0: must be at least 1"),
        (("--search", "--keep", "30"), "keep = 30"),
        (("--search", "--every", "0"), "every = 0"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(command, picture, arguments, said):
    status, out, err = command("ask", picture, ASKED, *arguments, *NO_MODEL)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err
    assert "there is no folder" not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prune", "half", "--search"), "give either --prune or --search"),
        (("--prune-by", "entropy"), "it goes with --prune or --search"),
    ],
)
def test_options_that_do_not_go_together(command, picture, arguments, said):
    status, _, err = command("ask", picture, ASKED, *arguments, *NO_MODEL)
    assert status == 2
    assert said in " ".join(err.replace("│", " ").split())


def test_survivors_are_those_of_the_whole_draw(command, picture):
    status, out, err = command("ask", picture, ASKED, *FEW, "--prune", "6:3,12:2", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["sampling"]["prune"]["schedule"] == [[6, 3], [12, 2]]
    whole = json.loads(command("ask", picture, ASKED, *FEW, "--json")[1])
    texts = {one["index"]: one for one in whole["candidates"]}
    pruned = [one for one in found["candidates"] if one["finish"] == "pruned"]
    assert pruned
    assert found["candidates"][-len(pruned) :] == pruned  # they rank last, without a score
    for one in found["candidates"]:
        other = texts[one["index"]]
        if one["finish"] == "pruned":
            assert one["score"] is None
            assert one["tokens"] == other["tokens"][: len(one["tokens"])]
        else:
            assert one == other
    drawn = sum(len(one["tokens"]) + (one["finish"] == "end") for one in found["candidates"])
    assert found["sampling"]["tokens_drawn"] == drawn
    _, shown, _ = command("ask", picture, ASKED, *FEW, "--prune", "6:3,12:2")
    assert f"{drawn} tokens drawn, {len(pruned)} of 6 candidates pruned" in shown
    assert shown.count("pruned after") == len(pruned)


def test_the_judge_has_the_settings_of_the_scorer_that_it_is(command, picture):
    def judged(*options):
        _, out, err = command("ask", picture, ASKED, *FEW, "--prune", "6:3", *options, "--json")
        assert err == ""
        rule = json.loads(out)["sampling"]["prune"]
        return rule["scorer"], rule["settings"]

    own = {name: SETTINGS[name] for name in ("alpha", "lam")}
    assert judged("--alpha", "3") == ("lookback", own | {"alpha": 3})
    assert judged("--scorer", "entropy") == ("lookback", own)
    assert judged("--alpha", "3", "--prune-by", "mean_log_prob") == ("mean_log_prob", {})


def test_a_search_shows_what_is_complete_and_keeps_the_tree(command, picture):
    options = (*FEW, "--search", "--keep", "2", "--every", "6")
    status, out, err = command("ask", picture, ASKED, *options, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert any("parent" in one for one in found["candidates"])
    rule = found["sampling"]["search"]
    assert (rule["width"], rule["keep"], rule["every"]) == (6, 2, 6)
    pruned = sum(one["finish"] == "pruned" for one in found["candidates"])
    _, shown, _ = command("ask", picture, ASKED, *options)
    assert "pruned after" not in shown
    assert f"{pruned} of {len(found['candidates'])} candidates pruned" in shown


@pytest.mark.parametrize("rule", [Pruning([(3, 2)]), Search(4, 2, 3)])
def test_an_engine_that_cannot_is_named_with_the_option(rule, picture):
    from PIL import Image
    from toy_engine import ToyEngine

    from lookback.conversations import Conversation

    engine = ToyEngine(frozenset({"sample"}))
    asked = Conversation.of(Image.open(picture), ASKED)
    with pytest.raises(AbilityError, match=f"--{rule.kind}"):
        draw_answers(engine, asked, "", rule, {"n": 4, "source": None}, False)


def test_a_checkpoint_in_words():
    scores = {0: 1.0, 1: 0.5, 2: 0.1, 4: float("nan")}
    pruned = Decision({2: "pruned", 4: "pruned"})
    assert describe_checkpoint(16, scores, pruned) == ("16 tokens: 4 -> 2 left", 2)
    forked = replace(pruned, forks=[0, 0, 1])
    assert describe_checkpoint(16, scores, forked) == ("16 tokens: 4 -> 2 left, forked to 5", 2)
    merged = Decision({3: "merged", 2: "pruned"})  # one that says the same has no score
    assert describe_checkpoint(8, scores, merged) == ("8 tokens: 4 -> 3 left", 3)


def test_a_terminal_sees_them_fall_away(picture):
    """On stderr, and in the end it is gone; the result on stdout is not touched by it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lookback.cli", "ask", str(picture), ASKED, *FEW]
    environment = os.environ | {"COLUMNS": "100", "TERM": "xterm"}
    process = subprocess.Popen(
        [*command, "--prune", "6:3,12:2"], stderr=theirs, stdout=subprocess.PIPE, env=environment
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # Linux says so that the other side is closed
        pass
    out = process.communicate(timeout=HANG_SECONDS)[0].decode()
    assert process.returncode == 0
    assert b"6 tokens: 6 -> " in seen
    assert "->" not in out
    assert b"12 tokens: " in seen
    assert "best by lookback:" in out
