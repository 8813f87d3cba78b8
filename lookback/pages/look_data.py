"""A look as a page carries it: its words and pictures as plain data, its weights as numbers.

Of a look there are

tokens     how many the response has
source     how many the source has
faint      as a share of the mean: what is added to both sides of a relative map (`lookback.look`)
heat       how a map is painted: colors, dim, strongest (`lookback.heat`)
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

Weights are rounded (`lookback.rounding`): by too little to see, and by half of the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lookback.heat import COLORS, DIM, STRONGEST
from lookback.look import FAINT
from lookback.rounding import rounded

if TYPE_CHECKING:
    from lookback.look import Look


def look_head(look: Look) -> dict[str, Any]:
    """What there is of it beside numbers."""
    return {
        "tokens": len(look.tokens),
        "source": look.source,
        "faint": FAINT,
        "heat": {"colors": COLORS.tolist(), "dim": DIM, "strongest": STRONGEST},
        "text": pieces(look),
        "pictures": [
            {
                "name": one.name,
                "width": one.image.width,
                "height": one.image.height,
                "tokens": len(one.columns),
                "placed": one.boxes is not None,
            }
            for one in look.pictures
        ],
        "relative": ["tokens", *(["prompt"] if look.baseline is not None else [])],
        "layers": list(look.layers),
    }


def look_numbers(look: Look) -> dict[str, NDArray[Any]]:
    """Its numbers, each in a row."""
    found: dict[str, NDArray[Any]] = {
        "a": sums_of(look.weights),
        "boxes": _joined([one.boxes for one in look.pictures if one.boxes is not None]),
        "weights": _joined([rounded(look.weights[:, one.columns]) for one in look.pictures]),
    }
    if look.baseline is not None:
        found["a_prompt"] = sums_of(look.baseline)
        parts = [rounded(look.baseline[:, one.columns]) for one in look.pictures]
        found["baseline"] = _joined(parts)
    return found


def sums_of(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """(T,): what each token paid to the whole source."""
    return np.asarray(weights.sum(1, dtype=np.float64))


def _joined(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate([np.empty(0, np.float32), *(part.ravel() for part in parts)])


def pieces(look: Look) -> list[tuple[str, int, int, bool]]:
    """What the model wrote, in pieces, see above."""
    written = "".join(look.tokens).strip()
    found, done = [], 0
    for word in look.words():
        start = written.index(word.text, done)
        if start > done:
            found.append((written[done:start], -1, -1, False))
        done = start + len(word.text)
        found.append((word.text, word.tokens.start, word.tokens.stop, word.content))
    if done < len(written):
        found.append((written[done:], -1, -1, False))
    return found
