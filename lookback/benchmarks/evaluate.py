"""Score anybody's responses on a benchmark: no model needed; and say which benchmarks there are."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from lookback.benchmarks.base import (
    BENCHMARKS,
    Benchmark,
    Judged,
    LeavingOut,
    Unjudging,
    get_benchmark,
)
from lookback.benchmarks.files import FileBenchmark, MissingFile
from lookback.benchmarks.responses import Matched, Problem, name_of, read_responses


class BadResponses(ValueError):
    """The file of responses has problems, and none are allowed.

    Attributes:
        problems: all of them.
    """

    def __init__(self, message: str, problems: list[Problem]) -> None:
        super().__init__(message)
        self.problems = problems


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Attributes:
        benchmark: its name.
        split: which items were looked for.
        items: how many were scored.
        missing: how many of the split have no response; they count nowhere.
        primary: the metric that the paper's tables show.
        metrics: all metrics, in per cent.
        judge: who judged, where somebody has to.
        notes: what a reader of the numbers should know.
        problems: what was wrong with the file of responses.
        headline: what to know before any number: of how many responses the numbers are, if not of
            all; "" if they are.
    """

    benchmark: str
    split: str
    items: int
    missing: int
    primary: str
    metrics: dict[str, float]
    judge: str | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    headline: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data; what is empty is left out, except items and metrics."""
        data: dict[str, Any] = {
            "headline": self.headline,
            "benchmark": self.benchmark,
            "items": self.items,
            "metrics": self.metrics,
            "split": self.split,
            "missing": self.missing,
            "judge": self.judge,
            "notes": self.notes,
            "problems": [{"line": p.line, "message": p.message} for p in self.problems],
        }
        return {key: value for key, value in data.items() if value or key in ("items", "metrics")}


def evaluate(
    benchmark: str | Benchmark,
    responses: str | os.PathLike[str] | bytes,
    data: str | os.PathLike[str] | None = None,
    split: str | None = None,
    strict: bool | None = None,
    **settings: Any,
) -> Evaluation:
    """Return all metrics of a benchmark for a file of responses.

    Only items that have a response are scored; the result says how many have none, and on top how
    many of the responses are to no item.

    Args:
        benchmark: its name, or the benchmark itself.
        responses: the file, see `responses`; or, as bytes, its content.
        data: the folder of the benchmark's files, or the file of one's own.
        split: which items; by default the benchmark's `default_split`.
        strict: whether any problem with the file is an error; by default it is if fewer than half
            of the responses are to an item: they are then of another benchmark or split.
        settings: what this benchmark alone takes.

    Raises:
        BadResponses: nothing can be scored, `strict` and there are problems, or fewer than half of
            the responses are to an item.
    """
    if isinstance(benchmark, str):
        benchmark = get_benchmark(benchmark, data, **settings)
    split = split or benchmark.default_split
    known_as = f"{benchmark.name}'s split {split!r}"
    matched = read_responses(responses, benchmark.items(split), known_as)
    name, problems = name_of(responses), matched.problems
    if strict:
        _refuse(name, problems)
    if not matched.items:
        raise BadResponses(f"no response in {name} is to an item of {known_as}", problems)
    headline = _headline(matched, known_as)
    if strict is None and 2 * matched.known < matched.given:
        raise BadResponses(
            f"{name}: {headline}; name the right file, --split or --data, or score them alone "
            "with --no-strict",
            problems,
        )
    metrics = benchmark.aggregate(matched.items, matched.responses)
    problems = _unjudged(benchmark, matched) + problems
    if strict:
        _refuse(name, problems)
    return Evaluation(
        benchmark.name,
        split,
        len(matched.items),
        matched.missing,
        benchmark.primary,
        metrics,
        benchmark.judge_name() if isinstance(benchmark, Judged) else None,
        [*_left_out(benchmark), *benchmark.notes],
        problems,
        headline,
    )


def _refuse(name: str, problems: list[Problem]) -> None:
    if problems:
        raise BadResponses(
            f"{len(problems)} problems in {name}, the first: {problems[0]}", problems
        )


def _unjudged(benchmark: Benchmark, matched: Matched) -> list[Problem]:
    """Return the responses that count as wrong because nobody could judge them."""
    if not isinstance(benchmark, Unjudging):
        return []
    reasons = benchmark.unjudged(matched.items, matched.responses)
    return [Problem(matched.lines[index], f"not judged: {why}") for index, why in reasons.items()]


def _headline(matched: Matched, known_as: str) -> str:
    """Say of how many of the file's responses the numbers are; "" if of all."""
    if matched.known == matched.given:
        return ""
    return f"only {matched.known} of {matched.given} responses are to items of {known_as}"


def _left_out(benchmark: Benchmark) -> list[str]:
    lines = benchmark.left_out() if isinstance(benchmark, LeavingOut) else []
    return [f"{len(lines)} items left out, the first: {lines[0]}"] if lines else []


@dataclass(frozen=True)
class Listed:
    """One benchmark as `lookback benchmarks` shows it.

    Attributes:
        found: whether its files are there.
        where: the folder they are in, or what is missing.
    """

    name: str
    primary: str
    source: str
    files: tuple[str, ...]
    found: bool
    where: str


def list_benchmarks(data: str | os.PathLike[str] | None = None) -> list[Listed]:
    """Return every benchmark, with where to get its files and whether they are found."""
    listed = []
    for name in BENCHMARKS.all():
        benchmark = get_benchmark(name, data)
        files: tuple[str, ...] = ()
        found, where = True, ""
        if isinstance(benchmark, FileBenchmark):
            files = benchmark.files
            try:
                benchmark.check()
                where = str(benchmark.folder)
            except (MissingFile, ValueError) as error:
                found, where = False, str(error)
        listed.append(Listed(name, benchmark.primary, benchmark.source, files, found, where))
    return listed
