"""Responses as text whose tokens are shaded by their scores: as data, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies.pages import escaped, page, tag

if TYPE_CHECKING:
    from PIL.Image import Image

SIGNALS = {"SC": "self_certainty", "A": "visual_lookback", "LookBack": "lookback"}
"""What a response is shaded by, with the scorer whose colour it has."""


class Response(NamedTuple):
    """One response: a line on it, its tokens, and each token's score by each of `SIGNALS`."""

    about: str
    tokens: Sequence[str]
    scores: dict[str, Array]


class Case(NamedTuple):
    """One item, its image (or words on why there is none), and some of its responses."""

    name: str
    question: str
    image: Image | str
    responses: list[Response]


def shades(scores: Array) -> Array:
    """From 0 for the lowest to 1 for the highest; 0.5 if they are all the same."""
    low, high = scores.min(), scores.max()
    return np.asarray((scores - low) / (high - low) if high > low else np.full(len(scores), 0.5))


def color(signal: str, shade: float) -> str:
    """White for 0; for 1 so dark that black text can still be read on it."""
    full = get_scorer(SIGNALS[signal]).color
    mixed = [255 - 0.65 * shade * (255 - int(full[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def html(cases: Sequence[Case]) -> str:
    """A page of the cases; a token's score shows when the pointer is on it."""
    body = []
    for case in cases:
        body.append(f"<section>\n<h2>{escaped(case.name)}</h2>\n{tag(case.image)}")
        body.append(f"<p>{escaped(case.question)}</p>")
        for response in case.responses:
            body.append(f'<p class="muted">{escaped(response.about)}</p>')
            for signal, scores in response.scores.items():
                shaded = "".join(
                    _span(token, score, color(signal, shade))
                    for token, score, shade in zip(
                        response.tokens, scores, shades(scores), strict=True
                    )
                )
                body.append(f'<p class="tokens"><b>{escaped(signal)}</b> {shaded}</p>')
        body.append("</section>")
    style = ".tokens { white-space: pre-wrap; margin: 0.2rem 0; } .tokens b { margin-right: 1em; }"
    return page("Token scores", "\n".join(body), style)


def _span(token: str, score: float, background: str) -> str:
    """A token; the blanks in front of it are not shaded."""
    bare = token.lstrip()
    blanks = token[: len(token) - len(bare)]
    span = f'<span style="background:{background}" title="{score:.3g}">{escaped(bare)}</span>'
    return blanks + span
