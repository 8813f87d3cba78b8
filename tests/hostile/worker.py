"""A warm process that runs cases: it has imported all that commands need, and forks for each.

It reads one case per line from stdin, as `kind:seed:number`, and answers with one line of JSON.
"""

import atexit
import contextlib
import gc
import hashlib
import importlib
import io
import json
import os
import resource
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from hostile import damaged_runs, server
from hostile.case import Case, Place
from hostile.judging import Ending, judge
from hostile.kinds import make_case

ROOM = 3 * 2**30
"""Of addresses, beyond the worker's: more than the limit of memory, which is measured; a command
that goes astray fails here, before the machine suffers."""
SHOWN = 4000
"""Characters of an output that an answer has."""
CLEARED = ("LOOKBACK_DATA", "LOOKBACK_PLUGINS", "LOOKBACK_JUDGE_MODEL", "OPENAI_BASE_URL")


def import_all():
    """Import what commands import late: a fork then has it already."""
    for name in ("matplotlib.pyplot", "rich.live", "rich.progress", "typer.rich_utils"):
        importlib.import_module(name)
    importlib.import_module("lookback.cli")
    from lookback.benchmarks import english
    from lookback.benchmarks.base import BENCHMARKS
    from lookback.engines import load
    from lookback.scores.base import scorers
    from lookback.studies import STUDIES

    scorers()
    STUDIES.all()
    BENCHMARKS.all()
    english.model()
    load(None, quiet=True)
    gc.collect()
    gc.freeze()  # what is never looked at again is never copied


def run_forked(case, folder):
    """Run a case in a fork of this process; how it ended."""
    before = snapshot(folder, case)
    addresses = address_space()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _be_the_command(case, folder, out.fileno(), err.fileno(), addresses)
        status, usage = _wait(child, case.limits.seconds)
        texts = [_text(file) for file in (out, err)]
    after = snapshot(folder, case)
    names = before.keys() | after.keys()
    changed = sorted(name for name in names if before.get(name) != after.get(name))
    cpu = usage.ru_utime + usage.ru_stime
    return Ending(status, *texts, usage.ru_maxrss * 1024, cpu, tuple(changed))


def _be_the_command(case, folder, out, err, addresses):
    """The child: `lookback` with the case's arguments, in its folder; it never returns."""
    status = 1
    try:
        atexit._clear()  # what this process is to do at its end is not the command's
        os.setsid()  # so that what it starts can be ended with it
        os.chdir(folder)
        os.environ.update({"HOME": str(folder), **case.environment})
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
            os.dup2(file, number)
        # As a new interpreter has them.
        sys.stdin = io.TextIOWrapper(io.FileIO(0), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(
            io.FileIO(2, "w"), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ROOM, addresses + ROOM))
        cpu = case.limits.cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["lookback", *case.argv]
        status = _status()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _status():
    """Run the command as the interpreter would, to the end of its threads; its exit status."""
    from lookback.cli import main

    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # what the interpreter does: threads that are not daemons are waited for
    atexit._run_exitfuncs()
    return status


def _wait(child, seconds):
    """The child's status, None if it had to be ended; and what it used."""
    end = time.monotonic() + seconds
    pause = 0.002
    while time.monotonic() < end:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found:
            _end_group(child)
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    _end_group(child)
    return None, os.wait4(child, 0)[2]


def _end_group(child):
    """End what the command started and left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _text(file):
    file.seek(0)
    return file.read(2**22).decode("utf-8", "replace")


def address_space():
    """Bytes of this process's addresses, most of which are of no memory."""
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def snapshot(folder, case):
    """What is in the folder and not the command's own: names, kinds and contents."""
    found = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(top) / name
            short = path.relative_to(folder).as_posix()
            own = any(short == one or short.startswith(f"{one}/") for one in case.own)
            if not own or short in case.kept:
                found[short] = _look(path)
    return found


def _look(path):
    about = path.lstat()
    if stat.S_ISREG(about.st_mode):
        return about.st_mode, hashlib.sha256(path.read_bytes()).hexdigest()
    return about.st_mode, os.readlink(path) if stat.S_ISLNK(about.st_mode) else ""


class Worker:
    """Runs cases by their names, in folders below one of its own."""

    def __init__(self, home):
        self.home = home
        self.url = server.start()
        import_all()
        self.run = home / "sound" / "run"
        self.run.parent.mkdir()
        made = run_forked(Case(damaged_runs.MAKING, "", own=("run",)), self.run.parent)
        assert made.status == 0, made.err
        self.rights = {}

    def right(self, argv):
        """What a command prints on the sound run."""
        if argv not in self.rights:
            folder = Path(tempfile.mkdtemp(dir=self.home))
            shutil.copytree(self.run, folder / "run")
            self.rights[argv] = run_forked(Case(argv, "", own=("run", "out")), folder).out
            shutil.rmtree(folder)
        return self.rights[argv]

    def try_case(self, name, folder=None):
        """Make a case, run it, judge it: a dictionary for JSON."""
        kept = folder is not None
        folder = folder or Path(tempfile.mkdtemp(dir=self.home))
        case = make_case(name, Place(folder, self.url, self.run, self.right))
        ending = run_forked(case, folder)
        wrong = judge(case, ending)
        if not kept:
            shutil.rmtree(folder)
        answer = {"name": name, "argv": case.argv, "about": case.about, "wrong": wrong}
        answer |= asdict(ending) | {"out": ending.out[-SHOWN:], "err": ending.err[-SHOWN:]}
        return answer


def main():
    for name in CLEARED:
        os.environ.pop(name, None)
    os.environ |= {"COLUMNS": "500", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory(prefix="hostile-") as home:
        worker = Worker(Path(home))
        for line in sys.stdin:
            name, _, folder = line.rstrip("\n").partition("\t")
            print(json.dumps(worker.try_case(name, Path(folder) if folder else None)), flush=True)


if __name__ == "__main__":
    main()
