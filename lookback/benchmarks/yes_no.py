"""Whether free text says yes, says no, or says that it does not know."""

from __future__ import annotations

import re
from typing import Literal

_HEDGE = re.compile(
    r"\b(unsure|uncertain|unclear|unknown|not (sure|certain|clear|possible to)|impossible to|"
    r"(can ?not|can't|unable to|hard to|difficult to) (be |tell|say|determine|see|answer|know)|"
    r"(do not|don't) know|no idea|yes (and|or) no|maybe|perhaps)"
)
_LEADING = re.compile(
    r"(?:(?:well|so|sure|ok|okay)\W+)?(?:the )?(?:answer(?: is)?\W+)?(yes|no|yeah|yep|nope)\b"
)
_NO_ANSWER = re.compile(  # what looks like one: a determiner, or both answers
    r"no (?!(?:it|there|the|this|that|these|those|he|she|they|i|we|you)\b)[a-z]|yes (?:and|or) no"
)
_SAID = re.compile(r"\banswer (?:is|would be)\W+(yes|no)\b")
_ALONE = re.compile(r"\b(yes|no)\b(?=\W*$|[,.;:!])")
_YES = ("yes", "yeah", "yep")


def yes_or_no(text: str) -> Literal["yes", "no", "unsure"] | None:
    """What a response to a yes/no question says; None if it says neither.

    In this order: "yes" or "no" at its beginning is the answer, unless "no" is a determiner ("No
    dogs are here."); a response that says it cannot tell, or "yes and no", is "unsure"; what it
    calls the answer is the answer; so is the one of the two that stands before punctuation or at
    the end. Statements without either word are not understood.
    """
    said = " ".join(re.sub(r"[*_\"]", "", text.lower().replace("’", "'")).split())
    leading = _LEADING.match(said)
    if leading and not _NO_ANSWER.match(said, leading.start(1)):
        return "yes" if leading[1] in _YES else "no"
    if _HEDGE.search(said):
        return "unsure"
    for pattern in (_SAID, _ALONE):
        words = set(pattern.findall(said))
        if len(words) == 1:
            return "yes" if words == {"yes"} else "no"
    return None
