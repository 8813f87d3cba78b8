"""What commands show: results on stdout, everything else on stderr; every error in one line.

What users can cause is an error with a message of its own, raised where the thing can be named: a
ValueError, an OSError, an ImportError, a SettingError; or a FloatingPointError, where a model's
numbers are not finite. All else is a bug, of a plugin if it passed through one and else of
LookBack, and the line says so. `LOOKBACK_TRACEBACK=1` shows where it was.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lookback.errors import error_line, one_line
from lookback.registry import SettingError, plugin_in

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from PIL.Image import Image
    from rich.console import Console
    from rich.text import Text

    from lookback.engines.common.options import Progress
    from lookback.runs.status import ListedRun, Status, Tally
    from lookback.runs.verify import Verification

FAILED = 3
"""The exit status of a command that ended, but with parts that failed or were left out."""
LONGEST = 2000
"""Characters of a line: messages name values, and a value can be of any length."""
LINE_SECONDS = 10.0
"""Seconds between two lines of progress, where there is no terminal for a bar."""
TRACEBACK_VARIABLE = "LOOKBACK_TRACEBACK"
EXPECTED = (ValueError, OSError, ImportError, SettingError, FloatingPointError)
UPPER = "▀"
LARGEST = 40
"""Characters that a picture is wide at most: the scenes have 80 pixels."""
LEFT = 12
"""Lines of the terminal that are left for the text below a picture."""
_HARMLESS = "\n\u200c\u200d"
"""A new line, and what joins emoji, or keeps letters apart: no printable characters to Python."""


def console(stderr: bool = False) -> Any:
    """Return a rich console on stdout or stderr."""
    from rich.console import Console

    return Console(stderr=stderr)


def print_json(data: Any) -> None:
    """Print one line of JSON on stdout."""
    print(json.dumps(data, ensure_ascii=False), flush=True)


def say(text: str) -> None:
    """Print a note on stderr: one line, whatever names and values it quotes."""
    print(f"lookback: {one_line(text, LONGEST)}", file=sys.stderr)


def printable(text: str) -> str:
    """Return a text without control characters: a model may write anything."""
    return "".join(c if c.isprintable() or c in _HARMLESS else "\ufffd" for c in text)


def plain_text(text: str) -> Text:
    """Return a text for rich: control characters and markup have no effect."""
    from rich.text import Text

    return Text(printable(text), overflow="fold")


def shaded_text(tokens: Sequence[str], values: ArrayLike) -> Text:
    """Return an answer with each token on a background that is darker the higher its A."""
    from rich.text import Text

    from lookback.pages.tokens import color, shades

    text = Text(overflow="fold")
    begun = False
    for token, shade in zip(tokens, shades(values), strict=True):
        word = printable(token if begun else token.lstrip())
        if not word:
            continue
        begun = True
        blanks = len(word) - len(word.lstrip())
        text.append(word[:blanks])
        text.append(word[blanks:], style=f"black on {color('A', float(shade))}")
    return text


def report(error: Exception) -> None:
    """Print an error in one line; before it the traceback, if the environment asks for it."""
    if os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0"):
        traceback.print_exception(error)
    print(f"lookback: {explain(error)}", file=sys.stderr)


def explain(error: Exception) -> str:
    """Return an error in one line: what the user did, which plugin failed, or that it is a bug."""
    if (plugin := plugin_in(error.__traceback__)) is not None:
        line = plugin_failure(plugin, error)
    elif isinstance(error, MemoryError):
        message = f": {error}" if str(error) else ""
        line = f"out of memory{message}: ask for less at once, or free some memory"
    elif isinstance(error, EXPECTED):
        line = str(error) or type(error).__name__
    else:
        line = (
            f"this is a bug: {error_line(error)}; please report it in the project's issue tracker, "
            f"with the command and the traceback ({TRACEBACK_VARIABLE}=1 shows it)"
        )
    line = printable(" ".join(line.split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line)} characters)"


def plugin_failure(plugin: str, error: BaseException) -> str:
    """Return the message about a plugin that raised an error."""
    return f"the plugin {plugin} failed: {error_line(error)} ({TRACEBACK_VARIABLE}=1 shows where)"


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs, if stderr is a terminal."""
    from rich.progress import Progress

    errors, columns = console(stderr=True), bar_columns(title)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def bar_columns(title: str) -> tuple[Any, ...]:
    """Return the columns of a bar of steps."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    return TextColumn(title), BarColumn(), TextColumn("{task.completed}"), TimeElapsedColumn()


@contextmanager
def long_progress(title: str, unit: str) -> Iterator[Progress]:
    """Show a bar with rate and time left on stderr; without a terminal, a line now and then."""
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
            speed = f"{rate(done):.2f} {unit}/s" if rate(done) else ""
            bar.update(task, completed=done, total=total, rate=speed)

        yield update


class _Rate:
    """Pieces per second since the first call, which is given those done before."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None

    def __call__(self, done: int) -> float:
        now = time.monotonic()
        if self.first is None:
            self.first = now, done
        began, before = self.first
        return (done - before) / (now - began) if now > began else 0.0


def progress_lines(title: str, unit: str) -> Progress:
    """Return a callback that prints a line on stderr now and then, for files and pipes."""
    rate = _Rate()
    printed = time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal printed
        speed = rate(done)
        if time.monotonic() - printed < LINE_SECONDS or not speed:
            return
        printed = time.monotonic()
        left = duration((total - done) / speed)
        line = f"{title}: {done}/{total}, {speed:.2f} {unit}/s, {left} left"
        print(one_line(line, LONGEST), file=sys.stderr, flush=True)

    return update


def duration(seconds: float) -> str:
    """Return seconds as 40 s, 3.5 min or 2.1 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()
) -> None:
    """Print a plain table; the columns of `numbers` are right-aligned and never broken."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in columns:
        right = name in numbers
        table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)


def show_runs(runs: Sequence[ListedRun]) -> None:
    """Print a row per run, or in a narrow terminal some lines; problems go to stderr."""
    from rich.padding import Padding
    from rich.text import Text

    for run in runs:
        if run.problem is not None:
            say(run.problem)
    rows = [_run_cells(run) for run in runs]
    columns = ("run", "benchmark", "model", "items", "N", "status", "size")
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    out = console()
    if sum(widths) + 2 * len(widths) <= out.width:
        show_table(columns, rows, numbers=("items", "N", "size"))
        return
    for name, benchmark, model, items, n, status, size in rows:
        out.print(Text(printable(name), style="bold", overflow="fold"))
        about = (benchmark, model, items and f"{items} items", n and f"N: {n}", status, size)
        words = ", ".join(filter(None, about))
        out.print(Padding(Text(printable(words), overflow="fold"), (0, 0, 0, 4)))


def _run_cells(run: ListedRun) -> tuple[str, ...]:
    size = f"{run.bytes / 1e6:,.1f} MB" if run.bytes >= 1e6 else f"{run.bytes / 1e3:.1f} kB"
    if run.problem is not None:
        return run.run, "", "", "", "", "damaged", size
    images = {"own": "", "none": " (no image)"}
    image = images.get(str(run.image), f" ({run.image} image)")
    n = "given" if run.n is None else str(run.n)
    status = "not finished" if run.status == "running" else str(run.status)
    return run.run, f"{run.benchmark}{image}", str(run.model), str(run.items), n, status, size


def show_verification(name: str, result: Verification) -> None:
    """Print a summary on stdout, and each problem on stderr."""
    for problem in result.problems:
        say(f"{name}: {problem}")
    total = result.of
    shards = f"{total} shards" if result.shards == total else f"{result.shards} of {total} shards"
    print(f"{name}: {result.manifest.status}, {shards}, {result.files} tables, ", end="")
    print("all as written" if result.ok else f"{len(result.problems)} problems")
    if result.unrecorded_timings:
        count = result.unrecorded_timings
        say(f"{name}: {count} files of timings have no record: they cannot be verified")


def show_status(name: str, status: Status, most: int = 20) -> None:
    """Print the progress of a run and its open jobs on stdout, what to do on stderr."""
    whole = status.whole
    print(f"{name}: {whole.status}, {whole.done} of {whole.items} items tried, ", end="")
    print(f"{whole.failed} failed, {status.missing} missing")
    for table, count in sorted((whole.unscored or {}).items()):
        print(f"{table}: missing for {count} of the items tried")
    count, todo = len(status.jobs), set(status.open_jobs)
    if count:
        print(f"{count - len(todo)} of {count} jobs are done")
    shown = [i for i, job in enumerate(status.jobs) if i in todo or job.failed]
    if shown:
        columns = ("shard", "status", "tried", "of", "failed")
        show_table(columns, [(f"{i}/{count}", *_cells(status.jobs[i])) for i in shown[:most]])
    if len(shown) > most:
        print(f"and {len(shown) - most} more: --json has all")
    if whole.status == "running":
        say(f"{name}: {status.remedy}")
    elif whole.failed:
        say(f"{name}: --retry-failed tries items again that failed")


def _cells(job: Tally) -> tuple[str, ...]:
    """Return a job as a row; of one that has not begun nothing is known."""
    if job.items is None:
        return job.status, "", "", ""
    return job.status, str(job.done), str(job.items), str(job.failed)


def can_draw(console: Console) -> bool:
    """Whether a console is a terminal that shows colours and half-blocks."""
    colours = console.color_system in ("truecolor", "256") and not console.no_color
    return console.is_terminal and colours and console.encoding.startswith("utf")


def fit(size: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """Return the pixels to draw of a picture in so many columns and lines.

    As many as fit, an even number of rows, the shape kept.
    """
    share = min(min(width, LARGEST) / size[0], 2 * max(height, 2) / size[1], 1)
    return max(1, round(size[0] * share)), max(2, 2 * round(size[1] * share / 2))


def draw(picture: Image, width: int, height: int) -> Text:
    """Return a picture as lines of half-blocks: two pixels per character, one above the other."""
    import numpy as np
    from PIL.Image import Resampling
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    size = fit(picture.size, width, height)
    small = picture.convert("RGB").resize(size, Resampling.BOX)
    rows = np.asarray(small).tolist()
    text = Text(no_wrap=True, overflow="crop")
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        for above, below in zip(upper, lower, strict=True):
            text.append(UPPER, Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below)))
        text.append("\n")
    text.rstrip()
    return text
