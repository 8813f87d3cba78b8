"""Ranked answers in a terminal of any width: the best on top, in full; then the numbers of all."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isclose
from typing import TYPE_CHECKING, Any

from lookback.cli.terminal import console, plain_text, print_json, say, shaded_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from lookback.signals import Candidate, Candidates

COLUMNS = ("#", "score", "log p", "A", "tokens")
WIDTHS = (3, 9, 8, 7, 6)
BESIDE = 72
"""Terminals of at least so many columns show answers beside their numbers, others below."""


def show_candidates(
    cands: Candidates,
    scorer: str,
    params: dict[str, Any],
    as_json: bool,
    name: str | None = None,
) -> None:
    """Rank candidates and print them, the best in full and first; or everything as JSON.

    Args:
        cands: the candidates.
        scorer, params: what ranks them.
        as_json: print one line of JSON instead.
        name: the question's name, if there are several questions: "id" in JSON.

    Raises:
        ValueError: every candidate is empty or pruned.
    """
    with console(stderr=True).status(f"ranking by {scorer}"), _count_unread() as unread:
        ranked = cands.rank(scorer, **params)
    tied = count_tied(ranked)
    if tied > 1:
        say(
            f"a tie: {tied} different answers have the highest score by {scorer}, which cannot "
            "choose between them; they stand in the order in which they came"
        )
    if as_json:
        from lookback.signals import candidate_dict

        data = ({} if name is None else {"id": name}) | cands.to_dict() | {"scorer": scorer}
        data["candidates"] = [candidate_dict(c) for c in ranked]
        print_json(data | unread)
        return
    if "search" in cands.sampling:  # it leaves many behind; --json has them all
        ranked = [c for c in ranked if not is_pruned(c)]
    print_ranking(console(), ranked, scorer)
    print_cost(console(), cands)
    if not ranked[0].scorable:
        raise ValueError("every answer is empty: there is no best one")


def count_tied(ranked: Sequence[Candidate]) -> int:
    """Return how many different texts have the highest score."""
    scored = [(c.score, c.text.strip()) for c in ranked if c.scorable and c.score is not None]
    return len({text for score, text in scored if isclose(score, scored[0][0])})


@contextmanager
def _count_unread() -> Iterator[dict[str, Any]]:
    """Print warnings of the block as notes; yield the count of unread replies, for JSON.

    Python shows a warning once; here each question has its own.
    """
    from lookback.scores.judges import UnreadReplies

    unread: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnreadReplies)
        yield unread
    for warning in caught:
        if isinstance(warning.message, UnreadReplies):
            unread["replies"] = {"asked": warning.message.asked, "read": 0}
        say(f"warning: {warning.message}")


def print_ranking(out: Console, ranked: list[Candidate], scorer: str) -> None:
    """Print the best answer, if there is one, and all of them with their numbers."""
    if ranked[0].scorable:
        colours = out.color_system == "truecolor"
        by = ", shaded by A" if colours else ""
        out.print(f"best by {scorer}{by}:", style="bold", highlight=False, markup=False)
        best = ranked[0]
        shown = shaded_text(best.tokens, best.visual_lookback) if colours else None
        out.print(shown or plain_text(best.text.strip()))
        out.print()
    (_print_beside if out.width >= BESIDE else _print_below)(out, ranked, scorer)


def _print_beside(out: Console, ranked: list[Candidate], scorer: str) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name, width in zip((COLUMNS[0], scorer, *COLUMNS[2:]), WIDTHS, strict=True):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("answer", overflow="fold", ratio=1)
    for rank, candidate in enumerate(ranked, start=1):
        answer = _one_line(candidate)
        table.add_row(*_numbers(rank, candidate), answer, style=_style(candidate))
    out.print(table)


def _print_below(out: Console, ranked: list[Candidate], scorer: str) -> None:
    from rich.padding import Padding

    def line(cells: tuple[str, ...]) -> str:
        widths = WIDTHS if len(cells) == len(WIDTHS) else (WIDTHS[0], 0, *WIDTHS[3:])
        return " ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    out.print(f"score: {scorer}", highlight=False, markup=False)
    out.print(line(COLUMNS), style="bold", highlight=False, markup=False)
    for rank, candidate in enumerate(ranked, start=1):
        cells, style = _numbers(rank, candidate), _style(candidate)
        if is_pruned(candidate):  # what happened to it takes the room of two columns
            cells = cells[0], f"{cells[1]:>{WIDTHS[1] + 1 + WIDTHS[2]}}", *cells[3:]
        out.print(line(cells), style=style, highlight=False, markup=False, overflow="fold")
        out.print(Padding(_one_line(candidate), (0, 0, 0, 4), style=style))


def _numbers(rank: int, candidate: Candidate) -> tuple[str, ...]:
    """Return its rank, score, means of log p and A, and length."""
    place, length = str(rank), str(len(candidate.signals))
    if is_pruned(candidate):  # numbers of a part do not compare with those of whole answers
        return place, f"pruned after {length}", "", "", length
    if not len(candidate.signals):
        return place, "-", "-", "-", length
    values = candidate.score, candidate.log_prob.mean(), candidate.visual_lookback.mean()
    return place, *(f"{value:.4f}" for value in values), length


def is_pruned(candidate: Candidate) -> bool:
    """Whether it was ended early because others were better."""
    from lookback.signals import PRUNED

    return candidate.finish == PRUNED


def _style(candidate: Candidate) -> str:
    return "dim" if is_pruned(candidate) else ""


def print_cost(out: Console, cands: Candidates) -> None:
    """Print how many tokens were drawn and candidates pruned, if pruning was on."""
    drawn = cands.sampling.get("tokens_drawn")
    if drawn is None:
        return
    pruned = sum(map(is_pruned, cands))
    cost = f"{drawn:,} tokens drawn, {pruned} of {len(cands)} candidates pruned"
    out.print(f"\n{cost}", style="dim", highlight=False, markup=False)


def _one_line(candidate: Candidate) -> Text:
    return plain_text(" ".join(candidate.text.split()) or "(empty)")
