"""Which layers' A_t selects best, which look at the image for words that show things, and which
tell right objects from wrong ones. Of runs with signals by layer.

Layers are counted from 0 here, and from 1 where people read of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.benchmarks import english
from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array, lookback_scores
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
from lookback.studies.common.controls import auc, bootstrap_aucs
from lookback.studies.common.selection import (
    bootstrap_means,
    choose_on_other_half,
    estimate,
    in_order,
    interval,
    outcome,
    quality_of_picks,
)
from lookback.studies.common.tables import Cell, Table, rows_of_columns

ORDINALS = ("first", "second", "third", "fourth")
CHOSEN = "chosen on the other half"
REFERENCES = {"mean log p": "mean_log_prob", "random selection": "random"}
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
        result, more = _analyse(run, budget, splits, seed, responses, alpha, lam)
        results.append(result)
        if run not in runs.largest:
            notes.append(other_run_note(run, "signals by layer"))
        notes += [f"{title(run)}, {run.model}: {note}" for note in more]
    rows = [row for result in results for row in (*_selection(result), *_by_layer(result))]
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


def parts_of(depth: int) -> dict[str, range]:
    """The halves and quarters of so many layers, as far as there are layers for them."""
    parts = {}
    for name, count in (("half", 2), ("quarter", 4)):
        bounds = [depth * i // count for i in range(count + 1)]
        if depth >= count:
            for ordinal, first, end in zip(ORDINALS, bounds, bounds[1:], strict=False):
                parts[f"{ordinal} {name}"] = range(first, end)
    return parts


def stretches(depth: int) -> list[range]:
    """All layers, then every single one, every beginning, every end, the halves and quarters."""
    singles = [range(i, i + 1) for i in range(depth)]
    beginnings = [range(end) for end in range(1, depth)]
    ends = [range(first, depth) for first in range(1, depth)]
    ranges = [range(depth), *singles, *beginnings, *ends, *parts_of(depth).values()]
    return list(dict.fromkeys(ranges))


def name_of(layers: range, depth: int) -> str:
    """What people call a stretch of layers."""
    if len(layers) == depth:
        return "all layers"
    first, last = layers[0] + 1, layers[-1] + 1
    return f"layer {first}" if first == last else f"layers {first}-{last}"


def outcomes_by_layers(
    run: Run, chosen: list[range], n: int, alpha: float | None = None, lam: float | None = None
) -> Array:
    """(items, chosen): the quality of LookBack's pick with A_t from each stretch of layers.

    From all of them it is the run's own A_t, the mean over all heads; from some it is the mean over
    these layers.

    Args:
        run: with signals by layer.
        chosen: the stretches.
        n: the first n candidates of each item.
        alpha, lam: LookBack's settings; the run's own by default.
    """
    by_layer, filled = run.by_layer(), run.lengths > 0
    log_prob, quality = run.signal("log_prob"), run.quality(n)
    alpha = run.defaults["alpha"] if alpha is None else alpha
    lam = run.defaults["lam"] if lam is None else lam
    outcomes = []
    for layers in chosen:
        whole = len(layers) == by_layer.shape[1]
        some = by_layer[:, layers.start : layers.stop]  # a view: a run can have millions of tokens
        a = run.signal("visual_lookback") if whole else some.mean(axis=1, dtype=np.float64)
        scores = np.full(len(filled), np.nan)
        scores[filled] = lookback_scores(log_prob, a, run.lengths[filled], alpha, lam)
        outcomes.append(quality_of_picks(run.grid(scores, n), quality))
    return np.stack(outcomes, axis=1)


@dataclass(frozen=True, eq=False)
class LayerResult:
    """What was found in one run.

    Attributes:
        run: the run.
        n: how many candidates of each item are selected from.
        outcomes: (items,) in per cent, by what selects: a stretch of layers, a choice of one,
            a reference.
        words: for each of `speech.SETS` the mean z-score of A_t by layer, then over all layers.
        aucs: of mentions, by layer, then over all layers; None if the benchmark cannot tell.
        ends: (layers + 1, 2), where the intervals of the sets' z-scores and of the "AUC" end.
        counts: how many words are in each set; how many mentions are right, and wrong.
    """

    run: Run
    n: int
    outcomes: dict[range | str, Array]
    words: dict[str, Array]
    aucs: Array | None
    ends: dict[str, Array]
    counts: dict[str, int]

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return int(self.run.by_layer().shape[1])

    @property
    def each_layer(self) -> list[range]:
        """Each layer, then all."""
        return [*(range(i, i + 1) for i in range(self.depth)), range(self.depth)]

    def name(self, what: range | str) -> str:
        """What tables call what selects."""
        return what if isinstance(what, str) else name_of(what, self.depth)

    def gain(self, what: range | str) -> Array:
        """(items,): points more than with all layers."""
        return self.outcomes[what] - self.outcomes[range(self.depth)]


def _analyse(
    run: Run,
    n: int,
    splits: int,
    seed: int,
    responses: int,
    alpha: float | None,
    lam: float | None,
) -> tuple[LayerResult, list[str]]:
    """Return the results of a run, and notes on them; arguments as of the study."""
    depth = run.by_layer().shape[1]
    if not depth:
        raise StudyError(f"{run.path}: every response is empty: there is nothing to analyse")
    choices = stretches(depth)
    values = 100 * outcomes_by_layers(run, choices, n, alpha, lam)
    outcomes: dict[range | str, Array] = dict(zip(choices, values.T, strict=True))
    outcomes[CHOSEN], times = choose_on_other_half(values, splits, seed)
    often = sorted(zip(times.tolist(), choices, strict=True), key=lambda one: -one[0])[:3]
    told = ", ".join(f"{name_of(one, depth)} {count} times" for count, one in often if count)
    notes = [
        f"of {len(choices)} stretches of layers {2 * splits} halves chose, most often: {told}."
    ]
    for name, method in REFERENCES.items():
        outcomes[name] = 100 * outcome(run, method, n)
    first = np.flatnonzero(run.index < n)
    words, ends, counts = _word_scores(run, first, responses)
    aucs, auc_ends, mentions, more = _mention_aucs(run, first, responses)
    result = LayerResult(run, n, outcomes, words, aucs, ends | auc_ends, counts | mentions)
    return result, [*notes, *more]


def _by_layer_and_all(run: Run) -> list[Array]:
    """A_t in each layer, and over all."""
    return [*(a.astype(np.float64) for a in run.by_layer().T), run.signal("visual_lookback")]


def _word_scores(
    run: Run, candidates: NDArray[np.intp], most: int
) -> tuple[dict[str, Array], dict[str, Array], dict[str, int]]:
    """Mean z-scores of the words of each set, their intervals, and how many words these are."""
    chosen = speech.sample_responses(candidates[run.lengths[candidates] > 0], most)
    words = speech.find_words(run, chosen)
    means = []
    for values in _by_layer_and_all(run):
        here = values[words.tokens]
        # In a layer whose window has left the image behind A_t is 0 for every token.
        same = here.min() == here.max()
        means.append(
            np.full(len(words.tags), np.nan)
            if same
            else speech.word_means(speech.z_scores(here), words.ranges)
        )
    sets = {name: words.within(tags) for name, tags in speech.SETS.items()}
    counts = {name: int(inside.sum()) for name, inside in sets.items()}
    scores, ends = {}, {}
    items = speech.item_of_tokens(run, chosen)
    for name, inside in sets.items():
        of = items[words.ranges[inside, 0]]
        scores[name] = np.array([m[inside].mean() if inside.any() else np.nan for m in means])
        ends[name] = np.array([speech.words_interval(m[inside], of, len(run.sizes)) for m in means])
    return scores, ends, counts


def _mention_aucs(
    run: Run, candidates: NDArray[np.intp], most: int
) -> tuple[Array | None, dict[str, Array], dict[str, int], list[str]]:
    """AUCs of right against wrong mentions, their intervals, how many there are, and notes."""
    benchmark = speech.mentioning_benchmark(run)
    if benchmark is None:
        return None, {}, {}, ["the benchmark cannot tell right mentions from wrong; no AUC."]
    mentions = speech.find_mentions(run, benchmark, candidates, most)
    inside = np.repeat(np.isin(np.arange(len(run.index)), candidates), run.lengths)
    values = [
        speech.word_means(values[inside], mentions.ranges) for values in _by_layer_and_all(run)
    ]
    aucs = [auc(each, mentions.right) for each in values]
    of = speech.item_of_tokens(run, candidates)[mentions.ranges[:, 0]]
    draws = [bootstrap_aucs(each, mentions.right, of, len(run.sizes)) for each in values]
    ends = np.array([interval(each) if len(each) else (np.nan, np.nan) for each in draws])
    counts = {"right": int(mentions.right.sum()), "wrong": int((~mentions.right).sum())}
    notes = [f"{note}." for note in benchmark.notes]
    found = f"{counts['right']} right and {counts['wrong']} wrong mentions"
    notes.insert(0, f"{found} in {mentions.responses} responses.")
    return np.array(aucs), {"AUC": ends}, counts, notes


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


def _by_layer(result: LayerResult) -> list[dict[str, Any]]:
    """Return a row per layer: z-scores of each set of words, and the AUC of mentions if known."""
    rows = []
    for name, values in (result.words | {"AUC": result.aucs}).items():
        if values is None:
            continue
        measure = f"z-score, {name}" if name in result.words else name
        counted = {"words": name} if name in result.words else {"right": "right", "wrong": "wrong"}
        counts = {column: result.counts[key] for column, key in counted.items()}
        numbers = zip(result.each_layer, values.tolist(), result.ends[name].tolist(), strict=True)
        for what, value, (low, high) in numbers:
            rows.append(_row(result, measure, what, value=value, low=low, high=high, **counts))
    return rows


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
            step = -(-result.depth // 12)  # at most a dozen ticks
            axis.set(xlabel="layer", xticks=range(1, result.depth + 1, step))
            axis.margins(x=0.04)
            if number % 2 == 0 or (axis is bottom and results[number - 1].aucs is None):
                axis.set_ylabel(name)
                axis.tick_params(labelleft=True)
    plots.settle_labels(figure)
    return figure


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
