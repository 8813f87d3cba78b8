"""A look as a file: a page that answers to the pointer, or a strip of small pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lookback.limits import one_line
from lookback.pages import check_writable

if TYPE_CHECKING:
    from lookback.look import Look, Relative

LARGEST = 1024
"""Pixels that a picture of the page has at most; of several pictures half."""
KINDS = (".html", ".png")


def save(
    look: Look,
    path: str | os.PathLike[str],
    question: str | None = None,
    relative: Relative = False,
) -> None:
    """Write a look: `.html` for the page, `.png` for the strip.

    Args:
        look: what to show.
        path: where to; its suffix says what.
        question: what was asked, if the page is to say it.
        relative: which map the strip has, and the page shows first; as for `Look.heatmap`.

    Raises:
        ValueError: the suffix is another, or there is nothing to show.
        OSError: it cannot be written.
    """
    target = check_output(path)
    check_look(look)
    if target.suffix.lower() == ".html":
        target.write_text(look_page(look, question, relative), encoding="utf-8")
        return
    from lookback.pages.strip import strip

    strip(look, relative).save(target)


def check_output(path: str | os.PathLike[str]) -> Path:
    """The path of a file that a look can be written to.

    Raises:
        ValueError: its suffix names no kind that there is.
        OSError: it cannot be written (`check_writable`).
    """
    target = Path(path)
    if target.suffix.lower() not in KINDS:
        raise ValueError(
            f"{one_line(str(path), 200)!r}: a look is written as .html (a page) or .png (a strip)"
        )
    check_writable(target)
    return target


def check_look(look: Look) -> None:
    """Let pass a look that shows something.

    Raises:
        ValueError: it has no picture, or no token.
    """
    if not look.pictures:
        raise ValueError(
            "this look has no picture: look.weights has what each token paid to each of the source"
        )
    if not len(look.tokens):
        raise ValueError("this look has no tokens: an empty response looks nowhere")


def look_page(look: Look, question: str | None = None, relative: Relative = False) -> str:
    """The page, as HTML to be saved as UTF-8; the arguments are those of `save`."""
    from lookback.pages import image_uri, render
    from lookback.pages.blocks import pack
    from lookback.pages.look_data import look_head, look_numbers
    from lookback.scores.base import get_scorer

    largest = LARGEST if len(look.pictures) == 1 else LARGEST // 2
    return render(
        "look/page.html",
        title="LookBack: where each word looked",
        question=question,
        about=about(look),
        mode=relative if isinstance(relative, str) else ("tokens" if relative else "raw"),
        hue=get_scorer("visual_lookback").color,
        block=pack([look_head(look)], look_numbers(look)),
        images=[image_uri(one.image, largest) for one in look.pictures],
    )


def about(look: Look) -> str:
    """What was measured, in a sentence."""
    first, stop = look.layers
    layers = f"layer {first}" if stop == first + 1 else f"layers {first} to {stop - 1}"
    tokens, seen = look.weights.shape
    return (
        f"{tokens} tokens of the response, {seen} of the source; attention is the mean over all "
        f"heads of {layers}."
    )
