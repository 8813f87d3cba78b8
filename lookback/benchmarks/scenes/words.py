"""English for things: articles, plurals, numbers, places and how one thing lies to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lookback.benchmarks.scenes.chance import pick
from lookback.benchmarks.scenes.scene import Scene, Thing
from lookback.benchmarks.scenes.world import CATEGORIES, PLACES

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
    """The words with "a" or "an" before them."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def noun(category: str | None, count: int = 1) -> str:
    """The category's noun for that many; None is any thing."""
    if category is None:
        return "thing" if count == 1 else "things"
    return category if count == 1 else CATEGORIES[category].plural


def counted(count: int, words: str) -> str:
    """A noun phrase with its number: "a red cup", "two red cups"; the noun is in `words`."""
    return article(words) if count == 1 else f"{NUMBERS[count]} {words}"


def place_phrase(place: str, rng: np.random.Generator) -> str:
    """A place as an adverbial, "at the top left"."""
    return pick(rng, PLACE_PHRASES[place])


def reference(thing: Thing, scene: Scene) -> str | None:
    """The shortest of "cup" and "red cup" that means only this thing; None if neither does."""
    same = scene.of(thing.category)
    if len(same) == 1:
        return thing.category
    if sum(t.color == thing.color for t in same) == 1:
        return f"{thing.color} {thing.category}"
    return None


def referable(scene: Scene) -> list[Thing]:
    """The things that `reference` has words for."""
    return [t for t in scene.things if reference(t, scene)]


def listed(phrases: Sequence[str]) -> str:
    """Phrases joined as English does: "a, b and c"."""
    *rest, last = phrases
    return f"{', '.join(rest)} and {last}" if rest else last


def sentence(words: str) -> str:
    """The words with a capital at the beginning."""
    return words[0].upper() + words[1:]
