"""Workers that are actors of a Ray cluster, wherever it has room.

An actor has one model. It is sent a batch of shards with the files of the run that it needs, works
in a folder of its own, and sends back the files that it wrote; this process alone writes to the
run. So the machines need share no disk for the output; data and models must be readable on each. An
actor that is gone (killed, out of memory, its node lost) has lost its batch and nothing else.

Files are sent by their path in the run's folder. They are put there tables first, records last, so
that a shard is complete exactly when its record exists, as everywhere.
"""

from __future__ import annotations

import os
import queue
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookback import __version__
from lookback.errors import one_line
from lookback.io.storage import AnyPath
from lookback.registry import PLUGINS_VARIABLE
from lookback.runs.executors import (
    THREADS_VARIABLE,
    EngineInfo,
    PoolWorker,
    ShardBatch,
    WorkerDiedError,
    WorkerPool,
    portable,
)
from lookback.runs.layout import RunError, shard_path, write_whole
from lookback.runs.manifest import MANIFEST
from lookback.runs.records import RECORDS, SAMPLED, TIMINGS, record_path

if TYPE_CHECKING:
    from lookback.runs.plan import Plan
    from lookback.runs.work import Report

AUTO, LOCAL = "auto", "local"
SILENCE = 30
"""Seconds without a worker after which a line says what is waited for."""
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""Words in the names of variables that are not sent: the cluster shows the others to all."""
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Cluster:
    """Where actors run, and what each of them needs.

    Attributes:
        address: HOST:PORT of a cluster; "auto" for the one that RAY_ADDRESS or this machine knows,
            else one that is started for this run; "local" for one that is started in any case.
        cpus: per worker: the cores that it takes, and its threads.
        gpus: per worker; by default 1 if the cluster has any.
    """

    address: str = AUTO
    cpus: int = 1
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise RunError(f"--ray-cpus {self.cpus}: must be at least 1")
        if self.gpus is not None and not 0 <= self.gpus < float("inf"):
            raise RunError(f"--ray-gpus {self.gpus}: must be at least 0")
        if self.address.startswith("ray://"):
            raise RunError(
                f"--ray {self.address}: Ray's client is not supported; run the command on a "
                "machine of the cluster, or with `ray job submit`"
            )


class Actor:
    """A worker, inside an actor's process.

    Paths are relative to `directory`, where the command was called. `version` is that of the
    caller's package: another one would read and write other things.
    """

    def __init__(self, plan: Plan, directory: str, version: str) -> None:
        self.plan, self.version = plan, version
        if os.path.isdir(directory):
            os.chdir(directory)

    def load(self) -> EngineInfo | Exception:
        try:
            import ray.util

            from lookback.runs.work import Worker

            node = f"node {ray.util.get_node_ip_address()}"
            if self.version != __version__:
                raise RunError(
                    f"{node} has lookback-vlm {__version__}, and this machine {self.version}: "
                    "install the same everywhere"
                )
            self.worker = Worker(self.plan, Path())
            return replace(self.worker.load(), node=node)
        except BaseException as error:
            return portable(error)

    def run(self, batch: ShardBatch, files: Files) -> Iterator[int | Files | Exception]:
        """Make a batch: yield pieces of work done, at last the files written or the error."""
        results: queue.SimpleQueue[int | Files | Exception] = queue.SimpleQueue()

        def make() -> None:
            try:
                results.put(self._make(batch, files, results.put))
            except BaseException as error:
                results.put(portable(error))

        threading.Thread(target=make, daemon=True).start()
        while True:
            yield (result := results.get())
            if not isinstance(result, int):
                return

    def _make(self, batch: ShardBatch, files: Files, report: Report) -> Files:
        with tempfile.TemporaryDirectory(prefix="lookback-") as name:
            folder = self.worker.folder = Path(name)
            write_files(folder, files)
            self.worker.plan = batch.plan
            self.worker.work(batch.shards, report)
            return read_made(folder, files)


class RayWorker(PoolWorker):
    """An actor, seen from here: it starts when the cluster has room.

    `on_wait` is called each `SILENCE` seconds until its model is loaded.
    """

    def __init__(self, ray: Any, actor: Any, folder: AnyPath, on_wait: Callable[[], None]) -> None:
        self._ray, self._actor, self._folder, self._on_wait = ray, actor, folder, on_wait
        self._node = "a node"

    def load(self) -> EngineInfo:
        loading = self._actor.load.remote()
        while not self._ray.wait([loading], timeout=SILENCE)[0]:
            self._on_wait()
        info: EngineInfo = self._get(loading)
        self._node = info.node
        return info

    def run(self, batch: ShardBatch, report: Report) -> None:
        files = read_needed(self._folder, batch.shards)
        results = self._actor.run.options(num_returns="streaming").remote(batch, files)
        while isinstance(result := self._get(results), int):
            report(result)
        write_files(self._folder, result)

    def _get(self, reference: Any) -> Any:
        """Return the value of a reference, or the next one of a generator's."""
        errors = self._ray.exceptions
        try:
            streams = hasattr(reference, "__next__")
            value = self._ray.get(next(reference) if streams else reference)
        except errors.RayTaskError as error:
            # An actor returns its own errors as values: this is Ray's, or a bug.
            if not isinstance(error.cause, errors.RayError):
                raise portable(error.cause) from None
            raise RunError(
                f"a worker on {self._node} cannot read what it was sent "
                f"({one_line(error.cause, 300)}): is the same lookback-vlm there?"
            ) from None
        except (errors.RayError, StopIteration) as error:
            raise WorkerDiedError(death_reason(error)) from None
        if isinstance(value, Exception):
            raise value
        return value

    def close(self) -> None:
        self._ray.kill(self._actor)


class RayExecutor(WorkerPool):
    """A pool of actors of a cluster."""

    def __init__(
        self,
        plan: Plan,
        folder: AnyPath,
        workers: int,
        cluster: Cluster,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(self._start_actor, workers, say)
        self.plan, self.folder, self.cluster = plan, folder, cluster
        self._ray: Any = None
        self._connected = False

    def load(self) -> EngineInfo:
        """Connect, and load the first model."""
        self._ray = import_ray()
        self._connected = connect(self._ray, self.cluster, self.say)
        gpus = self.cluster.gpus
        if gpus is None:
            gpus = float(self._ray.cluster_resources().get("GPU", 0) >= 1)
        self._needs = {"num_cpus": self.cluster.cpus, "num_gpus": gpus}
        self._check_room()
        self._actor_class = self._ray.remote(
            **self._needs,
            max_restarts=0,
            runtime_env={"env_vars": actor_environment(self.cluster.cpus)},
        )(Actor)
        return super().load()

    def close(self) -> None:
        """End the actors, and the connection if it was made here."""
        super().close()
        if self._connected:
            self._ray.shutdown()

    def _start_actor(self) -> RayWorker:
        actor = self._actor_class.remote(self.plan, os.getcwd(), __version__)
        return RayWorker(self._ray, actor, self.folder, self._say_waiting)

    def _say_waiting(self) -> None:
        if self.first is None:
            self.say(f"waiting for the Ray cluster: {self._room()}")

    def _check_room(self) -> None:
        """Say if not all workers find room, as a cluster may yet grow.

        Raises:
            RunError: none does, and the cluster is this machine.
        """
        needs = {"CPU": self._needs["num_cpus"], "GPU": self._needs["num_gpus"]}
        fit = sum(
            min(
                int(node["Resources"].get(name, 0) // count)
                for name, count in needs.items()
                if count
            )
            for node in self._ray.nodes()
            if node["Alive"]
        )
        if fit < 1 and self._connected:
            raise RunError(f"no worker fits on this machine: {self._room()}")
        if fit < self.workers:
            self.say(
                f"the Ray cluster has room for {fit} of {self.workers} workers: {self._room()}"
            )

    def _room(self) -> str:
        has = self._ray.cluster_resources()
        each = f"{self._needs['num_cpus']} CPU, {self._needs['num_gpus']:g} GPU"
        return f"each needs {each}; it has {has.get('CPU', 0):g} CPU, {has.get('GPU', 0):g} GPU"


def read_needed(folder: AnyPath, shards: Iterable[int]) -> dict[str, bytes]:
    """Return the files that a worker needs to make the tables that shards lack."""
    paths: list[AnyPath] = [Path(MANIFEST)]
    for shard in shards:
        paths += [record_path(Path(place), shard) for place in ("", TIMINGS)]
        paths += [shard_path(Path(), table, shard) for table in SAMPLED]
    names = [str(path) for path in paths]
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def read_made(folder: Path, sent: Files) -> dict[str, bytes]:
    """Return the files that a worker wrote to a folder that had those it was sent."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {name: data for name, data in files.items() if sent.get(name) != data}


def write_files(folder: AnyPath, files: Files) -> None:
    """Write files to a folder, each whole or not at all, and records after all else."""

    def order(name: str) -> tuple[bool, bool, str]:
        return name.startswith(f"{RECORDS}/"), f"/{RECORDS}/" in name, name

    for name in sorted(files, key=order):
        write_whole(folder / name, files[name])


def import_ray() -> Any:
    """Return the library, silent but for errors; raise ImportError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # We say deaths in a line; Ray would print a paragraph on stdout.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "worker died or was killed")
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            f"--ray needs Ray, which cannot be imported ({error}): pip install 'lookback-vlm[ray]'"
        ) from None
    return ray


def connect(ray: Any, cluster: Cluster, say: Callable[[str], None]) -> bool:
    """Connect to a cluster; return False if this process was connected already.

    Raises:
        RunError: there is none at the address.
    """
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    named = os.environ.get("RAY_ADDRESS") if cluster.address == AUTO else cluster.address
    if named and named not in (AUTO, LOCAL):
        _check_listens(named)
    if named != LOCAL:
        try:
            ray.init(address=cluster.address, **quiet)
            return True
        except (ConnectionError, ValueError, RuntimeError) as error:
            if named:
                raise RunError(
                    f"no Ray cluster at {named!r} ({one_line(error)}); one that asks for a token "
                    "needs RAY_AUTH_MODE=token"
                ) from None
        say("no Ray cluster was found (RAY_ADDRESS, --ray ADDRESS): one is started here")
    ray.init(address=LOCAL, include_dashboard=False, **quiet)
    return True


def _check_listens(address: str) -> None:
    """Raise RunError if nobody listens at an address: Ray would try for minutes, loudly."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise RunError(f"no Ray cluster at {address!r}: write HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"no Ray cluster at {address!r}: {error}") from None


def actor_environment(threads: int) -> dict[str, str]:
    """Return an actor's environment: those of our variables that a process here would have."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("LOOKBACK_", "HF_H")) and not any(word in name for word in SECRET)
    }
    plugins = filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep))
    ours[PLUGINS_VARIABLE] = os.pathsep.join(
        os.path.abspath(name) if name.endswith(".py") else name for name in plugins
    )
    package = Path(__file__).parents[2]
    paths = [] if package.name == "site-packages" else [str(package)]  # else it is installed there
    paths += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if paths:
        ours["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
    return ours | {THREADS_VARIABLE: str(threads)}


def death_reason(error: Exception) -> str:
    """Return why an actor is gone, in a line: what Ray found out, of its paragraphs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("The actor is dead because")), "")
    if "creation task" in str(error) or not reason:
        reason = lines[-1] if lines else type(error).__name__
    return reason.partition(" Some common causes")[0].rstrip(".")[:300]
