"""The main job on the embedded model: ask about a held-out scene 25 times, rank, compare.

Prints the answers in the order of three selectors side by side, shaded by how much each token
looked at the picture, with what is right marked (the scene is known), and writes the same as a page
to build/demo.html. `python examples/demo.py --help` for other scenes and tasks.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import transformers
from rich.console import Console
from rich.table import Table
from rich.text import Text

import lookback
from lookback.benchmarks.base import GENERATED, get_benchmark
from lookback.pages import render
from lookback.pages.shading import ShadedToken, shaded, shades
from lookback.scores.base import get_scorer
from lookback.signals import Candidate, Candidates

N = 25
ABOUT = (
    "25 answers of the embedded model, best first by each selector. The more a token is "
    "shaded, the more of its attention the model paid to the picture when it wrote it. ✓ is right: "
    "the scene is known."
)


def orders(cands: Candidates, seed: int) -> dict[str, list[Candidate]]:
    """The candidates in the order of LookBack, of self-certainty, and of a coin."""
    shuffled = np.random.default_rng(seed).permutation(len(cands))
    return {
        "LookBack": cands.rank("lookback"),
        "self-certainty": cands.rank("self_certainty"),
        "random": [cands[int(i)] for i in shuffled],
    }


def on_terminal(candidate: Candidate, strengths: Sequence[float], right: bool) -> Text:
    """An answer as coloured text."""
    text = Text(f"{mark(right)} ", style="green" if right else "red")
    for token, strength in zip(candidate.tokens, strengths, strict=True):
        level = int(255 - 150 * strength)
        text.append(token.replace("\n", " "), style=f"black on rgb(255,{level},{level // 2 + 60})")
    return text


def on_page(
    candidate: Candidate, strengths: Sequence[float], right: bool
) -> tuple[bool, list[ShadedToken]]:
    """An answer as the page takes it."""
    color = get_scorer("visual_lookback").color
    return right, shaded(candidate.tokens, candidate.visual_lookback, color, strengths)


def mark(right: bool) -> str:
    """What stands in front of an answer."""
    return "✓" if right else "✗"


def main() -> None:
    """Ask, rank, print, write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=GENERATED, default="scenes-pairs")
    parser.add_argument("--item", type=int, default=15, help="which held-out item")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path, default=Path("build/demo.html"))
    given = parser.parse_args()
    transformers.logging.disable_progress_bar()
    benchmark = get_benchmark(given.task)
    item = benchmark.items("test")[given.item]
    lb = lookback.load()
    cands = lb.sample(item.image, item.question, N, max_new_tokens=120, seed=given.seed)

    right = [benchmark.score(item, c.text) > 0.5 for c in cands]
    looks = np.concatenate([c.visual_lookback for c in cands])
    ranked = orders(cands, given.seed)
    console = Console()
    console.print(f"[bold]{item.id}[/]: {item.question}")
    console.print(f"{sum(right)} of {N} answers are right.\n")
    table = Table(*ranked, box=None, pad_edge=False)
    strengths = [shades(c.visual_lookback, looks.min(), looks.max()).tolist() for c in cands]
    rows = list(zip(*ranked.values(), strict=True))
    for row in rows:
        table.add_row(*(on_terminal(c, strengths[c.index], right[c.index]) for c in row))
    console.print(table)
    for name, order in ranked.items():
        console.print(
            f"{name}: {mark(right[order[0].index])} {order[0].text.strip()}", markup=False
        )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    page = render(
        "comparison.html",
        title=item.question,
        image=item.image,
        about=ABOUT,
        columns=list(ranked),
        rows=[[on_page(c, strengths[c.index], right[c.index]) for c in row] for row in rows],
    )
    given.out.write_text(page, encoding="utf-8")
    console.print(f"\nThe same as a page: {given.out}")
    console.print(
        "One item, picked because it shows the idea. How often who is right: docs/embedded.md",
        style="dim",
    )


if __name__ == "__main__":
    main()
