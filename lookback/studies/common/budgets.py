"""How many candidates studies select from: one list of N for all of them, and what they say of it.

Of N candidates always the first N of an item are meant, so that the same N means the same ones in
every study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lookback.runs import Run

PAPER = (5, 25)
"""The paper's two N."""
AVERAGE = "Average"
"""What rows call the mean over benchmarks; it has no candidates of its own."""


def default_budgets(run: Run) -> list[int]:
    """The paper's two N of a run that has both; of a smaller or a pruned one all its candidates.

    Beside these, the smaller ones for which a scorer that compares candidates was recorded
    (usc@5): with no other N could it be shown.
    """
    if run.steered:
        return [run.n]
    if run.n >= PAPER[-1]:
        return [*PAPER]
    recorded = {int(count) for name in run.recorded if (count := name.partition("@")[2])}
    return sorted({run.n, *(n for n in recorded if n < run.n)})


def check_budgets(ns: Iterable[int]) -> tuple[int, ...]:
    """The N asked for, from small to large, each once.

    Raises:
        ValueError: there is none, or one is no whole number from 1 on.
    """
    budgets = list(ns)
    for n in budgets:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"N = {n!r}: must be a whole number of at least 1")
    if not budgets:
        raise ValueError("no N asked for: name at least one, e.g. 5,8")
    return tuple(sorted(set(budgets)))


def parse_budgets(text: str) -> tuple[int, ...]:
    """`5,8` as numbers.

    Raises:
        ValueError: it is no such list.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise ValueError(f"--n {text:.60}: write whole numbers with commas between them, e.g. 5,8")
    return check_budgets(map(int, parts))


def join_budgets(ns: Iterable[int]) -> str:
    """For a caption that is of one N per run."""
    return " or ".join(str(n) for n in sorted(set(ns)))


def budget_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note that says of which N a study's rows are; none if they do not tell."""
    by_setup: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        n, benchmark = row.get("N"), str(row.get("benchmark", ""))
        if isinstance(n, int) and n > 0 and benchmark != AVERAGE:
            by_setup.setdefault((benchmark, str(row.get("model", ""))), set()).add(n)
    by_list: dict[str, list[str]] = {}
    for setup, ns in by_setup.items():
        by_list.setdefault(budget_words(ns), []).append(", ".join(filter(None, setup)))
    if not by_list:
        return []
    whose = {words: f" ({'; '.join(names)})" for words, names in by_list.items()}
    parts = [words + (whose[words] if len(by_list) > 1 else "") for words in by_list]
    return [f"N = {'; '.join(parts)}: of each item's candidates the first N."]


def budget_words(budgets: Iterable[int]) -> str:
    """`5, 25`; a long stretch by its ends."""
    ns = sorted(set(budgets))
    if len(ns) > 3 and ns == list(range(ns[0], ns[-1] + 1)):
        return f"{ns[0]} to {ns[-1]}"
    return ", ".join(map(str, ns))
