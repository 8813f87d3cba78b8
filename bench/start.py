"""A cold `lookback ask`: where its seconds go before the first answer.

Each round is a process of its own. Processor seconds depend less than time on who else uses the
machine. The core dependencies alone import less: with the development extra, transformers imports
scipy and sklearn too.
"""

import json
import subprocess
import sys
from statistics import median

ROUNDS = 3
STAGE = """
import json, sys, time
found, last = {}, [0.0, time.perf_counter(), 0]

def mark(name):
    now = [time.process_time(), time.perf_counter(), len(sys.modules)]
    found[name] = [a - b for a, b in zip(now, last)]
    last[:] = now

import lookback.cli
from lookback.cli.inputs import read_conversation
mark("Python and the command")
from lookback.benchmarks.base import get_benchmark
asked = get_benchmark("scenes-caption").items("test", 1)[0].conversation
import lookback.engines
mark("the image")
"""
START = """
from lookback.cli.start import gc_frozen
with gc_frozen():
    import torch
    mark("import torch")
    import transformers, lookback.engines.transformers
    mark("import transformers")
    lb = lookback.engines.load(quiet=True)
mark("the weights")
"""
ASKED = """
lb.sample(messages=asked.messages(), n=1, max_new_tokens=1, seed=42)
mark("the first token")
lb.sample(messages=asked.messages(), n=25, seed=42)
mark("25 answers")
print(json.dumps(found))
"""
SAMPLING = "25 answers"


def measure() -> dict[str, list[float]]:
    """Stage to processor seconds, seconds and modules, of a new process."""
    code = STAGE + START + ASKED
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    stages: dict[str, list[float]] = json.loads(done.stdout)
    return stages


def main() -> None:
    """Print a table of the stages."""
    rounds = [measure() for _ in range(ROUNDS)]
    print(f"medians of {ROUNDS} rounds: processor seconds, seconds, modules imported")
    totals = [0.0, 0.0, 0.0]
    for stage in rounds[0]:
        cells = [median(stages[stage][i] for stages in rounds) for i in range(3)]
        print(f"{stage:24}{cells[0]:12.2f}{cells[1]:9.2f}{cells[2]:7.0f}")
        if stage != SAMPLING:
            totals = [total + cell for total, cell in zip(totals, cells, strict=True)]
    print(f"{'before sampling':24}{totals[0]:12.2f}{totals[1]:9.2f}{totals[2]:7.0f}")


if __name__ == "__main__":
    main()
