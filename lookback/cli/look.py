"""The command `look`: where a response looked, in the terminal, as a page or as a strip."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import typer

from lookback.cli.app import app
from lookback.cli.inputs import check_question, check_stdin, read_argument
from lookback.cli.options import OUTPUT, EngineOptions, MediaOptions, Model, SamplingOptions, option
from lookback.cli.start import Start
from lookback.cli.terminal import (
    LEFT,
    LONGEST,
    can_draw,
    console,
    draw,
    plain_text,
    print_json,
    printable,
    progress,
    shaded_text,
)
from lookback.errors import one_line
from lookback.io.json_values import check_text

if TYPE_CHECKING:
    from rich.console import Console

    from lookback.conversations import Conversation
    from lookback.engines import Engine
    from lookback.looks.heat_map import Place
    from lookback.looks.look import Look, Picture, Relative
    from lookback.looks.words import Word
    from lookback.signals import Candidate

SCORER = "lookback"
"""What chooses the answer that is looked at, if none is given."""
RELATIVE = ("tokens", "prompt")
SHOWN_WORDS = 60
"""Words of the table."""
DRAWN_WORDS = 2
"""Words that are drawn, those with the highest A."""
LARGEST_PICTURE = 256
"""Pixels of a picture that is drawn in a terminal: more cannot be seen there."""


@dataclass(frozen=True, kw_only=True)
class LookOptions:
    """What is shown of a look."""

    PANEL: ClassVar[str] = "Where it looked"
    out: Path | None = option(
        None,
        "--out",
        "-o",
        help="Write a page (.html) or a strip of small pictures (.png).",
        rich_help_panel=OUTPUT,
    )
    layers: str | None = option(
        help="Attention layers to read, from 0: 4-8 reads 4, 5, 6 and 7; by default all."
    )
    relative: str | None = option(
        metavar="tokens|prompt",
        help="Show where a word looked more than usual: than the answer's tokens on average, or "
        "than the same word after another question.",
    )
    against: str = option("Describe the image.", help="With --relative prompt: the other question.")


@app.command()
def look(
    image: Annotated[
        str, typer.Argument(help="An image or a video: a file, a URL, or - for stdin.")
    ],
    question: Annotated[str, typer.Argument(help="What was asked about it.")],
    response: Annotated[
        str | None,
        typer.Argument(
            help="The answer, or - for stdin; by default the best of N that are drawn.",
            show_default=False,
        ),
    ] = None,
    *,
    options: LookOptions,
    media: MediaOptions,
    sampling: SamplingOptions,
    model: Model = None,
    engine: EngineOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all weights as JSON.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Show where in the image each word of an answer looked.

    Without an answer, N are drawn and the best by LookBack is taken.

    Without --model the embedded model looks, which is small and knows drawn scenes only.
    """
    from lookback.engines import require
    from lookback.pages.look import check_output, save

    check_stdin({"IMAGE": image, "--image": media.more_images, "RESPONSE": response})
    sampling.check()
    if response is None:
        sampling = sampling.without_repeats()
    check_question(question)
    chosen, kind = parse_layers(options.layers), check_relative(options.relative)
    answer = None if response is None else _read_answer(response)
    out = options.out
    if out is not None:
        check_output(out)
    conversation = media.read(image, question)
    lb = Start(model, engine.load_settings(), SCORER)(conversation)
    require(lb, ["look"] if answer is not None else ["look", "sample"], "lookback look")
    settings = asdict(sampling) | {"source": media.source}
    shown = _draw_best(lb, conversation, settings) if answer is None else answer
    with progress("looking") as bar:
        result = lb.look(
            messages=conversation.messages(),
            response=shown,
            source=media.source,
            layers=chosen,
            relative_to=options.against if kind == "prompt" else None,
            progress=bar,
        )
    if as_json:
        best_of = {"best_of": sampling.n, "scorer": SCORER} if answer is None else {}
        print_json({"question": question, "model": lb.name} | best_of | look_dict(result, kind))
    else:
        title = f"the best of {sampling.n} by {SCORER}" if answer is None else "the response"
        show_look(console(), result, kind, title)
    if out is not None:
        with console(stderr=True).status(f"writing {out}"):
            save(result, out, question, kind)
        print(one_line(out, LONGEST), file=sys.stderr)


def parse_layers(text: str | None) -> tuple[int, int] | None:
    """Parse `--layers 4-8` or `--layers 5`: return the first layer, and the end.

    Raises:
        ValueError: it is neither, or there is none between them.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text.strip())
    first = int(match[1]) if match else 0
    stop = int(match[2]) if match and match[2] else first + 1
    if match is None or stop <= first:
        raise ValueError(
            f"--layers {text:.60}: write the first and the one behind the last, e.g. 4-8 for "
            "layers 4, 5, 6 and 7, or one layer, e.g. 5"
        )
    return first, stop


def check_relative(text: str | None) -> Any:
    """Return `--relative` as `Look.heatmap` takes it; raise ValueError for another word."""
    if text is None:
        return False
    if text not in RELATIVE:
        raise ValueError(f"--relative {text:.60}: must be one of {', '.join(RELATIVE)}")
    return text


def _read_answer(response: str) -> str:
    """Return the answer, `-` being stdin; raise ValueError if it is empty or too long."""
    from lookback.io.limits import TEXT_CHARACTERS

    text = read_argument(response)
    if not check_text(text, "the response").strip():
        raise ValueError("the response is empty: there is no word that could look anywhere")
    TEXT_CHARACTERS.check(len(text), "the response")
    return text


def _draw_best(lb: Engine, conversation: Conversation, settings: dict[str, Any]) -> Candidate:
    """Draw answers and return the best; raise ValueError if all of them are empty."""
    with progress(f"drawing {settings['n']} answers") as bar:
        candidates = lb.sample(messages=conversation.messages(), progress=bar, **settings)
    best = candidates.best(SCORER)
    if not len(best.signals):
        raise ValueError("every answer is empty: give one as RESPONSE")
    return best


class Row(NamedTuple):
    """A word, its A, the picture it looked at most, and where in it; None if unknown."""

    word: Word
    a: float
    picture: int | None
    place: Place | None


def find_rows(look: Look, relative: Relative) -> list[Row]:
    """Return a row per content word, or per word if there are none of those."""
    from lookback.pages.strip import shown_words

    return [_row(look, word, relative) for word in shown_words(look)]


def _row(look: Look, word: Word, relative: Relative) -> Row:
    import numpy as np

    weights = look.row(word.tokens)
    a = float(weights.sum())
    if not look.pictures:
        return Row(word, a, None, None)
    sums = [float(weights[picture.columns].sum()) for picture in look.pictures]
    best = int(np.argmax(sums))
    return Row(word, a, best, _place(look, look.pictures[best], word, relative))


def _place(look: Look, picture: Picture, word: Word, relative: Relative) -> Place | None:
    """Return where a word looked most; with `relative`, where it looked more than usual."""
    import numpy as np

    from lookback.looks.heat_map import find_place

    if picture.boxes is None:
        return None
    values = look.row(word.tokens, relative)[picture.columns]
    if relative:
        left, top, right, bottom = np.nan_to_num(picture.boxes.astype(float)).T
        values = np.clip(values - 1, 0, None) * (right - left) * (bottom - top)
    return find_place(values, picture.boxes)


def look_dict(look: Look, relative: Relative) -> dict[str, Any]:
    """Return a look ready for JSON, with A of each token and where each word looked."""
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
    a = look.weights.sum(1, dtype=float).tolist()
    return look.to_dict() | {"visual_lookback": a, "relative": relative or None, "words": rows}


def show_look(out: Console, look: Look, relative: Relative, title: str) -> None:
    """Print a look: the answer under its title, two pictures, and where each word looked."""
    colours = out.color_system == "truecolor"
    by = ", shaded by A" if colours else ""
    out.print(f"{title}{by}:", style="bold", highlight=False, markup=False)
    a = look.weights.sum(1, dtype=float)
    out.print(shaded_text(look.tokens, a) if colours else plain_text(look.text.strip()))
    out.print()
    rows = find_rows(look, relative)
    _draw_words(out, look, rows, relative)
    _print_rows(out, look, rows[:SHOWN_WORDS])
    left = len(rows) - SHOWN_WORDS
    if left > 0:
        out.print(f"and {left} more words", style="dim", highlight=False)
    out.print()
    out.print(_legend(look, rows, relative), style="dim", highlight=False, markup=False)


def _draw_words(out: Console, look: Look, rows: list[Row], relative: Relative) -> None:
    """Draw the words with the highest A on the picture, if the terminal has the colours."""
    from rich.table import Table
    from rich.text import Text

    from lookback.pages.strip import shrink

    placed = sorted((row for row in rows if row.place), key=lambda row: row.a)
    distinct = {row.word.text.casefold(): row for row in placed}  # the highest of each
    best = sorted(distinct.values(), key=lambda row: -row.a)[:DRAWN_WORDS]
    if not best or not can_draw(out):
        return
    width = (out.width - 3 * (len(best) - 1)) // len(best)
    small = shrink(look, LARGEST_PICTURE)
    grid = Table.grid(padding=(0, 3))
    pictures = []
    for row in best:
        assert row.picture is not None
        lit = small.overlay(row.word.tokens, row.picture, relative)
        pictures.append(draw(lit, width, out.height - LEFT))
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
    """Return what the columns mean, and what is not known."""
    what = "A: the share of a word's attention on the source."
    if not any(row.place for row in rows):
        return f"{what} Where is not known: the layout of this model's vision tokens is not."
    most = "of what is more than usual" if relative else "of its attention on the picture"
    where = f" Where: the quarter of the picture with the most {most}; evenly, each has 25 %."
    several = " Of several pictures: the one with most of it." if len(look.pictures) > 1 else ""
    return f"{what}{where}{several}"
