"""The page on which a person compares two answers per case; it does not know who picked which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lookback.pages import render

if TYPE_CHECKING:
    from PIL.Image import Image


class Comparison(NamedTuple):
    """What an annotator sees of a case: no scorer, no score."""

    question: str
    image: Image | str
    a1: str
    a2: str


def annotation_page(name: str, cases: Sequence[Comparison]) -> str:
    """The page of one set of cases, numbered from 1.

    Args:
        name: of the set; the file of choices has it in its name.
        cases: in order.
    """
    title = "Which answer is truer to the picture?"
    return render("annotation.html", title=title, name=name, cases=cases)
