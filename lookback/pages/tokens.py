"""Responses whose tokens are shaded by their scores, and the page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lookback.pages import render
from lookback.pages.shading import SIGNALS, ShadedToken, shaded
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array

if TYPE_CHECKING:
    from PIL.Image import Image


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
