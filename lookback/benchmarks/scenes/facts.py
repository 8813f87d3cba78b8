"""What a text says, as single facts, held against a scene."""

from __future__ import annotations

from collections.abc import Iterable

from lookback.benchmarks.scenes.parse import Parsed
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
