"""Answers read out of free text: VQA's official normalisation, yes and no."""

from __future__ import annotations

import re
from typing import Literal

NUMBERS = {"none": "0"} | {
    word: str(value)
    for value, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    )
}
ARTICLES = ("a", "an", "the")
_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_STOP = re.compile(r"\.(?!\d)")
_THOUSANDS = re.compile(r"\d,\d")

_CONTRACTIONS = re.findall(
    r"\S+",
    """
    ain't aren't can't didn't doesn't don't hasn't haven't isn't mustn't needn't oughtn't shan't
    wasn't weren't won't couldn't couldn't've hadn't hadn't've mightn't mightn't've shouldn't
    shouldn't've wouldn't wouldn't've could've might've must've not've should've would've
    he'd he'd've he's it'd it'd've it'll she'd've that's there'd there'd've there're there's they'd
    they'd've they'll they're they've we'd've we've you'd you'd've you'll you're you've y'all
    y'all'll y'all'd've how'd how'll how's what'll what're what's what've when's where'd where's
    where've who'd who'd've who'll who's who've why'll why're why's somebody'd've somebody'll
    somebody's someone'd someone'd've someone'll someone's something'd something'd've something'll
    ma'am o'clock 'ow's'at 'twas
    """,
)
APOSTROPHES = {
    word[:i] + word[i + 1 :]: word
    for word in _CONTRACTIONS
    for i, letter in enumerate(word)
    if letter == "'"
} | {"somebody'd": "somebodyd"}


def normalise(answer: str) -> str:
    """Return VQA's official form of an answer."""
    text, thousands = answer, _THOUSANDS.search(answer)
    for mark in _MARKS:
        beside_blank = f"{mark} " in answer or f" {mark}" in answer
        text = text.replace(mark, "" if beside_blank or thousands else " ")
    words = [NUMBERS.get(word, word) for word in _STOP.sub("", text).lower().split()]
    return " ".join(APOSTROPHES.get(word, word) for word in words if word not in ARTICLES)


_ANSWER_IS = re.compile(r"\banswer(?: is|:| would be):? +(?P<rest>.+)", re.IGNORECASE)
_YES_NO = re.compile(
    r"(?P<word>yes|no)(?=$|[,.;:!]|\s+(?:it|there|he|she|they|the|this|that|these|those|i|we|you)\b)",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    r"""(?:
        (?:it|that|there|he|she)'s | they're
      | (?:i|we|you)\s(?:can\s)?see
      | (?:it|this|that|there|he|she|they|these|those
          | (?:the|this|that|these|those|an?|its|his|her|their)\s[^,.;:?!]+?)
        \s(?:is|are|was|were|has|have|shows?|says?|reads?|looks?(?:\slike)?
          | (?:appears?|seems?)\sto\sbe)
    )\s(?P<rest>.+)""",
    re.IGNORECASE | re.VERBOSE,
)
_END = re.compile(r"(?<=\w{3})[.!?]\s|;\s|,?\s(?:because|since|which|but)\s", re.IGNORECASE)
_IN_THE_IMAGE = re.compile(
    r"\s(?:in|on|of) (?:the|this) (?:image|picture|photo|photograph|scene)\b", re.IGNORECASE
)
_NUMBER = re.compile(rf"\b(?:\d[\d,]*(?:\.\d+)?|no|{'|'.join(NUMBERS)})\b", re.IGNORECASE)


def parse(response: str, question: str = "") -> str:
    """Return the answer that a response gives to a question."""
    text = " ".join(response.replace("’", "'").split()).strip('*" ')
    if match := _ANSWER_IS.search(text):
        return _kept(match["rest"], question) or text
    if match := _YES_NO.match(text):
        return match["word"]
    if match := _STATEMENT.match(text):
        return _kept(match["rest"], question) or text
    return text


def _kept(rest: str, question: str) -> str:
    """Return the answer in a sentence's predicate."""
    rest = _IN_THE_IMAGE.sub("", _END.split(rest, maxsplit=1)[0]).strip('*" .!')
    asked = question.lower()
    if asked.startswith("how many"):
        numbers = {number.lower().replace(",", "") for number in _NUMBER.findall(rest)}
        if len(numbers) == 1:
            number = numbers.pop()
            return "0" if number == "no" else number
    first, _, more = rest.partition(" ")
    if more and first.endswith("ing") and first.lower() in re.findall(r"\w+", asked):
        return more
    return rest


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
    plain = " ".join(re.sub(r"[*_\"]", "", text.lower().replace("’", "'")).split())
    leading = _LEADING.match(plain)
    if leading and not _NO_ANSWER.match(plain, leading.start(1)):
        return "yes" if leading[1] in _YES else "no"
    if _HEDGE.search(plain):
        return "unsure"
    for pattern in (_SAID, _ALONE):
        words = set(pattern.findall(plain))
        if len(words) == 1:
            return "yes" if words == {"yes"} else "no"
    return None
