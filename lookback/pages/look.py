"""A look as a page carries it: its words and pictures as plain data, its weights as numbers.

Of a look there are

tokens     how many the response has
source     how many the source has
faint      as a share of the mean: what is added to both sides of a relative map (`looks.look`)
heat       how a map is painted: colors, dim, strongest (`lookback.looks.heat_map`)
text       [text, first, stop, content] each: the response in pieces; a word with the tokens that
           spell it and whether it is a content word, or what stands between words (first is -1)
pictures   of each: name, width, height, tokens (how many stand for it), placed (whether their boxes
           are known)
relative   which of "tokens" and "prompt" can be shown
layers     the first, and the one behind the last

and of its numbers, which follow one another in this order

a          (T,) the attention on the whole source
a_prompt   (T,) the same after the other prompt, if there is a baseline
boxes      (K, 4) of each picture that has them
weights    (T, K) of each picture
baseline   (T, K) of each picture, if there is one

Weights are rounded (`lookback.looks.look`): by too little to see, and by half of the page.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lookback.errors import one_line
from lookback.looks.heat_map import COLORS, DIM, STRONGEST
from lookback.looks.look import FAINT, rounded
from lookback.pages import check_writable, image_uri, render
from lookback.pages.blocks import pack
from lookback.scores.base import get_scorer

if TYPE_CHECKING:
    from lookback.looks.look import Look, Relative


def look_head(look: Look) -> dict[str, Any]:
    """Return what there is of a look beside numbers."""
    return {
        "tokens": len(look.tokens),
        "source": look.source,
        "faint": FAINT,
        "heat": {"colors": COLORS.tolist(), "dim": DIM, "strongest": STRONGEST},
        "text": pieces(look),
        "pictures": [
            {
                "name": picture.name,
                "width": picture.image.width,
                "height": picture.image.height,
                "tokens": len(picture.columns),
                "placed": picture.boxes is not None,
            }
            for picture in look.pictures
        ],
        "relative": ["tokens", *(["prompt"] if look.baseline is not None else [])],
        "layers": list(look.layers),
    }


def look_numbers(look: Look) -> dict[str, NDArray[Any]]:
    """Return the numbers of a look, each in a row."""
    boxes = [picture.boxes for picture in look.pictures if picture.boxes is not None]
    numbers = {"a": sums_of(look.weights), "boxes": _joined(boxes)}
    numbers["weights"] = _of_pictures(look, look.weights)
    if look.baseline is not None:
        numbers["a_prompt"] = sums_of(look.baseline)
        numbers["baseline"] = _of_pictures(look, look.baseline)
    return numbers


def _of_pictures(look: Look, weights: NDArray[np.float32]) -> NDArray[np.float32]:
    return _joined([rounded(weights[:, picture.columns]) for picture in look.pictures])


def sums_of(weights: NDArray[np.float32]) -> NDArray[Any]:
    """Return what each token paid to the whole source: (T,)."""
    return np.asarray(weights.sum(1, dtype=np.float64))


def _joined(parts: list[NDArray[np.float32]]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, np.float32), *(part.ravel() for part in parts)])


def pieces(look: Look) -> list[tuple[str, int, int, bool]]:
    """Return what the model wrote, in pieces, see above."""
    written = "".join(look.tokens).strip()
    parts, done = [], 0
    for word in look.words():
        start = written.index(word.text, done)
        if start > done:
            parts.append((written[done:start], -1, -1, False))
        done = start + len(word.text)
        parts.append((word.text, word.tokens.start, word.tokens.stop, word.content))
    if done < len(written):
        parts.append((written[done:], -1, -1, False))
    return parts


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
    if not look.pictures:
        raise ValueError(
            "this look has no picture: look.weights has what each token paid to each of the source"
        )
    if target.suffix.lower() == ".html":
        target.write_text(look_page(look, question, relative), encoding="utf-8")
        return
    from lookback.pages.strip import strip

    strip(look, relative).save(target)


def check_output(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that a look can be written to; raise ValueError or OSError."""
    target = Path(path)
    if target.suffix.lower() not in KINDS:
        raise ValueError(
            f"{one_line(str(path), 200)!r}: a look is written as .html (a page) or .png (a strip)"
        )
    check_writable(target)
    return target


def look_page(look: Look, question: str | None = None, relative: Relative = False) -> str:
    """Return the page, as HTML to be saved as UTF-8; the arguments are those of `save`."""
    largest = LARGEST if len(look.pictures) == 1 else LARGEST // 2
    return render(
        "look/page.html",
        title="LookBack: where each word looked",
        question=question,
        about=about(look),
        mode=relative if isinstance(relative, str) else ("tokens" if relative else "raw"),
        hue=get_scorer("visual_lookback").color,
        block=pack([look_head(look)], look_numbers(look)),
        images=[image_uri(picture.image, largest) for picture in look.pictures],
    )


def about(look: Look) -> str:
    """Say what was measured, in a sentence."""
    first, stop = look.layers
    layers = f"layer {first}" if stop == first + 1 else f"layers {first} to {stop - 1}"
    tokens, seen = look.weights.shape
    return (
        f"{tokens} tokens of the response, {seen} of the source; attention is the mean over all "
        f"heads of {layers}."
    )
