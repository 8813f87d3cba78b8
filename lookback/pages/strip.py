"""A look as one picture: a strip of overlays, one per content word, with letters below them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lookback.looks.words import Word
from lookback.pages import clean

if TYPE_CHECKING:
    from lookback.looks.look import Look, Relative


NAMES = (
    *("DejaVuSans.ttf", "Arial.ttf", "arial.ttf", "Helvetica.ttc", "NotoSans-Regular.ttf"),
    *("NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "msyh.ttc", "PingFang.ttc"),
    *("Arial Unicode.ttf", "unifont.otf", "wqy-microhei.ttc", "NotoSansArabic-Regular.ttf"),
    *("NotoSansDevanagari-Regular.ttf", "NotoSansHebrew-Regular.ttf", "NotoEmoji-Regular.ttf"),
)
"""Where systems have them; Pillow finds their folders, and has one of its own for Latin letters."""
NOBODY = "\U000f1234"  # for private use: a font has no sign for it


def font_for(text: str, size: int) -> Any:
    """Return a font that has all characters of a text, or else the first of this machine."""
    known = fonts(size)
    needed = {character for character in text if not character.isspace()}
    return next((font for font in known if all(has(font, one) for one in needed)), known[0])


@cache
def fonts(size: int) -> tuple[Any, ...]:
    """Return the fonts that this machine has."""
    known = []
    for name in NAMES:
        with suppress(OSError):
            known.append(ImageFont.truetype(name, size))
    return (*known, ImageFont.load_default(size))


@cache
def has(font: Any, character: str) -> bool:
    """Whether a font draws another sign than for characters that it has not."""
    return bool(bytes(font.getmask(character)) != bytes(font.getmask(NOBODY)))


MOST = 60
"""Words that are shown; how many more there are is said below them."""
TILE, SMALL = 280, 200
"""Pixels of a tile's longer side, for few and for many words."""
FEW = 12
PLAIN = 4
"""Pictures that are shown as they are, before the words, at most."""
GAP, MARGIN = 16, 24
LETTERS, NUMBERS = 19, 15
PAPER, INK, MUTED = "#fbfaf7", "#22252a", "#6a6f78"


def strip(look: Look, relative: Relative = False) -> Image.Image:
    """Draw the picture as it is, then one for each content word of the response, in rows.

    Where there are several pictures, a word is shown on the one that it looked at most.

    Args:
        look: what to show.
        relative: as for `Look.heatmap`.

    Raises:
        ValueError: no picture has a known layout, so that there is no map.
    """
    placed = [i for i, one in enumerate(look.pictures) if one.boxes is not None]
    if not placed:
        raise ValueError(
            "the layout of this model's vision tokens is not known: there is no map to draw; "
            "write .html for what is known"
        )
    look, words = shrink(look, TILE), shown_words(look)
    several = len(placed) > 1
    plain, lit = {}, []
    for word in words[:MOST]:
        on = [float(look.weights[word.tokens][:, look.pictures[i].columns].sum()) for i in placed]
        best = placed[int(np.argmax(on))]
        name = look.pictures[best].name if several else "the picture"
        plain[name] = _tile(look, look.pictures[best].image, name, "", len(words))
        a = float(look.weights[word.tokens].sum(1, dtype=np.float64).mean())
        note = f"A {a:.2f}" + (f", {name}" if several else "")
        overlay = look.overlay(word.tokens, picture=best, relative=relative)
        lit.append(_tile(look, overlay, word.text, note, len(words)))
    left = len(words) - MOST
    more = f"and {left} more words" if left > 0 else ""
    return _sheet([*list(plain.values())[:PLAIN], *lit], more)


def shrink(look: Look, largest: int) -> Look:
    """Return the same look with smaller pictures: maps are as large as they."""
    small = []
    for picture in look.pictures:
        image = picture.image.convert("RGB")
        image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
        small.append(replace(picture, image=image))
    return replace(look, pictures=tuple(small))


def shown_words(look: Look) -> list[Word]:
    """Return its content words; all words if there are none; all of it if it has no words."""
    words = look.words()
    whole = Word(look.text.strip() or "(blank)", slice(0, len(look.tokens)), True)
    return [word for word in words if word.content] or words or [whole]


def _tile(look: Look, image: Image.Image, title: str, note: str, count: int) -> Image.Image:
    """One small picture, as large as every other of the strip, and what it shows."""
    side = TILE if count <= FEW else SMALL
    sizes = [one.image.size for one in look.pictures]
    width = max(round(side * w / max(w, h)) for w, h in sizes)
    height = max(round(side * h / max(w, h)) for w, h in sizes)
    width = max(width, side // 2)  # room for words below a narrow picture
    share = min(width / image.width, height / image.height)
    size = max(1, round(image.width * share)), max(1, round(image.height * share))
    small = share < 1
    drawn = image.convert("RGB").resize(
        size, Image.Resampling.LANCZOS if small else Image.Resampling.NEAREST
    )
    tile = Image.new("RGB", (width, height + LETTERS + NUMBERS + 16), PAPER)
    tile.paste(drawn, ((width - size[0]) // 2, height - size[1]))
    pen = ImageDraw.Draw(tile)
    _write(pen, (0, height + 5), title, LETTERS, INK, width)
    _write(pen, (0, height + LETTERS + 11), note, NUMBERS, MUTED, width)
    return tile


def _write(
    pen: ImageDraw.ImageDraw, at: tuple[int, int], text: str, size: int, ink: str, width: int
) -> None:
    """A line of text; one that is too long ends in dots."""
    line = " ".join(clean(text).split())[:200]
    font: Any = font_for(line, size)
    shown = line
    while shown and pen.textlength(shown + ("…" if shown != line else ""), font) > width:
        shown = shown[:-1]
    pen.text(at, shown + ("…" if shown != line else ""), ink, font)


def _sheet(tiles: Sequence[Image.Image], note: str) -> Image.Image:
    """Tiles in rows, of about the shape of a screen."""
    width, height = tiles[0].size
    wanted = math.sqrt(1.6 * len(tiles) * height / width)
    columns = min(len(tiles), max(3, round(wanted)))
    rows = -(-len(tiles) // columns)
    size = (
        2 * MARGIN + columns * (width + GAP) - GAP,
        2 * MARGIN + rows * (height + GAP) - GAP + (NUMBERS + GAP if note else 0),
    )
    sheet = Image.new("RGB", size, PAPER)
    for i, tile in enumerate(tiles):
        row, column = divmod(i, columns)
        sheet.paste(tile, (MARGIN + column * (width + GAP), MARGIN + row * (height + GAP)))
    if note:
        pen = ImageDraw.Draw(sheet)
        _write(pen, (MARGIN, size[1] - MARGIN - NUMBERS), note, NUMBERS, MUTED, size[0])
    return sheet
