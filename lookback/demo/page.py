"""The demo as a page: what its template and its script work on.

The script gets signals, not scores, and ranks by the report's own maths (templates/demo/page.js):

floor        A_FLOOR of the formula
setting      the model's alpha and lam; `general`: the paper's one setting for all models
scorers      those with a pick, by name: {"title", "color"}
picks        the position that each scorer picks which no slider moves
colors       of the signals, by name
candidates   of each: tokens, wrong (per token: names what is not there), quality, mark, verdict,
             kind, invented, and its signals by name
"""

from __future__ import annotations

from typing import Any

from lookback.demo.asked import SCORERS, Asked
from lookback.demo.measured import Measured
from lookback.families import GENERIC
from lookback.pages import image_uri, render
from lookback.scores.base import get_scorer
from lookback.scores.formula import A_FLOOR
from lookback.signals import Candidate

SIGNALS = {
    "visual_lookback": "visual_lookback",
    "log_prob": "mean_log_prob",
    "self_certainty": "self_certainty",
    "u": "lookback",
    "q": "lookback",
}
"""What tokens can be shaded by, with the scorer whose colour it has."""
KEPT = ("visual_lookback", "log_prob", "self_certainty")


def demo_page(asked: Asked, chosen: str, measured: Measured | str) -> str:
    """The page.

    Args:
        asked: the item and its answers.
        chosen: how the item was picked.
        measured: the tasks' numbers, or why there are none.
    """
    image = asked.item.image
    return render(
        "demo/page.html",
        title=f"LookBack: {asked.item.question}",
        asked=asked,
        image=None if image is None else image_uri(image),
        chosen=chosen,
        measured=measured,
        data=page_data(asked),
    )


def page_data(asked: Asked) -> dict[str, Any]:
    """All that the script needs, ready for JSON."""
    defaults = asked.candidates.defaults
    return {
        "floor": A_FLOOR,
        "setting": {"alpha": defaults["alpha"], "lam": defaults["lam"]},
        "general": {"alpha": GENERIC.alpha, "lam": GENERIC.lam},
        "scorers": {
            name: {"title": title, "color": get_scorer(name).color}
            for name, title in SCORERS.items()
        },
        "picks": {name: asked.picks[name].index for name in SCORERS if name != "lookback"},
        "colors": {signal: get_scorer(scorer).color for signal, scorer in SIGNALS.items()},
        "candidates": [_candidate(asked, candidate) for candidate in asked.candidates],
    }


def _candidate(asked: Asked, candidate: Candidate) -> dict[str, Any]:
    verdict = asked.verdict(candidate.index)
    return {
        "tokens": list(candidate.tokens),
        "wrong": wrong_tokens(candidate.tokens, asked.wrong[candidate.index]),
        "quality": asked.quality[candidate.index],
        "mark": verdict.mark,
        "verdict": verdict.words,
        "kind": verdict.kind,
        "invented": list(verdict.invented),
        **{name: getattr(candidate, name).tolist() for name in KEPT},
    }


def wrong_tokens(tokens: tuple[str, ...], spans: tuple[tuple[int, int], ...]) -> list[bool]:
    """Of each token, whether a part of it that is no blank lies in one of the spans."""
    found, start = [], 0
    for token in tokens:
        end = start + len(token)
        bare = end - len(token.lstrip())
        found.append(any(low < end and bare < high and bare < end for low, high in spans))
        start = end
    return found
