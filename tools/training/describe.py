"""Descriptions of a scene in one to four sentences; everything they say is true of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lookback.scenes.questions import (
    RELATION_PHRASES,
    RELATIONS,
    SIZE_PREDICATES,
    SIZE_WORDS,
    counted,
    listed,
    noun,
    place_phrase,
    reference,
    sentence,
)
from lookback.scenes.scene import Scene, Thing, below, chance, pick, shuffled, weighted

MAX_SENTENCES = 4

OPENINGS = (
    "there {be} {list}.",
    "the picture shows {list}.",
    "the image shows {list}.",
    "I can see {list}.",
    "you can see {list}.",
    "this is a picture of {list}.",
    "the scene contains {list}.",
    "in the picture, there {be} {list}.",
    "in this image, I see {list}.",
    "here {be} {list}.",
    "the picture has {list}.",
    "we are looking at {list}.",
)
ADDITIONS = (
    "there {be} also {list}.",
    "the picture also shows {list}.",
    "I can also see {list}.",
    "you can also see {list}.",
    "in addition, there {be} {list}.",
    "the scene also contains {list}.",
)
PLACED = (
    "{place}, there is {np}.",
    "{place} is {np}.",
    "{np} is {place}.",
    "{np} can be seen {place}.",
    "{place}, I can see {np}.",
)
RELATED = (
    "{np} is {relation} the {landmark}.",
    "{relation} the {landmark}, there is {np}.",
    "{relation} the {landmark} is {np}.",
)
REMARKS = {
    "color": ("the {ref} is {color}.", "the color of the {ref} is {color}."),
    "size": ("the {ref} is {size}.", "the {ref} looks {size}."),
    "place": ("the {ref} is {place}.",),
    "relation": ("the {ref} is {relation} the {landmark}.",),
}


@dataclass(frozen=True)
class Style:
    """How much a description tells.

    Attributes:
        all: how often it leaves nothing out.
        color, size, place: how often a noun phrase has one.
        remark: how often a spare sentence adds something about a thing named before.
    """

    all: float
    color: float
    size: float
    place: float
    remark: float


BRIEF = Style(all=0.1, color=0.8, size=0.25, place=0.3, remark=0.2)
DETAILED = Style(all=1.0, color=0.95, size=0.95, place=0.5, remark=0.5)


class _Writer:
    """Sentences about one scene, and what they have told so far."""

    def __init__(self, scene: Scene, style: Style, rng: np.random.Generator) -> None:
        self.scene, self.style, self.rng = scene, style, rng
        self.sentences: list[str] = []
        self.named: list[Thing] = []  # single things that have been mentioned
        self.told: set[tuple[Thing, str | Thing]] = set()  # attributes, and relations to others

    def phrase(self, unit: list[Thing], place: bool) -> str:
        """A noun phrase for things that share category and colour; perhaps with their place."""
        rng, thing = self.rng, unit[0]
        words = [noun(thing.category, len(unit))]
        others = len(self.scene.of(thing.category)) > len(unit)  # then "two cups" would be false
        if others or chance(rng, self.style.color):
            words.insert(0, thing.color)
            self.told.add((thing, "color"))
        if len({t.size for t in unit}) == 1 and chance(rng, self.style.size):
            words.insert(0, pick(rng, SIZE_WORDS[thing.size]))
            self.told.add((thing, "size"))
        phrase = counted(len(unit), " ".join(words))
        if len(unit) == 1:
            self.named.append(thing)
            if place and chance(rng, self.style.place):
                phrase += f" {place_phrase(thing.place, rng)}"
                self.told.add((thing, "place"))
        return phrase

    def add(self, template: str, **slots: str) -> None:
        """One more sentence."""
        self.sentences.append(sentence(template.format(**slots)))

    def list_things(self, templates: tuple[str, ...], units: list[list[Thing]]) -> None:
        """A sentence that lists things."""
        phrases = [self.phrase(unit, place=True) for unit in units]
        be = "is" if len(units[0]) == 1 else "are"
        self.add(pick(self.rng, templates), list=listed(phrases), be=be)

    def introduce(self, thing: Thing) -> None:
        """A sentence for one new thing, by its place or by its relation to one named before."""
        landmarks = self.references()
        phrase = self.phrase([thing], place=False)
        if landmarks and chance(self.rng, 0.45):
            self.add(pick(self.rng, RELATED), np=phrase, **self.relate(thing, landmarks))
        else:
            self.told.add((thing, "place"))
            place = place_phrase(thing.place, self.rng)
            self.add(pick(self.rng, PLACED), np=phrase, place=place)

    def references(self) -> list[Thing]:
        """Things named before that "the ..." can mean."""
        return [t for t in self.named if reference(t, self.scene)]

    def relate(self, thing: Thing, landmarks: list[Thing]) -> dict[str, str]:
        """Words for a landmark and for a relation of the thing to it that holds."""
        landmark = pick(self.rng, landmarks)
        self.told |= {(thing, landmark), (landmark, thing)}
        true = [name for name, holds in RELATIONS.items() if holds(thing, landmark)]
        return {
            "relation": pick(self.rng, RELATION_PHRASES[pick(self.rng, true)]),
            "landmark": reference(landmark, self.scene) or "",
        }

    def remark(self) -> None:
        """A sentence that adds something about a thing named before, if there is anything left."""
        things = self.references()
        if not things:
            return
        thing = pick(self.rng, things)
        landmarks = [t for t in things if t != thing and (thing, t) not in self.told]
        topics = [k for k in ("color", "size", "place") if (thing, k) not in self.told]
        topics += ["relation"] if landmarks else []
        if not topics:
            return
        topic = pick(self.rng, topics)
        self.told.add((thing, topic))
        slots = {"ref": reference(thing, self.scene) or ""}
        if topic == "relation":
            slots |= self.relate(thing, landmarks)
        elif topic == "place":
            slots["place"] = place_phrase(thing.place, self.rng)
        elif topic == "size":
            slots["size"] = pick(self.rng, SIZE_PREDICATES[thing.size])
        else:
            slots["color"] = thing.color
        self.add(pick(self.rng, REMARKS[topic]), **slots)


def units_of(scene: Scene, rng: np.random.Generator) -> list[list[Thing]]:
    """The things in the order of telling, those of one category and colour together.

    What is large tends to be told first.
    """
    things = shuffled(rng, scene.things)
    if chance(rng, 0.6):
        things.sort(key=lambda t: t.size != "large")
    units: dict[tuple[str, str], list[Thing]] = {}
    for thing in things:
        units.setdefault((thing.category, thing.color), []).append(thing)
    return list(units.values())


def describe(scene: Scene, rng: np.random.Generator, style: Style = BRIEF) -> str:
    """A description in whole sentences."""
    writer = _Writer(scene, style, rng)
    units = units_of(scene, rng)
    if not chance(rng, style.all):
        units = units[: max(2, len(units) - 1 - below(rng, 2))]
    first = min(len(units), weighted(rng, (1, 2, 3, 4), (0.2, 0.35, 0.3, 0.15)))
    writer.list_things(OPENINGS, units[:first])
    units = units[first:]
    while units:
        last = len(writer.sentences) == MAX_SENTENCES - 1
        if len(units[0]) == 1 and chance(rng, 0.55) and not (last and len(units) > 1):
            writer.introduce(units.pop(0)[0])
        else:
            n = len(units) if last else min(len(units), 1 + below(rng, 3))
            writer.list_things(ADDITIONS, units[:n])
            units = units[n:]
    while len(writer.sentences) < MAX_SENTENCES and chance(rng, style.remark):
        writer.remark()
    return " ".join(writer.sentences)
