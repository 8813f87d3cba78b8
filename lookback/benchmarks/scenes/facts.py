"""What a text says, held against a scene: single facts, and whole mentions."""

from __future__ import annotations

from collections.abc import Iterable

from lookback.benchmarks.scenes.parse import Mention, Parsed, Relation
from lookback.benchmarks.scenes.scene import Thing
from lookback.benchmarks.scenes.words import RELATIONS

# ("object", category), ("color" or "size" or "place", category, value),
# (one of `RELATIONS`, category, category)
Fact = tuple[str, ...]


def scene_facts(things: Iterable[Thing]) -> set[Fact]:
    """What a full description would tell: objects and their attributes, colour and size."""
    facts: set[Fact] = set()
    for t in things:
        facts |= {
            ("object", t.category),
            ("color", t.category, t.color),
            ("size", t.category, t.size),
        }
    return facts


def told_facts(parsed: Parsed) -> set[Fact]:
    """The distinct facts that a text asserts; what it denies is not among them.

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
    """Whether some thing (or two different ones) of the scene makes the fact true."""
    kind, category, *value = fact
    things = list(things)
    those = [t for t in things if t.category == category]
    if kind in RELATIONS:
        others = [t for t in things if t.category == value[0]]
        return any(a is not b and RELATIONS[kind](a, b) for a in those for b in others)
    return any(not value or getattr(t, kind) == value[0] for t in those)


def holds(mention: Mention, things: Iterable[Thing]) -> bool:
    """Whether all that is said of a mention is true together of as many things as it counts."""
    those = meant(mention, things)
    if any(getattr(t, tag) in values for t in those for tag, values in mention.denied.items()):
        return False
    if mention.negated:
        return not those
    return len(those) == mention.count if mention.exact else len(those) >= (mention.count or 1)


def relation_holds(relation: Relation, things: Iterable[Thing]) -> bool:
    """Whether it is true of things that fit the two mentions."""
    things = list(things)
    pairs = [
        (a, b)
        for a in meant(relation.first, things)
        for b in meant(relation.second, things)
        if a is not b
    ]
    return any(RELATIONS[relation.name](a, b) for a, b in pairs) != relation.denied


def meant(mention: Mention, things: Iterable[Thing]) -> list[Thing]:
    """The things of which all that is said of the mention is true."""
    return [
        t
        for t in things
        if mention.category in (None, t.category)
        and all(
            getattr(t, tag) == value for tag, values in mention.said.items() for value in values
        )
    ]
