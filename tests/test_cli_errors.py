"""The command's boundary: one line and a status for every error; bugs and plugins are named."""

import json
import os
import subprocess
import sys
import warnings

import pytest
from timeouts import HANG_SECONDS

from lookback.cli.terminal import LONGEST, explain
from lookback.engines import ENGINES
from lookback.registry import PluginError, SettingError, load_plugin
from lookback.scores import base
from lookback.scores.base import SCORERS


@pytest.fixture
def failing(command, monkeypatch):
    """`lookback scorers`, which fails with an error that the test gives."""

    def failing(error):
        def fail():
            raise error

        monkeypatch.setattr(base, "scorers", fail)
        return command("scorers")

    return failing


@pytest.mark.parametrize(
    "error",
    [
        *(ZeroDivisionError("by zero"), KeyError("key"), TypeError("int + str")),
        *(
            AttributeError("none"),
            RuntimeError("two\nlines"),
            AssertionError(),
            RecursionError("x"),
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_nobody_foresaw_is_called_a_bug(failing, error):
    status, out, err = failing(error)
    assert (status, out, err.count("\n")) == (1, "", 1)
    message = " ".join(str(error).split())
    name = type(error).__name__ + (f": {message}" if message else "")
    assert err.startswith(f"lookback: this is a bug: {name}; please report it")
    for part in ("in the project's issue tracker", "LOOKBACK_TRACEBACK=1"):
        assert part in err


@pytest.mark.parametrize(
    "error",
    [
        *(ValueError("n = 0"), OSError("n = 0"), ImportError("n = 0"), SettingError("n = 0")),
        FloatingPointError("n = 0"),  # a model whose numbers are not finite
    ],
)
def test_what_a_user_can_cause_is_said_as_it_is(failing, error):
    assert failing(error) == (1, "", "lookback: n = 0\n")


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), ValueError("n = 0")])
def test_the_environment_asks_for_the_traceback(failing, monkeypatch, error):
    monkeypatch.setenv("LOOKBACK_TRACEBACK", "1")
    status, _, err = failing(error)
    assert status == 1
    assert err.startswith("Traceback (most recent call last):")
    assert "in fail\n" in err
    assert err.splitlines()[-1] == f"lookback: {explain(error)}"
    monkeypatch.setenv("LOOKBACK_TRACEBACK", "0")
    assert failing(error)[2].count("\n") == 1


def test_a_message_is_one_harmless_line(failing):
    status, _, err = failing(ValueError("a\nb\x1b[31m\tc\r\n"))
    assert (status, err) == (1, "lookback: a b\ufffd[31m c\n")
    assert failing(ValueError())[2] == "lookback: ValueError\n"
    err = failing(ValueError("x" * 10_000))[2]
    assert len(err) < LONGEST + 100
    assert err.endswith("x... (10000 characters)\n")


def test_too_little_memory_is_no_bug(failing):
    err = failing(MemoryError("12 GiB"))[2]
    assert err == ("lookback: out of memory: 12 GiB: ask for less at once, or free some memory\n")


def test_an_interruption_is_no_error(failing):
    assert failing(KeyboardInterrupt()) == (130, "", "")


@pytest.mark.parametrize("setting", ["alpha", "nope=1", "alpha=" + "[" * 100_000])
def test_a_setting_that_cannot_be_is_one_line(command, tmp_path, setting):
    status, out, err = command("ask", tmp_path / "gone.png", "what?", "--set", setting)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "this is a bug" not in err
    assert setting.partition("=")[0] in err


def test_a_device_map_nested_without_end_is_no_json(command, tmp_path):
    picture = tmp_path / "p.png"
    from PIL import Image

    Image.new("RGB", (8, 8)).save(picture)
    deep = '{"a":' * 100_000
    status, _, err = command("ask", picture, "what?", "--device-map", deep)
    assert (status, err.count("\n")) == (1, 1)
    assert "not JSON (maximum recursion depth exceeded" in err


@pytest.mark.parametrize("workers", ["0", "-1"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_workers_are_counted_from_one(command, tmp_path, workers, more):
    status, out, err = command(
        *("run", "--benchmark", "scenes-vqa", "--limit", "3", "--out", tmp_path / "run"),
        *("--workers", workers, *more),
    )
    assert (status, out) == (1, "")
    assert err == f"lookback: workers = {workers}: must be at least 1\n"
    assert not (tmp_path / "run").exists()


def test_answers_that_are_no_text_are_named(command, tmp_path):
    picture, answers = tmp_path / "p.png", tmp_path / "answers.txt"
    answers.write_bytes(b"caf\xe9\n")
    status, _, err = command("score", picture, "what?", "--file", answers)
    assert (status, err.count("\n")) == (1, 1)
    assert f"{str(answers)!r} is not UTF-8" in err


PLUGIN = """
import lookback


@lookback.engine("broken")
def broken(model=None, processor=None):
    "An engine that fails."
    return {}["nothing"]


@lookback.engine("refusing")
def refusing(model=None, processor=None):
    "An engine that says why it cannot."
    raise ValueError("no such thing")
"""
ENDINGS = {
    "SystemExit": "raise SystemExit(0)",
    "KeyboardInterrupt": "class Stop(KeyboardInterrupt): pass\nraise Stop('now')",
    "GeneratorExit": "raise GeneratorExit",
    "BaseException": "class Mine(BaseException): pass\nraise Mine('now')",
    "EOFError": "raise EOFError('now')",
    "Exit": "import typer; raise typer.Exit(0)",
    "Abort": "import typer; raise typer.Abort",
}
"""Ways to end a process, or to make a command believe that its user did."""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    for registry in (SCORERS, ENGINES):
        monkeypatch.setattr(registry, "entries", dict(registry.all()))
    monkeypatch.setenv("LOOKBACK_PLUGINS", "")
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    return path


@pytest.mark.parametrize(
    ("engine", "error"),
    [("broken", "KeyError: 'nothing'"), ("refusing", "ValueError: no such thing")],
)
def test_a_plugin_that_fails_later_is_named_too(command, plugin, engine, error):
    status, out, err = command("check", "--engine", engine, "--plugin", plugin)
    assert (status, out) == (1, "")
    assert err == (
        f"lookback: the plugin {plugin} failed: {error} (LOOKBACK_TRACEBACK=1 shows where)\n"
    )


@pytest.mark.parametrize(
    "ending", ["raise SystemExit(0)", "import sys; sys.exit('bye')", "exit(3)"]
)
def test_a_plugin_cannot_end_the_command(command, plugin, ending):
    plugin.write_text(ending + "\n")
    status, out, err = command("scorers", "--plugin", plugin)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"lookback: the plugin {plugin} failed: SystemExit")
    with pytest.raises(PluginError, match="failed: SystemExit"):
        load_plugin(str(plugin))


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_plugin_that_is_imported_cannot_end_the_command(command, plugin, ending):
    plugin.write_text(ending + "\n")
    status, out, err = command("scorers", "--plugin", plugin)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"lookback: the plugin {plugin} failed: ")


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_plugin_that_is_called_cannot_end_the_command(command, plugin, ending):
    lines = "".join(f"    {line}\n" for line in ending.split("\n"))
    engine = "@lookback.engine('mine')\ndef engine(model=None, processor=None):\n"
    plugin.write_text(f"import lookback\n{engine}{lines}")
    status, out, err = command("check", "--engine", "mine", "--plugin", plugin)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"lookback: the plugin {plugin} failed: ")


def test_ctrl_c_in_a_plugin_is_the_users(command, plugin):
    plugin.write_text("raise KeyboardInterrupt\n")
    assert command("scorers", "--plugin", plugin) == (130, "", "")


def test_names_that_no_encoding_has_are_printed_as_json_spells_them(tmp_path):
    """A file's name is bytes, and what it is not UTF-8 for comes as halves of characters."""
    folder = os.fsencode(tmp_path) + b"/odd\xff"
    os.mkdir(folder)
    command = [sys.executable, "-m", "lookback.cli", "benchmarks", "--json", "--data", folder]
    done = subprocess.run(command, capture_output=True, timeout=HANG_SECONDS)
    assert (done.returncode, done.stderr) == (0, b"")
    listed = {one["name"]: one["where"] for one in json.loads(done.stdout)}
    assert "odd" in listed["chair"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("@lookback.engine('mine')\ndef f(): pass", "TypeError: engine 'mine' must take (model,"),
        ("@lookback.engine('mine')\ndef f(model): pass", "TypeError: engine 'mine' must take"),
        ("lookback.engine('mine')(3)", "TypeError: engine 'mine' must take"),
        ("lookback.scorer('mine')(3)", "TypeError: scorer 'mine' is 3: a function or a class"),
        ("@lookback.scorer(3)\ndef f(b): pass", "TypeError: the name of a scorer is 3"),
        ("@lookback.scorer(' ')\ndef f(b): pass", "TypeError: the name of a scorer is ' '"),
    ],
)
def test_what_cannot_be_registered_is_the_plugins_fault(command, plugin, code, said):
    plugin.write_text(f"import lookback\n{code}\n")
    for arguments in (("scorers",), ("check", "--engine", "mine")):
        status, out, err = command(*arguments, "--plugin", plugin)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"lookback: the plugin {plugin} failed: {said}")


def test_an_engine_that_is_none(command, plugin):
    plugin.write_text("import lookback\n@lookback.engine('mine')\ndef f(m, p): return {}\n")
    status, out, err = command("check", "--engine", "mine", "--plugin", plugin)
    assert (status, out) == (1, "")
    assert err == "lookback: engine 'mine' gave {}: an Engine is needed\n"


def test_a_note_is_one_line_whatever_it_quotes(command, tmp_path):
    data, responses = tmp_path / "own.jsonl", tmp_path / "responses.jsonl"
    lines = [{"id": name, "question": "Is it?", "answers": "yes"} for name in ("1", "a\nb\u2028c")]
    data.write_text("\n".join(map(json.dumps, lines)))
    responses.write_text(json.dumps({"id": 1, "response": "yes"}))
    status, _, err = command("evaluate", "own", "--data", data, "--responses", responses)
    assert (status, err) == (
        0,
        "lookback: missing ids: 1 of 2 items have no response (a b c)\n",
    )


def test_a_warning_is_a_note(command, monkeypatch):
    def warn():
        warnings.warn("two\nlines", stacklevel=1)
        return {}

    monkeypatch.setattr(base, "scorers", warn)
    warnings.simplefilter("always")
    assert command("scorers", "--json") == (0, "[]\n", "lookback: warning: two lines\n")
