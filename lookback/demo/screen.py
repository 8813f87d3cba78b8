"""The demo in a terminal of any width: picture, question, picks, all scores, what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lookback.cli.terminal import LARGEST, LEFT, can_draw, draw, printable
from lookback.demo.asked import RULE, SCORERS, Asked, merge
from lookback.demo.measured import Measured
from lookback.pages.tokens import color, shades
from lookback.signals import Candidate

WIDE = 100
"""From so many columns on, the picture stands beside the picks, and heads are written in full."""
STYLES = {"right": "green", "wrong": "red", "partly": "yellow"}
HEADS = ("#", "LookBack", "self-certainty", "log p", "A", "quality", "×")
NARROW = ("#", "LookBack", "SC", "log p", "A", "quality", "×")
WIDTHS = (2, 8, 5, 6, 4, 6, 2)
"""What the numbers need at least: the answer takes the rest, never theirs."""

LEADS = "LookBack's lead over each, mean over the tasks, in points [95 % interval]:"


def show(out: Console, asked: Asked, chosen: str, measured: Measured | str) -> None:
    """Everything there is to see.

    Args:
        out: where to.
        asked: the item and its answers.
        chosen: how the item was picked.
        measured: the tasks' numbers, or why there are none.
    """
    out.print(_head(asked, out))
    out.print()
    out.print(*_table(asked, out.width), sep="\n")
    out.print()
    out.print(_legend(asked), style="dim", highlight=False)
    out.print()
    out.print(_measured(measured), highlight=False)
    out.print()
    out.print(f"How the item was picked: {chosen}", style="dim", highlight=False, markup=False)


def how_chosen(tried: int | None, measured: Measured | str) -> str:
    """How the item was picked, in a few sentences.

    Args:
        tried: how many items were asked for it; None if it was named by hand.
        measured: the tasks' numbers, or why there are none.
    """
    if tried is None:
        return "Named with --item."
    count = f"{tried} items were" if tried > 1 else "1 item was"
    others = "" if isinstance(measured, str) else f" {measured.fairness()}"
    return f"{RULE} {count} tried.{others}"


def _head(asked: Asked, out: Console) -> RenderableType:
    """The picture and, beside or below it, question and picks."""
    words = Group(*_question(asked), *_picks(asked, out.color_system == "truecolor"))
    if asked.item.image is None or not can_draw(out):
        return words
    picture = draw(asked.item.image, out.width, out.height - LEFT)
    if out.width < WIDE:
        return Group(picture, Text(), words)
    grid = Table.grid(padding=(0, 3))
    grid.add_column(no_wrap=True, width=min(LARGEST, picture.cell_len))
    grid.add_column(ratio=1)
    grid.add_row(picture, words)
    return grid


def _question(asked: Asked) -> list[Text]:
    n = len(asked.candidates)
    right = f"{asked.right} of {n} answers are right without a mistake."
    question = Text(printable(asked.item.question), style="bold")
    return [Text(f"The embedded model was asked {n} times:"), question, Text(right), Text()]


def _picks(asked: Asked, shaded: bool) -> list[RenderableType]:
    """Each scorer's pick: its name and the verdict, then the answer in full; and the greedy one."""
    found: list[RenderableType] = []
    for name, candidate in asked.picks.items():
        verdict = asked.verdict(candidate.index)
        line = Text(f"{SCORERS[name]} picks: ", style="bold")
        line.append(f"{verdict.mark} {verdict.words}", STYLES[verdict.kind])
        if verdict.invented:
            line.append(f" (not there: {printable(', '.join(verdict.invented))})", "not bold")
        found += [line, _indent(_answer(candidate, shaded)), Text()]
    once = asked.greedy_verdict
    line = Text("greedy answer, nothing picked: ", style="bold")
    line.append(f"{once.mark} {once.words}", STYLES[once.kind])
    return [*found, line, _indent(Text(_one_line(asked.greedy)))]


def _indent(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2), expand=False)


def _answer(candidate: Candidate, shaded: bool) -> Text:
    """In full; each token the darker the more it looked, within this answer."""
    if not shaded:
        return Text(_one_line(candidate.text))
    text = Text()
    for token, shade in zip(candidate.tokens, shades(candidate.visual_lookback), strict=True):
        word = printable(token.replace("\n", " "))
        bare = word.lstrip()
        text.append(word[: len(word) - len(bare)] if text else "")
        text.append(bare, f"black on {color('A', float(shade))}")
    return text


def _table(asked: Asked, width: int) -> list[Text]:
    """A line per answer, the best by LookBack first; equal ones together; none is wrapped.

    Laid out here, as a table of Rich would take from the numbers to show more of the answers.
    """
    ranked = asked.candidates.rank("lookback")
    groups = merge(ranked)
    heads = HEADS if width >= WIDE else NARROW
    shown = [i for i, head in enumerate(heads) if head != "×" or len(groups) < len(ranked)]
    places = {c.index: str(place) for place, c in enumerate(ranked, 1)}
    certainty = asked.candidates.scores("self_certainty")
    lines = [_line(width, heads, shown, "answer")]
    lines[0].stylize("bold")
    for group in groups:
        first = group[0]
        verdict = asked.verdict(first.index)
        quality = f"{verdict.mark} {asked.quality[first.index]:.2f}"
        numbers = _numbers(first, certainty[first.index])
        count = str(len(group)) if len(group) > 1 else ""
        cells = (places[first.index], *numbers, quality, count)
        lines.append(_line(width, cells, shown, _one_line(first.text)))
        lines[-1].highlight_words([quality], STYLES[verdict.kind])
    return lines


def _line(width: int, cells: Sequence[str], shown: list[int], answer: str) -> Text:
    """Cells under their heads, then as much of the answer as there is room for."""
    heads, gap = (HEADS, "  ") if width >= WIDE else (NARROW, " ")
    wide = [max(least, len(head)) for least, head in zip(WIDTHS, heads, strict=True)]
    line = Text(gap.join([*(cells[i].rjust(wide[i]) for i in shown), answer]))
    line.truncate(width, overflow="ellipsis")
    return line


def _numbers(candidate: Candidate, certainty: float) -> tuple[str, ...]:
    if not len(candidate.signals):
        return ("–",) * 4
    log_p, a = float(np.mean(candidate.log_prob)), float(np.mean(candidate.visual_lookback))
    return f"{candidate.score or 0.0:.3f}", f"{certainty:.2f}", f"{log_p:.2f}", f"{a:.2f}"


def _one_line(text: str) -> str:
    return printable(" ".join(text.split())) or "(empty)"


def _legend(asked: Asked) -> str:
    """What the columns are."""
    settings = asked.candidates.defaults
    repeated = len(merge(list(asked.candidates))) < len(asked.candidates)
    return (
        f"Best first by LookBack (α = {settings['alpha']:g}, λ = {settings['lam']:g}); higher is "
        "better. Self-certainty (SC), log p and A are means over the tokens; A is the share of "
        f"attention on the picture. Quality: {asked.measure}."
        + (" ×: how often the answer was drawn." if repeated else "")
    )


def _measured(measured: Measured | str) -> Text:
    if isinstance(measured, str):
        return Text(measured)
    lines = [("", measured.heads()), *measured.lines()]
    leads = [(name, [lead]) for name, lead in measured.lead_lines()]
    text = Text(f"{measured.words()}{_columns(lines)}\n\n{LEADS}{_columns(leads)}")
    return text.append("".join(f"\n\n{sentence}" for sentence in measured.useless()))


def _columns(lines: Sequence[tuple[str, list[str]]]) -> str:
    """A name and its cells on each line, in columns."""
    longest = max(len(name) for name, _ in lines)
    wide = max(len(cell) for _, cells in lines for cell in cells)
    rows = ([name.ljust(longest), *(c.rjust(wide) for c in cells)] for name, cells in lines)
    return "".join("\n  " + "  ".join(row) for row in rows)
