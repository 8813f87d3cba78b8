"""The main job on the embedded model: ask about a held-out scene 25 times, rank, compare.

Prints the answers in the order of three selectors side by side, shaded by how much each token
looked at the picture, with what is right marked (the scene is known), and writes the same as a page
to build/demo.html. `python examples/demo.py --help` for other scenes and tasks.
"""

import argparse
import base64
import html
import io
from pathlib import Path

import numpy as np
import transformers
from rich.console import Console
from rich.table import Table
from rich.text import Text

import lookback
from lookback.benchmarks.base import GENERATED, Item, get_benchmark
from lookback.signals import Candidate, Candidates

N = 25


def orders(cands: Candidates, seed: int) -> dict[str, list[Candidate]]:
    """The candidates in the order of LookBack, of self-certainty, and of a coin."""
    shuffled = np.random.default_rng(seed).permutation(len(cands))
    return {
        "LookBack": cands.rank("lookback"),
        "self-certainty": cands.rank("self_certainty"),
        "random": [cands[int(i)] for i in shuffled],
    }


def shade(candidate: Candidate, low: float, high: float) -> list[tuple[str, float]]:
    """Each token with how much it looked, between 0 and 1 over all candidates."""
    scale = max(high - low, 1e-9)
    return [
        (token, float((a - low) / scale))
        for token, a in zip(candidate.tokens, candidate.visual_lookback, strict=True)
    ]


def on_terminal(shaded: list[tuple[str, float]], mark: str) -> Text:
    """An answer as coloured text."""
    text = Text(mark + " ", style="green" if mark == "✓" else "red")
    for token, strength in shaded:
        level = int(255 - 150 * strength)
        text.append(token.replace("\n", " "), style=f"black on rgb(255,{level},{level // 2 + 60})")
    return text


def on_page(shaded: list[tuple[str, float]], mark: str) -> str:
    """An answer as a cell of a table."""
    spans = "".join(
        f'<span style="background:rgba(243,150,40,{strength:.2f})">{html.escape(token)}</span>'
        for token, strength in shaded
    )
    return f'<td class="{"right" if mark == "✓" else "wrong"}">{mark} {spans}</td>'


def page(item: Item, columns: dict[str, list[str]]) -> str:
    """The whole comparison as one file that needs no network."""
    buffer = io.BytesIO()
    item.image.resize((320, 320), 0).save(buffer, "PNG")
    picture = base64.b64encode(buffer.getvalue()).decode()
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    rows = "".join(f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns.values(), strict=True))
    return f"""<!doctype html><meta charset="utf-8"><title>LookBack</title>
<style>body{{font:15px/1.5 sans-serif;margin:2em;max-width:75em}}td{{padding:.1em 1em .1em 0;
white-space:pre-wrap;vertical-align:top}}th{{text-align:left}}.right{{color:#176b2c}}
.wrong{{color:#a02020}}span{{color:#111}}img{{image-rendering:pixelated}}</style>
<h1>{html.escape(item.question)}</h1><img alt="the scene" src="data:image/png;base64,{picture}">
<p>25 answers of the embedded model, best first by each selector. The darker a token, the more of
its attention the model paid to the picture when it wrote it. ✓ is right: the scene is known.</p>
<table><tr>{head}</tr>{rows}</table>"""


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

    marks = ["✓" if benchmark.score(item, c.text) > 0.5 else "✗" for c in cands]
    looks = np.concatenate([c.visual_lookback for c in cands])
    ranked = orders(cands, given.seed)
    console = Console()
    console.print(f"[bold]{item.id}[/]: {item.question}")
    console.print(f"{marks.count('✓')} of {N} answers are right.\n")
    table = Table(*ranked, box=None, pad_edge=False)
    shaded = {c.index: shade(c, looks.min(), looks.max()) for c in cands}
    for row in zip(*ranked.values(), strict=True):
        table.add_row(*(on_terminal(shaded[c.index], marks[c.index]) for c in row))
    console.print(table)
    for name, order in ranked.items():
        console.print(f"{name}: {marks[order[0].index]} {order[0].text.strip()}", markup=False)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        name: [on_page(shaded[c.index], marks[c.index]) for c in order]
        for name, order in ranked.items()
    }
    given.out.write_text(page(item, columns), encoding="utf-8")
    console.print(f"\nThe same as a page: {given.out}")
    console.print(
        "One item, picked because it shows the idea. How often who is right: docs/embedded.md",
        style="dim",
    )


if __name__ == "__main__":
    main()
