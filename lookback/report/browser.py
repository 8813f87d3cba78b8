"""Data of the page's item browser: runs in; an index, blocks and pictures out.

The index is small and read at once; blocks of items (see items.py) and pictures are read when an
item is shown. It is plain data for JSON:

floor      A_FLOOR of the formula
general    the paper's one setting for all models, {"alpha", "lam"}
methods    by the names of their scorers, {"title", "color"} as the scorers have them
block      how many items a block has
runs       of each: key (what links call it), label, alpha, lam, n, least (the smallest N that it
           has: n if it was pruned), total (items it has),
           first (the position of its first block), controls (a label by "random", "none"), and
  means      [alpha, lam, n, {method: mean quality of its picks, or null}] at the settings that
             the runs here were reported with
  items      [id, question, picks] each; picks of each method at the reported setting, by name:
             [place, quality or null, the first place that has the same text]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lookback.families import GENERIC
from lookback.io.json_values import finite
from lookback.report.items import ITEMS, ItemBlocks, Items, Pictures
from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import A_FLOOR, Array
from lookback.studies import Runs, title
from lookback.studies.common.selection import picks, quality_of_picks

PICKING = ("lookback", "self_certainty", "mean_log_prob", "visual_lookback")
"""The methods whose picks the page computes."""
SHOWN = (*PICKING, "random", "oracle")
"""Those whose picks, or expected picks, it compares."""
BUDGET = 40_000_000
"""About how many characters of blocks and pictures a page has by default."""


@dataclass(frozen=True)
class Browser:
    """Data of the item browser, as described above."""

    index: dict[str, Any]
    blocks: list[str]
    images: list[str]


class Setting(NamedTuple):
    """LookBack's alpha and lambda, and of how many candidates methods pick."""

    alpha: float
    lam: float
    n: int


def browser_data(runs: Sequence[Run], items: int | None = None) -> Browser:
    """Return the first items of each run that is no control, with what its controls recorded.

    Items that failed are skipped, and so are runs in which all did.

    Args:
        runs: controls among them are matched to the runs that they belong to.
        items: how many of each run; by default all, up to `BUDGET`, which the runs share.
    """
    shown = [run for run in runs if run.image == "own" and len(run.places) and items != 0]
    methods = [get_scorer(name) for name in SHOWN]
    pictures, blocks = Pictures(), list[str]()
    settings = list(dict.fromkeys(map(_reported, shown)))
    entries = []
    for run, label, key in zip(shown, labels(shown), keys(shown), strict=True):
        part = Items(run, Runs(runs), pictures).read(items, BUDGET // len(shown))
        entries.append(_run(run, part, len(blocks), settings) | {"label": label, "key": key})
        blocks += part.blocks
    index = {
        "floor": A_FLOOR,
        "general": {"alpha": GENERIC.alpha, "lam": GENERIC.lam},
        "methods": {s.name: {"title": s.title, "color": s.color} for s in methods},
        "block": ITEMS,
        "runs": entries,
    }
    return Browser(index, blocks, pictures.uris)


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a name per run: model, benchmark, seed; the folder too where two would be the same."""
    short = []
    for run in runs:
        seed = [] if run.seed is None else [f"seed {run.seed}"]
        short.append(" · ".join([run.model, title(run), *seed]))
    return [
        f"{label} · {run.path.name}" if short.count(label) > 1 else label
        for run, label in zip(runs, short, strict=True)
    ]


def keys(runs: Sequence[Run]) -> list[str]:
    """Return what links call the runs: their folders, with a number after one that comes again."""
    names: list[str] = []
    for run in runs:
        key, number = run.path.name, 1
        while key in names:
            number += 1
            key = f"{run.path.name}~{number}"
        names.append(key)
    return names


def _reported(run: Run) -> Setting:
    return Setting(run.defaults["alpha"], run.defaults["lam"], run.n)


def _run(run: Run, part: ItemBlocks, first: int, settings: list[Setting]) -> dict[str, Any]:
    count = len(part.texts)
    entries = zip(run.ids[:count], run.questions[:count], _picks(run, part.texts), strict=True)
    return {
        "alpha": run.defaults["alpha"],
        "lam": run.defaults["lam"],
        "n": run.n,
        "least": run.n if run.steered else 1,
        "total": len(run.places),
        "first": first,
        "controls": part.controls,
        "means": [
            [*setting, {m: finite(v) for m, v in means(run, setting, count).items()}]
            for setting in settings
            if run.has_draw(min(setting.n, run.n))
        ],
        "items": [list(entry) for entry in entries],
    }


def means(run: Run, setting: Setting, items: int) -> dict[str, float]:
    """Return each method's mean quality of picks in the first items; NaN where one is unknown."""
    quality = run.quality(setting.n)[:items]
    picked = {
        method: quality_of_picks(_scores(run, method, setting)[:items], quality).mean()
        for method in PICKING
    }
    if np.isnan(quality).all(axis=1).any():  # no pick of that item has a known quality
        return picked | {"random": np.nan, "oracle": np.nan}
    expected, best = np.nanmean(quality, axis=1), np.nanmax(quality, axis=1)
    return picked | {"random": expected.mean(), "oracle": best.mean()}


def _scores(run: Run, method: str, setting: Setting) -> Array:
    params = {"alpha": setting.alpha, "lam": setting.lam} if method == "lookback" else {}
    return run.scores(method, setting.n, **params)


def _picks(run: Run, texts: list[list[str]]) -> list[dict[str, list[Any]]]:
    """Return what each method picks, item by item; `texts` are those of its candidates."""
    places = {method: picks(_scores(run, method, _reported(run))) for method in PICKING}
    quality = run.quality()
    return [
        {
            method: [int(p[row]), finite(quality[row, p[row]]), answers.index(answers[p[row]])]
            for method, p in places.items()
        }
        for row, answers in enumerate(texts)
    ]
