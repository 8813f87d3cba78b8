"""What a run is made of: written before anything else, and compared when the run is resumed."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, StrictFloat, StrictInt, TypeAdapter, ValidationError

from lookback.io.files import read_bytes
from lookback.io.storage import AnyPath
from lookback.runs.layout import RunError, describe_invalid, replacing

MANIFEST = "manifest.json"
FORMAT = 3
NEEDED = ("model", "benchmark", "split", "image")
"""Settings that every run has."""
PACKAGES = ("lookback-vlm", "numpy", "pyarrow", "pillow")
JOB_NAME = re.compile(r"job-(\d+)-of-(\d+)")
MOST_JOBS = 100_000
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """One of the jobs that make a run together: `lookback run --shard 3/16`.

    Counted from 0, as Kubernetes does (JOB_COMPLETION_INDEX): the jobs of 16 are 0/16 to 15/16.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    index: int
    of: int
    items: int = 0  # of the whole run
    shards: int = 0  # of the whole run

    def __post_init__(self) -> None:
        for value in (self.index, self.of, self.items, self.shards):
            if type(value) is not int or value < 0:
                raise RunError(f"a job's {value!r:.60} is no number from 0")
        if not 1 <= self.of <= MOST_JOBS:
            raise RunError(f"--shard {self}: there are 1 to {MOST_JOBS} jobs")
        if self.index >= self.of:
            raise RunError(
                f"--shard {self}: jobs are counted from 0, so those of {self.of} are 0/{self.of} "
                f"to {self.of - 1}/{self.of}"
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    @property
    def name(self) -> str:
        """The name of its folder, in the folder of the run."""
        return f"job-{self.index:0{len(str(self.of - 1))}d}-of-{self.of}"

    def share(self, shards: Sequence[T]) -> list[T]:
        """Return its part of all shards: every so-many-th, so that all jobs have about as many."""
        return list(shards[self.index :: self.of])

    @classmethod
    def parse(cls, text: str) -> Job:
        """Return the job that the command is given as "3/16"; raise RunError if it is none."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip(), re.ASCII)
        if match is None:
            raise RunError(
                f"--shard {text!r:.40}: write INDEX/COUNT, e.g. 0/16 for the first of 16 jobs"
            )
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_folder(cls, name: str) -> Job | None:
        """Return the job whose folder has this name; None if it is no job's."""
        match = JOB_NAME.fullmatch(name)
        if match is None:
            return None
        try:
            job = cls(int(match[1]), int(match[2]))
        except RunError:
            return None
        return job if job.name == name else None


@dataclass(frozen=True)
class Manifest:
    """What a run says of itself."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    settings: Mapping[str, Any]  # all that decides the results
    defaults: Mapping[str, StrictInt | StrictFloat]  # the model family's alpha and lam
    items: StrictInt
    done: StrictInt = 0  # how many items were tried
    failed: StrictInt = 0  # how many of these failed
    left_out: StrictInt = 0  # how many more the data have that cannot be read
    # Once every item was tried "finished", or "failed" if all of them failed.
    status: Literal["running", "finished", "failed"] = "running"
    shards: Sequence[StrictInt] = ()  # those that are still to be made too
    # Those that need a model and are recorded, each with its settings.
    scorers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    looks: StrictInt = 0  # of how many items, the first ones, it has where their picks looked
    job: Job | None = None  # which part of a run it is; items and shards are then its own
    candidates: str | None = None  # where candidates that were not drawn came from
    data: str | None = None  # the folder or file of the benchmark's data
    title: str | None = None  # what tables call the benchmark
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None  # of the code, with "+" if files were changed
    created: str = ""
    format: StrictInt = FORMAT
    id: str = ""  # the same for the same settings

    def __post_init__(self) -> None:
        if any(shard < 0 for shard in self.shards) or len({*self.shards}) < len(self.shards):
            raise RunError(f"its 'shards' are {self.shards!r:.60}")
        for name in self.scorers:
            if not re.fullmatch(r"[^/\\.][^/\\]*", name):  # a scorer's folder is called so
                raise RunError(f"its scorers have {name!r:.60}")
        for name in NEEDED:
            if name not in self.settings:
                raise RunError(f"its settings have no {name!r}")
        if not {"alpha", "lam"} <= self.defaults.keys():
            raise RunError(f"its 'defaults' are {dict(self.defaults)!r:.60}")
        object.__setattr__(self, "id", self.id or hash_json(self.settings)[:12])
        if self.id != hash_json(self.settings)[:12]:
            raise RunError(f"its id {self.id!r} is not that of its settings: was it edited?")

    @property
    def tables(self) -> tuple[str, ...]:
        """Those that each shard has once the run is finished."""
        looks = ["looks"] if self.looks else []
        return ("items", "candidates", *(f"scores/{name}" for name in self.scorers), *looks)

    @classmethod
    def begin(cls, **fields: Any) -> Manifest:
        """Return the manifest of a run that starts now, with the time and the code's commit."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(**fields, commit=commit(), created=now)

    @classmethod
    def read(cls, folder: AnyPath) -> Manifest:
        """Return the manifest of the run in a folder.

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
            manifest = cls._parse(data)
        except RunError as error:
            raise RunError(f"{str(path)!r} is no manifest of ours: {error}") from None
        if written != hash_json(data):
            raise RunError(
                f"{str(path)!r} is not as it was written (its checksum differs): put the file back "
                "as it was, or make the run again in another folder"
            )
        return manifest

    @classmethod
    def _parse(cls, data: dict[str, Any]) -> Manifest:
        if data.get("format") != FORMAT:  # of another one nothing else is known
            raise RunError(
                f"it has format {data.get('format')!r:.60}, this version reads {FORMAT} alone: "
                "make the run again in another folder"
            )
        try:
            return _PARSER.validate_python(data)
        except ValidationError as error:
            raise RunError(describe_invalid(error)) from None

    def write(self, folder: AnyPath) -> None:
        """Write it, whole or not at all."""
        data = asdict(self)
        for name in ("looks", "job"):  # a run without them has no such entry
            if not data[name]:
                del data[name]
        # Not every reader of JSON knows NaN, and none takes it for the same setting again.
        text = json.dumps(data | {"checksum": hash_json(data)}, indent=1, allow_nan=False)
        with replacing(folder / MANIFEST) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    def check_same(self, folder: AnyPath, now: Manifest) -> None:
        """Raise RunError if `now` is not the same run; the message names what differs first."""
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
        """Return the same run, to record more scorers.

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
        """Return the same run, to keep looks of the first items; 0 for those that it has.

        Raises:
            RunError: it has those of another number of items.
        """
        if self.looks and items not in (0, self.looks):
            raise RunError(
                f"it has looks of its first {self.looks} items, not {items}: use --look "
                f"{self.looks}, or another --out"
            )
        return replace(self, looks=self.looks or items, status="running")


_PARSER = TypeAdapter(Manifest)


def find_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return the first setting that differs; None if all are the same."""
    return next((key for key in sorted({*old, *new}) if old.get(key) != new.get(key)), None)


def hash_json(data: Mapping[str, Any]) -> str:
    """Return the sha256 of data as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def versions(engine: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of what the numbers depend on; `engine` are those that it names."""
    here = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            here[package] = version(package)
        except PackageNotFoundError:  # e.g. run from a checkout that is not installed
            here[package] = "unknown"
    return here | dict(engine)


def commit() -> str | None:
    """Return the commit of the code, with "+" if files were changed; None outside a checkout."""
    folder = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(folder.parent))
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")
