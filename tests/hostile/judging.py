"""Whether a case ended as promised.

- The status is 0, 1, 2 or 3.
- stderr: with status 2 the usage and one box with the error. Else lines of `NOTES`, which are about
  progress and about single items and lines, and after them at most one other: `lookback: ` and what
  is wrong. Status 1 says something; 0 and 3 have no line but notes.
- No traceback, no "this is a bug", nothing that commands a terminal, no lack of memory.
- Within the time and the memory of `LIMITS`; all files as they were, but for the command's own.
- Where a right output is known: that, or a status that is not 0.
"""

import re
from dataclasses import dataclass

NOTES = tuple(
    re.compile(pattern)
    for pattern in (
        r"lookback: the embedded model knows drawn scenes only; see --model$",
        r"lookback: failed: .+: .+",
        r"lookback: and \d+ more (failures|problems)$",
        r"lookback: (line \d+: .+|missing ids: .+)",
        r"lookback: .+ is not finished: the numbers are of a part$",
        r"lookback: .+: every item failed, see `lookback run`$",
        r"lookback: .+ has format \d+: it cannot be verified$",
        r".+: \d+/\d+, [\d.]+ \w+/s, .+ left$",
    )
)
BY_COMMAND = {
    "verify": (r"lookback: .+: \S+ .+: .+",),  # a file, what is wrong with it, what to do
    "study": (r".+\.(csv|md|tex|png|svg|html)$", r"lookback: [\w-]+: .+"),
    "run": (r"lookback: .+",),
    "scorers": (r"",),  # what the needs mean
}
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x9b]")


@dataclass(frozen=True)
class Limits:
    """What a case may take.

    Attributes:
        seconds: by the clock, on a machine that may be busy.
        cpu_seconds: of computing.
        memory: bytes beyond what the worker had before it forked.
    """

    seconds: int = 60
    cpu_seconds: int = 20
    memory: int = 2**30


LIMITS = Limits()


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        status: its exit status; -9 and the like if a signal ended it, None if it had to be ended.
        out, err: what it printed.
        memory: bytes at the most, beyond the worker's.
        changed: names of files that are not its own and not as they were.
    """

    status: int | None
    out: str
    err: str
    memory: int = 0
    changed: tuple[str, ...] = ()


def judge(argv, ending, right=None, limits=LIMITS):
    """What is wrong with how a command ended: lines, none if all is well."""
    wrong = []
    if ending.status is None:
        wrong.append(f"takes more than {limits.seconds} s")
    elif ending.status not in (0, 1, 2, 3):
        wrong.append(f"status {ending.status}")
    for sign in ("Traceback (most recent call last)", "this is a bug", "out of memory"):
        if sign in ending.err:
            wrong.append(f"says {sign!r}")
    wrong += [f"{name} has control characters" for name in ("out", "err") if _commands(ending, name)]
    wrong += _lines(argv, ending)
    if ending.memory > limits.memory:
        wrong.append(f"takes {ending.memory / 2**20:.0f} MiB")
    wrong += [f"changed {name}" for name in ending.changed]
    if ending.status == 0 and right is not None and ending.out != right:
        wrong.append("prints other results than those of the sound run")
    return wrong


def _commands(ending, name):
    return CONTROLS.search(getattr(ending, name))


def _lines(argv, ending):
    """What is wrong with stderr."""
    lines = [line for line in ending.err.splitlines() if line.strip()]
    if ending.status == 2:
        boxes = sum("─ Error ─" in line for line in lines)
        return [] if boxes == 1 and lines[0].startswith("Usage: ") else ["no usage with one error"]
    notes = [*NOTES, *(re.compile(p) for word in argv for p in BY_COMMAND.get(word, ()))]
    others = [line for line in lines if not any(note.match(line) for note in notes)]
    if ending.status == 1 and not lines and not ending.out:
        return ["status 1 without a word"]
    if len(others) > 1 or (others and (ending.status in (0, 3) or others[0] != lines[-1])):
        return [f"{len(others)} lines that are no notes"]
    if others and not others[0].startswith("lookback: "):
        return ["a line that is not ours"]
    return []
