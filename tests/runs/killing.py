"""A plugin for processes of tests that are to be killed at a certain write.

LOOKBACK_TEST_KILL="7 after self" kills the process after its seventh file took its place; "before"
leaves the file under its other name; "worker" kills the worker whose write it is, and "parent" the
process that started this worker.
"""

import os
import signal
import threading

from lookback.io.storage import RemotePath

number, moment, who = os.environ["LOOKBACK_TEST_KILL"].split()
parent = os.environ.get("LOOKBACK_TEST_PARENT")
chosen = (who == "self") != (parent is not None)
os.environ["LOOKBACK_TEST_PARENT"] = str(os.getpid())  # seen by processes that this one starts
real, count = os.replace, 0


def replace(*paths):
    global count
    count += 1
    now = chosen and count == int(number)
    if moment == "after" or not now:
        real(*paths)
    if now:
        kill()


def kill():
    """End whom it is about; a worker whose write is held back must not go on to the next one."""
    if who != "parent":
        os.kill(os.getpid(), signal.SIGKILL)
    elif os.getppid() == int(parent):  # else the other worker was faster
        os.kill(os.getppid(), signal.SIGKILL)
    if moment == "before":
        threading.Event().wait()  # it ends with its parent


os.replace = replace


def write(path, data):
    """The same for an object store, where a write is one call."""
    global count
    count += 1
    now = chosen and count == int(number)
    if moment == "after" or not now:
        real_write(path, data)
    if now:
        kill()


real_write, RemotePath.write_bytes = RemotePath.write_bytes, write
