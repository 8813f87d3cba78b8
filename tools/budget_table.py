"""What `tools.budget` measured, as a study's result: a table per task, and one figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.runs.part import Part
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.studies import Result, Table, title
from lookback.studies.budget import tokens_drawn
from lookback.studies.common.plots import (
    INK,
    MUTED,
    heading,
    in_style,
    label_end,
    settle_labels,
    tiles,
)
from lookback.studies.common.selection import bootstrap_means, interval, outcome

Rows = Sequence[dict[str, Any]]


def result_of(rows: Rows, runs: Path, full: str) -> Result:
    """All of it.

    Args:
        rows: what was measured, an item each.
        runs: the folder of the tasks' runs, of the same items and seed.
        full: the method that the others are compared with.
    """
    told: list[dict[str, Any]] = []
    tables, drawn = [], []
    for task in dict.fromkeys(row["task"] for row in rows):
        here = [row for row in rows if row["task"] == task]
        run = _items_of(Run(runs / task), [row["id"] for row in here])
        best = _best_of(run)
        names = [full, *sorted({*here[0]["methods"]} - {full}, key=_order)]
        found = [_row(run, here, name, full, best) for name in names]
        told += found
        tables.append(_table(run, found))
        drawn.append((run, found, best))
    notes = [
        f"The first {tables and told[0]['items']} items of each task's test split. What is picked "
        "in the end is LookBack's pick among the complete ones; beam search returns one text.",
        "A search keeps the best 5 of 25 every 8 or 16 tokens. Beam search is transformers' own, "
        "with its defaults; its tokens are beams times steps.",
        "Over as many tokens: over best of N, from the runs, for the smallest N that costs at "
        "least as much; where none does, over best of 25. Intervals: 95 %, from 2,000 bootstrap "
        "samples of items; differences are paired.",
        "Time: the median over items of the ratio to best of 25 on the same item, in one process "
        "on a shared machine of two cores: noisy, and of a model so small that a step of few rows "
        "takes nearly as long as one of many.",
    ]
    return Result(told, tables, _figure(drawn), notes)


def _items_of(run: Run, ids: list[str]) -> Run:
    wanted = set(ids)
    missing = wanted - set(run.ids)
    if missing:
        raise ValueError(f"{run.path} has not the item {min(missing)}: make it with more items")
    return Part(run, run.places[[name in wanted for name in run.ids]])


def _best_of(run: Run) -> list[tuple[Array, Array]]:
    """Of best of 1, 2, ...: quality in per cent, and tokens, of each item."""
    drawn = tokens_drawn(run)
    return [
        (100 * outcome(run, "lookback", n), np.nansum(drawn[:, :n], axis=1))
        for n in range(1, run.n + 1)
    ]


def _row(
    run: Run, rows: Rows, name: str, full: str, best: list[tuple[Array, Array]]
) -> dict[str, Any]:
    order = {row["id"]: row["methods"] for row in rows}
    found, base = ([order[i][m] for i in run.ids] for m in (name, full))
    values, tokens = (
        np.array([one["quality"]["lookback"] for one in found]) * 100,
        np.array([one["tokens"] for one in found], dtype=np.float64),
    )
    ratios = [one["seconds"] / other["seconds"] for one, other in zip(found, base, strict=True)]
    costs = [float(cost.mean()) for _, cost in best]
    same = next((i for i, cost in enumerate(costs) if cost >= tokens.mean()), len(best) - 1)
    low, high = interval(bootstrap_means(values))
    row = {"model": run.model, "benchmark": title(run), "method": name, "items": len(values)}
    row |= {"tokens": float(tokens.mean()), "share": float(tokens.mean()) / costs[-1]}
    row |= {"value": float(values.mean()), "low": low, "high": high, "same_tokens_n": same + 1}
    for key, other in (("over_all", best[-1][0]), ("over_same", best[same][0])):
        ends = interval(bootstrap_means(values - other))
        gain = float((values - other).mean())
        row |= {key: gain, f"{key}_low": ends[0], f"{key}_high": ends[1]}
    return row | {"time": float(np.median(ratios))}


def _order(name: str) -> tuple[Any, ...]:
    """Pruning, then search by its guide, then beams from few to many."""
    kind, *words = name.split()
    place = ("prune", "search", "beam").index(kind)
    return (place, int(words[0])) if kind == "beam" else (place, *words)


def _label(name: str) -> str:
    """A method for readers: "search lookback 5/16" is "Search by LookBack, every 16"."""
    kind, *words = name.split()
    if kind == "search":
        return f"Search by {get_scorer(words[0]).title}, every {words[1].split('/')[1]}"
    if kind == "beam":
        return "Greedy decoding" if words == ["1"] else f"Beam search, {words[0]} beams"
    return f"Best of {words[-1]}" if kind == "best" else f"Pruned, {words[0]}"


def _table(run: Run, rows: Rows) -> Table:
    lines = []
    for row in rows:
        quality = f"{row['value']:.2f} [{row['low']:.1f}, {row['high']:.1f}]"
        gains = [
            f"{row[key]:+.2f} [{row[f'{key}_low']:+.1f}, {row[f'{key}_high']:+.1f}]"
            for key in ("over_all", "over_same")
        ]
        line = [_label(row["method"]), f"{row['tokens']:.0f}", f"{row['share']:.2f}", quality]
        same = [gains[0], f"{gains[1]} (N={row['same_tokens_n']})"]
        if row["method"].startswith("best of"):
            same = ["-", "-"]
        lines.append([*line, *same, f"{row['time']:.2f}"])
    names = ("Method", "Tokens", "Share", "Quality", "Over best of 25", "Over as many tokens")
    caption = (
        f"Quality against tokens on {title(run)} with {run.model}, {len(run.ids)} items: per cent "
        "[95 % interval]."
    )
    return Table([("", name) for name in (*names, "Time")], lines, caption)


LOOKS = {
    "best": (INK, "o"),
    "prune": (get_scorer("lookback").color, "v"),
    "beam": ("#7c3aed", "X"),
}


@in_style
def _figure(found: list[tuple[Run, list[dict[str, Any]], list[tuple[Array, Array]]]]) -> Any:
    """A panel per task: the line of best of N, and a point with its interval per method."""
    figure, axes = tiles(len(found), across=2, height=2.9)
    for number, ((run, rows, best), (axis,)) in enumerate(zip(found, axes, strict=True)):
        x, y = [float(cost.mean()) for _, cost in best], [float(v.mean()) for v, _ in best]
        axis.plot(x, y, color=INK, linewidth=1.5)
        low, high = np.array([interval(bootstrap_means(values)) for values, _ in best]).T
        axis.fill_between(x, low, high, color=MUTED, alpha=0.15, linewidth=0)
        for row in rows:
            _draw_point(axis, row)
        label_end(axis, x, y, "best of N", INK)
        axis.set_title(heading(title(run), run.model))
        axis.set(xlabel="tokens decoded per item", ylabel="" if number % 2 else "per cent")
    handles = dict(zip(*axes[0][0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    settle_labels(figure)
    return figure


def _draw_point(axis: Any, row: dict[str, Any]) -> None:
    kind, *words = row["method"].split()
    if kind == "best":
        return  # it ends the line
    if kind == "search":
        scorer = get_scorer(words[0])
        color, marker, name = scorer.color, "s", f"search by {scorer.title}"
        filled = words[1].endswith("/16")
        name += ", every 16" if filled else ", every 8"
    else:
        color, marker = LOOKS[kind]
        filled, name = True, "pruned by LookBack" if kind == "prune" else "greedy, 5 and 25 beams"
    ends = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
    axis.errorbar(
        [row["tokens"]], [row["value"]], yerr=ends, fmt=marker, color=color, markersize=4.5,
        mfc=color if filled else "white", elinewidth=0.6, label=name,
    )  # fmt: skip
