"""What the `lookback` command shows: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lookback.errors import one_line

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from lookback.benchmarks.evaluate import Evaluation, Listed
    from lookback.benchmarks.responses import Problem
    from lookback.engines.common.check_report import CheckReport
    from lookback.engines.common.options import Progress
    from lookback.io.storage import AnyPath
    from lookback.runs.start import Summary
    from lookback.runs.status import ListedRun, Status, Tally
    from lookback.runs.verify import Verification
    from lookback.scores.base import Scorer
    from lookback.studies import Result

LONGEST = 2000
"""Characters of a line: messages name values, and a value can be of any length."""
LINE_SECONDS = 10.0
"""Seconds between two lines of progress, where there is no terminal for a bar."""
_HARMLESS = "\n\u200c\u200d"
"""A new line, and what joins emoji, or keeps letters apart: no printable characters to Python."""


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A bar on stderr for as long as the block runs; none if nobody watches."""
    from rich.progress import Progress

    errors, columns = console(stderr=True), bar_columns(title)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def bar_columns(title: str) -> tuple[Any, ...]:
    """What stands beside and in a bar of steps."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    return TextColumn(title), BarColumn(), TextColumn("{task.completed}"), TimeElapsedColumn()


@contextmanager
def long_progress(title: str, unit: str) -> Iterator[Progress]:
    """A bar with rate and time left on stderr; a line now and then if nobody watches a bar."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    errors = console(stderr=True)
    if not errors.is_terminal:
        yield progress_lines(title, unit)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(title, total=None, rate="")
        rate = _Rate()

        def update(done: int, total: int) -> None:
            said = f"{rate(done):.2f} {unit}/s" if rate(done) else ""
            bar.update(task, completed=done, total=total, rate=said)

        yield update


class _Rate:
    """Pieces per second since the first call, which tells how many were done before."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None

    def __call__(self, done: int) -> float:
        now = time.monotonic()
        if self.first is None:
            self.first = now, done
        began, before = self.first
        return (done - before) / (now - began) if now > began else 0.0


def progress_lines(title: str, unit: str) -> Progress:
    """A line on stderr now and then, for files and pipes."""
    rate = _Rate()
    said = time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal said
        speed = rate(done)
        if time.monotonic() - said < LINE_SECONDS or not speed:
            return
        said = time.monotonic()
        left = duration((total - done) / speed)
        line = f"{title}: {done}/{total}, {speed:.2f} {unit}/s, {left} left"
        print(one_line(line, LONGEST), file=sys.stderr, flush=True)

    return update


def duration(seconds: float) -> str:
    """As people say it: 40 s, 3.5 min, 2.1 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show_summary(summary: Summary, most: int = 5) -> None:
    """How a run ended: results on stdout, what failed on stderr."""
    for name, error in summary.failed[:most]:
        say(f"failed: {name}: {error}")
    if len(summary.failed) > most:
        say(f"and {len(summary.failed) - most} more failures")
    run = summary.run
    print(f"{run.path}: {summary.items} items, {len(run.texts)} candidates, ", end="")
    lines = "1 line" if summary.left_out == 1 else f"{summary.left_out} lines"
    left_out = f", {lines} left out" if summary.left_out else ""
    print(f"{len(summary.failed)} failed{left_out}")


def show_verification(name: str, found: Verification) -> None:
    """What is not as it was written, on stderr; and the sum of it, on stdout."""
    for problem in found.problems:
        say(f"{name}: {problem}")
    total = found.of
    shards = f"{total} shards" if found.shards == total else f"{found.shards} of {total} shards"
    print(f"{name}: {found.manifest.status}, {shards}, {found.files} tables, ", end="")
    print("all as written" if found.ok else f"{len(found.problems)} problems")
    if found.unrecorded_timings:
        count = found.unrecorded_timings
        say(f"{name}: {count} files of timings have no record: they cannot be verified")


def show_status(name: str, found: Status, most: int = 20) -> None:
    """How far a run is, on stdout, with the jobs that are not done; what to do, on stderr."""
    whole = found.whole
    print(f"{name}: {whole.status}, {whole.done} of {whole.items} items tried, ", end="")
    print(f"{whole.failed} failed, {found.missing} missing")
    for table, count in sorted((whole.unscored or {}).items()):
        print(f"{table}: missing for {count} of the items tried")
    count, todo = len(found.jobs), set(found.open_jobs)
    if count:
        print(f"{count - len(todo)} of {count} jobs are done")
    shown = [i for i, job in enumerate(found.jobs) if i in todo or job.failed]
    if shown:
        columns = ("shard", "status", "tried", "of", "failed")
        show_table(columns, [(f"{i}/{count}", *_cells(found.jobs[i])) for i in shown[:most]])
    if len(shown) > most:
        print(f"and {len(shown) - most} more: --json has all")
    if whole.status == "running":
        say(f"{name}: {found.remedy}")
    elif whole.failed:
        say(f"{name}: --retry-failed tries items again that failed")


def _cells(job: Tally) -> tuple[str, ...]:
    """A job as a row; of one that has not begun nothing is known."""
    if job.items is None:
        return job.status, "", "", ""
    return job.status, str(job.done), str(job.items), str(job.failed)


def show_study(name: str, result: Result, written: Sequence[AnyPath]) -> None:
    """A study's tables and notes, and where its files are."""
    from rich.table import Table as RichTable
    from rich.text import Text

    out = console()
    styles = {"best": "bold", "second": "underline", "": ""}
    for table in result.tables:
        shown = RichTable(box=None, pad_edge=False, title=table.caption, title_justify="left")
        for number, column in enumerate(table.columns):
            head = Text("\n".join(part for part in column if part))
            shown.add_column(head, justify="right" if number else "left")
        for row in table.rows:
            cells = [(c, "") if isinstance(c, str) else (c.text, c.mark) for c in row]
            shown.add_row(*(Text(printable(text), style=styles[mark]) for text, mark in cells))
        # Rich cuts words that do not fit, and a number that is cut is no number.
        cut = any("\u2026" in part.text for line in out.render_lines(shown) for part in line)
        out.print(_stacked(shown) if cut else shown)
        out.print()
    for note in result.notes:
        out.print(f"note: {note}", highlight=False, markup=False)
    for path in written:
        print(one_line(path, LONGEST), file=sys.stderr)


def _stacked(table: RichTable) -> RichTable:
    """Return a table of two columns for a narrow terminal: each row's cells below each other."""
    from rich.table import Table
    from rich.text import Text

    stacked = Table(
        box=None, pad_edge=False, show_header=False, title=table.title, title_justify="left"
    )
    stacked.add_column(overflow="fold")
    stacked.add_column(justify="right", overflow="fold")
    first, *others = table.columns
    for number, label in enumerate(first.cells):
        stacked.add_row(Text(str(label), style="bold"), "")
        for column in others:
            head = " ".join(str(column.header).split())
            stacked.add_row(Text(f"  {head}"), list(column.cells)[number])
    return stacked


def show_scorers(known: Sequence[Scorer]) -> None:
    """What each needs, its settings and what it is."""
    from lookback.scores.base import NEEDS

    columns = ("scorer", "needs", "settings", "what it is")
    show_table(columns, [(s.name, s.needs, ", ".join(s.params), s.about) for s in known])
    costs = "; ".join(f"{name}: {what}" for name, what in NEEDS.items())
    console(stderr=True).print(f"\nneeds, from cheap to dear: {costs}", style="dim")


def show_runs(found: Sequence[ListedRun]) -> None:
    """A row per run, or in a narrow terminal some lines; what is wrong, on stderr."""
    from rich.padding import Padding
    from rich.text import Text

    for one in found:
        if one.problem is not None:
            say(one.problem)
    rows = [_run_cells(one) for one in found]
    columns = ("run", "benchmark", "model", "items", "N", "status", "size")
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    out = console()
    if sum(widths) + 2 * len(widths) <= out.width:
        show_table(columns, rows, numbers=("items", "N", "size"))
        return
    for run, benchmark, model, items, n, status, size in rows:
        out.print(Text(printable(run), style="bold", overflow="fold"))
        about = (benchmark, model, items and f"{items} items", n and f"N: {n}", status, size)
        words = ", ".join(filter(None, about))
        out.print(Padding(Text(printable(words), overflow="fold"), (0, 0, 0, 4)))


def _run_cells(one: ListedRun) -> tuple[str, ...]:
    size = f"{one.bytes / 1e6:,.1f} MB" if one.bytes >= 1e6 else f"{one.bytes / 1e3:.1f} kB"
    if one.problem is not None:
        return one.run, "", "", "", "", "damaged", size
    images = {"own": "", "none": " (no image)"}
    image = images.get(str(one.image), f" ({one.image} image)")
    n = "given" if one.n is None else str(one.n)
    status = "not finished" if one.status == "running" else str(one.status)
    return one.run, f"{one.benchmark}{image}", str(one.model), str(one.items), n, status, size


def show_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()
) -> None:
    """A plain table of words; the columns of `numbers` stand right, and are never broken."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in columns:
        right = name in numbers
        table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)


def show_check(report: CheckReport) -> None:
    """Each comparison with its largest differences; then what was read, and how fast."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=None, pad_edge=False)
    table.add_column("largest difference in", ratio=1)
    for name in ("A", "log p", "SC", "H"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    marks = {True: ("ok", "green"), False: ("WRONG", "bold red"), None: ("-", "dim")}
    for one in report.checks:
        words, style = marks[one.ok]
        order = ("visual_lookback", "log_prob", "self_certainty", "entropy")
        numbers = [f"{one.differences[s]:.0e}" if s in one.differences else "" for s in order]
        table.add_row(Text(one.what), *numbers, Text(words, style=style))
    out.print(table)
    for one in report.checks:
        if one.note:
            out.print(
                f"{one.what}: {printable(one.note)}", style="dim", highlight=False, markup=False
            )
    a, others = report.tolerance
    speed = ", ".join(f"{value:.0f} {name}" for name, value in report.tokens_per_second.items())
    out.print(
        f"\n{report.model} ({report.model_class}, {report.dtype}, {report.device}): "
        f"{report.layers} attention layers, {report.heads} heads read; allowed {a:g} in A, "
        f"{others:g} in the others; tokens per second: {speed}",
        highlight=False,
        markup=False,
    )
    if report.peak_bytes is not None:
        out.print(f"peak memory beyond the model: {report.peak_bytes / 2**20:,.1f} MiB")
    verdict = "all numbers agree" if report.ok else "do not trust numbers of this model here"
    out.print(verdict, style="bold green" if report.ok else "bold red")


def show_benchmarks(known: Sequence[Listed]) -> None:
    """Each with its metric and whether its files are found; below, where items come from."""
    from lookback.benchmarks.base import GENERATED

    show_table(
        ("benchmark", "metric", "files"), [(b.name, b.primary, _files_cell(b)) for b in known]
    )
    print()
    sources = [
        (b.name, f"{b.source}; needed: {', '.join(b.files)}" if b.files else b.source)
        for b in known
        if b.name not in GENERATED
    ]
    show_table(("benchmark", "where its items come from"), sources)
    if not all(b.found for b in known):
        say(
            "files that are not found: name their folder with --data DIR or LOOKBACK_DATA; --json "
            "says what is missing there"
        )


def _files_cell(b: Listed) -> str:
    if not b.files:
        return "none needed" if b.name != "own" else "yours: --data FILE"
    return f"found in {b.where}" if b.found else "not found"


def show_evaluation(result: Evaluation) -> None:
    """A benchmark's metrics as a table, and what to know about them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(result.benchmark)
    table.add_column("value", justify="right")
    for name, value in result.metrics.items():
        style = "bold" if name == result.primary else ""
        table.add_row(name, f"{value:.2f}", style=style)
    out = console()
    if result.headline:
        out.print(f"{printable(result.headline)}\n", style="bold", highlight=False, markup=False)
    out.print(table)
    judged = f"; judge: {result.judge}" if result.judge else ""
    missing = f"; {result.missing} have no response" if result.missing else ""
    out.print(f"\n{result.items} items{missing}{judged}", highlight=False, markup=False)
    for note in result.notes:
        out.print(f"note: {note}", highlight=False, markup=False)


def warn(problems: list[Problem], most: int = 20) -> None:
    """The first problems with a file of responses, on stderr."""
    for problem in problems[:most]:
        say(str(problem))
    if len(problems) > most:
        say(f"and {len(problems) - most} more problems")


def say(text: str) -> None:
    """A note on stderr: one line, whatever names and values it quotes."""
    print(f"lookback: {one_line(text, LONGEST)}", file=sys.stderr)


def printable(text: str) -> str:
    """A model may write anything: nothing of it may command the terminal."""
    return "".join(c if c.isprintable() or c in _HARMLESS else "\ufffd" for c in text)


def console(stderr: bool = False) -> Any:
    """Where rich text goes."""
    from rich.console import Console

    return Console(stderr=stderr)


def print_json(data: Any) -> None:
    """One line of JSON on stdout."""
    print(json.dumps(data, ensure_ascii=False), flush=True)
