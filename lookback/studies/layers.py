"""Which layers' A_t selects best, which look at the image for words that show things, and which
tell right objects from wrong ones. Of runs with signals by layer."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from lookback.benchmarks import english
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies.common import plots
from lookback.studies.common import words as speech
from lookback.studies.common.base import (
    Result,
    Runs,
    StudyError,
    one_budget,
    other_run_note,
    study,
    title,
)
from lookback.studies.common.budgets import join_budgets
from lookback.studies.common.layers import (
    CHOSEN,
    REFERENCES,
    LayerResult,
    Settings,
    analyse,
    name_of,
    parts_of,
)
from lookback.studies.common.selection import bootstrap_means, estimate, in_order, interval
from lookback.studies.common.tables import Cell, Table, rows_of_columns

NOTES = [
    "Layers are counted from 1, those that attend alone. All layers: the run's own A_t, the mean "
    "over all heads; some layers: the mean over these. Alpha and lambda are the same for all.",
    "A gain is over all layers, on the same items. Intervals: 95 %, from 2,000 bootstrap samples "
    "of items. The gain of one stretch of layers is not held out: the best of many is flattered.",
    "Bands and whiskers of the figure: the same 95 %, each line by itself. Top: it alone, with "
    "layers up to it, from it on. Dashed: all layers.",
    "AUC: the probability that a right mention of an object has the higher A_t than a wrong one, "
    "ties half; 0.5 tells nothing.",
]


@study("layers", title="Layers", needs_quality=True)
def layers(
    runs: Runs,
    n: int | None = None,
    splits: int = 20,
    seed: int = 0,
    responses: int = 2000,
    alpha: float | None = None,
    lam: float | None = None,
) -> Result:
    """Which layers' A_t selects best, held out; words and right mentions by layer.

    Args:
        runs: those made with --by-layer are analysed, each by itself.
        n: the first n candidates, or all of a smaller run; by default the N of all studies.
        splits: how often the items are halved by lot, to choose layers on one half for the other.
        seed: of that lot.
        responses: the most responses of a run whose words and mentions are read.
        alpha, lam: LookBack's settings for any layers; each run's own by default.

    Raises:
        StudyError: no run has signals by layer.
    """
    notes = [*NOTES[:3], *speech.NOTES, f"Tagged by spaCy with {english.model_name()}.", NOTES[3]]
    results = []
    for run in in_order(_with_layers(runs).largest):
        budget = one_budget(runs, run, n)
        result, more = analyse(run, Settings(budget, splits, seed, responses, alpha, lam))
        results.append(result)
        if run not in runs.largest:
            notes.append(other_run_note(run, "signals by layer"))
        notes += [f"{title(run)}, {run.model}: {note}" for note in more]
    rows = [
        row
        for result in results
        for row in (*_selection(result), *_words(result), *_mentions(result))
    ]
    tables = []
    for _, group in groupby(results, key=lambda result: (result.run.model, result.depth)):
        here = list(group)
        tables += [_selection_table(here), _layer_table(here)]
    return Result(rows, tables, _figure(results), notes)


def _with_layers(runs: Runs) -> Runs:
    kept = [run for run in runs if run.has_layers]
    if not kept:
        raise StudyError(
            "no run here has signals by layer: make one with `lookback run ... --by-layer --out "
            "DIR` and give it"
        )
    return Runs(kept, runs.notes, runs.ns)


def _row(result: LayerResult, measure: str, what: range | str, **numbers: float) -> dict[str, Any]:
    """A row of the tidy table; layers from 1 to last, 0 where it is not about layers."""
    labels = {"model": result.run.model, "benchmark": title(result.run), "N": result.n}
    labels |= {"items": len(result.run.ids), "measure": measure, "what": result.name(what)}
    first, last = (0, 0) if isinstance(what, str) else (what[0] + 1, what[-1] + 1)
    names = ("value", "low", "high", "gain", "gain_low", "gain_high", "right", "wrong", "words")
    return labels | {"first": first, "last": last} | dict.fromkeys(names, np.nan) | numbers


def _selection(result: LayerResult) -> list[dict[str, Any]]:
    """A row per stretch of layers, and for the choice and the references."""
    rows = []
    for what, values in result.outcomes.items():
        numbers = estimate(values) | estimate(result.gain(what), "gain")
        rows.append(_row(result, "outcome", what, **numbers))
    return rows


def _words(result: LayerResult) -> list[dict[str, Any]]:
    rows = []
    for name, values in result.words.items():
        for what, value, ends in zip(result.each_layer, values, result.ends[name], strict=True):
            row = _row(
                result, f"z-score, {name}", what, value=float(value), words=result.counts[name]
            )
            rows.append(row | _ends(ends))
    return rows


def _mentions(result: LayerResult) -> list[dict[str, Any]]:
    if result.aucs is None:
        return []
    counts = {name: result.counts[name] for name in ("right", "wrong")}
    values = zip(result.each_layer, result.aucs.tolist(), result.ends["AUC"], strict=True)
    return [
        _row(result, "AUC", what, value=value, **counts, **_ends(ends))
        for what, value, ends in values
    ]


def _ends(ends: Array) -> dict[str, float]:
    return {"low": float(ends[0]), "high": float(ends[1])}


def _selection_table(results: list[LayerResult]) -> Table:
    """All layers, halves and quarters, the choice, the references; a pair of columns per run."""
    depth = results[0].depth
    chosen: dict[str, range | str] = {"all layers": range(depth)}
    chosen |= {f"{n} ({name_of(one, depth)})": one for n, one in parts_of(depth).items()}
    chosen |= {name: name for name in (CHOSEN, *REFERENCES)}
    columns: list[list[Cell | str]] = []
    header = [("", "A_t from")]
    for one in results:
        columns.append([f"{one.outcomes[what].mean():.2f}" for what in chosen.values()])
        columns.append([_gain([one], what) for what in chosen.values()])
        header += [(title(one.run), "per cent"), (title(one.run), "gain")]
    if len(results) > 1:
        columns.append([_gain(results, what) for what in chosen.values()])
        header.append(("Average", "gain"))
    lines = rows_of_columns(list(chosen), columns)
    budget = join_budgets(one.n for one in results)
    caption = (
        f"LookBack with A_t from some layers, {results[0].run.model}, N = {budget}: points more "
        "than with all [95 % interval]."
    )
    return Table(header, lines, caption, rules=[1, len(chosen) - 1 - len(REFERENCES)])


def _gain(results: list[LayerResult], what: range | str) -> str:
    """The mean gain over some runs, with its interval; each has bootstrap samples of its own."""
    if all(what == range(result.depth) for result in results):
        return "-"
    gains = [result.gain(what) for result in results]
    draws = np.mean([bootstrap_means(gain, seed) for seed, gain in enumerate(gains)], axis=0)
    low, high = interval(draws)
    return f"{np.mean([gain.mean() for gain in gains]):+.2f} [{low:+.1f}, {high:+.1f}]"


def _layer_table(results: list[LayerResult]) -> Table:
    """A row per layer; of each run the gain, both sets of words, and the AUC."""
    columns: list[list[str]] = []
    header = [("", "A_t from")]
    for result in results:
        each = result.each_layer
        columns.append([f"{result.gain(what).mean():+.2f}" for what in each])
        columns += [[_number(v, "{:+.2f}") for v in values] for values in result.words.values()]
        aucs = np.full(len(each), np.nan) if result.aucs is None else result.aucs
        columns.append([_number(value, "{:.3f}") for value in aucs])
        names = ("gain", *(name.removesuffix(" set") for name in result.words), "AUC")
        header += [(title(result.run), name) for name in names]
    lines = rows_of_columns([results[0].name(what) for what in results[0].each_layer], columns)
    caption = (
        f"Single layers, {results[0].run.model}: points more than with all layers, mean z-scores "
        "of words of the visual and the textual set, AUC of right against wrong mentions."
    )
    return Table(header, lines, caption, rules=[results[0].depth])


def _number(value: float, form: str) -> str:
    return "-" if np.isnan(value) else form.format(value)


@plots.in_style
def _figure(results: list[LayerResult]) -> Any:
    """Selection above, words, mentions below; a column per run."""
    figure, axes = plots.tiles(len(results), high=3, across=2, height=1.6, sharey="row")
    for number, (result, (top, middle, bottom)) in enumerate(zip(results, axes, strict=True)):
        top.set_title(plots.heading(f"{title(result.run)}, {result.run.model}"))
        _draw_selection(top, result)
        _draw_words(middle, result)
        _draw_mentions(bottom, result)
        names = {top: "per cent", middle: "mean z-score of A", bottom: "AUC, right mentions"}
        for axis, name in names.items():
            axis.set(xlabel="layer", xticks=_ticks(result.depth))
            axis.margins(x=0.04)
            if number % 2 == 0 or (axis is bottom and results[number - 1].aucs is None):
                axis.set_ylabel(name)
                axis.tick_params(labelleft=True)
    plots.settle_labels(figure)
    return figure


def _ticks(depth: int) -> list[int]:
    """At most a dozen of the layers."""
    return list(range(1, depth + 1, -(-depth // 12)))


def _draw(axis: Any, values: Any, ends: Any, name: str, color: str, style: str) -> None:
    """A line over layers with its band, or dots with whiskers; named where it ends."""
    x, (low, high) = np.arange(1, len(values) + 1), np.asarray(ends, dtype=float).T
    axis.plot(x, values, style, color=color, markersize=3)
    if style == "o":
        axis.vlines(x, low, high, color=color, linewidth=0.8)
    else:
        axis.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
    plots.label_end(axis, x, values, name, color)


def _draw_level(axis: Any, value: float, name: str, color: str, style: str) -> None:
    """A line across, named at its right end."""
    axis.axhline(value, color=color, linestyle=style, linewidth=0.8)
    plots.label_end(axis, [axis.get_xlim()[1]], [value], name, color)


def _draw_selection(axis: Any, result: LayerResult) -> None:
    """Outcomes with one layer, with those up to it, and with those from it on."""
    ours, depth = get_scorer("lookback").color, result.depth
    alone, before = get_scorer("visual_lookback").color, get_scorer("self_certainty").color
    looks = {
        "it alone": (alone, "o", [range(i, i + 1) for i in range(depth)]),
        "up to it": (before, "-.", [range(i + 1) for i in range(depth)]),
        "from it on": (ours, "-", [range(i, depth) for i in range(depth)]),
    }
    for name, (color, style, parts) in looks.items():
        values = [result.outcomes[part] for part in parts]
        ends = [interval(bootstrap_means(value)) for value in values]
        _draw(axis, [value.mean() for value in values], ends, name, color, style)
    _draw_level(axis, result.outcomes[range(depth)].mean(), "all layers", ours, "--")
    _draw_level(axis, result.outcomes["mean log p"].mean(), "mean log p", plots.MUTED, ":")


def _draw_words(axis: Any, result: LayerResult) -> None:
    looks = ((get_scorer("visual_lookback").color, ".-"), (plots.MUTED, "s-"))
    for (name, values), (color, style) in zip(result.words.items(), looks, strict=True):
        _draw(axis, values[:-1], result.ends[name][:-1], name, color, style)
        axis.axhline(values[-1], color=color, linestyle="--", linewidth=0.8)
    axis.axhline(0, color=plots.INK, linewidth=0.6)


def _draw_mentions(axis: Any, result: LayerResult) -> None:
    if result.aucs is None:
        words = "No AUC: this benchmark cannot tell\nright mentions from wrong ones."
        look = {"ha": "center", "va": "center", "color": plots.MUTED}
        axis.text(0.5, 0.5, words, transform=axis.transAxes, **look)
        axis.set_axis_off()
        return
    color = get_scorer("visual_lookback").color
    _draw(axis, result.aucs[:-1], result.ends["AUC"][:-1], "by layer", color, ".-")
    _draw_level(axis, result.aucs[-1], "all layers", color, "--")
    _draw_level(axis, 0.5, "tells nothing", plots.INK, "-")
