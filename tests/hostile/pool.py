"""Workers as processes of their own: this one may have threads, which do not survive a fork."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from timeouts import HANG_SECONDS

TESTS = Path(__file__).parents[1]


class RemoteWorker:
    """A worker behind a pipe."""

    def __init__(self):
        paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        environment = os.environ | {
            "PYTHONPATH": paths,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hostile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def try_case(self, name, folder=""):
        """Run a case; what the worker says of it."""
        self.process.stdin.write(f"{name}\t{folder}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the worker ended in {name}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait(HANG_SECONDS)


def try_all(names, workers):
    """Run cases on several workers; their answers as they come."""
    answers, rest = SimpleQueue(), iter(names)

    def serve():
        worker = RemoteWorker()
        try:
            while (name := next(rest, None)) is not None:
                answers.put(worker.try_case(name))
        finally:
            worker.close()
            answers.put(None)

    with ThreadPoolExecutor(workers) as pool:
        served = [pool.submit(serve) for _ in range(workers)]
        running = workers
        while running:
            answer = answers.get()
            if answer is None:
                running -= 1
            else:
                yield answer
    for one in served:
        one.result()  # a worker that ended is an error here
