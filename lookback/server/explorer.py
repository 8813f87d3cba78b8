"""The explorer: the page at `/` of `lookback serve`, and the drawn scenes that it opens on.

The page is one file. It asks this server for everything else: answers, scores and looks as any
client does, and pictures of scenes from here. What its script knows from the start is `page_data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict

from PIL import Image

from lookback.benchmarks.scenes import CAPTION_PROMPT
from lookback.families import GENERIC
from lookback.pages import data_uri, encoded
from lookback.pages import render as render_page
from lookback.scenes.questions import article, referable, reference, sentence
from lookback.scenes.render import bounds, cut_out, render
from lookback.scenes.scene import LOOKS, Scene, Thing, sample_scene
from lookback.scenes.world import CATEGORIES, COLORS, COUNTS, IMAGE_SIZE, PLACES, SIZES
from lookback.scores.base import get_scorer
from lookback.scores.formula import A_FLOOR

SEEDS = 2**32
"""Scenes have seeds from 0 up to this."""
SCORERS = (
    "lookback",
    "mean_log_prob",
    "self_certainty",
    "entropy",
    "visual_lookback",
    "majority",
)
"""Those that the page can compute by itself: arithmetic on signals and texts."""
FIRST = 7
"""The scene that the page opens on: few things, and the model sees them."""
FEWEST, MOST = min(COUNTS), max(COUNTS)


class About(TypedDict):
    """What the page is told of the server.

    Attributes:
        model: its name.
        embedded: whether it is the model that comes with the package, which knows drawings only.
        looks: whether the engine can say where a response looked.
        prunes: whether the engine can end the worst candidates early.
        best_of: how many answers are drawn unless somebody says otherwise; `most`: at most.
        scorer, alpha, lam, prune: the server's own; alpha and lam are the model's.
        temperature, max_tokens: of a draw; `longest`: what max_tokens may be.
    """

    model: str
    embedded: bool
    looks: bool
    prunes: bool
    best_of: int
    most: int
    scorer: str
    alpha: float
    lam: float
    prune: bool
    temperature: float
    max_tokens: int
    longest: int


def page(about: About) -> str:
    """The page; the same for all who open it."""
    return render_page(
        "explorer/page.html", title="LookBack explorer", about=about, data=page_data(about)
    )


def page_data(about: About) -> dict[str, Any]:
    """What the script knows from the start."""
    scorers = {name: get_scorer(name) for name in SCORERS}
    return {
        **about,
        "first": FIRST,
        "floor": A_FLOOR,
        "general": {"alpha": GENERIC.alpha, "lam": GENERIC.lam},
        "scorers": {
            name: {"title": one.title, "about": one.about, "color": one.color}
            for name, one in scorers.items()
        },
        "world": {
            "categories": list(CATEGORIES),
            "colors": {name: f"rgb({r} {g} {b})" for name, (r, g, b) in COLORS.items()},
            "sizes": list(SIZES),
            "places": list(PLACES),
            "fewest": FEWEST,
            "most": MOST,
        },
    }


def scene_of(seed: int) -> dict[str, Any]:
    """The scene of a seed, as the page takes it, see `scene_data`.

    Raises:
        ValueError: there is no such seed.
    """
    return scene_data(sample_scene(_whole("seed", seed, SEEDS)))


def scene_from(data: object) -> dict[str, Any]:
    """A scene whose things somebody has chosen, as the page takes it.

    Args:
        data: {"seed", "things": [{"category", "color", "size", "cell", "look"}]}; the seed says
            what is behind the things.

    Raises:
        ValueError: it is something else; what, and what could be there, is said.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a scene is an object with seed and things, not {type(data).__name__}")
    _names("a scene", data, ("seed", "things"))
    seed = _whole("seed", data["seed"], SEEDS)
    given = data["things"]
    if not isinstance(given, list) or not FEWEST <= len(given) <= MOST:
        raise ValueError(f"things: a list of {FEWEST} to {MOST} of them")
    things = tuple(_thing(number, one) for number, one in enumerate(given))
    cells = [thing.cell for thing in things]
    shared = next((cell for cell in cells if cells.count(cell) > 1), None)
    if shared is not None:
        raise ValueError(f"two things are at {PLACES[shared]!r}: each place holds one")
    return scene_data(replace(sample_scene(seed), things=things))


def scene_data(scene: Scene) -> dict[str, Any]:
    """A scene as JSON-able data: what is in it, how it looks, and what could be asked about it.

    `image` is the picture that a model is shown; `behind` the same without things, and each
    thing's `sprite` and `box` (left, top, right, bottom, in pixels) for one that is being moved.
    """
    return {
        "seed": scene.seed,
        "size": IMAGE_SIZE,
        "things": [_thing_data(thing) for thing in scene.things],
        "image": _png(render(scene)),
        "behind": _png(render(replace(scene, things=()))),
        "questions": questions(scene),
    }


def questions(scene: Scene) -> list[str]:
    """Return a few that fit a scene, of the kinds that the embedded model was taught.

    The page opens with the first: yes or no, where picking one of N answers gains most. With
    descriptions, the last, it gains nothing (docs/choosing.md).
    """
    named = [reference(thing, scene) for thing in referable(scene)]
    single = [thing.category for thing in scene.singles()]
    absent = next(name for name in CATEGORIES if not scene.of(name))
    asked = [
        f"is there {article(absent)} in the picture?",
        *(f"what color is the {name}?" for name in single[:1]),
        *(f"where is the {name}?" for name in named[-1:]),
        *(f"how many {CATEGORIES[name].plural} are there?" for name in single[-1:]),
        CAPTION_PROMPT,
    ]
    return [sentence(one) for one in asked]


def _thing(number: int, data: object) -> Thing:
    where = f"things[{number}]"
    if not isinstance(data, Mapping):
        raise ValueError(f"{where}: an object, not {type(data).__name__}")
    _names(where, data, ("category", "color", "size", "cell", "look"))
    for name, known in (("category", CATEGORIES), ("color", COLORS), ("size", SIZES)):
        if not isinstance(data[name], str) or data[name] not in known:
            shown = repr(data[name])[:60]
            raise ValueError(f"{where}.{name} = {shown}: it must be one of {', '.join(known)}")
    cell = _whole(f"{where}.cell", data["cell"], len(PLACES))
    look = _whole(f"{where}.look", data["look"], LOOKS)
    return Thing(data["category"], data["color"], data["size"], cell, look)


def _thing_data(thing: Thing) -> dict[str, Any]:
    return {
        "category": thing.category,
        "color": thing.color,
        "size": thing.size,
        "cell": thing.cell,
        "look": thing.look,
        "box": list(bounds(thing)),
        "sprite": _png(cut_out(thing)),
    }


def _names(where: str, data: Mapping[Any, Any], wanted: tuple[str, ...]) -> None:
    """Let pass an object with just these names."""
    if missing := [name for name in wanted if name not in data]:
        raise ValueError(f"{where} needs {', '.join(missing)}")
    if unknown := [repr(name)[:60] for name in data if name not in wanted]:
        raise ValueError(f"{where} has {', '.join(wanted)}, and no {', '.join(unknown[:3])}")


def _whole(name: str, value: object, end: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < end:
        shown = repr(value)[:60]
        raise ValueError(f"{name} = {shown}: it must be a whole number from 0 to {end - 1}")
    return value


def _png(image: Image.Image) -> str:
    return data_uri("image/png", encoded(image))
