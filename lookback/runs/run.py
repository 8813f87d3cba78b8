"""Read a run: its manifest, its items, its candidates, and arrays of their signals and scores.

Opening a run reads the manifest and compares its files with the shards' records; token columns are
read when a score first needs them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lookback.io.storage import AnyPath, RemotePath, each, names_in, to_path
from lookback.runs.jobs import holds_run, read_folders
from lookback.runs.layout import (
    HEAD_COLUMNS,
    SHARD,
    RunError,
    empty_table,
    read_candidates,
    read_table,
)
from lookback.runs.looks import Looks
from lookback.runs.manifest import MANIFEST
from lookback.runs.records import Record, Timings, join_timings, read_timings
from lookback.runs.verify import check_records, find_changes, refuse
from lookback.scores.base import get_scorer
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import Array
from lookback.signals import BY_LAYER, PRUNED, SIGNALS, Candidates, Floats


def open_run(path: str | os.PathLike[str] | RemotePath) -> Run:
    """Open the run in a folder, or at an address of an object store: "s3://bucket/run"."""
    return Run(path)


def open_runs(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[Run]:
    """Open the runs in some folders; a folder that is no run but has runs in it stands for those.

    Raises:
        RunError: a folder has none, or one is damaged.
    """
    return [Run(folder) for folder in find_runs(paths)]


def find_runs(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[AnyPath]:
    """Return the folders of the runs that `open_runs` opens; raise RunError if one has none."""
    folders: list[AnyPath] = []
    for path in map(to_path, paths):
        inner = (path / name for name in names_in(path))
        runs = [path] if holds_run(path) else list(filter(holds_run, inner))
        if not runs:
            raise RunError(f"no run in {str(path)!r}: neither it nor a folder in it has {MANIFEST}")
        folders += runs
    return folders


class Run:
    """A folder that `lookback run` wrote, or the folder of the jobs that wrote it (`--shard`).

    Items that failed have no candidates; everything below is about the others, in the split's
    order, as arrays of shape (items, n): a row per item, its first n candidates. Where an item has
    fewer, and where a response is empty, scores are NaN; where it has fewer, so is quality. Of a
    run that is not finished, only complete shards count.

    Args:
        path: of the folder.

    Raises:
        RunError: there is no run, or it is damaged: the message names the file and what to do.
    """

    def __init__(self, path: str | os.PathLike[str] | RemotePath) -> None:
        self.path = to_path(path)
        self.folders = folders = read_folders(self.path)
        self.manifest = folders.manifest
        self._parts: list[tuple[AnyPath, dict[int, Record]]] = []
        self._folder_of: dict[int, AnyPath] = {}
        tables: dict[str, list[int]] = {table: [] for table in self.manifest.tables}
        for folder, manifest in folders.parts:
            records = check_records(folder, manifest)
            self._parts.append((folder, records))
            self._folder_of |= dict.fromkeys(records, folder)
            for table in manifest.tables:
                tables[table] += [s for s, record in records.items() if table in record.tables]
        self._shards = {table: sorted(numbers) for table, numbers in tables.items()}
        self._verified: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self._signals: dict[str, Array] = {}
        self._scores: dict[tuple[Any, ...], Array] = {}
        self._recordings: dict[str, dict[int, dict[str, Any]]] = {}

    def __repr__(self) -> str:
        seed = f", seed {self.seed}" if self.seed is not None else ""
        image = f", {self.image} image" if self.image != "own" else ""
        return f"Run({self.model}, {self.benchmark}{seed}{image}, {str(self.path)!r})"

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked for: model, benchmark, split, n, sampling, seed, image, source."""
        return dict(self.manifest.settings)

    @property
    def id(self) -> str:
        """The same for the same settings."""
        return self.manifest.id

    @property
    def model(self) -> str:
        """The model that answered."""
        return str(self.settings["model"])

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""
        return str(self.settings["benchmark"])

    @property
    def seed(self) -> int | None:
        """The seed of the sampling; None for candidates from elsewhere."""
        sampling = self.settings.get("sampling")
        return None if sampling is None else int(sampling["seed"])

    @property
    def image(self) -> str:
        """ "own", or for a control "none" or "random"."""
        return str(self.settings["image"])

    @property
    def controls(self) -> str | None:
        """The id of the run whose candidates this one scores again; None if it has its own."""
        return (self.settings.get("candidates") or {}).get("run")

    @property
    def finished(self) -> bool:
        """Whether every item was tried, and not all of them failed."""
        return self.manifest.status == "finished"

    @property
    def defaults(self) -> dict[str, float]:
        """The model family's alpha and lam."""
        return dict(self.manifest.defaults)

    def table(self, name: str, columns: Iterable[str] | None = None) -> pa.Table:
        """Return the rows of a table's complete shards, in order; read only the columns named.

        Raises:
            RunError: a shard is damaged.
        """
        names = None if columns is None else list(columns)
        if name not in self._verified:  # a flipped bit must be an error, not another number
            for folder, records in self._parts:
                refuse(folder, find_changes(folder, records, name))
            self._verified.add(name)

        def read(shard: int) -> pa.Table:
            return read_table(self._folder_of[shard], name, shard, names)

        parts = list(each(self.path, read, self._shards[name]))
        return pa.concat_tables(parts) if parts else empty_table(name, names)

    @cached_property
    def items(self) -> pa.Table:
        """A row per item, failed ones too."""
        return self.table("items")

    @cached_property
    def head(self) -> pa.Table:
        """A row per candidate, without its tokens and signals."""
        return self.table("candidates", HEAD_COLUMNS)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The positions in the split of the items that have candidates."""
        return np.unique(_numbers(self.head["item"]).astype(np.int64))

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the items that have candidates."""
        return self._of_places("id")

    @cached_property
    def questions(self) -> list[str]:
        """Their questions."""
        return self._of_places("question")

    def _of_places(self, column: str) -> list[str]:
        places, values = (self.items[name].to_pylist() for name in ("item", column))
        by_place = dict(zip(places, values, strict=True))
        return [by_place[int(place)] for place in self.places]

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """How many candidates each has."""
        return np.unique(_numbers(self.head["item"]), return_counts=True)[1].astype(np.intp)

    @cached_property
    def n(self) -> int:
        """How many candidates an item has, at most."""
        return int(self.sizes.max()) if len(self.sizes) else 0

    @cached_property
    def index(self) -> NDArray[np.intp]:
        """(R,): the place of each candidate among those of its item."""
        return np.concatenate([np.empty(0), *map(np.arange, self.sizes)]).astype(np.intp)

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """(R,): how many tokens each candidate has."""
        return _numbers(self.head["length"]).astype(np.intp)

    @cached_property
    def texts(self) -> list[str]:
        """(R,): the responses."""
        return list(self.head["text"].to_pylist())

    @cached_property
    def finish(self) -> list[str]:
        """(R,): why each candidate ended."""
        return list(self.head["finish"].to_pylist())

    @cached_property
    def pruned(self) -> NDArray[np.bool_]:
        """(R,): which candidates were ended because others were better."""
        return np.array([finish == PRUNED for finish in self.finish], dtype=np.bool_)

    @cached_property
    def steered(self) -> bool:
        """Whether candidates were ended early: then a smaller draw would have ended others."""
        return bool(self.pruned.any())

    def has_draw(self, n: int) -> bool:
        """Return whether the first n candidates are what a draw of n would be."""
        return n == self.n or (n < self.n and not self.steered)

    def check_draw(self, n: int | None) -> None:
        """Raise RunError if the first n candidates are not what a draw of n would be."""
        if n is not None and n < self.n and self.steered:
            raise RunError(
                f"N = {n}: {self.path} was pruned, so the first {n} of its {self.n} candidates are "
                f"no draw of {n}: ask for N = {self.n}, or give a run without --prune"
            )

    def tokens(self) -> pa.ListArray:
        """Return the tokens of each response as text, (R,)."""
        return self.table("candidates", ["tokens"])["tokens"].combine_chunks()

    def signal(self, name: str) -> Array:
        """Return one of `SIGNALS`, of all tokens of all candidates; only this column is read."""
        return self.signals([name])[name]

    def signals(self, names: Sequence[str] = SIGNALS) -> dict[str, Array]:
        """Return several of `SIGNALS`: columns that were not read before are read in one go."""
        unread = [name for name in names if name not in self._signals]
        if unread:
            table = self.table("candidates", unread)
            for name in unread:
                values = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                self._signals[name] = values.astype(np.float64)
        return {name: self._signals[name] for name in names}

    @property
    def has_layers(self) -> bool:
        """Whether it was made with --by-layer."""
        return bool(self.settings.get(BY_LAYER))

    def by_layer(self) -> Floats:
        """Return A_t in each layer, of all tokens of all candidates, (tokens, L).

        Raises:
            RunError: the run was made without.
        """
        if not self.has_layers:
            raise RunError(
                f"{self.path} has no signals by layer: run its command again with --by-layer and "
                "another --out"
            )
        return self._by_layer

    @cached_property
    def _by_layer(self) -> Floats:
        tokens = self.table("candidates", [BY_LAYER])[BY_LAYER].combine_chunks()
        values: Floats = tokens.flatten().flatten().to_numpy(zero_copy_only=False)
        count = int(self.lengths.sum())
        return values.reshape(count, len(values) // max(1, count))

    def grid(self, values: Array | Sequence[float], n: int | None = None) -> Array:
        """Return a number per candidate as an array (items, n), NaN where there is none."""
        self.check_draw(n)
        n = self.n if n is None else n
        full = np.full((len(self.sizes), self.n), np.nan)
        rows = np.repeat(np.arange(len(self.sizes)), self.sizes)
        full[rows, self.index] = values
        return full[:, :n]

    def quality(self, n: int | None = None) -> Array:
        """Return how good each response is by the benchmark's own measure, in [0, 1], (items, n).

        NaN where nothing tells, as in data of one's own without answers, and of a pruned candidate.
        """
        return self.grid(_numbers(self.head["quality"]), n)

    def batch(self, n: int | None = None) -> SignalBatch:
        """Return the first n candidates of all items as one ragged batch."""
        self.check_draw(n)
        flat = self.signals()
        quality = _numbers(self.head["quality"])
        log_prob, lookback, certainty, entropy = (flat[name] for name in SIGNALS)
        batch = SignalBatch(
            self.lengths,
            self.sizes,
            tuple(self.texts),
            log_prob,
            lookback,
            certainty,
            entropy,
            quality,
            self.pruned,
        )
        if n is None or n >= self.n:
            return batch
        return batch.take(self.index < n)

    def scores(self, scorer: str, n: int | None = None, **params: Any) -> Array:
        """Return the scores of each item's first n candidates, (items, n); higher is better.

        Those of a scorer that needs a model are read from the run.

        Raises:
            RunError: they were not recorded, or with other settings.
            TypeError: it has no such setting.
        """
        self.check_draw(n)
        n = self.n if n is None else min(n, self.n)
        used = get_scorer(scorer)
        if not used.from_signals:
            used.check(params)
            return self._recorded(scorer, n, params)
        of = n if used.joint else self.n  # alone, a response has the same score among any n
        key = (scorer, of, tuple(sorted(params.items())))
        if key not in self._scores:
            values = np.full(len(self.index), np.nan)
            values[self.index < of] = used.of_batch(self.batch(of), self.defaults, params)
            self._scores[key] = self.grid(values, of)
        return np.array(self._scores[key][:, :n])

    @property
    def recorded(self) -> list[str]:
        """The recorded scores: "vauq", or "usc@5" where the other candidates matter."""
        return sorted(name for name in self.manifest.scorers if self._shards[f"scores/{name}"])

    def recording(self, scorer: str, n: int) -> str | None:
        """Return the name under which a scorer's scores of the first n are recorded, or None."""
        names = (f"{scorer}@{n}", *([] if get_scorer(scorer).joint else [scorer]))
        return next((name for name in names if name in self.recorded), None)

    def _recorded(self, scorer: str, n: int, params: Mapping[str, Any]) -> Array:
        name = self.recording(scorer, n)
        if name is None:
            there = ", ".join(self.recorded) or "none"
            raise RunError(
                f"{self.path} has no {scorer} scores for N = {n} (recorded: {there}): run the same "
                f"command again with --scorers {scorer}@{n}"
            )
        self._check_recorded(name, params)
        rows = self._table_of(name)
        missing = [place for place in self.places.tolist() if place not in rows]
        if missing:
            raise RunError(
                f"{self.path} has no {name} scores yet for {len(missing)} of its items: run its "
                "command again"
            )
        full = np.full((len(self.places), self.n), np.nan)
        for row, place in enumerate(self.places.tolist()):
            values = rows[place]["scores"] or []  # none where the scorer failed
            full[row, : len(values)] = [np.nan if v is None else v for v in values]
        return full[:, :n]

    def recorded_settings(self, name: str) -> dict[str, Any]:
        """Return the settings that the scores of a name in `recorded` were made with."""
        recorded = self.manifest.scorers.get(name)  # None of scores that a study derived
        return dict(get_scorer(name.partition("@")[0]).defaults if recorded is None else recorded)

    def changed_settings(self, name: str) -> dict[str, Any]:
        """Return those of these settings that are no longer the scorer's defaults."""
        return get_scorer(name.partition("@")[0]).changed_since(self.recorded_settings(name))

    def _check_recorded(self, name: str, params: Mapping[str, Any]) -> None:
        """Raise RunError for settings that recorded scores were not made with."""
        made = self.recorded_settings(name)
        for key, value in params.items():
            if json.loads(json.dumps(value, default=str)) != made.get(key):
                raise RunError(
                    f"{self.path} has {name} scores made with {key} = {made.get(key)!r}, not "
                    f"{value!r}: others need the model again, see Candidates.rank"
                )

    def _table_of(self, name: str) -> dict[int, dict[str, Any]]:
        """Return the rows of a recorded scorer by the items' positions."""
        if name not in self._recordings:
            rows = self.table(f"scores/{name}").to_pylist()
            self._recordings[name] = {row["item"]: row for row in rows}
        return self._recordings[name]

    def unscored(self, name: str) -> int:
        """Return for how many items a recorded scorer failed."""
        return sum(row["error"] is not None for row in self._table_of(name).values())

    def replies(self, name: str) -> list[list[str]]:
        """Return what the model replied when it scored, a list per item."""
        return [row["replies"] for row in self._table_of(name).values()]

    def timings(self) -> list[dict[str, Any]]:
        """Return what took how long: {"stage": "sample" or a scorer, "item": ..., "ms": ...}.

        Raises:
            RunError: they are damaged.
        """
        return self.read_timings().rows

    def read_timings(self) -> Timings:
        """Return the same with how many of its files have no record, so cannot be verified."""
        parts = []
        for (folder, records), (_, manifest) in zip(self._parts, self.folders.parts, strict=True):
            parts.append(read_timings(folder, manifest, records))
            refuse(folder, parts[-1].problems)
        return join_timings(parts)

    @cached_property
    def looks(self) -> Looks:
        """Where picks of its first items looked, if it was made with --look."""
        return Looks(self)

    def candidates(self, row: int) -> Candidates:
        """Return the candidates of one item, as an engine gave them, without engine and image."""
        return self.candidates_at(int(self.places[row]))

    def candidates_at(self, place: int) -> Candidates:
        """Return those of the item at a position of the split; only its shard is read."""
        return read_candidates(self._folder_of[place // SHARD], self.manifest, place)


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    values: NDArray[Any] = column.to_numpy()
    return values
