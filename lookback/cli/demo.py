"""The command `demo`: what LookBack does, on a drawn scene and the embedded model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lookback.cli.app import app
from lookback.cli.options import ASKED, OUTPUT, Seed
from lookback.cli.start import Start
from lookback.cli.terminal import console
from lookback.demo import TASK

if TYPE_CHECKING:
    from lookback.demo.asked import Asked


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

    Takes seconds and downloads nothing. Writes the same as a page with sliders for α and λ.
    """
    from lookback.benchmarks.base import GENERATED, get_benchmark
    from lookback.demo.asked import N, ask, find, item_at
    from lookback.demo.measured import read_measured
    from lookback.demo.page import demo_page
    from lookback.demo.screen import how_chosen, show
    from lookback.engines.common.options import SEEDS
    from lookback.errors import check_whole
    from lookback.pages import check_writable

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
        measured = read_measured(task, lb.identity().weights)
        chosen = how_chosen(tried, measured)
        page = demo_page(asked, chosen, measured)
    show(console(), asked, chosen, measured)
    out.write_text(page, encoding="utf-8")
    told = f"\nThe same as a page, with sliders for α and λ: {out}"
    console().print(told, highlight=False, markup=False, soft_wrap=True)
