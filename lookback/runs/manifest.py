"""What a run was made of: written before anything else, and compared when the run goes on."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lookback.io.files import read_bytes
from lookback.io.storage import AnyPath
from lookback.runs.job import Job
from lookback.runs.layout import RunError, replacing

MANIFEST = "manifest.json"
FORMAT = 3
PACKAGES = ("lookback-vlm", "numpy", "pyarrow", "pillow")
STATUS = ("running", "finished", "failed")


@dataclass(frozen=True)
class Manifest:
    """A run's own account of itself; `read` accepts no other.

    Attributes:
        settings: all that decides the results: model, benchmark, split, sampling, image, source.
        defaults: the model family's alpha and lam.
        items: how many items there are.
        done: how many were tried.
        failed: how many of them failed.
        left_out: how many more the data have that cannot be read.
        status: "running"; once every item was tried "finished", or "failed" if all of them failed.
        shards: the numbers of its shards, those that are still to be made too.
        scorers: those that need a model and are recorded, each with its settings.
        looks: of how many items, the first ones, it has where their picks looked.
        job: which part of a run it is, if several jobs make that; items and shards are its own.
        candidates: where candidates that were not drawn came from.
        data: the folder or file of the benchmark's data.
        title: what tables call the benchmark.
        versions: of what the numbers depend on.
        commit: of the code, with "+" if files were changed; None outside a checkout.
        created: when it began.
        format: of the files.
        id: the same for the same settings.
    """

    settings: Mapping[str, Any]
    defaults: Mapping[str, float]
    items: int
    done: int = 0
    failed: int = 0
    left_out: int = 0
    status: str = "running"
    shards: Sequence[int] = ()
    scorers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    looks: int = 0
    job: Job | None = None
    candidates: str | None = None
    data: str | None = None
    title: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    created: str = ""
    format: int = FORMAT
    id: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.job, Mapping):  # as it is read
            object.__setattr__(self, "job", Job(**self.job))
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise RunError(f"its {name!r} is {value!r:.60}")
        if self.status not in STATUS:
            raise RunError(f"its 'status' is {self.status!r}, not one of {', '.join(STATUS)}")
        known = all(type(shard) is int and shard >= 0 for shard in self.shards)
        if not known or len(set(self.shards)) < len(self.shards):
            raise RunError(f"its 'shards' are {self.shards!r:.60}")
        for name in self.scorers:
            if not re.fullmatch(r"[^/\\.][^/\\]*", name):  # a scorer's folder is called so
                raise RunError(f"its scorers have {name!r:.60}")
        for name in NEEDED:
            if name not in self.settings:
                raise RunError(f"its settings have no {name!r}")
        if not all(isinstance(self.defaults.get(name), (int, float)) for name in ("alpha", "lam")):
            raise RunError(f"its 'defaults' are {dict(self.defaults)!r:.60}")
        object.__setattr__(self, "id", self.id or identity(self.settings))
        if self.id != identity(self.settings):
            raise RunError(f"its id {self.id!r} is not that of its settings: was it edited?")

    @property
    def tables(self) -> tuple[str, ...]:
        """Those that each shard has once the run is finished."""
        looks = ["looks"] if self.looks else []
        return ("items", "candidates", *(f"scores/{name}" for name in self.scorers), *looks)

    @classmethod
    def begin(cls, **given: Any) -> Manifest:
        """The manifest of a run that begins now, with the time and the code's commit."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(**given, commit=commit(), created=now)

    @classmethod
    def read(cls, folder: AnyPath) -> Manifest:
        """The manifest of the run in a folder.

        Raises:
            RunError: there is none, or it cannot be read.
        """
        path = folder / MANIFEST
        try:
            data = json.loads(read_bytes(path).decode("utf-8"))
        except FileNotFoundError:
            raise RunError(f"no run in {str(folder)!r}: there is no {MANIFEST}") from None
        except (ValueError, RecursionError) as error:
            raise RunError(f"{str(path)!r} is no manifest: {error}") from None
        if not isinstance(data, dict):
            raise RunError(f"{str(path)!r} is no manifest: it is {data!r:.60}")
        written = data.pop("checksum", None)
        try:
            found = cls(**_known(data))
        except (RunError, TypeError) as error:
            raise RunError(f"{str(path)!r} is no manifest of ours: {error}") from None
        if written != checksum(data):
            raise RunError(
                f"{str(path)!r} is not as it was written (its checksum differs): put the file back "
                "as it was, or make the run again in another folder"
            )
        return found

    def write(self, folder: AnyPath) -> None:
        """Write it, whole or not at all."""
        with replacing(folder / MANIFEST) as temporary:
            temporary.write_text(self._json(), encoding="utf-8")

    def _json(self) -> str:
        data = asdict(self)
        for name in ("looks", "job"):  # without them it is what it was before there were any
            if not data[name]:
                del data[name]
        # Not every reader of JSON knows NaN, and none takes it for the same setting again.
        whole = data | {"checksum": checksum(data)}
        return json.dumps(whole, indent=1, allow_nan=False) + "\n"

    def check_same(self, folder: AnyPath, now: Manifest) -> None:
        """Refuse to go on with a run of other settings; name the first that differs.

        Raises:
            RunError: they differ.
        """
        old, new = self.settings, now.settings
        key = find_difference(old, new)
        if key is not None:
            raise RunError(
                f"{str(folder)!r} holds another run: its {key} is {json.dumps(old.get(key))}, "
                f"not {json.dumps(new.get(key))}; use the same settings, or another --out"
            )
        if (self.items, list(self.shards), self.job) != (now.items, list(now.shards), now.job):
            raise RunError(
                f"{str(folder)!r} has {self.items} items in {len(self.shards)} shards, now there "
                f"are {now.items} in {len(now.shards)}: were its data changed? use another --out"
            )

    def with_scorers(self, more: Mapping[str, Mapping[str, Any]]) -> Manifest:
        """The same run, to record more scorers.

        Raises:
            RunError: one is recorded with other settings than those it has now.
        """
        for name, settings in more.items():
            now = json.loads(json.dumps(settings))  # as it would be read again
            if self.scorers.get(name, now) != now:
                raise RunError(
                    f"its {name} scores were made with {json.dumps(self.scorers[name])}, not "
                    f"{json.dumps(now)}: use another --out"
                )
        return replace(self, scorers=dict(self.scorers) | dict(more), status="running")

    def with_looks(self, items: int) -> Manifest:
        """The same run, to keep where the picks of the first items looked; 0 for what it has.

        Raises:
            RunError: it has those of another number of items.
        """
        if self.looks and items not in (0, self.looks):
            raise RunError(
                f"it has looks of its first {self.looks} items, not {items}: use --look "
                f"{self.looks}, or another --out"
            )
        return replace(self, looks=self.looks or items, status="running")


NEEDED = ("model", "benchmark", "split", "image")
_KINDS: dict[str, Any] = {
    "settings": Mapping,
    "defaults": Mapping,
    "scorers": Mapping,
    "versions": Mapping,
    "shards": (list, tuple),
    "items": int,
    "done": int,
    "failed": int,
    "left_out": int,
    "looks": int,
    "job": (Job, type(None)),
    "id": str,
    "created": str,
    "commit": (str, type(None)),
    "candidates": (str, type(None)),
    "data": (str, type(None)),
    "title": (str, type(None)),
}


def _known(data: dict[str, Any]) -> dict[str, Any]:
    if data.get("format") != FORMAT:  # of another one nothing else is known
        raise RunError(
            f"it has format {data.get('format')!r}, this version reads {FORMAT} alone: make the "
            "run again in another folder"
        )
    unknown = sorted(data.keys() - {one.name for one in fields(Manifest)})
    if unknown:
        raise RunError(f"it has an unknown {unknown[0]!r}")
    return data


def find_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first setting that differs; None if all are the same."""
    return next((key for key in sorted({*old, *new}) if old.get(key) != new.get(key)), None)


def checksum(data: Mapping[str, Any]) -> str:
    """Of all that a manifest says: a changed digit in it must be an error, not another number."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def identity(settings: Mapping[str, Any]) -> str:
    """The same for the same settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def versions(engine: Mapping[str, str]) -> dict[str, str]:
    """Of what the numbers depend on; an engine names its own."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # e.g. run from a checkout that is not installed
            found[package] = "unknown"
    return found | dict(engine)


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
