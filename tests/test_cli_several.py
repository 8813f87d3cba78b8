"""`lookback ask` about several images, and with a file of questions, in one start."""

import io
import json
import re

import pytest
from PIL import Image

import lookback.engines
from lookback.cli.inputs import find_images

FEW = ("-n", "2", "--max-new-tokens", "4", "--seed", "7")
NO_MODEL = ("--model", "/no/such/model")


@pytest.fixture
def folder(tmp_path):
    for name, color in (("a.png", "red"), ("b.png", "blue"), ("c.JPG", "green")):
        Image.new("RGB", (80, 80), color).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    return tmp_path


@pytest.fixture
def loads(monkeypatch):
    """How often a model was loaded."""
    found, load = [], lookback.engines.load

    def counting(*arguments, **settings):
        found.append(arguments)
        return load(*arguments, **settings)

    monkeypatch.setattr("lookback.engines.load", counting)
    return found


def lines(*entries):
    return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in entries)


def test_questions_of_a_file_are_what_each_alone_would_be(command, folder, loads):
    file = folder / "q.jsonl"
    asked = [("a.png", "What is it?", "first"), ("b.png", "Describe the picture.", None)]
    file.write_text(
        lines(*({"image": i, "question": q, **({"id": d} if d else {})} for i, q, d in asked))
    )
    status, out, err = command("ask", "--questions", file, *FEW, "--json")
    assert status == 0, err
    assert len(loads) == 1
    found = [json.loads(line) for line in out.splitlines()]
    assert [one.pop("id") for one in found] == ["first", "2"]
    for (image, question, _), one in zip(asked, found, strict=True):
        _, alone, _ = command("ask", folder / image, question, *FEW, "--json")
        assert json.loads(alone) == one
    status, out, _ = command("ask", "--questions", file, *FEW)
    assert status == 0
    assert re.findall(r"^\[(./2)\] (\S+): (.*)$", out, re.MULTILINE) == [
        ("1/2", "first", "What is it?"),
        ("2/2", "2", "Describe the picture."),
    ]
    assert out.count("best by lookback:") == 2


def test_questions_from_stdin_find_images_from_here(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    data = lines({"image": "a.png", "question": "What?"}).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    status, out, err = command("ask", "--questions", "-", *FEW, "--json")
    assert status == 0, err
    assert json.loads(out)["id"] == "1"


def test_a_line_that_fails_is_named_and_the_others_go_on(command, folder, loads):
    file = folder / "q.jsonl"
    file.write_text(
        lines(
            {"image": "gone.png", "question": "What?"},
            "no json",
            {"image": "notes.txt", "question": "What?", "id": "text"},
            {"image": "a.png"},
            {"image": "../elsewhere.png", "question": "What?"},
            {"image": "a.png", "question": "What?", "id": "good"},
        )
    )
    status, out, err = command("ask", "--questions", file, *FEW, "--json")
    assert status == 3
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["good"]
    for said in (
        "left out: line 2: not JSON",
        "left out: line 4: no question",
        "left out: line 5: ",
        "failed: line 1: no image file",
        "failed: line 3 (id text): ",
    ):
        assert f"lookback: {said}" in err
    assert len(loads) == 1


def test_no_model_is_loaded_if_nothing_can_be_asked(command, folder, loads):
    file = folder / "q.jsonl"
    file.write_text(lines({"image": "gone.png", "question": "What?"}))
    assert command("ask", "--questions", file, *NO_MODEL)[:2] == (3, "")
    file.write_text("no json")
    status, _, err = command("ask", "--questions", file, *NO_MODEL)
    assert (status, err.count("\n")) == (1, 1)
    assert "can be used: line 1: not JSON" in err
    status, _, err = command("ask", "--questions", folder / "gone.jsonl", *NO_MODEL)
    assert status == 1
    assert "does not exist" in err
    assert loads == []


def test_a_model_that_is_not_there_is_said_once(command, folder):
    status, out, err = command("ask", folder, "What?", *NO_MODEL)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "there is no folder /no/such/model" in err


def test_several_images_a_folder_or_a_pattern(command, folder, loads):
    names = [str(folder / name) for name in ("a.png", "b.png", "c.JPG")]
    assert find_images(str(folder)) == names
    assert find_images(str(folder / "*.png")) == names[:2]
    assert find_images(names[0]) == names[:1]
    for given in (names[:2], [str(folder / "*.png")]):
        status, out, err = command("ask", *given, "What?", *FEW, "--json")
        assert status == 0, err
        assert [json.loads(line)["id"] for line in out.splitlines()] == names[:2]
    assert len(loads) == 2
    status, out, _ = command("ask", *names[:2], str(folder / "gone.png"), "What?", *FEW, "--json")
    assert (status, len(out.splitlines())) == (3, 2)


def test_names_with_signs_of_patterns_are_files_first(folder):
    odd = folder / "photo[1].png"
    Image.new("RGB", (8, 8)).save(odd)
    assert find_images(str(odd)) == [str(odd)]


def test_nothing_there_is_an_error(command, folder):
    (folder / "empty").mkdir()
    for given, said in (("empty", "no image in the folder"), ("*.gif", "nor a pattern of any")):
        status, _, err = command("ask", folder / given, "What?", *NO_MODEL)
        assert (status, err.count("\n")) == (1, 1)
        assert said in err


@pytest.mark.parametrize(
    "arguments",
    [("a.png",), (), ("a.png", "What?", "--questions", "q"), ("--questions", "q", "-i", "a.png")],
)
def test_wrong_usage_is_status_two(command, arguments):
    assert command("ask", *arguments)[0] == 2


def test_a_forgotten_question_is_not_the_last_image(command, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, err = command("ask", folder / "a.png", folder / "b.png", *NO_MODEL)
    assert (status, out) == (2, "")
    assert "missing QUESTION: the last argument is the file" in err
    assert "b.png" in err
