"""The lock of a run: one process writes to it at a time.

On a local disk it is a lock of the operating system on `.lookback-lock`, released when the process
ends, even by a kill. An object store has no locks: there `.lookback-lock` is an object that is
created only if it does not exist. It names the process that holds it; one that a killed process
left behind is removed with `--break-lock`.
"""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from lookback.errors import one_line
from lookback.io.storage import AnyPath, RemotePath
from lookback.runs.layout import LOCK, RunError


class Lock(Protocol):
    """The right to write to a run."""

    def release(self) -> None:
        """Let others write."""


def lock(folder: AnyPath, *, break_lock: bool = False) -> Lock:
    """Return the lock of a run's folder, held until it is released.

    Args:
        folder: of the run; it exists.
        break_lock: in an object store, remove the lock that is there first.

    Raises:
        RunError: another process holds it.
    """
    if isinstance(folder, RemotePath):
        return _ObjectLock(folder, break_lock)
    return _lock_file(folder)


def _lock_file(folder: Path) -> Lock:
    from filelock import FileLock, Timeout

    file_lock = FileLock(folder / LOCK, timeout=0)
    try:
        file_lock.acquire()
    except Timeout:
        raise RunError(
            f"another process is writing to {str(folder)!r}: wait for it or stop it, then run the "
            "same command again"
        ) from None
    return file_lock


class _ObjectLock:
    def __init__(self, folder: RemotePath, break_lock: bool) -> None:
        self._path = folder / LOCK
        holder = {
            "host": platform.node(),
            "process": os.getpid(),
            "started": datetime.now(UTC).isoformat(),
        }
        self._content = json.dumps(holder).encode()
        if break_lock:
            self._path.unlink(missing_ok=True)
        if not self._create():
            raise RunError(
                f"another process is writing to {str(folder)!r} ({self._describe_holder()}): wait "
                "for it or stop it, then run the same command again; if it was killed, with "
                "--break-lock"
            )

    def _create(self) -> bool:
        """Return whether the object was created."""
        try:
            return self._path.create(self._content)
        except OSError:  # a store without conditional writes; or unreachable, which the next raises
            if self._path.exists():
                return False
            self._path.write_bytes(self._content)
            return True

    def _describe_holder(self) -> str:
        try:
            holder: Any = json.loads(self._path.read_bytes())
            words = f"process {holder['process']} on {holder['host']} since {holder['started']}"
            return one_line(words, 200)
        except (OSError, ValueError, KeyError, TypeError):
            return f"its {LOCK} does not say which"

    def release(self) -> None:
        try:
            is_ours = self._path.read_bytes() == self._content
        except FileNotFoundError:
            return
        if is_ours:  # it may have been broken, and be another's now
            self._path.unlink(missing_ok=True)
