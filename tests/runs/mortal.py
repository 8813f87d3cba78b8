"""A plugin for workers of tests: the first so many of them die at a certain write.

LOOKBACK_TEST_MORTAL="PID FOLDER NUMBER LIVES": not in the process PID, which is the test's (or
"worker": in processes that another one started by multiprocessing); at the write of that number; as
many as LIVES, who leave a file each in FOLDER.
"""

import multiprocessing
import os
import signal

test, folder, number, lives = os.environ["LOOKBACK_TEST_MORTAL"].split()
real, count = os.replace, 0


def replace(*paths):
    global count
    count += 1
    for life in range(int(lives) if count == int(number) else 0):
        try:
            os.close(os.open(f"{folder}/{life}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
    real(*paths)


if multiprocessing.parent_process() if test == "worker" else os.getpid() != int(test):
    os.replace = replace
