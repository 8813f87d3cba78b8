"""Commands that do not end as promised, by way of a plugin: the worker and the rule must see it."""

from dataclasses import replace
from typing import NamedTuple

from hostile.case import Case, Limits


class Misbehaviour(NamedTuple):
    """A plugin's code, and how what is wrong with it begins."""

    code: str
    wrong: str


MISBEHAVING = {
    "computes for ever": Misbehaviour("while True: pass", "status -24"),  # SIGXCPU
    "waits for ever": Misbehaviour("import time; time.sleep(1000)", "takes more than 10 s"),
    "leaves a thread": Misbehaviour(
        "import threading, time\nthreading.Thread(target=time.sleep, args=[1000]).start()",
        "takes more than 10 s",
    ),
    "aborts": Misbehaviour("import os; os.abort()", "status -6"),
    "ends": Misbehaviour("import os; os._exit(7)", "status 7"),
    "takes memory": Misbehaviour("x = b'x' * 2**29", "takes "),
    "takes all memory": Misbehaviour("x = b'x' * 2**34", "says 'MemoryError'"),
    "changes a file": Misbehaviour("open('kept.txt', 'w').write('yours')", "changed kept.txt"),
    "removes a file": Misbehaviour("import os; os.unlink('kept.txt')", "changed kept.txt"),
    "leaves a file": Misbehaviour("open('new.txt', 'w')", "changed new.txt"),
    "leaves a file at its end": Misbehaviour(
        "import atexit; atexit.register(lambda: open('new.txt', 'w'))", "changed new.txt"
    ),
    "murmurs": Misbehaviour(
        "import sys; print('hm', file=sys.stderr)", "1 lines that are no notes"
    ),
    "colours": Misbehaviour("print('\\x1b[31m')", "out has control characters"),
}


def misbehave(code, place):
    """A command with a plugin of that code."""
    (place.folder / "mine.py").write_text(code)
    (place.folder / "kept.txt").write_text("mine")
    argv = ("scorers", "--json", "--plugin", "mine.py")
    # Each limit is far from the others, so that on a busy machine, too, it is the one that counts.
    # What waits for ever takes more than 10 s, however slow the machine.
    limits = Limits(cpu_seconds=5, memory=3 * 2**28)
    if "1000" in code:
        limits = replace(limits, seconds=10)
    return Case(argv, code, limits=limits)
