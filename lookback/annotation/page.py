"""The page on which a rater compares two answers per case; it does not know who picked which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lookback.annotation.cases import Cases
from lookback.annotation.sides import rater_code
from lookback.annotation.votes import set_of
from lookback.pages import render

TITLE = "Which answer is truer to the picture?"


def served_page() -> str:
    """The page of `lookback annotate`: cases come from its server, votes go there."""
    return _render({"served": True})


def file_page(cases: Cases, set_: int | None = None, raters: Sequence[str] | None = None) -> str:
    """The page as a file of its own: it carries its cases, and the browser keeps the votes.

    Args:
        cases: of the study.
        set_: the only set that it has; by default all.
        raters: who may vote, sets in turn; by default anybody, who chooses a set if there are
            several.

    Raises:
        ValueError: there is no such set.
    """
    if set_ is not None and set_ not in cases.sets:
        there = ", ".join(map(str, cases.sets))
        raise ValueError(f"set {set_}: these cases have the sets {there}")
    sets = cases.sets if set_ is None else [set_]
    codes = None if raters is None else list(dict.fromkeys(map(rater_code, raters)))
    places = None if codes is None else {code: set_of(code, codes, sets) for code in codes}
    shown = [case.to_dict() for case in cases.cases if case.set in sets]
    return _render({"served": False, "study": cases.study, "raters": places, "cases": shown})


def _render(data: dict[str, Any]) -> str:
    return render("annotate/page.html", title=TITLE, data=data)
