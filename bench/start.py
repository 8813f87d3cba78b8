"""A cold `lookback ask`: where its seconds go before the first answer, and against plain imports.

Each way runs in processes of its own, in turn, several rounds: the shorter import and the embedded
model's own loading, as the command has them; and the plain ones, `import transformers` and
`from_pretrained`. Processor seconds depend less than time on who else uses the machine.
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
WAYS = {
    "lookback ask": """
from lookback.cli.start import gc_frozen
from lookback.engines.deferring import deferring, import_transformers
with gc_frozen():
    with deferring():
        import torch
        mark("import torch")
        import_transformers()
        import lookback.engines.transformers
        mark("import transformers")
    lb = lookback.engines.load(quiet=True)
mark("the weights")
""",
    "plain": """
import torch
mark("import torch")
import transformers, lookback.engines.transformers
mark("import transformers")
from lookback.embedded import LVLM
lb = lookback.engines.load(LVLM, quiet=True)
mark("the weights")
""",
}
ASKED = """
lb.sample(messages=asked.messages(), n=1, max_new_tokens=1, seed=42)
mark("the first token")
lb.sample(messages=asked.messages(), n=25, seed=42)
mark("25 answers")
print(json.dumps(found))
"""
SAMPLING = "25 answers"


def measure(way: str) -> dict[str, list[float]]:
    """Stage to processor seconds, seconds and modules, of a new process."""
    code = STAGE + WAYS[way] + ASKED
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print a table of the stages, and how much shorter all but the sampling is."""
    rounds = [{way: measure(way) for way in WAYS} for _ in range(ROUNDS)]
    print(f"medians of {ROUNDS} rounds in turn: processor seconds, seconds, modules imported")
    print(f"{'':24}" + "".join(f"{way:>28}" for way in WAYS))
    for stage in rounds[0]["plain"]:
        cells = [[median(one[way][stage][i] for one in rounds) for i in range(3)] for way in WAYS]
        print(f"{stage:24}" + "".join(f"{c:12.2f}{s:9.2f}{m:7.0f}" for c, s, m in cells))
    ratios = []
    for one in rounds:
        before = {w: sum(v[0] for k, v in one[w].items() if k != SAMPLING) for w in WAYS}
        ratios.append(before["plain"] / before["lookback ask"])
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"before sampling, plain takes {median(ratios):.2f} times as long ({shown})")


if __name__ == "__main__":
    main()
