"""Questions about a scene with their true answer, and the English they are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lookback.scenes.scene import Scene, Thing, chance, pick
from lookback.scenes.world import CATEGORIES, COLORS, GROUPS, PLACES

NUMBERS = ("no", "one", "two", "three", "four", "five", "six")
SIZE_WORDS = {"small": ("small", "little"), "large": ("large", "big")}  # before a noun
SIZE_PREDICATES = {"small": ("small",), "large": ("large", "big")}  # after a verb

_CORNERS = ("top left", "top right", "bottom left", "bottom right")
PLACE_PHRASES: dict[str, tuple[str, ...]] = {
    place: (
        f"at the {place}",
        f"at the {place}",
        f"in the {place}",
        *((f"in the {place} corner",) if place in _CORNERS else ()),
        *(("in the middle",) if place == "center" else ()),
    )
    for place in PLACES
}

# When "a <relation> b" is true. Columns and rows decide, not pixels.
RELATIONS: dict[str, Callable[[Thing, Thing], bool]] = {
    "left of": lambda a, b: a.column < b.column,
    "right of": lambda a, b: a.column > b.column,
    "above": lambda a, b: a.row < b.row,
    "below": lambda a, b: a.row > b.row,
    "next to": lambda a, b: abs(a.column - b.column) + abs(a.row - b.row) == 1,
}
RELATION_PHRASES: dict[str, tuple[str, ...]] = {
    "left of": ("to the left of", "left of"),
    "right of": ("to the right of", "right of"),
    "above": ("above",),
    "below": ("below",),
    "next to": ("next to",),
}


def article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def noun(category: str | None, count: int = 1) -> str:
    """Return the category's noun for that many; None is any thing."""
    if category is None:
        return "thing" if count == 1 else "things"
    return category if count == 1 else CATEGORIES[category].plural


def counted(count: int, words: str) -> str:
    """Return a noun phrase with its number, "a red cup"; the noun is in `words`."""
    return article(words) if count == 1 else f"{NUMBERS[count]} {words}"


def place_phrase(place: str, rng: np.random.Generator) -> str:
    return pick(rng, PLACE_PHRASES[place])


def reference(thing: Thing, scene: Scene) -> str | None:
    """Return the shortest of "cup" and "red cup" that means only this thing; None if none does."""
    same = scene.of(thing.category)
    if len(same) == 1:
        return thing.category
    if sum(t.color == thing.color for t in same) == 1:
        return f"{thing.color} {thing.category}"
    return None


def referable(scene: Scene) -> list[Thing]:
    return [t for t in scene.things if reference(t, scene)]


def listed(phrases: Sequence[str]) -> str:
    *rest, last = phrases
    return f"{', '.join(rest)} and {last}" if rest else last


def sentence(words: str) -> str:
    return words[0].upper() + words[1:]


QUESTIONS: dict[str, tuple[str, ...]] = {
    "color": (
        "what color is the {ref}?",
        "which color does the {ref} have?",
        "what is the color of the {ref}?",
    ),
    "is_color": ("is the {ref} {asked}?", "is the color of the {ref} {asked}?"),
    "size": ("is the {ref} small or large?", "what size is the {ref}?", "how big is the {ref}?"),
    "exists": (
        "is there {np} in the picture?",
        "can you see {np}?",
        "does the picture show {np}?",
        "is there {np}?",
    ),
    "count": (
        "how many {nouns} are there?",
        "how many {nouns} are in the picture?",
        "how many {nouns} can you see?",
    ),
    "is_count": ("are there {asked} things in the picture?", "can you see {asked} things?"),
    "where": (
        "where is the {ref}?",
        "where in the picture is the {ref}?",
        "where can you see the {ref}?",
    ),
    "what": (
        "what is {place}?",
        "what is {place} of the picture?",
        "which thing is {place}?",
        "what can you see {place}?",
    ),
    "is_at": ("is the {ref} {asked}?", "can you see the {ref} {asked}?"),
    "is_related": ("is the {ref} {asked} the {landmark}?",),
}


Rng = np.random.Generator


@dataclass(frozen=True)
class Question:
    """A question and what is true.

    Attributes:
        kind: the key of the template tables.
        text: the question alone, without a hint at the wanted form of the answer.
        truth: JSON-able: kind, answer, and claim or about.
        slots: what the templates of questions and answers need.
    """

    kind: str
    text: str
    truth: dict[str, Any]
    slots: dict[str, str]


def _ask(
    kind: str, rng: Rng, slots: dict[str, str], answer: str, **more: dict[str, Any]
) -> Question:
    text = sentence(pick(rng, QUESTIONS[kind]).format(**slots))
    return Question(kind, text, {"kind": kind, "answer": answer, **more}, slots)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _other(rng: Rng, options: Sequence[str], not_this: str) -> str:
    return pick(rng, [option for option in options if option != not_this])


def _one(things: list[Thing], rng: Rng) -> Thing | None:
    """Return a thing to ask about, every second time one of an unusual colour if there is one."""
    odd = [t for t in things if t.color != CATEGORIES[t.category].main]
    if not things:
        return None
    return pick(rng, odd if odd and chance(rng, 0.5) else things)


def color(scene: Scene, rng: Rng) -> Question | None:
    """Ask what colour a thing has; only where naming the thing does not give it away."""
    thing = _one(scene.singles(), rng)
    if thing is None:
        return None
    slots = {"ref": thing.category, "color": thing.color}
    return _ask("color", rng, slots, thing.color, about={"category": thing.category})


def is_color(scene: Scene, rng: Rng) -> Question | None:
    """Ask whether a thing has a colour; a false one is often what such things usually have."""
    thing = _one(scene.singles(), rng)
    if thing is None:
        return None
    asked, usual = thing.color, CATEGORIES[thing.category].main
    if chance(rng, 0.5):
        lure = usual != thing.color and chance(rng, 0.6)
        asked = usual if lure else _other(rng, tuple(COLORS), thing.color)
    return ask_color(thing, asked, rng)


def ask_color(thing: Thing, asked: str, rng: Rng) -> Question:
    """Ask whether this thing, the only one of its category, has that colour."""
    slots = {"ref": thing.category, "color": thing.color, "asked": asked}
    claim = {"category": thing.category, "color": asked}
    return _ask("is_color", rng, slots, _yes(asked == thing.color), claim=claim)


def size(scene: Scene, rng: Rng) -> Question | None:
    thing = _one(referable(scene), rng)
    if thing is None:
        return None
    slots = {"ref": reference(thing, scene) or "", "size": pick(rng, SIZE_PREDICATES[thing.size])}
    return _ask("size", rng, slots, thing.size, about={"category": thing.category})


def exists(scene: Scene, rng: Rng) -> Question | None:
    """Ask whether there is a thing, every fourth time of a colour; absent ones often fit in."""
    if chance(rng, 0.5):
        thing = pick(rng, scene.things)
        return ask_exists(scene, thing.category, thing.color if chance(rng, 0.25) else None, rng)
    if chance(rng, 0.25):
        category = pick(rng, scene.things).category
        present = {t.color for t in scene.of(category)}
        return ask_exists(scene, category, pick(rng, [c for c in COLORS if c not in present]), rng)
    fitting = [c for c in GROUPS[scene.group] if not scene.of(c)]
    absent = [c for c in CATEGORIES if not scene.of(c)]
    category = pick(rng, fitting if fitting and chance(rng, 0.6) else absent)
    return ask_exists(scene, category, None, rng)


def ask_exists(scene: Scene, category: str, asked: str | None, rng: Rng) -> Question:
    """Ask whether there is a thing of that category (and of that colour, unless None)."""
    hits = [t for t in scene.of(category) if asked in (None, t.color)]
    words = category if asked is None else f"{asked} {category}"
    present = Counter((t.category, "" if asked is None else f"{t.color} ") for t in scene.things)
    seen = listed([counted(n, f"{color}{noun(c, n)}") for (c, color), n in present.items()])
    are = "is" if next(iter(present.values())) == 1 else "are"
    slots = {"np": article(words), "words": words, "all": seen, "are": are}
    if hits:
        thing = pick(rng, hits)
        slots["colored"] = article(f"{thing.color} {category}")
        slots["place"] = place_phrase(thing.place, rng)
    claim = {"category": category} | ({} if asked is None else {"color": asked})
    return _ask("exists", rng, slots, _yes(bool(hits)), claim=claim)


def count(scene: Scene, rng: Rng) -> Question | None:
    """Ask how many things of a category there are, or how many things in all."""
    twins = [t.category for t in scene.things if len(scene.of(t.category)) > 1]
    category: str | None = None
    if twins and chance(rng, 0.5):
        category = pick(rng, twins)
    elif chance(rng, 0.5):
        category = pick(rng, scene.things).category
    elif chance(rng, 0.15):
        category = pick(rng, [c for c in CATEGORIES if not scene.of(c)])
    n = len(scene.of(category))
    slots = {
        "nouns": noun(category, 2),
        "number": NUMBERS[n] if n else "none",
        "counted": f"{NUMBERS[n]} {noun(category, n)}",
        "be": "is" if n == 1 else "are",
    }
    return _ask("count", rng, slots, str(n), about={"category": category})


def is_count(scene: Scene, rng: Rng) -> Question | None:
    """Ask whether there are so many things in all; a false number is off by one."""
    n = len(scene.things)
    wrong = [k for k in (n - 1, n + 1) if 1 < k < len(NUMBERS)]
    return ask_count(scene, n if chance(rng, 0.5) else pick(rng, wrong), rng)


def ask_count(scene: Scene, asked: int, rng: Rng) -> Question:
    n = len(scene.things)
    slots = {"asked": NUMBERS[asked], "number": NUMBERS[n]}
    return _ask("is_count", rng, slots, _yes(asked == n), claim={"category": None, "count": asked})


def where(scene: Scene, rng: Rng) -> Question | None:
    thing = _one(referable(scene), rng)
    if thing is None:
        return None
    slots = {
        "ref": reference(thing, scene) or "",
        "place": place_phrase(thing.place, rng),
        "bare": thing.place,
    }
    return _ask("where", rng, slots, thing.place, about={"category": thing.category})


def what(scene: Scene, rng: Rng) -> Question | None:
    """Ask what is at a place that is not empty."""
    thing = pick(rng, scene.things)
    slots = {
        "place": place_phrase(thing.place, rng),
        "thing": thing.category,
        "np": article(thing.category),
        "colored": article(f"{thing.color} {thing.category}"),
    }
    return _ask("what", rng, slots, thing.category, about={"place": thing.place})


def is_at(scene: Scene, rng: Rng) -> Question | None:
    thing = _one(referable(scene), rng)
    if thing is None:
        return None
    asked = thing.place if chance(rng, 0.5) else _other(rng, PLACES, thing.place)
    return ask_place(thing, reference(thing, scene) or "", asked, rng)


def ask_place(thing: Thing, ref: str, asked: str, rng: Rng) -> Question:
    """Ask whether this thing, called `ref`, is at that place."""
    slots = {
        "ref": ref,
        "asked": place_phrase(asked, rng),
        "place": place_phrase(thing.place, rng),
        "bare": thing.place,
    }
    claim = {"category": thing.category, "place": asked}
    return _ask("is_at", rng, slots, _yes(asked == thing.place), claim=claim)


def is_related(scene: Scene, rng: Rng) -> Question | None:
    """Ask whether a thing is left of, above, ... another; a false claim is the reverse."""
    things = referable(scene)
    if len(things) < 2:
        return None
    first = pick(rng, things)
    second = pick(rng, [t for t in things if t != first])
    true = [name for name in REVERSE if RELATIONS[name](first, second)]
    relation = pick(rng, true)
    asked = relation if chance(rng, 0.5) else REVERSE[relation]
    slots = {
        "ref": reference(first, scene) or "",
        "landmark": reference(second, scene) or "",
        "asked": pick(rng, RELATION_PHRASES[asked]),
        "relation": pick(rng, RELATION_PHRASES[relation]),
    }
    return _ask("is_related", rng, slots, _yes(asked == relation), claim={"relation": asked})


REVERSE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}

KINDS: dict[str, Callable[[Scene, Rng], Question | None]] = {
    f.__name__: f
    for f in (color, is_color, size, exists, count, is_count, where, what, is_at, is_related)
}
