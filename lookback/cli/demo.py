"""The command `demo`: what LookBack does, on a drawn scene and the embedded model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from lookback.cli.app import app
from lookback.cli.options import ASKED, OUTPUT, Seed
from lookback.cli.start import Start
from lookback.cli.terminal import (
    LEFT,
    can_draw,
    console,
    draw,
    plain_text,
    printable,
    shaded_text,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from lookback.benchmarks.base import Benchmark, Item
    from lookback.engines import Engine
    from lookback.signals import Candidate, Candidates

TASK = "scenes-vqa"
N = 25
SPLIT = "test"
MAX_NEW_TOKENS = 120
SCORERS = {
    "lookback": "LookBack",
    "mean_log_prob": "mean log p",
    "self_certainty": "self-certainty",
}
"""Whose picks are shown, with the names that readers see."""
APART = 0.25
"""By how much the other pick is below the best at least, so that there is something to see."""
FIRST, MOST = 120, 100
"""Where the search begins, and how many items it tries: nobody had seen their answers when the rule
was settled."""
RULE = (
    f"The first held-out item, from number {FIRST} on, where either LookBack or "
    f"self-certainty picks the best of the {N} answers, and the other picks one that is at least "
    f"{APART} lower in quality (1 is right, 0 is wrong). An example, not evidence."
)
STYLES = {"✓": "green", "✗": "red", "~": "yellow"}


class Asked(NamedTuple):
    """A held-out item, its answers, and how good each of them is, from 0 to 1."""

    item: Item
    candidates: Candidates
    quality: list[float]

    @property
    def picks(self) -> dict[str, Candidate]:
        """The answer that each of `SCORERS` picks."""
        return {name: self.candidates.best(name) for name in SCORERS}

    @property
    def right(self) -> str:
        """How many of the answers are right, in words."""
        count = sum(quality >= 1 for quality in self.quality)
        return f"{count} of {len(self.quality)} answers are right"


def ask(engine: Engine, benchmark: Benchmark, place: int, seed: int) -> Asked:
    """Draw the answers to one held-out item and compare them with the truth."""
    item = item_at(benchmark, place)
    candidates = engine.sample(
        item.image, item.question, N, max_new_tokens=MAX_NEW_TOKENS, seed=seed
    )
    return Asked(item, candidates, list(benchmark.scores(item, [c.text for c in candidates])))


def ask_greedily(engine: Engine, benchmark: Benchmark, item: Item) -> tuple[str, float]:
    """Return the one answer at temperature 0, and its quality."""
    image, longest = item.image, MAX_NEW_TOKENS
    (greedy,) = engine.sample(image, item.question, 1, temperature=0.0, max_new_tokens=longest)
    return greedy.text, benchmark.score(item, greedy.text)


def item_at(benchmark: Benchmark, place: int) -> Item:
    """Return a held-out item by its number; raise ValueError if there is none."""
    items = benchmark.items(SPLIT)
    if not 0 <= place < len(items):
        raise ValueError(
            f"item {place} of {benchmark.name}: it has the items 0 to {len(items) - 1}"
        )
    return items[place]


def tells_apart(asked: Asked) -> bool:
    """Whether `RULE` takes an item; neither of the two scorers is preferred."""
    one, other = (asked.quality[asked.picks[s].index] for s in ("lookback", "self_certainty"))
    return differ(one, other, max(asked.quality))


def differ(one: float, other: float, best: float) -> bool:
    """Whether one pick is the best there is and the other is `APART` below."""
    return max(one, other) >= best and abs(one - other) >= APART


def find(answers: Callable[[int], Asked]) -> tuple[Asked, int]:
    """Return the first item that `RULE` takes, and how many were tried; ValueError for none."""
    for tried, place in enumerate(range(FIRST, FIRST + MOST), start=1):
        asked = answers(place)
        if tells_apart(asked):
            return asked, tried
    raise ValueError(
        f"on none of the items {FIRST} to {FIRST + MOST - 1} is one pick the best and the other "
        f"{APART} below: name one with --item"
    )


def verdict(quality: float) -> str:
    """Put the quality of an answer into words, after one sign."""
    if quality >= 1:
        return "✓ right"
    return "✗ wrong" if quality <= 0 else f"~ partly right, {quality:.2f}"


def show(out: Console, asked: Asked, greedy: tuple[str, float]) -> None:
    """Print the picture, the question, the ranking, and who picked what."""
    from rich.padding import Padding
    from rich.text import Text

    if asked.item.image is not None and can_draw(out):
        out.print(draw(asked.item.image, out.width, out.height - LEFT))
    out.print(f"The embedded model was asked {len(asked.candidates)} times:", highlight=False)
    out.print(Text(printable(asked.item.question), style="bold"))
    out.print(f"{asked.right}.\n", highlight=False)
    out.print(_ranking(asked), highlight=False)
    shaded = out.color_system == "truecolor"

    def tell(name: str, answer: Text, quality: float) -> None:
        told = verdict(quality)
        out.print()
        out.print(Text.assemble((f"{name}: ", "bold"), (told, STYLES[told[0]])))
        out.print(Padding(answer, (0, 0, 0, 2), expand=False))

    for scorer, pick in asked.picks.items():
        answer = shaded_text(pick.tokens, pick.visual_lookback) if shaded else plain_text(pick.text)
        tell(f"{SCORERS[scorer]} picks", answer, asked.quality[pick.index])
    tell("greedy answer, nothing picked", plain_text(greedy[0]), greedy[1])


def _ranking(asked: Asked) -> Table:
    """A row per answer, the best by LookBack first; equal ones are one row."""
    from rich.table import Table
    from rich.text import Text

    ranked = asked.candidates.rank("lookback")
    times = Counter(tuple(c.tokens) for c in ranked)
    table = Table(box=None, pad_edge=False)
    for head in ("#", "LookBack", "drawn", "quality"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("answer", overflow="fold", ratio=1)
    for place, candidate in enumerate(ranked, start=1):
        if count := times.pop(tuple(candidate.tokens), 0):
            quality = asked.quality[candidate.index]
            mark = verdict(quality)[0]
            score = f"{candidate.score:.4f}" if candidate.scorable else "-"
            told = Text(f"{mark} {quality:.2f}", STYLES[mark])
            answer = plain_text(" ".join(candidate.text.split()) or "(empty)")
            table.add_row(str(place), score, f"{count} ×", told, answer)
    return table


@app.command()
def demo(
    task: Annotated[
        str,
        typer.Option(
            help="A benchmark of drawn scenes (scenes-... in `lookback benchmarks`).",
            rich_help_panel=ASKED,
        ),
    ] = TASK,
    item: Annotated[
        int | None,
        typer.Option(
            help="Number of the held-out item; by default the first that a fixed rule selects.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None,
    seed: Seed = 42,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The page to write.", rich_help_panel=OUTPUT
        ),
    ] = Path("demo.html"),
) -> None:
    """Ask the embedded model about a drawn scene 25 times; show what each scorer picks.

    Takes seconds and downloads nothing. Writes a page that shows where each word of LookBack's pick
    looked.
    """
    from lookback.benchmarks.base import GENERATED, get_benchmark
    from lookback.engines.common.options import SEEDS
    from lookback.errors import check_whole
    from lookback.pages import check_writable
    from lookback.pages.look import look_page

    if task not in GENERATED:
        names = ", ".join(GENERATED)
        raise typer.BadParameter(f"{task!r} is not one of {names}", param_hint="--task")
    benchmark = get_benchmark(task)
    if item is not None:
        item_at(benchmark, item)
    check_whole("seed", seed, 0, SEEDS - 1)
    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    # The model is too small to gain from threads; on a busy machine they wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    lb = Start(None, {}, "lookback").engine()
    with console(stderr=True).status("") as status:

        def answers(place: int) -> Asked:
            status.update(f"drawing {N} answers to item {place} of {task}")
            return ask(lb, benchmark, place, seed)

        asked, tried = find(answers) if item is None else (answers(item), None)
        greedy = ask_greedily(lb, benchmark, asked.item)
        image, question = asked.item.image, asked.item.question
        page = look_page(lb.look(image, question, asked.picks["lookback"]), question)
    show(console(), asked, greedy)
    out.write_text(page, encoding="utf-8")
    count = f"{tried} items were" if tried != 1 else "1 item was"
    chosen = "Named with --item." if tried is None else f"{RULE} {count} tried."
    told = f"\nWhere each word of LookBack's pick looked, as a page: {out}"
    console().print(f"\nHow the item was picked: {chosen}", style="dim", highlight=False)
    console().print(told, highlight=False, markup=False, soft_wrap=True)
