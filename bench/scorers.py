"""What each scorer costs after generation: milliseconds a response, as the paper's fig:computation.

`make bench-scorers`: 25 candidates each for some held-out scenes, drawn once by the embedded model
and not timed; then every scorer on the same candidates, one after another, in one process. Prints a
table and saves a plot to build/scorers.png.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.scores.registry import Scorer

N = 25


def draw(items: int) -> list[tuple[lookback.Candidates, list[float]]]:
    lb = lookback.load()
    task = get_benchmark("scenes-caption")
    found = []
    for item in track(task.items("test", items), "drawing candidates"):
        cands = lb.sample(item.image, item.question, N, max_new_tokens=120, seed=42).filled()
        found.append((cands, [task.score(item, c.text) for c in cands]))
    return found


def milliseconds(one: Scorer, drawn: list, rounds: int) -> np.ndarray:
    """Of each question, the best of some rounds, divided by its number of candidates."""
    times = []
    for cands, quality in drawn:
        settings = {"quality": quality} if one.needs == "truth" else {}
        took = []
        for _ in range(rounds):
            began = time.perf_counter()
            cands.scores(one.name, **settings)
            took.append(time.perf_counter() - began)
        times.append(1000 * min(took) / len(cands))
    return np.array(times)


def plot(rows: dict[str, tuple[float, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = sorted(rows, key=lambda name: rows[name][0])
    means, stds = (np.array([rows[n][k] for n in names]) for k in (0, 1))
    figure, axes = plt.subplots(figsize=(7, 4.2), constrained_layout=True)
    colors = ["#c2410c" if n == "lookback" else "#94a3b8" for n in names]
    low = np.minimum(stds, 0.9 * means)
    axes.barh(names, means, xerr=[low, stds], color=colors, ecolor="#475569", capsize=2)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds a response after generation (log scale)")
    axes.spines[["top", "right"]].set_visible(False)
    for y, value in enumerate(means):
        axes.annotate(f" {value:.3g}", (value + stds[y], y), va="center", fontsize=8)
    axes.margins(x=0.12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("build"))
    arguments = parser.parse_args()
    drawn = draw(arguments.items)
    rows, needs = {}, {}
    for one in track(list(lookback.scorers().values()), "scoring"):
        drawn[0][0].scores(one.name, **({"quality": drawn[0][1]} if one.needs == "truth" else {}))
        times = milliseconds(one, drawn, 1 if one.looks_again else 5)
        rows[one.name], needs[one.name] = (times.mean(), times.std()), one.needs
    base = rows["lookback"][0]
    table = Table("scorer", "needs", "ms a response", "std", "x LookBack", box=None)
    for name, (mean, std) in sorted(rows.items(), key=lambda row: row[1]):
        table.add_row(name, needs[name], f"{mean:.4f}", f"{std:.4f}", f"{mean / base:.1f}")
    Console().print(table)
    (arguments.out).mkdir(parents=True, exist_ok=True)
    result = {name: {"mean_ms": m, "std_ms": s} for name, (m, s) in rows.items()}
    (arguments.out / "scorers.json").write_text(json.dumps(result, indent=1))
    plot(rows, arguments.out / "scorers.png")
    print(f"plot: {arguments.out / 'scorers.png'}")


if __name__ == "__main__":
    main()
