"""How strongly a token is shaded and in which colour, for figures and for pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lookback.pages import render
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array

if TYPE_CHECKING:
    from PIL.Image import Image


SIGNALS = {"SC": "self_certainty", "A": "visual_lookback", "LookBack": "lookback"}
"""What a response is shaded by, with the scorer whose colour it has."""
STRONGEST = 0.5
"""The most colour there is behind a token: text can still be read on it, in light and in dark."""


class ShadedToken(NamedTuple):
    """A token on a page.

    Attributes:
        blanks: what it begins with, which is not shaded.
        text: the rest.
        background: a colour that lets through what is below it, so that it fits light and dark.
        title: the value, shown when the pointer is on it.
    """

    blanks: str
    text: str
    background: str
    title: str


def shades(values: ArrayLike, low: float | None = None, high: float | None = None) -> Array:
    """From 0 for the lowest to 1 for the highest; 0.5 if they are all the same.

    Args:
        values: of the tokens.
        low: what has 0; by default the lowest of the values.
        high: what has 1; by default the highest.
    """
    given = np.asarray(values, dtype=np.float64)
    if not given.size:
        return given
    low = float(given.min()) if low is None else low
    high = float(given.max()) if high is None else high
    return np.asarray((given - low) / (high - low) if high > low else np.full(given.shape, 0.5))


def color(signal: str, shade: float) -> str:
    """On white paper: white for 0; for 1 so dark that black text can still be read on it.

    Args:
        signal: a key of `SIGNALS`.
        shade: from 0 to 1.
    """
    full = get_scorer(SIGNALS[signal]).color
    mixed = [255 - STRONGEST * shade * (255 - int(full[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def shaded(
    tokens: Sequence[str], values: ArrayLike, full: str, strengths: ArrayLike | None = None
) -> list[ShadedToken]:
    """The tokens of a response as a page shows them.

    Args:
        tokens: their texts.
        values: one number per token.
        full: the colour, e.g. "#f59e0b".
        strengths: from 0 to 1, one per token; by default the `shades` of the values.
    """
    given = np.asarray(values, dtype=np.float64)
    shown = shades(given) if strengths is None else np.asarray(strengths, dtype=np.float64)
    found = []
    for token, value, strength in zip(tokens, given.tolist(), shown.tolist(), strict=True):
        text = token.lstrip()
        behind = f"{full}{round(255 * STRONGEST * strength):02x}"
        found.append(ShadedToken(token[: len(token) - len(text)], text, behind, f"{value:.3g}"))
    return found


class Response(NamedTuple):
    """One response: a line on it, its tokens, and each token's score by each of `SIGNALS`."""

    about: str
    tokens: Sequence[str]
    scores: dict[str, Array]

    @property
    def shaded(self) -> dict[str, list[ShadedToken]]:
        """Its tokens once for each signal, in that signal's colour."""
        colors = {signal: get_scorer(SIGNALS[signal]).color for signal in self.scores}
        return {s: shaded(self.tokens, values, colors[s]) for s, values in self.scores.items()}


class Case(NamedTuple):
    """One item, its image (or words on why there is none), and some of its responses."""

    name: str
    question: str
    image: Image | str
    responses: list[Response]


def tokens_page(cases: Sequence[Case], rule: str = "") -> str:
    """A page of the cases; a token's score shows when the pointer is on it.

    Args:
        cases: what to show.
        rule: how they were chosen, if not by hand.
    """
    return render("tokens.html", title="Token scores", cases=cases, rule=rule)
