"""Replies that were paid for, kept on disk: one JSON line each, appended the moment it arrives.

A line is written by one call, so a killed process leaves whole lines and at most one torn last
line, which is skipped when the file is read again. Several processes may append to one file.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

CACHE_VARIABLE = "LOOKBACK_CACHE"


def default_cache() -> Path:
    """The file used unless another is named: judge.jsonl in LOOKBACK_CACHE or the user's cache."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder).expanduser() / "judge.jsonl"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "lookback" / "judge.jsonl"


def content_key(model: str, prompt: str, endpoint: str | None = None) -> str:
    """The same for the same question to the same model of the same endpoint.

    Args:
        model: its name there: two endpoints may have two models of one name.
        prompt: the question.
        endpoint: its URL without anything secret; None for the keys of older files, which do not
            know it.
    """
    known = [model, prompt] if endpoint is None else [endpoint, model, prompt]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


class ReplyCache:
    """Replies by content key, in memory and in a file.

    Args:
        path: the file; it and its folder are made when the first reply is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._replies = _read(path)

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: str) -> str | None:
        """The reply, or None if there is none yet."""
        return self._replies.get(key)

    def add(self, key: str, model: str, reply: str) -> None:
        """Keep a reply; on return it is in the file."""
        line = json.dumps({"key": key, "model": model, "reply": reply}, ensure_ascii=False) + "\n"
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            torn = not _ends_with_newline(self.path)
            with open(self.path, "ab", buffering=0) as file:
                # JSON's own spelling of half a character, which UTF-8 cannot hold.
                file.write((("\n" if torn else "") + line).encode("utf-8", "backslashreplace"))
            self._replies[key] = reply


def _read(path: Path) -> dict[str, str]:
    """What whole lines of the file say; others are as if they had never been written."""
    replies: dict[str, str] = {}
    if not path.exists():
        return replies
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
            replies[entry["key"]] = str(entry["reply"])
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return replies


def _ends_with_newline(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:  # there is no file yet, or an empty one
        return True
