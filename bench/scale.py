"""How a run scales on this machine: one process, two processes, two Ray actors, in turns.

`python bench/scale.py`. The embedded model on drawn captions, one thread per worker. The rate is
that of the second half of a run but its last twentieth, when all models are loaded and no worker
has run out of shards; the start is the time to the first piece.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # of this process; workers have their share of the cores
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  (15 by default: all else would go first)

import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lookback.runs.plan import Plan
from lookback.runs.ray_executor import Cluster, import_ray
from lookback.runs.start import start

ITEMS, ROUNDS = 120, 2
WAYS = {
    "this process": (1, None),
    "2 processes": (2, None),
    "1 Ray actor": (1, Cluster()),
    "2 Ray actors": (2, Cluster()),
}


def measure(workers: int, cluster: Cluster | None) -> tuple[float, float]:
    """Items per second in the middle of a run, and seconds to the first."""
    plan = Plan("scenes-caption", limit=ITEMS, n=5, max_new_tokens=32)
    told: list[tuple[float, int]] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        start(
            plan,
            Path(folder) / "run",
            workers=workers,
            cluster=cluster,
            progress=lambda done, total: told.append((time.perf_counter(), done)),
        )
    first = next(now for now, done in told if done)
    (early, few), (late, many) = (
        next(one for one in told if one[1] >= share * ITEMS) for share in (0.5, 0.95)
    )
    return (many - few) / (late - early), first - began


def main() -> None:
    torch.set_num_threads(1)
    ray = import_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for _ in range(ROUNDS):
        for name, way in track(list(WAYS.items()), transient=True):
            found[name].append(measure(*way))
    ray.shutdown()
    rate = {name: max(one for one, _ in times) for name, times in found.items()}
    table = Table(title=f"{ITEMS} captions x 5 candidates, one thread per worker, best of {ROUNDS}")
    for name in ("workers", "items per second", "of one process", "seconds to the first item"):
        table.add_column(name, justify="left" if name == "workers" else "right")
    for name, times in found.items():
        share = rate[name] / rate["this process"]
        first = min(one for _, one in times)
        table.add_row(name, f"{rate[name]:.1f}", f"{share:.2f}", f"{first:.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
