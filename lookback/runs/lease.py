"""The right to write to a run in an object store, which has no locks.

An object says who writes and when that was last true; it is renewed while the process lives. It is
made on the condition that it is not there yet (where a store knows no conditions: written, and read
again after a second). One that is void may be taken over: it was not
renewed for a minute, or its process was on this machine and is gone.

So a killed process holds up others for a minute at most, or not at all where it can be seen that it
is gone; and clocks that differ by much make a lease look older than it is. What then happens is
no wrong number: shards have the same bytes whoever makes them, and a table that its record does not
vouch for is damage, which is said and made again.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import uuid
from typing import Any

from lookback.errors import one_line
from lookback.io.storage import RemotePath
from lookback.runs.layout import RunError

RENEWED = 15.0
"""Seconds after which a lease is renewed."""
VOID = 60.0
"""Seconds after which one that was not is void."""
SETTLED = 1.0
"""Seconds in which another that takes over the same lease has done so."""
_held: set[str] = set()  # by this process


class Lease:
    """`acquire` it before writing, `release` it after.

    Args:
        path: of the object.
    """

    def __init__(self, path: RemotePath) -> None:
        self.path = path
        self.token = uuid.uuid4().hex
        self._end = threading.Event()
        self._lost: str | None = None
        self._renewing = threading.Thread(target=self._renew, daemon=True)

    def acquire(self) -> Lease:
        """Take it.

        Raises:
            RunError: another process has it.
        """
        if not self._create():
            other = self._read()
            if other is not None and not _is_void(other):
                raise RunError(self._refusal(other))
            self.path.write_bytes(self._content())
            time.sleep(SETTLED)  # two may have found it void or not there: the last one has it
        winner = self._read()
        if winner is None or winner.get("token") != self.token:
            raise RunError(self._refusal(winner or {}))
        _held.add(self.token)
        self._renewing.start()
        return self

    def _create(self) -> bool:
        """Whether it was made on the condition that it was not there."""
        try:
            return self.path.create(self._content())
        except OSError:  # a store without conditions; or away, which the next question will say
            return False

    def check(self) -> None:
        """Refuse to go on if another took it over, as when this process was stopped for long.

        Raises:
            RunError: it did.
        """
        if self._lost is not None:
            raise RunError(self._lost)

    def release(self) -> None:
        """Give it back."""
        _held.discard(self.token)
        self._end.set()
        if self._renewing.ident is not None:
            self._renewing.join()
        if (self._read() or {}).get("token") == self.token:
            self.path.unlink(missing_ok=True)

    def _renew(self) -> None:
        while not self._end.wait(RENEWED):
            try:
                now = self._read()
                if now is not None and now.get("token") != self.token:
                    self._lost = self._refusal(now)
                    return
                self.path.write_bytes(self._content())
            except (OSError, RunError):  # the store is away: what is written next will say so
                continue

    def _content(self) -> bytes:
        who = {"token": self.token, "machine": machine(), "process": os.getpid()}
        return json.dumps(who | {"time": time.time()}).encode()

    def _read(self) -> dict[str, Any] | None:
        """Who has it; None if nobody has."""
        try:
            data = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            data = None
        if not isinstance(data, dict) or type(data.get("time")) not in (int, float):
            raise RunError(f"{str(self.path)!r} is no lease: if nobody writes there, delete it")
        return data

    def _refusal(self, other: dict[str, Any]) -> str:
        machine = one_line(str(other.get("machine", "?")).partition(" ")[0], 60)
        age = time.time() - other.get("time", time.time())
        return (
            f"another process is writing to {str(self.path.parent)!r} (process "
            f"{other.get('process', '?')!r:.20} on {machine}, seen {max(0, age):.0f} s ago): wait "
            f"for it or stop it, then run the same command again; one that was killed is given up "
            f"after {VOID:.0f} s"
        )


def _is_void(other: dict[str, Any]) -> bool:
    """Whether the process that had it is gone, as far as can be told from here."""
    if time.time() - other["time"] > VOID:
        return True
    if other.get("machine") != machine() or other.get("token") in _held:
        return False
    return other.get("process") == os.getpid() or not is_alive(other.get("process"))


def is_alive(process: object) -> bool:
    """Whether a process of this machine is there, as far as can be told."""
    if type(process) is not int or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def machine() -> str:
    """Where numbers of processes mean the same: this machine since it began, and this container."""
    found = [platform.node() or "unknown"]
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            found.append(file.read().strip())
        found.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # not on Linux: then no process is known to be gone
        found.append(uuid.uuid4().hex)
    return " ".join(found)
