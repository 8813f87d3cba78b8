"""The whole paper at small scale, with the embedded model on the four Scenes tasks.

`make reproduce`: for every task a run of 25 candidates with every scorer, its two controls (no
image, another image), greedy answers, and runs of 5 candidates with two more seeds; then all
studies and one page.
Stopped at any point, the same command goes on where it was. With --docs the tables in
docs/reproduction.md, and the figures beside it, are replaced by the new ones, and the numbers that
the demo tells (tools/measured.json) and the tables of README.md and docs/choosing.md with
them; the words stay.

With --model FOLDER, another training of the embedded model: only the runs that the main table
needs, which `tools.trainings` puts beside those of the shipped one; without USC and the judge,
which such a small model cannot answer.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lookback.benchmarks.base import GENERATED
from lookback.studies import STUDIES
from tools import blocks, choosing, measured

SEEDS = (123, 456)  # beside 42, as in the paper
LOOKING = "clipscore,vauq"  # of every training
ASKING = "usc@5"  # at every seed
FAILED = 3  # `lookback run`: it ended, with items that failed


def lookback(*arguments: str) -> None:
    """Run the command, as anybody would, and show it."""
    print(f"\n$ lookback {' '.join(arguments)}", flush=True)
    status = subprocess.run([sys.executable, "-m", "lookback.cli", *arguments]).returncode
    if status not in (0, FAILED):
        sys.exit(status)


def make_runs(out: Path, items: int, workers: int, model: Path | None = None) -> None:
    """All runs of all tasks; of another model those of the main table."""
    shared = ["--limit", str(items), "--workers", str(workers)]
    shared += ["--model", str(model)] if model else []
    for task in GENERATED:
        own = str(out / "runs" / task)
        draw = ["run", "--benchmark", task, *shared, "--max-new-tokens", "120"]
        scorers = LOOKING if model else f"{LOOKING},{ASKING},usc@25,judge@5"
        lookback(*draw, "--by-layer", "--out", own, "--scorers", scorers)
        for image in ("none",) if model else ("none", "random"):
            control = ["run", "--candidates", own, "--image", image, *shared[2:]]
            lookback(*control, "--out", f"{own}-{image}")
        if not model:
            lookback(*draw, "-n", "1", "--temperature", "0", "--out", f"{own}-greedy")
        for seed in () if model else SEEDS:
            more = ["-n", "5", "--seed", str(seed), "--scorers", f"{LOOKING},{ASKING}"]
            lookback(*draw, *more, "--out", f"{own}-{seed}")


def update(docs: Path, studies: Path, names: Sequence[str] | None = None) -> None:
    """Replace the tables between <!-- NAME --> and <!-- /NAME --> by the new ones.

    And the figures that it shows, in the folder of its name.

    Args:
        docs: the document.
        studies: the folder of what is new.
        names: which are; all studies by default. Other tables and figures stay.
    """
    new = STUDIES.names() if names is None else list(names)
    text = docs.read_text(encoding="utf-8")
    figures = docs.with_suffix("")
    for name in re.findall(rf"\({figures.name}/([a-z-]+)\.png\)", text):
        if name in new:
            figures.mkdir(exist_ok=True)
            shutil.copy(studies / f"{name}.png", figures / f"{name}.png")

    def table(match: re.Match[str]) -> str:
        if match[1] not in new:
            return match[0]
        words = (studies / f"{match[1]}.md").read_text(encoding="utf-8")
        return f"<!-- {match[1]} -->\n{words}<!-- /{match[1]} -->"

    docs.write_text(
        re.sub(r"<!-- ([a-z-]+) -->\n.*?<!-- /\1 -->", table, text, flags=re.DOTALL),
        encoding="utf-8",
    )


def main() -> None:
    """Runs, studies, the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=250, help="of each task's test split")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/reproduction"))
    parser.add_argument("--docs", type=Path, help="a Markdown file whose tables to replace")
    parser.add_argument("--model", type=Path, help="another training: its runs alone")
    given = parser.parse_args()
    began = time.monotonic()
    make_runs(given.out, given.items, given.workers, given.model)
    if given.model:
        return
    lookback("study", "all", str(given.out / "runs"), "--out", str(given.out / "studies"))
    if given.docs:
        update(given.docs, given.out / "studies")
        measured.write(given.out / "runs")
        blocks.put(given.docs.parent.parent / "README.md", "measured", measured.readme_table())
        choosing.write(given.out / "runs", given.docs.with_name("choosing.md"))
    print(f"{given.items} items per task, {(time.monotonic() - began) / 60:.1f} minutes this time")


if __name__ == "__main__":
    main()
