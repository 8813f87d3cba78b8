"""The strip: one small picture per content word, whatever the words are and however many."""

import numpy as np
import pytest
from made_looks import TOKENS, make_look, make_picture, scene
from PIL import Image

from lookback.looks.look import Picture
from lookback.pages.look import save
from lookback.pages.strip import GAP, MARGIN, MOST, SMALL, TILE, font_for, shown_words, strip


def tile(sheet, number, columns, size):
    """One picture of the strip, without what is written below it."""
    row, column = divmod(number, columns)
    full = TILE + 19 + 15 + 16
    x, y = MARGIN + column * (size + GAP), MARGIN + row * (full + GAP)
    return np.asarray(sheet.crop((x, y, x + size, y + size)))


def test_the_picture_comes_first_then_each_content_word_lit_where_it_looked(tmp_path):
    look = make_look()
    words = [word for word in look.words() if word.content]
    assert [word.text for word in words] == ["red", "car", "stands", "tree", "sun", "shines"]
    save(look, tmp_path / "look.png")
    sheet = Image.open(tmp_path / "look.png")
    columns = (sheet.width - 2 * MARGIN + GAP) // (TILE + GAP)
    plain = look.pictures[0].image.resize((TILE, TILE), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(tile(sheet, 0, columns, TILE), np.asarray(plain))
    for number, word in enumerate(words, start=1):
        lit = look.overlay(word.tokens).resize((TILE, TILE), Image.Resampling.NEAREST)
        np.testing.assert_array_equal(tile(sheet, number, columns, TILE), np.asarray(lit))


@pytest.mark.parametrize("count", [1, 2, 7, 12, 13, 30, 60, 61, 200])
def test_any_number_of_words_gives_a_sane_size(count):
    tokens = tuple(f" word{i}" for i in range(count))
    sheet = strip(make_look("".join(tokens), tokens))
    assert max(sheet.size) < 2600
    assert min(sheet.size) > SMALL
    assert 0.25 < sheet.width / sheet.height < 4
    assert len(shown_words(make_look("".join(tokens), tokens))[:MOST]) == min(count, MOST)


@pytest.mark.parametrize(
    "said", [" 猫が寝る", " 🐈‍⬛", " \u202eעברית", " \ud800\x00", " " + "x" * 5000, " ...", "\n"]
)
def test_odd_words_are_drawn_or_left_out_without_an_error(said):
    tokens = (*TOKENS, said)
    assert strip(make_look("".join(tokens), tokens)).width > TILE
    assert strip(make_look(said, (said,))).width > TILE


@pytest.mark.parametrize("size", [(640, 200), (90, 700), (1, 1), (3, 900)])
def test_pictures_of_any_shape_fit(size):
    picture = make_picture(image=Image.new("RGB", size, "teal"))
    sheet = strip(make_look(pictures=[picture]))
    assert max(sheet.size) < 2600


def test_of_several_pictures_a_word_is_shown_on_the_one_it_looked_at_most():
    pictures = [make_picture(), make_picture("image:1", scene(1), first=100)]
    look = make_look(" red car", (" red", " car"), pictures)
    weights = look.weights.copy()
    weights[0, :100] = weights[1, 100:] = 0
    from dataclasses import replace

    sheet = strip(replace(look, weights=weights))
    columns = (sheet.width - 2 * MARGIN + GAP) // (TILE + GAP)
    # First both as they are, in the order in which words are shown on them.
    plain = pictures[1].image.resize((TILE, TILE), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(tile(sheet, 0, columns, TILE), np.asarray(plain))


def test_without_places_there_is_no_strip():
    known = make_picture()
    look = make_look(pictures=[Picture("image:0", known.image, known.columns)])
    with pytest.raises(ValueError, match=r"not known.*\.html"):
        strip(look)


def test_a_font_is_taken_that_has_the_letters():
    assert font_for("plain", 19).getmask("p").getbbox()
    assert font_for("", 19)
    assert font_for("猫🐈", 19)  # there need not be any that has them
