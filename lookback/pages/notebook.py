"""What a notebook shows of candidates: their ranking, and where the best one looked."""

from __future__ import annotations

from dataclasses import dataclass

from lookback.pages import render
from lookback.pages.tokens import ShadedToken, shaded
from lookback.scores.base import get_scorer
from lookback.signals import Candidate, Candidates

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
    """The ranking by LookBack, and the best answer's tokens shaded by A_t."""
    ranked = candidates.rank("lookback") if len(candidates) else []
    answers = [_answer(one) for one in ranked[:MOST]]
    filled = [one for one in answers[:1] if one.tokens]  # empty ones come last
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
    """One answer: its numbers, and its tokens shaded by A_t."""
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
    """What A_t is measured on, in words."""
    source = candidates.source
    if source is None:
        return "the image"
    return source if isinstance(source, str) else ", ".join(source)
