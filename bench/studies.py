"""How long each study takes on a made-up run of 1,000 items x 25 candidates x 60 tokens.

`make bench`: opening, reading the token columns, and every study that works on signals alone.
"""

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from made_runs import make_run

from lookback.runs import Run
from lookback.studies import STUDIES, get_study

RECORDED = ("clipscore", "vauq", "usc@5", "usc@25", "judge@5")


def timed(work) -> tuple[float, object]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def main() -> None:
    table = Table("what", "seconds", box=None)
    with tempfile.TemporaryDirectory() as folder:
        print("making the runs ...", file=sys.stderr)
        own = make_run(Path(folder) / "own", items=1000, length=60, recorded=RECORDED)
        for image in ("none", "random"):
            make_run(Path(folder) / image, items=1000, length=60, image=image, controls=own)
        make_run(Path(folder) / "seed", items=1000, length=60, seed=123, n=5)
        size = sum(f.stat().st_size for f in own.path.rglob("*.parquet")) / 1e6
        took, run = timed(lambda: Run(own.path))
        table.add_row("open a run", f"{took:.4f}")
        took, _ = timed(run.quality)
        table.add_row("its items and texts, no token columns", f"{took:.2f}")
        took, _ = timed(run.batch)
        table.add_row("its token columns", f"{took:.2f}")
        get_study("main")([run])  # matplotlib is loaded now
        for name in STUDIES.names():
            # Each study on runs just opened: what it needs is read in its time.
            took, _ = timed(
                lambda name=name: get_study(name)([Run(p) for p in sorted(Path(folder).iterdir())])
            )
            table.add_row(f"study {name}", f"{took:.2f}")
        Console().print(table)
        print(f"{len(run.signal('log_prob')):,} tokens, {size:.1f} MB on disk")


if __name__ == "__main__":
    main()
