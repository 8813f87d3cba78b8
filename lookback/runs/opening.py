"""From folders to runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lookback.io.storage import AnyPath, RemotePath, names_in, size_below, to_path
from lookback.runs.jobs import holds_run, read_folders
from lookback.runs.layout import RunError
from lookback.runs.manifest import MANIFEST
from lookback.runs.run import Run


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


@dataclass(frozen=True)
class ListedRun:
    """A run as `lookback runs list` shows it, by its manifest alone.

    Attributes:
        run: its folder.
        problem: why nothing else is known of it; None if its manifest can be read.
        id, benchmark, model, image, status, created: as the manifest has them.
        items: how many it is to have.
        n: how many candidates were drawn for each; None if they came from elsewhere.
        seed: of the drawing.
        bytes: all files in its folder.
    """

    run: str
    bytes: int
    problem: str | None = None
    id: str | None = None
    benchmark: str | None = None
    model: str | None = None
    image: str | None = None
    status: str | None = None
    created: str | None = None
    items: int | None = None
    n: int | None = None
    seed: int | None = None


def list_runs(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[ListedRun]:
    """All runs in and below some folders, damaged ones too.

    Raises:
        RunError: there is no such folder, or no run in it.
    """
    found: list[ListedRun] = []
    for path in map(to_path, paths):
        here = [_listed(folder) for folder in _runs_below(path, set())]
        if not here:
            kind = "no run in or below" if path.is_dir() else "no folder"
            raise RunError(f"{kind} {str(path)!r}: name folders of runs")
        found += here
    return found


def _runs_below(folder: AnyPath, seen: set[str]) -> Iterator[AnyPath]:
    """The folders of runs, each once, however links lead there; no hidden folders."""
    if isinstance(folder, Path):
        real = os.path.realpath(folder)
        if real in seen or not folder.is_dir():
            return
        seen.add(real)
    if holds_run(folder):
        yield folder
        return
    for name in names_in(folder):
        if not name.startswith(".") and (folder / name).is_dir():
            yield from _runs_below(folder / name, seen)


def _listed(folder: AnyPath) -> ListedRun:
    size = size_below(folder)
    try:
        manifest = read_folders(folder).manifest
    except RunError as error:
        return ListedRun(str(folder), size, str(error))
    settings = manifest.settings
    drawn = settings.get("sampling") or {}
    return ListedRun(
        str(folder),
        size,
        None,
        manifest.id,
        str(settings["benchmark"]),
        str(settings["model"]),
        str(settings["image"]),
        manifest.status,
        manifest.created,
        manifest.items,
        drawn.get("n"),
        drawn.get("seed"),
    )
