"""What a text claims, compared with a scene: single facts, and answers to questions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lookback.scenes.parse import Mention, Parsed, parse
from lookback.scenes.questions import RELATIONS
from lookback.scenes.scene import Thing

# ("object", category), ("color" or "size" or "place", category, value),
# (one of `RELATIONS`, category, category)
Fact = tuple[str, ...]


def scene_facts(things: Iterable[Thing]) -> set[Fact]:
    """Return what a full description would assert: objects, their colours and sizes."""
    facts: set[Fact] = set()
    for t in things:
        facts |= {
            ("object", t.category),
            ("color", t.category, t.color),
            ("size", t.category, t.size),
        }
    return facts


def told_facts(parsed: Parsed) -> set[Fact]:
    """Return the distinct facts that a text asserts; what it denies is not among them.

    "Right of" and "below" are turned round to "left of" and "above", and "next to" is ordered, so
    that a relation told twice is one fact.
    """
    facts: set[Fact] = set()
    for m in parsed.mentions:
        if m.category and not m.negated:
            facts.add(("object", m.category))
            facts |= {
                (tag, m.category, value) for tag, values in m.said.items() for value in values
            }
    for r in parsed.relations:
        if r.first.category and r.second.category and not r.denied:
            facts.add(_relation_fact(r.name, r.first.category, r.second.category))
    return facts


def _relation_fact(name: str, first: str, second: str) -> Fact:
    if name == "next to":
        return (name, *sorted((first, second)))
    turned = {"right of": "left of", "below": "above"}.get(name)
    return (turned, second, first) if turned else (name, first, second)


def is_true(fact: Fact, things: Iterable[Thing]) -> bool:
    """Return whether some thing (or two different ones) of the scene makes the fact true."""
    kind, category, *value = fact
    things = list(things)
    those = [t for t in things if t.category == category]
    if kind in RELATIONS:
        others = [t for t in things if t.category == value[0]]
        return any(a is not b and RELATIONS[kind](a, b) for a in those for b in others)
    return any(not value or getattr(t, kind) == value[0] for t in those)


YES = ("yes", "yeah", "yep")
NO = ("no", "nope")
HEDGES = re.compile(
    r"\b(maybe|perhaps|possibly|probably|might|unsure|unclear|not (sure|certain)|"
    r"can(not|'t| not) (tell|say)|(don't|do not) know)\b"
)
WORD = re.compile(r"[a-z']+|[^\sa-z']")


def matches(response: str, truth: dict[str, Any]) -> bool:
    """Return whether the response gives the answer of an open question."""
    about, answer = truth["about"], truth["answer"]
    mentions = parse(response).mentions
    if truth["kind"] == "what":
        return _categories_at(about["place"], mentions) == {answer}
    own = [m for m in mentions if m.category == about["category"]]
    unnamed = [m for m in mentions if m.category is None]
    if truth["kind"] == "count":
        return (_counts(own) or _counts(unnamed)) == {int(answer)}
    tag = {"color": "color", "size": "size", "where": "place"}[truth["kind"]]
    return {value for m in own + unnamed for value in m.said.get(tag, ())} == {answer}


def _categories_at(place: str, mentions: list[Mention]) -> set[str]:
    """Return what is said to be there; if nothing is said to be there, what has no place."""
    named = [m for m in mentions if m.category and not m.negated]
    here = [m for m in named if place in m.said.get("place", ())]
    return {m.category for m in here or named if m.category and (here or not m.said.get("place"))}


def _counts(mentions: list[Mention]) -> set[int]:
    """Return the numbers said; an article counts as one only if there are no numbers."""
    numbers = {0 if m.negated else m.count or 0 for m in mentions if m.negated or m.exact}
    return numbers or {m.count for m in mentions if m.count is not None}


def verdict(response: str, truth: dict[str, Any]) -> bool | None:
    """Return whether a response affirms the question's claim, denies it, or neither (None).

    The claim names a category (None for things in all) and perhaps a color, place or count; without
    any it claims that there is such a thing.
    """
    text = response.lower().replace("’", "'")
    if HEDGES.search(text):
        return None
    votes = {_statement(m, truth["claim"]) for m in parse(response).mentions} - {None}
    if truth["kind"] == "exists" and True in votes:
        votes = {True}  # one red cup is enough, whatever else is said of other cups
    votes |= _particles(WORD.findall(text))
    return votes.pop() if len(votes) == 1 else None


def _particles(words: list[str]) -> set[bool | None]:
    """Return the answers "yes" and "no" among the words; "no" before a noun is a determiner."""
    ends = [i + 1 == len(words) or not words[i + 1].isalpha() for i in range(len(words))]
    yes = any(w in YES for w in words)
    no = any(
        w in NO and (end or i == 0) for i, (w, end) in enumerate(zip(words, ends, strict=True))
    )
    return {answer for answer, given in ((True, yes), (False, no)) if given}


def _statement(mention: Mention, claim: dict[str, Any]) -> bool | None:
    """Return what one mention says about the claim."""
    if mention.category not in (None, claim["category"]):
        return None
    if "count" in claim:
        return mention.count == claim["count"] if mention.exact else None
    claimed = {tag: value for tag, value in claim.items() if tag != "category"}
    if mention.negated:
        return False if all(_agrees(mention, *c) is not False for c in claimed.items()) else None
    if not claimed:
        return True if mention.category else None
    agreements = {_agrees(mention, *c) for c in claimed.items()}
    return None if None in agreements and False not in agreements else False not in agreements


def _agrees(mention: Mention, tag: str, value: str) -> bool | None:
    said = mention.said.get(tag, [])
    if said:
        return set(said) == {value}
    return False if value in mention.denied.get(tag, ()) else None
