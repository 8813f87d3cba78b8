"""The explorer: the page at `/` of `lookback serve`, and the drawn scenes that it opens on.

The page is one file. It asks this server for everything else: answers, scores and looks as any
client does, and pictures of scenes from here. What its script has from the start is `page_data`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, Self

from fastapi import Depends, FastAPI, Query
from fastapi.responses import HTMLResponse, JSONResponse, Response
from PIL import Image
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lookback.benchmarks.scenes import CAPTION_PROMPT
from lookback.engines import Engine
from lookback.families import GENERIC
from lookback.pages import data_uri, encoded
from lookback.pages import render as render_page
from lookback.scenes.questions import article, referable, reference, sentence
from lookback.scenes.render import bounds, cut_out, render
from lookback.scenes.scene import LOOKS, Scene, Thing, sample_scene
from lookback.scenes.world import CATEGORIES, COLORS, COUNTS, IMAGE_SIZE, PLACES, SIZES
from lookback.scores.base import get_scorer
from lookback.scores.formula import A_FLOOR
from lookback.server.guard import require_json
from lookback.server.schema import Strict
from lookback.server.settings import Settings

PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
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


Seed = Annotated[int, Field(ge=0, lt=SEEDS)]


class ThingBody(Strict):
    """A thing whose place and looks somebody has chosen."""

    category: Literal[*CATEGORIES]  # type: ignore[valid-type]
    color: Literal[*COLORS]  # type: ignore[valid-type]
    size: Literal[*SIZES]  # type: ignore[valid-type]
    cell: Annotated[int, Field(ge=0, lt=len(PLACES))]
    look: Annotated[int, Field(ge=0, lt=LOOKS)]


class SceneBody(Strict):
    """A scene whose things somebody has chosen; the seed says what is behind them."""

    seed: Seed
    things: Annotated[list[ThingBody], Field(min_length=FEWEST, max_length=MOST, fail_fast=True)]

    @model_validator(mode="after")
    def _check_cells(self) -> Self:
        cells = [thing.cell for thing in self.things]
        shared = next((cell for cell in cells if cells.count(cell) > 1), None)
        if shared is not None:
            message = "two things are at '{place}': each place holds one"
            raise PydanticCustomError("shared_place", message, {"place": PLACES[shared]})
        return self

    def scene(self) -> Scene:
        things = tuple(Thing(**thing.model_dump()) for thing in self.things)
        return replace(sample_scene(self.seed), things=things)


def add_explorer(app: FastAPI, engine: Engine, settings: Settings) -> None:
    """Add the explorer's routes to the server's."""

    @cache
    def html() -> str:
        return page(about(engine, settings))

    @app.get("/", include_in_schema=False)
    def explorer() -> Response:
        return HTMLResponse(html(), headers=PAGE_HEADERS)

    @app.get("/explorer/scene", include_in_schema=False)
    def sampled(seed: Annotated[Seed, Query()]) -> Response:
        return JSONResponse(scene_data(sample_scene(seed)))

    @app.post("/explorer/scene", include_in_schema=False, dependencies=[Depends(require_json)])
    def edited(body: SceneBody) -> Response:
        return JSONResponse(scene_data(body.scene()))


def about(engine: Engine, settings: Settings) -> dict[str, Any]:
    """Return what the page is told of a server: its model, its abilities, defaults and limits."""
    defaults = settings.defaults
    return {
        "model": settings.names[0] if settings.names else engine.name,
        "embedded": engine.identity().model == "embedded",  # which knows drawings only
        "looks": "look" in engine.abilities,
        "prunes": "prune" in engine.abilities,
        "best_of": defaults.best_of,
        "most": settings.limits.best_of,
        "scorer": defaults.scorer,
        "alpha": engine.family.alpha,
        "lam": engine.family.lam,
        "prune": defaults.prune is not None,
        "temperature": defaults.temperature,
        "max_tokens": defaults.max_tokens,
        "longest": settings.limits.tokens,
    }


def page(about: dict[str, Any]) -> str:
    """Return the page; it is the same for all who open it."""
    return render_page(
        "explorer/page.html", title="LookBack explorer", about=about, data=page_data(about)
    )


def page_data(about: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's script has from the start."""
    scorers = {name: get_scorer(name) for name in SCORERS}
    return {
        **about,
        "first": FIRST,
        "floor": A_FLOOR,
        "general": {"alpha": GENERIC.alpha, "lam": GENERIC.lam},
        "scorers": {
            name: {"title": scorer.title, "about": scorer.about, "color": scorer.color}
            for name, scorer in scorers.items()
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


def scene_data(scene: Scene) -> dict[str, Any]:
    """Return a scene as JSON: what is in it, how it looks, and what could be asked about it.

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
    lines = [
        f"is there {article(absent)} in the picture?",
        *(f"what color is the {name}?" for name in single[:1]),
        *(f"where is the {name}?" for name in named[-1:]),
        *(f"how many {CATEGORIES[name].plural} are there?" for name in single[-1:]),
        CAPTION_PROMPT,
    ]
    return [sentence(line) for line in lines]


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


def _png(image: Image.Image) -> str:
    return data_uri("image/png", encoded(image))
