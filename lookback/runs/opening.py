"""From folders to runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from lookback.runs.jobs import holds_run
from lookback.runs.layout import RunError
from lookback.runs.manifest import MANIFEST
from lookback.runs.run import Run


def open_run(path: str | os.PathLike[str]) -> Run:
    """The run in a folder."""
    return Run(path)


def open_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Run]:
    """The runs in some folders; a folder that is no run but has runs in it stands for those.

    Raises:
        RunError: a folder has none, or one is damaged.
    """
    return [Run(folder) for folder in find_runs(paths)]


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The folders of the runs that `open_runs` opens.

    Raises:
        RunError: a folder has none.
    """
    folders = []
    for path in map(Path, paths):
        inner = path.iterdir() if path.is_dir() else iter(())
        found = [path] if holds_run(path) else sorted(filter(holds_run, inner))
        if not found:
            raise RunError(f"no run in {str(path)!r}: neither it nor a folder in it has {MANIFEST}")
        folders += found
    return folders
