"""From folders to runs."""

from __future__ import annotations

import os
from collections.abc import Iterable

from lookback.runs.jobs import holds_run
from lookback.runs.layout import RunError
from lookback.runs.manifest import MANIFEST
from lookback.runs.run import Run
from lookback.storage import AnyPath, RemotePath, names_in, to_path


def open_run(path: str | os.PathLike[str] | RemotePath) -> Run:
    """The run in a folder, or at an address of an object store: "s3://bucket/run"."""
    return Run(path)


def open_runs(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[Run]:
    """The runs in some folders; a folder that is no run but has runs in it stands for those.

    Raises:
        RunError: a folder has none, or one is damaged.
    """
    return [Run(folder) for folder in find_runs(paths)]


def find_runs(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[AnyPath]:
    """The folders of the runs that `open_runs` opens.

    Raises:
        RunError: a folder has none.
    """
    folders: list[AnyPath] = []
    for path in map(to_path, paths):
        inner = (path / name for name in names_in(path))
        found = [path] if holds_run(path) else list(filter(holds_run, inner))
        if not found:
            raise RunError(f"no run in {str(path)!r}: neither it nor a folder in it has {MANIFEST}")
        folders += found
    return folders
