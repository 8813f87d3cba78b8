"""`lookback look` as a shell sees it: what it prints, what it writes, what it refuses first."""

import io
import json

import numpy as np
import pytest
from made_looks import TOKENS, make_look, make_picture, scene
from PIL import Image
from rich.cells import cell_len
from rich.console import Console
from strict_html import Page
from toy_engine import ToyEngine

from lookback.cli.look import find_rows, look_dict, parse_layers, show_look
from lookback.engines import ENGINES, EngineKind
from lookback.looks.heat_map import find_place
from lookback.looks.look import Picture

TOY = ("--engine", "toy")  # registered by the import
NO_MODEL = ("--model", "/no/such/model")
"""Loaded, it would fail in other words."""


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "picture.png"
    scene().save(path)
    return path


def printed(look, width, relative=False, **settings):
    out = io.StringIO()
    shown = Console(file=out, width=width, height=40, **settings)
    show_look(shown, look, relative, "the response")
    return out.getvalue()


def test_a_given_answer_is_looked_at_and_written(command, picture, tmp_path):
    page = tmp_path / "look.html"
    code, out, err = command("look", picture, "what?", "red dog", *TOY, "--out", page)
    assert (code, err.split()) == (0, [str(page)])
    look = ToyEngine().look(scene(), "what?", "red dog")
    assert out.startswith("the response:\nred dog\n")
    for row in find_rows(look, False):
        assert f"{row.word.text} {row.a:.2f} {row.place.part}," in " ".join(out.split())
    assert "what?" in Page(page.read_text()).order
    code, _, _ = command("look", picture, "what?", "red dog", *TOY, "-o", tmp_path / "look.PNG")
    assert code == 0
    assert Image.open(tmp_path / "look.PNG").width > 600


def test_without_an_answer_the_best_by_lookback_is_taken_and_it_says_so(command, picture):
    settings = ("-n", "6", "--seed", "3")
    code, out, _ = command("look", picture, "what?", *TOY, *settings)
    best = ToyEngine().sample(scene(), "what?", 6, seed=3).best("lookback")
    assert (code, out.splitlines()[:2]) == (0, ["the best of 6 by lookback:", best.text])
    _, out, _ = command("look", picture, "what?", *TOY, *settings, "--json")
    data = json.loads(out)
    assert (data["best_of"], data["scorer"], data["text"]) == (6, "lookback", best.text)
    np.testing.assert_allclose(data["visual_lookback"], best.visual_lookback, rtol=1e-5)


def test_json_has_all_weights_and_where_each_word_looked(command, picture):
    settings = ("--layers", "1-3", "--relative", "prompt", "--against", "who?")
    code, out, _ = command("look", picture, "what?", "red dog", *TOY, *settings, "--json")
    assert code == 0
    data = json.loads(out)
    look = ToyEngine().look(scene(), "what?", "red dog", layers=(1, 3), relative_to="who?")
    np.testing.assert_allclose(data["weights"], look.weights, rtol=1e-6)
    np.testing.assert_allclose(data["baseline"], look.baseline, rtol=1e-6)
    assert (data["question"], data["layers"], data["relative"]) == ("what?", [1, 3], "prompt")
    assert [one["text"] for one in data["words"]] == ["red", "dog"]
    assert data["words"] == look_dict(look, "prompt")["words"]


def test_the_answer_comes_from_stdin(command, picture, monkeypatch):
    given = io.TextIOWrapper(io.BytesIO(b"red dog\n"))
    monkeypatch.setattr("sys.stdin", given)
    code, out, _ = command("look", picture, "what?", "-", *TOY)
    assert (code, out.splitlines()[1]) == (0, "red dog")
    code, _, err = command("look", "-", "what?", "-", *TOY)
    assert code == 1
    assert "IMAGE and RESPONSE are both -" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "look.jpg"), ".html (a page) or .png (a strip)"),
        (("--out", "no/such/folder/look.png"), "no folder 'no/such/folder'"),
        (("--layers", "8-4"), "--layers 8-4: write the first"),
        (("--layers", "all"), "--layers all"),
        (("--relative", "yes"), "must be one of tokens, prompt"),
        (("-n", "0"), "n = 0"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(command, picture, arguments, said):
    code, out, err = command("look", picture, "what?", "red", *NO_MODEL, *arguments)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert said in err


def test_images_and_answers_that_are_none_are_refused_first(command, picture, tmp_path):
    for given, said in (
        (("missing.png", "what?", "red"), "missing.png"),
        ((picture, " ", "red"), "the question is empty"),
        ((picture, "what?", " "), "the response is empty"),
    ):
        code, _, err = command("look", *given, *NO_MODEL)
        assert code == 1
        assert said in err
    code, _, err = command("look", picture, "what?", "red", *NO_MODEL, "--out", tmp_path / "x.svg")
    assert (code, "x.svg" in err) == (1, True)


def test_an_engine_that_cannot_look_is_named(command, picture, monkeypatch):
    blind = ToyEngine(frozenset({"score"}))
    kind = EngineKind("blind", lambda model=None, processor=None: blind, "cannot look")
    monkeypatch.setitem(ENGINES.entries, "blind", kind)
    code, _, err = command("look", picture, "what?", "red", "--engine", "blind")
    assert code == 1
    assert "lookback look needs an engine that can tell where a response looked" in err


def test_layers_are_a_first_and_an_end():
    assert parse_layers(None) is None
    assert parse_layers("4-8") == (4, 8)
    assert parse_layers(" 5 ") == (5, 6)
    for wrong in ("", "-", "5-", "-5", "5-5", "1,2", "4 8", "9" * 30):
        with pytest.raises(ValueError, match="--layers"):
            parse_layers(wrong)


@pytest.mark.parametrize("width", [40, 60, 120])
def test_every_word_shows_at_every_width_with_its_numbers(width):
    tokens = (*TOKENS, " " + "unbroken" * 20, " 猫", "\x1b[31m", " \ud800")
    look = make_look("".join(tokens), tokens)
    out = printed(look, width)
    assert max(cell_len(line) for line in out.splitlines()) <= width
    assert "\x1b" not in out
    for word in look.words():
        if word.content and len(word.text) < 12:
            row = look.weights[word.tokens].mean(0, dtype=float)
            place = find_place(row, look.pictures[0].boxes)
            line = next(one for one in out.splitlines() if one.startswith(f"{word.text} "))
            assert f"{row.sum():.2f}" in line
            assert f"{place.part}, {100 * place.share:.0f} %" in " ".join(out.split())


def test_relative_tells_where_it_is_more_than_usual():
    look = make_look()
    # All look at the first place; one word besides at the last, less than at the first.
    weights = np.full(look.weights.shape, 1e-4, np.float32)
    weights[:, 0] = 0.2
    weights[7, 99] = 0.1
    from dataclasses import replace

    look = replace(look, weights=weights)
    tree = {row.word.text: row for row in find_rows(look, False)}["tree"]
    assert tree.place.part == "top left"
    tree = {row.word.text: row for row in find_rows(look, "tokens")}["tree"]
    assert tree.place.part == "bottom right"
    assert tree.place.share > 0.95


def test_pictures_are_drawn_where_there_are_colours():
    look = make_look()
    colours = {"force_terminal": True, "color_system": "truecolor", "legacy_windows": False}
    assert "▀" not in printed(look, 100)
    assert "▀" not in printed(look, 100, force_terminal=True, color_system=None)
    for width in (60, 120):
        out = printed(look, width, **colours)
        assert out.count("▀") > 700
    flat = make_look(pictures=[Picture("image:0", scene(), make_picture().columns)])
    out = printed(flat, 100, **colours)
    assert "▀" not in out
    assert "Where is not known" in " ".join(out.split())


def test_of_several_pictures_the_one_is_named_that_was_looked_at_most():
    pictures = [make_picture(), make_picture("image:1", scene(1), first=100)]
    look = make_look(pictures=pictures)
    lines = printed(look, 100).splitlines()
    for row in find_rows(look, False):
        on = [look.weights[row.word.tokens][:, one.columns].sum() for one in pictures]
        line = next(one for one in lines if one.startswith(f"{row.word.text} "))
        assert f"image:{int(np.argmax(on))}: " in line


def test_the_embedded_model_says_that_it_does_not_know_photographs(command, tmp_path):
    from skimage import data

    Image.fromarray(data.astronaut()).save(tmp_path / "photo.png")
    code, out, err = command("look", tmp_path / "photo.png", "What is this?", "A woman.")
    assert code == 0
    assert "the embedded model knows drawn scenes only" in err
    assert out.startswith("the response:\nA woman.\n")
