"""What a run was made of: written before anything else, and compared when the run goes on."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lookback.runs.layout import RunError, replacing
from lookback.runs.run import MANIFEST

FORMAT = 1
PACKAGES = ("lookback-vlm", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "pillow")


def new_manifest(
    what: dict[str, Any], defaults: dict[str, float], scorers: list[str], total: int
) -> dict[str, Any]:
    """The manifest of a run that begins now.

    Args:
        what: all that decides the results: model, benchmark, split, candidates, sampling, image.
        defaults: the model family's alpha and lam.
        scorers: those that look again and are to be recorded.
        total: how many items there are.
    """
    return {
        "format": FORMAT,
        "id": identity(what),
        "status": "running",
        "items": total,
        "done": 0,
        "failed": 0,
        "what": what,
        "defaults": defaults,
        "scorers": scorers,
        "versions": versions(),
        "commit": commit(),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def identity(what: dict[str, Any]) -> str:
    """The same for the same settings."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write it, whole or not at all."""
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with a run of other settings; name the first that differs.

    Raises:
        RunError: they differ.
    """
    if before.get("format") != FORMAT:
        raise RunError(f"{str(folder)!r} has format {before.get('format')}, this is {FORMAT}")
    old, new = before["what"], now["what"]
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            raise RunError(
                f"{str(folder)!r} holds another run: its {key} is {json.dumps(old.get(key))}, "
                f"not {json.dumps(new.get(key))}; use the same settings, or another --out"
            )


def versions() -> dict[str, str]:
    """Of what the numbers depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # e.g. run from a checkout that is not installed
            found[package] = "unknown"
    return found


def commit() -> str | None:
    """The commit of the code, with "+" if files were changed; None outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")
