"""The command as a shell sees it: output, messages and exit status."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from engines.reference import noise
from timeouts import HANG_SECONDS
from zoo import build

import lookback
from lookback.cli import terminal
from lookback.cli.app import plugins_first
from lookback.cli.studies import show_study
from lookback.cli.terminal import printable
from lookback.engines import ENGINES
from lookback.scores.base import SCORERS
from lookback.studies import Result
from lookback.studies.common.tables import Table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and a picture on disk."""
    folder = tmp_path_factory.mktemp("model")
    zoo = build("llava")
    zoo.model.save_pretrained(folder)
    zoo.processor.save_pretrained(folder)
    noise().save(folder / "picture.png")
    return folder


@pytest.fixture
def run(command):
    return command


ASK = ("what is it?", "-n", "4", "--max-new-tokens", "6", "--seed", "7")


def test_ask_prints_the_ranking_and_the_best_answer(run, folder):
    code, out, _ = run("ask", str(folder / "picture.png"), *ASK, "--model", str(folder))
    assert code == 0
    cands = lookback.load(folder).sample(
        folder / "picture.png", "what is it?", 4, max_new_tokens=6, seed=7
    )
    ranked = cands.rank("lookback")
    assert out.startswith(f"best by lookback:\n{printable(ranked[0].text.strip())}\n\n")
    rows = re.findall(r"^ *(\d+) +(\S+) +\S+ +\S+ +\d+  ", out, re.MULTILINE)
    assert [int(rank) for rank, _ in rows] == [1, 2, 3, 4]
    assert [float(score) for _, score in rows] == pytest.approx([c.score for c in ranked], abs=1e-3)


def test_json_is_json_and_complete(run, folder):
    picture = str(folder / "picture.png")
    code, out, _ = run("ask", picture, *ASK, "--model", str(folder), "--json", "--alpha", "0.5")
    assert code == 0
    data = json.loads(out)
    assert data["scorer"] == "lookback"
    assert data["sampling"]["seed"] == 7
    scores = [c["score"] for c in data["candidates"]]
    assert scores == sorted(scores, reverse=True)
    best = data["candidates"][0]
    assert scores[0] == pytest.approx(
        lookback.lookback_score(best["log_prob"], best["visual_lookback"], alpha=0.5, lam=1.5),
        abs=1e-6,
    )


def test_score_ranks_given_answers(run, folder, tmp_path):
    answers = tmp_path / "answers.txt"
    answers.write_text("a red circle\n\nthe cat\n", encoding="utf-8")
    picture = str(folder / "picture.png")
    code, out, _ = run(
        "score", picture, "what?", "a dog", "--file", str(answers), "--model", str(folder), "--json"
    )
    assert code == 0
    texts = {c["text"] for c in json.loads(out)["candidates"]}
    assert texts == {"a dog", "a red circle", "the cat"}


def test_scorers_are_listed(run):
    code, out, _ = run("scorers", "--json")
    assert code == 0
    listed = {s.pop("name"): s for s in json.loads(out)}
    about = listed["lookback"].pop("about")
    assert "LookBack" in about
    assert listed["lookback"] == {
        "title": "LookBack",
        "needs": "signals",
        "uses": [],
        "joint": False,
        "lower_is_better": False,
        "settings": ["alpha", "lam"],
    }
    assert listed["usc"]["needs"] == "model"
    assert listed["usc"]["joint"]
    assert listed["entropy"]["lower_is_better"]
    code, out, _ = run("scorers")
    assert code == 0
    assert all(name in out for name in listed)


def test_settings_and_scorers_of_ones_own(run, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))
    monkeypatch.setenv("LOOKBACK_PLUGINS", "")
    plugin = tmp_path / "cli_plugin.py"
    plugin.write_text(
        "import lookback\n\n\n"
        "@lookback.scorer('times')\n"
        "def times(batch, factor=1.0):\n"
        "    'Tokens times a factor.'\n"
        "    return factor * batch.lengths\n"
    )
    arguments = ("score", str(folder / "picture.png"), "what?", "a dog", "a", "--json")
    arguments += ("--model", str(folder), "--scorer", "times", "--set", "factor=2.5")
    code, out, err = run("--plugin", str(plugin), *arguments)
    assert code == 0, err
    for one in json.loads(out)["candidates"]:
        assert one["score"] == 2.5 * len(one["token_ids"])
    assert os.environ["LOOKBACK_PLUGINS"] == str(plugin)  # processes it starts know it, too


PLUGIN = """
import lookback


@lookback.scorer("tokens")
def tokens(batch):
    "How many tokens."
    return batch.lengths


@lookback.engine("nowhere")
def nowhere(model=None, processor=None):
    "An engine that is not there."
    raise ValueError("nowhere")
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    for registry in (SCORERS, ENGINES):
        monkeypatch.setattr(registry, "entries", dict(registry.all()))
    monkeypatch.setenv("LOOKBACK_PLUGINS", "")
    path = tmp_path / "plugin.py"
    path.write_text(PLUGIN)
    return str(path)


@pytest.mark.parametrize("place", range(3))
def test_a_plugin_is_named_anywhere_on_the_line(run, plugin, place):
    given = ("--plugin", plugin)
    line = [(*given, "scorers", "--json"), ("scorers", *given, "--json"), ("scorers", "--json")]
    line[2] += (f"--plugin={plugin}",)
    code, out, err = run(*line[place])
    assert code == 0, err
    assert "tokens" in {s["name"] for s in json.loads(out)}


def test_a_plugin_brings_engines_too(run, plugin):
    code, out, err = run("engines", "--json", "--plugin", plugin)
    assert code == 0, err
    listed = {e["name"]: e["about"] for e in json.loads(out)}
    assert next(iter(listed)) == "transformers"
    assert listed["nowhere"] == "An engine that is not there."
    code, out, _ = run("engines")
    assert code == 0
    assert "Models of the transformers library" in out


def test_what_follows_two_dashes_is_no_option():
    args = ["score", "--plugin", "a.py", "x.png", "--", "--plugin", "b.py"]
    expected = ["--plugin", "a.py", "score", "x.png", "--", "--plugin", "b.py"]
    assert plugins_first(args) == expected
    assert plugins_first(["score", "x.png"]) == ["score", "x.png"]


def test_a_plugin_that_fails_is_one_line_and_status_one(run, plugin, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('two\\nlines')\n")
    code, out, err = run("scorers", "--plugin", plugin, "--plugin", str(broken))
    assert (code, out) == (1, "")
    assert err == f"lookback: the plugin {broken} failed: RuntimeError: two lines\n"
    code, out, err = run("scorers", "--plugin", str(tmp_path / "gone.py"))
    assert (code, out) == (1, "")
    assert "there is no such file" in err
    assert run("scorers", "--plugin")[0] == 2


def test_the_version(run):
    assert run("--version") == (0, f"lookback {lookback.__version__}\n", "")


def test_a_shell_can_complete_commands():
    env = os.environ | {"_LOOKBACK_COMPLETE": "complete_bash"}
    env |= {"COMP_WORDS": "lookback eng", "COMP_CWORD": "1"}
    code = "from lookback.cli import app; app(prog_name='lookback')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.stdout.split() == ["engines"], done.stderr


def test_scorers_that_ask_the_model_work_here_too(run, folder):
    arguments = ("score", str(folder / "picture.png"), "what?", "a dog", "a cat", "--json")
    model = ("--model", str(folder))
    code, out, err = run(*arguments, *model, "--scorer", "usc", "--set", "max_new_tokens=2")
    assert code == 0, err
    assert sum(c["score"] for c in json.loads(out)["candidates"]) == pytest.approx(1)
    settings = ("--set", "layers=[0, 2]", "--set", "k=0.5")
    code, out, err = run(*arguments, *model, "--scorer", "vauq", *settings)
    assert code == 0, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ask", "gone.png", "what?"), "no image file 'gone.png'"),
        (("ask", "{picture}", "what?", "--scorer", "nope"), "no scorer named 'nope'"),
        (("ask", "{picture}", "what?", "--temperature", "-1"), "temperature = -1"),
        (("ask", "{picture}", "what?", "--set", "beta=1"), "has no setting 'beta'"),
        (("ask", "{picture}", "what?", "--set", "alpha"), "write NAME=VALUE"),
        (("score", "{picture}", "what?"), "no answers given"),
        (("score", "{picture}", "what?", ""), "is empty"),
    ],
)
def test_failures_are_one_line_and_status_one(run, folder, arguments, message):
    arguments = [a.format(picture=folder / "picture.png") for a in arguments]
    code, out, err = run(*arguments, "--model", str(folder))
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_wrong_usage_is_status_two(run):
    assert run("ask")[0] == 2


def test_a_model_cannot_command_the_terminal():
    assert printable("a\x1b[31mb\nc") == "a\ufffd[31mb\nc"


def test_help_and_import_load_neither_torch_nor_transformers():
    for command in ("import lookback", "from lookback.cli import app; app(['--help'])"):
        code = f"import sys\ntry:\n {command}\nexcept SystemExit: pass\n"
        code += (
            "heavy = {'torch', 'transformers', 'pandas', 'pyarrow', 'jinja2'} & set(sys.modules)\n"
        )
        code += "assert not heavy, heavy"
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, timeout=HANG_SECONDS
        )


def test_without_a_terminal_progress_is_a_line_now_and_then(monkeypatch, capsys):
    now = 1000.0
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now))
    update = terminal.progress_lines("studies", "studies")
    for done, seconds in enumerate((0, 5, 6, 8, 1)):
        now += seconds
        update(done, 8)
    assert capsys.readouterr() == ("", "studies: 2/8, 0.18 studies/s, 33 s left\n")


@pytest.mark.parametrize("width", [str(width) for width in range(40, 180, 10)])
def test_no_number_of_a_study_is_cut_in_a_narrow_terminal(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", width)
    header = [("", "Benchmark"), *(("Top-1 agreement", f"scorer {i}") for i in range(9))]
    rows = [["Benchmarks, N=25", *(f"{i}.123 [-10.{i}, +10.{i}]"[: 5 + 20 * i] for i in range(9))]]
    result = Result([], [Table(header, rows, "Some numbers.")], None, [])
    show_study("some", result, [])
    printed = capsys.readouterr().out
    assert "\u2026" not in printed
    assert set(re.findall(r"\S+", " ".join(rows[0]))) <= set(printed.split())
