"""A look in a terminal of any width: the answer, two pictures of it, and where each word looked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lookback.cli.ranking import plain_text, shaded_text
from lookback.cli.terminal import printable
from lookback.looks.heat_map import Place, find_place

if TYPE_CHECKING:
    from rich.console import Console

    from lookback.looks.look import Look, Picture, Relative
    from lookback.looks.words import Word

SHOWN = 60
"""Words of the table."""
DRAWN = 2
"""Words that are drawn, those with the highest A."""
LARGEST = 256
"""Pixels of a picture that is drawn in a terminal: more cannot be seen there."""
LINES = 12
"""Of the terminal, left for the text."""


class Row(NamedTuple):
    """A word, its A, the picture it looked at most, and where in it; None if that is not known."""

    word: Word
    a: float
    picture: int | None
    place: Place | None


def find_rows(look: Look, relative: Relative) -> list[Row]:
    """A row per content word; per word if there are none of those."""
    from lookback.pages.strip import shown_words

    return [_row(look, word, relative) for word in shown_words(look)]


def _row(look: Look, word: Word, relative: Relative) -> Row:
    weights = look.row(word.tokens)
    a = float(weights.sum())
    if not look.pictures:
        return Row(word, a, None, None)
    on = [float(weights[one.columns].sum()) for one in look.pictures]
    best = int(np.argmax(on))
    return Row(word, a, best, _place(look, look.pictures[best], word, relative))


def _place(look: Look, picture: Picture, word: Word, relative: Relative) -> Place | None:
    """Where it looked most; of what is relative, where the most lies that is above the usual."""
    if picture.boxes is None:
        return None
    values = look.row(word.tokens, relative)[picture.columns]
    if relative:
        left, top, right, bottom = np.nan_to_num(picture.boxes.astype(float)).T
        values = np.clip(values - 1, 0, None) * (right - left) * (bottom - top)
    return find_place(values, picture.boxes)


def look_dict(look: Look, relative: Relative) -> dict[str, Any]:
    """All of it, ready for JSON: with A of each token and where each word looked."""
    rows = [
        {
            "text": row.word.text,
            "tokens": [row.word.tokens.start, row.word.tokens.stop],
            "visual_lookback": row.a,
            "picture": None if row.picture is None else look.pictures[row.picture].name,
            "part": row.place and row.place.part,
            "share": row.place and row.place.share,
        }
        for row in find_rows(look, relative)
    ]
    a = look.weights.sum(1, dtype=np.float64).tolist()
    return look.to_dict() | {"visual_lookback": a, "relative": relative or None, "words": rows}


def show_look(out: Console, look: Look, relative: Relative, title: str) -> None:
    """Everything there is to see.

    Args:
        out: where to.
        look: what to show.
        relative: as for `Look.heatmap`.
        title: what the answer is.
    """
    colours = out.color_system == "truecolor"
    by = ", shaded by A" if colours else ""
    out.print(f"{title}{by}:", style="bold", highlight=False, markup=False)
    a = look.weights.sum(1, dtype=np.float64)
    out.print(shaded_text(look.tokens, a) if colours else plain_text(look.text.strip()))
    out.print()
    rows = find_rows(look, relative)
    _draw(out, look, rows, relative)
    _print_rows(out, look, rows[:SHOWN])
    left = len(rows) - SHOWN
    if left > 0:
        out.print(f"and {left} more words", style="dim", highlight=False)
    out.print()
    out.print(_legend(look, rows, relative), style="dim", highlight=False, markup=False)


def _draw(out: Console, look: Look, rows: list[Row], relative: Relative) -> None:
    """The words with the highest A on the picture, where the terminal has the colours."""
    from rich.table import Table
    from rich.text import Text

    from lookback.cli.halfblocks import can_draw, draw
    from lookback.pages.strip import shrink

    placed = sorted((row for row in rows if row.place), key=lambda row: row.a)
    distinct = {row.word.text.casefold(): row for row in placed}  # the highest of each
    best = sorted(distinct.values(), key=lambda row: -row.a)[:DRAWN]
    if not best or not can_draw(out):
        return
    width = (out.width - 3 * (len(best) - 1)) // len(best)
    small = shrink(look, LARGEST)
    grid = Table.grid(padding=(0, 3))
    pictures = []
    for row in best:
        assert row.picture is not None
        lit = small.overlay(row.word.tokens, row.picture, relative)
        pictures.append(draw(lit, width, out.height - LINES))
        grid.add_column(no_wrap=True)
    grid.add_row(*pictures)
    grid.add_row(*(Text(printable(row.word.text), style="bold") for row in best))
    out.print(grid)
    out.print()


def _print_rows(out: Console, look: Look, rows: list[Row]) -> None:
    from rich.table import Table

    several = len(look.pictures) > 1
    table = Table(box=None, pad_edge=False)
    table.add_column("word", overflow="fold", max_width=max(12, out.width // 3))
    table.add_column("A", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    for row in rows:
        where = "–" if row.place is None else f"{row.place.part}, {100 * row.place.share:.0f} %"
        if several and row.picture is not None:
            where = f"{look.pictures[row.picture].name}: {where}"
        table.add_row(plain_text(row.word.text), f"{row.a:.2f}", plain_text(where))
    out.print(table)


def _legend(look: Look, rows: list[Row], relative: Relative) -> str:
    """What the columns are, and what is not known."""
    what = "A: the share of a word's attention on the source."
    if not any(row.place for row in rows):
        return f"{what} Where is not known: the layout of this model's vision tokens is not."
    most = "of what is more than usual" if relative else "of its attention on the picture"
    where = f" Where: the quarter of the picture with the most {most}; evenly, each has 25 %."
    several = " Of several pictures: the one with most of it." if len(look.pictures) > 1 else ""
    return f"{what}{where}{several}"
