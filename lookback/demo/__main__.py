"""The command: find the item, ask, show, write the page."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from rich.console import Console

from lookback.benchmarks.base import GENERATED, get_benchmark
from lookback.demo.asked import TASK, Asked, ask, find
from lookback.demo.measured import read_measured
from lookback.demo.screen import how_chosen, show


def arguments() -> argparse.Namespace:
    """What can be chosen."""
    parser = argparse.ArgumentParser(description="Which of 25 answers does the image support?")
    parser.add_argument("--task", choices=GENERATED, default=TASK)
    parser.add_argument("--item", type=int, help="which held-out item; by default one by a rule")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path, default=Path("build/demo.html"), help="the page")
    return parser.parse_args()


def look_for(task: str, item: int | None, seed: int) -> tuple[Asked, int | None, str | None]:
    """The item with its answers, how many were asked for it, and which weights answered."""
    errors = Console(stderr=True)
    benchmark = get_benchmark(task)
    with errors.status("loading the embedded model") as status:
        import lookback

        engine = lookback.load(quiet=True)

        def answers(place: int) -> Asked:
            status.update(f"drawing 25 answers to item {place} of {task}")
            return ask(engine, benchmark, place, seed)

        weights = engine.identity().weights
        if item is not None:
            return answers(item), None, weights
        return *find(answers), weights


def main() -> None:
    """Find, ask, show, write."""
    from lookback.demo.page import demo_page

    given = arguments()
    try:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        asked, tried, weights = look_for(given.task, given.item, given.seed)
    except (ValueError, OSError) as error:
        sys.exit(f"demo: {error}")
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without ✓ shows ? for it
        sys.stdout.reconfigure(errors="replace")
    measured = read_measured(given.task, weights)
    chosen = how_chosen(tried, measured)
    out = Console()
    show(out, asked, chosen, measured)
    given.out.write_text(demo_page(asked, chosen, measured), encoding="utf-8")
    out.print(f"\nThe same as a page, with sliders: {given.out}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
