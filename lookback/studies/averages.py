"""What every method's picks are worth on every benchmark, and on average, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.runs import Run
from lookback.scores.base import scorers
from lookback.scores.formula import Array
from lookback.studies.selection import (
    METHODS,
    OTHERS,
    budgets,
    has,
    interval,
    outcome,
    percent,
    resampled,
    title,
)


def method_names() -> dict[str, str]:
    """All methods by their scorers' names: the paper's, the others, users' own, the oracle."""
    known = METHODS | OTHERS
    own = {name: name for name in scorers() if name not in (*known, "oracle", "perplexity")}
    return known | own | {"oracle": "Oracle"}


def rows_of(model: str, runs: list[Run]) -> list[dict[str, Any]]:
    """The rows of one model: a method, benchmark and N each, then each method's averages.

    An average is over the benchmarks, of one N or (N = 0) of all; `lead` is LookBack's over it.
    """
    # A seed a run: its methods and N see the same samples, other benchmarks samples of their own.
    setups = [(seed, run, n) for seed, run in enumerate(runs) for n in budgets(run)]
    rows: list[dict[str, Any]] = []
    averages: dict[tuple[str, int], tuple[float, Array]] = {}
    for method in method_names():
        found = []
        for seed, run, n in setups:
            values = outcome(run, method, n) if has(run, method, n) else np.full(1, np.nan)
            found.append((n, percent(values), resampled(100 * values, seed)))
            head = {"model": model, "benchmark": title(run), "method": method, "N": n}
            rows.append(head | _numbers(*found[-1][1:]) | {"items": len(run.ids)})
        for count in (*sorted({n for n, _, _ in found}), 0):
            here = [(value, draws) for n, value, draws in found if count in (0, n)]
            value = float(np.mean([one[0] for one in here]))
            if np.isfinite(value):
                averages[method, count] = value, np.mean([one[1] for one in here], axis=0)
    for (method, n), (value, draws) in averages.items():
        ours, our_draws = averages["lookback", n]
        head = {"model": model, "benchmark": "Average", "method": method, "N": n}
        lead = _numbers(ours - value, our_draws - draws, "lead", "lead_low", "lead_high")
        rows.append(head | _numbers(value, draws) | {"items": 0} | lead)
    empty = dict.fromkeys(("lead", "lead_low", "lead_high"), np.nan)
    return [row if "lead" in row else row | empty for row in rows]


def _numbers(value: float, draws: Array, *names: str) -> dict[str, float]:
    return dict(zip(names or ("value", "low", "high"), (value, *interval(draws)), strict=True))
