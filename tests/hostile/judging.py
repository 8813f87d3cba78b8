"""Whether a case ended as promised.

- The status is 0, 1, 2 or 3.
- stderr: with status 2 the usage and one box with the error. Else lines of `NOTES`, which are about
  progress and about single items and lines, and after them at most one other: `lookback: ` and what
  is wrong. Status 1 says something; 0 and 3 have no line but notes.
- No traceback, no "this is a bug", nothing that commands a terminal, no lack of memory.
- Within the case's limits of time and memory; all files as they were, but for the command's own.
- Where a right output is known: that, or a status that is not 0.
"""

import re
from dataclasses import dataclass

NOTES = {
    (): (
        r"lookback: the embedded model knows drawn scenes only, .+",
        r"lookback: --temperature 0 is greedy: .+",
        r"lookback: a tie: .+",
        r"lookback: warning: .+",
        r".+: \d+/\d+, [\d.]+ \w+/s, .+ left",
    ),
    ("evaluate",): (
        r"lookback: (line \d+: .+|missing ids: .+)",
        r"lookback: and \d+ more problems",
    ),
    ("run",): (
        r"lookback: failed: .+: .+",
        r"lookback: left out: line \d+: .+",
        r"lookback: and \d+ more (failures|lines left out)",
        r"lookback: \S+ .+: it is made again",
        r"lookback: timings/\S+ .+: it is left out, the results stay",
        r"lookback: every item of this run failed before: it begins anew",
        r"lookback: other versions than when this run began: see its manifest",
        r"lookback: \d+ of \d+ items have .+",
        r"lookback: keys that mean nothing here: .+",
    ),
    ("runs", "verify"): (r"lookback: .+: \S+ .+: .+",),  # a file, what is wrong, what to do
    ("runs", "list"): (r"lookback: .+manifest.+",),
    ("benchmarks",): (r"lookback: files that are not found: .+",),
    ("study",): (
        r".+\.(csv|md|tex|pdf|png|svg|html)",
        r"lookback: .+ is not finished: the numbers are of a part",
        r"lookback: .+: every item failed, see `lookback run`",
        r"lookback: .+ has format \d+: it cannot be verified",
    ),
    ("study", "all"): (r"lookback: [\w-]+: .+",),  # a study, and what it lacks
    ("report",): (
        r"lookback: [\w-]+: .+",
        r"lookback: .+ is not finished: the numbers are of a part .+",
        r"lookback: .+: every item failed, see `lookback run`",
        r"lookback: .+ has format \d+: it cannot be verified",
    ),
    ("scorers",): (r"needs, from cheap to dear: .+",),
}
"""Lines that are no errors, by how a command begins; () is for all."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x9b]")


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        status: its exit status; -9 and the like if a signal ended it, None if it had to be ended.
        out, err: what it printed.
        memory: bytes at the most, of the whole process.
        cpu: seconds of computing.
        changed: names of files that are not its own and not as they were.
    """

    status: int | None
    out: str
    err: str
    memory: int = 0
    cpu: float = 0.0
    changed: tuple[str, ...] = ()


def judge(case, ending):
    """What is wrong with how a command ended: lines, none if all is well."""
    wrong = []
    if ending.status is None:
        wrong.append(f"takes more than {case.limits.seconds} s")
    elif ending.status not in (0, 1, 2, 3):
        wrong.append(f"status {ending.status}")
    elif case.status not in (None, ending.status):
        wrong.append(f"status {ending.status}, not {case.status}")
    for sign in (
        "Traceback (most recent call last)",
        "this is a bug",
        "out of memory",
        "MemoryError",
    ):
        if sign in ending.err:
            wrong.append(f"says {sign!r}")
    for name, text in (("out", ending.out), ("err", ending.err)):
        if CONTROLS.search(text):
            wrong.append(f"{name} has control characters")
    wrong += _lines(case.argv, ending)
    if ending.memory > case.limits.memory:
        wrong.append(f"takes {ending.memory / 2**20:.0f} MiB")
    wrong += [f"changed {name}" for name in ending.changed]
    if ending.status == 0 and case.right not in (None, ending.out):
        wrong.append("prints other results than those of the sound run")
    return wrong


def _lines(argv, ending):
    """What is wrong with stderr."""
    lines = [line for line in ending.err.splitlines() if line.strip()]
    if ending.status == 2:
        boxes = sum("─ Error ─" in line for line in lines)
        return [] if boxes == 1 and lines[0].startswith("Usage: ") else ["no usage with one error"]
    notes = [note for start, some in NOTES.items() if argv[: len(start)] == start for note in some]
    others = [line for line in lines if not any(re.fullmatch(note, line) for note in notes)]
    if ending.status == 1 and not lines and not ending.out:
        return ["status 1 without a word"]
    if len(others) > 1 or (others and (ending.status in (0, 3) or others[0] != lines[-1])):
        return [f"{len(others)} lines that are no notes"]
    if others and not others[0].startswith("lookback: "):
        return ["a line that is not ours"]
    return []
