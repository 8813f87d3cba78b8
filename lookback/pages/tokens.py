"""Shaded tokens: how strongly and in which colour; on a page, and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lookback.pages import render
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.signals import Candidate, Candidates

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


def shades(values: ArrayLike) -> Array:
    """Scale values from 0 for the lowest to 1 for the highest; 0.5 if all are the same."""
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        return array
    low, high = float(array.min()), float(array.max())
    return np.asarray((array - low) / (high - low) if high > low else np.full(array.shape, 0.5))


def color(signal: str, shade: float) -> str:
    """Return a colour on white: white for 0; for 1 as dark as black text can be read on.

    Args:
        signal: a key of `SIGNALS`.
        shade: from 0 to 1.
    """
    full = get_scorer(SIGNALS[signal]).color
    mixed = [255 - STRONGEST * shade * (255 - int(full[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def shaded(tokens: Sequence[str], values: ArrayLike, full: str) -> list[ShadedToken]:
    """Return the tokens of a response as a page shows them.

    Args:
        tokens: their texts.
        values: one number per token.
        full: the colour, e.g. "#f59e0b".
    """
    array = np.asarray(values, dtype=np.float64)
    shown = []
    for token, value, strength in zip(tokens, array.tolist(), shades(array).tolist(), strict=True):
        text = token.lstrip()
        behind = f"{full}{round(255 * STRONGEST * strength):02x}"
        shown.append(ShadedToken(token[: len(token) - len(text)], text, behind, f"{value:.3g}"))
    return shown


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
    """Return a page of the cases; a token's score shows when the pointer is on it.

    Args:
        cases: what to show.
        rule: how they were chosen, if not by hand.
    """
    return render("tokens.html", title="Token scores", cases=cases, rule=rule)


MOST = 50
"""Rows of the ranking; how many more there are is said below it."""


@dataclass(frozen=True)
class Answer:
    """A candidate as a notebook shows it; a mean is None for an empty answer."""

    index: int
    text: str
    score: float | None
    mean_log_prob: float | None
    mean_visual_lookback: float | None
    tokens: list[ShadedToken]


def candidates_html(candidates: Candidates) -> str:
    """Show the ranking by LookBack, and the best answer's tokens shaded by A_t."""
    ranked = candidates.rank("lookback") if len(candidates) else []
    answers = [_answer(candidate) for candidate in ranked[:MOST]]
    filled = [answer for answer in answers[:1] if answer.tokens]  # empty ones come last
    settings = get_scorer("lookback").defaults | dict(candidates.defaults)
    return render(
        "notebook.html",
        question=candidates.question,
        model=candidates.model,
        total=len(ranked),
        settings=settings,
        looked_at=_source(candidates),
        answers=answers,
        shown=filled,
    )


def candidate_html(candidate: Candidate) -> str:
    """Show one answer: its numbers, and its tokens shaded by A_t."""
    return render("notebook.html", total=None, looked_at=None, shown=[_answer(candidate)])


def _answer(candidate: Candidate) -> Answer:
    filled = len(candidate.tokens) > 0
    return Answer(
        candidate.index,
        candidate.text,
        candidate.score,
        float(candidate.log_prob.mean()) if filled else None,
        float(candidate.visual_lookback.mean()) if filled else None,
        shaded(candidate.tokens, candidate.visual_lookback, get_scorer("visual_lookback").color),
    )


def _source(candidates: Candidates) -> str:
    """Say what A_t is measured on."""
    source = candidates.source
    if source is None:
        return "the image"
    return source if isinstance(source, str) else ", ".join(source)
