"""`--prune` and `--search`: answers that fall away while they are written, and how that shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookback.cli.app import DRAWN, complete_scorer
from lookback.cli.terminal import bar_columns, console, say

if TYPE_CHECKING:
    from lookback.conversations import Conversation
    from lookback.engines import Engine
    from lookback.engines.common.options import Progress
    from lookback.signals import Candidates
    from lookback.steering import Decision, Judge, Watch
    from lookback.steering.pruning import Pruning
    from lookback.steering.search import Search

JUDGE = "lookback"
WIDEST = 25
"""Columns of the bar that shows how many are left."""

Prune = Annotated[
    str | None,
    typer.Option(
        metavar="half|T:K,T:K",
        help="End the worst early: half, or e.g. 16:12,32:6 (after 16 tokens the best 12 go on, "
        "after 32 the best 6).",
        show_default=False,
        rich_help_panel=DRAWN,
    ),
]
PruneBy = Annotated[
    str | None,
    typer.Option(
        metavar="SCORER",
        help="Who judges what is still being written, from its signals; lookback by default.",
        show_default=False,
        autocompletion=complete_scorer,
        rich_help_panel=DRAWN,
    ),
]
SearchToo = Annotated[
    bool,
    typer.Option(
        "--search",
        help="Every few tokens go on from the best answers, with forks of them in the places of "
        "the others.",
        rich_help_panel=DRAWN,
    ),
]
Keep = Annotated[
    int, typer.Option(help="--search: so many go on each time.", rich_help_panel=DRAWN)
]
Every = Annotated[
    int, typer.Option(help="--search: so many tokens each time.", rich_help_panel=DRAWN)
]


def count_drawn(n: int, temperature: float) -> int:
    """How many answers are worth drawing: at temperature 0 all are the same, and one is drawn."""
    if temperature != 0 or n <= 1:
        return n
    say(f"--temperature 0 is greedy: one answer is drawn, as all {n} would be the same")
    return 1


def parse_schedule(given: str) -> str | list[tuple[int, int]]:
    """`half`, or `16:12,32:6` as pairs.

    Raises:
        ValueError: it is neither.
    """
    if given.strip() == "half":
        return "half"
    pairs = [[word.strip() for word in part.split(":")] for part in given.split(",")]
    if not all(len(pair) == 2 and all(map(_is_count, pair)) for pair in pairs):
        raise ValueError(
            f"--prune {given:.60}: write half, or after how many tokens how many go on, "
            "e.g. 16:12,32:6"
        )
    return [(int(tokens), int(keep)) for tokens, keep in pairs]


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 10


def parse_pruning(
    prune: str | None, by: str | None, n: int, settings: Mapping[str, Any] | None = None
) -> Pruning | None:
    """The rule that `--prune` and `--prune-by` name, tried before a model is loaded.

    Args:
        prune: the schedule.
        by: who judges.
        n: of how many candidates.
        settings: of who judges; by default the model family's.

    Raises:
        ValueError: it is no schedule, or no scorer that can judge drafts with these settings.
    """
    if prune is None:
        return None
    from lookback.steering.pruning import Pruning

    rule = Pruning(parse_schedule(prune), scorer=by or JUDGE, settings=dict(settings or {}))
    rule.of(n, {})
    return rule


def parse_steering(
    prune: str | None,
    search: bool,
    by: str | None,
    sizes: tuple[int, int, int],
    scorer: str,
    params: Mapping[str, Any],
) -> Pruning | Search | None:
    """What `ask` is told about answers that are still being written.

    Args:
        prune, search, by: the options.
        sizes: how many answers there are, and `--keep` and `--every`.
        scorer, params: what ranks the answers; if it is the judge too, with the same settings.

    Raises:
        BadParameter: options that do not go together.
        ValueError: one is out of range.
    """
    if prune is not None and search:
        raise typer.BadParameter("give either --prune or --search", param_hint="--search")
    if by is not None and prune is None and not search:
        raise typer.BadParameter("it goes with --prune or --search", param_hint="--prune-by")
    n, keep, every = sizes
    settings = dict(params) if (by or JUDGE) == scorer else {}
    if not search:
        return parse_pruning(prune, by, n, settings)
    from lookback.steering.search import Search

    rule = Search(n, keep, every, scorer=by or JUDGE, settings=settings)
    rule.of({})
    return rule


def draw_answers(
    lb: Engine,
    conversation: Conversation,
    title: str,
    rule: Pruning | Search | None,
    drawing: Mapping[str, Any],
    by_layer: bool,
) -> Candidates:
    """Candidates of one question, with what is to be seen of it on the way.

    Raises:
        AbilityError: the engine cannot do what is asked for.
    """
    from lookback.engines import optional_settings, require
    from lookback.steering.search import Search

    given = {"messages": conversation.messages(), **drawing}
    given |= optional_settings(lb, {"by_layer": by_layer})
    n = given["n"]
    with watching(f"{title}drawing {n} answers", n) as (bar, watch):
        if isinstance(rule, Search):
            require(lb, ["search"], "--search")
            del given["n"]
            return lb.search(**given, **_settings(rule), watch=watch, progress=bar)
        steered = None if rule is None else replace(rule, watch=watch)
        return lb.sample(**given, **optional_settings(lb, {"prune": steered}), progress=bar)


def _settings(rule: Judge) -> dict[str, Any]:
    given = asdict(rule)
    del given["watch"]
    return given


@contextmanager
def watching(title: str, n: int) -> Iterator[tuple[Progress, Watch]]:
    """A bar on stderr, and below it a line per checkpoint; nothing if nobody watches."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress as Bars
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    errors = console(stderr=True)
    bars, checkpoints = Bars(*bar_columns(title), console=errors), Table.grid(padding=(0, 1))
    task = bars.add_task(title, total=None)

    def progress(done: int, total: int) -> None:
        bars.update(task, completed=done, total=total)

    def watch(tokens: int, scores: Mapping[int, float], decision: Decision) -> None:
        told, left = tell_checkpoint(tokens, scores, decision)
        checkpoints.add_row(told, ProgressBar(n, left, min(n, WIDEST)))

    if not errors.is_terminal:
        yield progress, watch
        return
    with Live(Group(bars, checkpoints), console=errors, transient=True):
        yield progress, watch


def tell_checkpoint(
    tokens: int, scores: Mapping[int, float], decision: Decision
) -> tuple[str, int]:
    """`16 tokens: 25 -> 12 left`, of a search also how many they are forked to; and the 12."""
    left = len(scores.keys() - decision.ends.keys())
    forked = f", forked to {left + len(decision.forks)}" if decision.forks else ""
    return f"{tokens} tokens: {len(scores)} -> {left} left{forked}", left
