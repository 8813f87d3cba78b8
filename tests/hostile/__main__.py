"""`python -m hostile`: many cases, a bar, a table of kinds and outcomes, and a file per failure."""

import argparse
import shlex
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from hostile.kinds import KINDS, names
from hostile.known import KNOWN
from hostile.pool import RemoteWorker, try_all

AGAIN = "PYTHONPATH=tests {python} -m hostile --case {name}"


def main():
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kind", choices=list(KINDS), help="this kind alone")
    parser.add_argument("--out", type=Path, default=Path("build/hostile"), help="for failures")
    parser.add_argument("--case", help="this one alone: its folder is kept, its outcome shown")
    given = parser.parse_args()
    if given.case:
        sys.exit(show_one(given.case, given.out))
    sys.exit(run_many(given))


def show_one(name, out):
    """Run one case; its files stay in a folder."""
    folder = (out / name.replace(":", "-")).absolute()
    folder.mkdir(parents=True)
    worker = RemoteWorker()
    answer = worker.try_case(name, str(folder))
    worker.close()
    print(f"cd {folder}", describe(answer), sep="\n")
    return int(bool(answer["wrong"]))


def run_many(given):
    """Run cases; 1 if any failed."""
    wanted = [f"known:{name}" for name in KNOWN] + names(given.seed, given.count)
    if given.kind:
        wanted = [f"{given.kind}:{given.seed}:{number}" for number in range(given.count)]
    outcomes, most = defaultdict(Counter), defaultdict(Most)
    began = time.monotonic()
    for answer in track(try_all(wanted, given.workers), total=len(wanted), description="cases"):
        kind = answer["name"].partition(":")[0]
        outcomes[kind]["wrong" if answer["wrong"] else str(answer["status"])] += 1
        most[kind] = most[kind].with_case(answer)
        if answer["wrong"]:
            given.out.mkdir(parents=True, exist_ok=True)
            file = given.out / f"{answer['name'].replace(':', '-')}.txt"
            file.write_text(describe(answer), encoding="utf-8", errors="backslashreplace")
    Console().print(table(outcomes, most))
    print(f"seed {given.seed}, {len(wanted)} cases in {time.monotonic() - began:.0f} s")
    failed = sum(counts["wrong"] for counts in outcomes.values())
    if failed:
        print(f"{failed} failed: {given.out} has a file for each, with the command to run it again")
    return int(bool(failed))


def describe(answer):
    """An outcome in words, with the command that makes it again."""
    lines = [f"wrong: {one}" for one in answer["wrong"]] or ["as promised"]
    memory = f"{answer['memory'] / 2**20:.0f} MiB"
    return "\n".join(
        [
            AGAIN.format(python=shlex.quote(sys.executable), name=shlex.quote(answer["name"])),
            f"lookback {' '.join(shlex.quote(word[:300]) for word in answer['argv'])}",
            f"about: {answer['about'][:500]}",
            f"status {answer['status']}, {memory}",
            *lines,
            f"--- out\n{answer['out']}--- err\n{answer['err']}",
        ]
    )


class Most(NamedTuple):
    """The most that a case of a kind took: seconds of computing, bytes."""

    cpu: float = 0.0
    memory: int = 0

    def with_case(self, answer):
        return Most(max(self.cpu, answer["cpu"]), max(self.memory, answer["memory"]))


def table(outcomes, most):
    """Kinds by statuses, and the most that a case took."""
    heads = ("0", "1", "2", "3", "wrong")
    made = Table("kind", *heads, "all", "most CPU s", "most MiB")
    total = Counter()
    for kind, counts in outcomes.items():
        total += counts
        numbers = (*(str(counts[head]) for head in heads), str(counts.total()))
        made.add_row(kind, *numbers, f"{most[kind].cpu:.1f}", f"{most[kind].memory / 2**20:.0f}")
    made.add_row("all", *(str(total[head]) for head in heads), str(total.total()))
    return made


if __name__ == "__main__":
    main()
