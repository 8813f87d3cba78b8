"""Workers that are actors of a Ray cluster, wherever it has room.

An actor has one model. It is sent a portion of the shards with what it needs of the run's folder,
works in a folder of its own, and sends back the files that it wrote; this process alone writes to
the run. So the machines need share no disk for what comes out; the data and models must be readable
on each. An actor that is gone (killed, out of memory, its node lost) has lost its portion and
nothing else: it is done again, by another.
"""

from __future__ import annotations

import os
import queue
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookback import __version__
from lookback.errors import one_line
from lookback.io.storage import AnyPath
from lookback.registry import PLUGINS_VARIABLE
from lookback.runs.crew import Account, Message, Portion, Team
from lookback.runs.layout import RunError
from lookback.runs.shipping import Files, pack_made, pack_needed, unpack
from lookback.runs.workers import THREADS_VARIABLE, portable

if TYPE_CHECKING:
    from lookback.runs.plan import Plan
    from lookback.runs.work import Report

AUTO, LOCAL = "auto", "local"
SILENCE = 30
"""Seconds without a word from any worker, after which it is said what is waited for."""
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""What is in the name of a variable that is not sent: the cluster shows the others to all."""


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

    Args:
        plan: what it loads.
        here: the folder that the command was called in: paths are relative to it.
        version: of the package that called; another would read and write other things.
    """

    def __init__(self, plan: Plan, here: str, version: str) -> None:
        self.plan, self.version = plan, version
        if os.path.isdir(here):
            os.chdir(here)

    def load(self) -> Account | Exception:
        """Load the model."""
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

    def work(self, portion: Portion, files: Files) -> Iterator[tuple[str, Any]]:
        """Make its shards; tells each piece of work, at last the files it wrote or its error."""
        told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

        def work() -> None:
            try:
                made = self._make(portion, files, lambda count: told.put(("pieces", count)))
                told.put(("done", made))
            except BaseException as error:
                told.put(("error", portable(error)))

        threading.Thread(target=work, daemon=True).start()
        kind = "pieces"
        while kind == "pieces":
            kind, value = told.get()
            yield kind, value

    def _make(self, portion: Portion, files: Files, report: Report) -> Files:
        with tempfile.TemporaryDirectory(prefix="lookback-") as name:
            folder = self.worker.folder = Path(name)
            unpack(folder, files)
            self.worker.plan = portion.plan
            self.worker.work(portion.shards, report)
            return pack_made(folder, portion.shards, files)


class Actors(Team):
    """The actors of a run; a portion is handed out again if its actor dies.

    Args:
        plan, folder, workers, say: as for `Team`.
        cluster: where they run.
    """

    restarts = 3
    remedy = "what was done before is kept; run the same command again when that is mended"

    def __init__(
        self,
        plan: Plan,
        folder: AnyPath,
        workers: int,
        cluster: Cluster,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(plan, folder, workers, say)
        self.cluster = cluster
        self._ray: Any = None
        self._began = False
        self._actors: dict[int, Any] = {}
        self._asked: dict[Any, int] = {}  # what is waited for, and whose it is

    def load(self) -> Account:
        """Connect, and load the first model."""
        self._ray = import_ray()
        self._began = connect(self._ray, self.cluster, self.say)
        gpus = self.cluster.gpus
        if gpus is None:
            gpus = float(self._ray.cluster_resources().get("GPU", 0) >= 1)
        self._needs = {"num_cpus": self.cluster.cpus, "num_gpus": gpus}
        self._check_room()
        self._kind = self._ray.remote(
            **self._needs, max_restarts=0, runtime_env={"env_vars": _variables(self.cluster.cpus)}
        )(Actor)
        return super().load()

    def start(self, worker: int) -> None:
        """Ask for an actor; it comes when the cluster has room."""
        self._actors[worker] = self._kind.remote(self.plan, os.getcwd(), __version__)
        self._asked[self._actors[worker].load.remote()] = worker

    def give(self, worker: int, portion: Portion) -> None:
        """Send it with what is needed of the run."""
        files = pack_needed(self.folder, portion.shards)
        method = self._actors[worker].work.options(num_returns="streaming")
        self._asked[method.remote(portion, files)] = worker

    def keep(self, value: Files) -> None:
        """Write what an actor made to the run."""
        unpack(self.folder, value)

    def receive(self) -> Message:
        """From any of them."""
        while True:
            ready, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=SILENCE)
            if ready:
                return self._read(ready[0])
            if not self.accounts:
                self.say(f"waiting for the Ray cluster: {self._room()}")

    def _read(self, asked: Any) -> Message:
        worker = self._asked.pop(asked)
        errors = self._ray.exceptions
        try:
            if not hasattr(asked, "__next__"):
                loaded = self._ray.get(asked)
                return Message(
                    worker, "error" if isinstance(loaded, Exception) else "ready", loaded
                )
            kind, value = self._ray.get(next(asked))
            if kind == "pieces":
                self._asked[asked] = worker  # there is more to come
            return Message(worker, kind, value)
        except errors.RayTaskError as error:
            return Message(worker, "error", self._failure(worker, error.cause))
        except (errors.RayError, StopIteration) as error:
            return Message(worker, "died", _reason(error))

    def _failure(self, worker: int, cause: Exception) -> Exception:
        """What stopped an actor: its own errors it tells itself, so that this is Ray's or a bug."""
        if not isinstance(cause, self._ray.exceptions.RayError):
            return portable(cause)
        node = self.accounts[worker].node if worker in self.accounts else "a node"
        return RunError(
            f"a worker on {node} cannot read what it was sent ({_first_line(cause)}): is the same "
            "lookback-vlm there?"
        )

    def _check_room(self) -> None:
        """Say if not all workers find room; a cluster of others may yet grow.

        Raises:
            RunError: none does, and the cluster is this machine.
        """
        fit = self._fit()
        if fit < 1 and self._began:
            raise RunError(f"no worker fits on this machine: {self._room()}")
        if fit < self.workers:
            self.say(
                f"the Ray cluster has room for {fit} of {self.workers} workers: {self._room()}"
            )

    def _fit(self) -> int:
        """How many workers the cluster could hold, if it did nothing else."""
        names = {"CPU": self._needs["num_cpus"], "GPU": self._needs["num_gpus"]}
        return sum(
            min(int(node["Resources"].get(name, 0) // one) for name, one in names.items() if one)
            for node in self._ray.nodes()
            if node["Alive"]
        )

    def _room(self) -> str:
        has = self._ray.cluster_resources()
        each = f"{self._needs['num_cpus']} CPU, {self._needs['num_gpus']:g} GPU"
        return f"each needs {each}; it has {has.get('CPU', 0):g} CPU, {has.get('GPU', 0):g} GPU"

    def close(self) -> None:
        """Let the actors go, and the cluster if it was started here."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        if self._ray is not None and self._began:
            self._ray.shutdown()


def import_ray() -> Any:
    """Ray, silent but for errors.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Deaths are told by us, in a line; Ray would print a paragraph on stdout.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "worker died or was killed")
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            f"--ray needs Ray, which cannot be imported ({error}): pip install 'lookback-vlm[ray]'"
        ) from None
    return ray


def connect(ray: Any, cluster: Cluster, say: Callable[[str], None]) -> bool:
    """Connect to a cluster, unless this process is connected already.

    Returns:
        Whether this call did, so that it must be undone.

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
    """Ray would try for minutes, loudly.

    Raises:
        RunError: it is no address, or nobody listens there.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise RunError(f"no Ray cluster at {address!r}: write HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"no Ray cluster at {address!r}: {error}") from None


def _variables(threads: int) -> dict[str, str]:
    """The environment of an actor: what of ours a process of this machine would have, too."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("LOOKBACK_", "HF_H")) and not any(word in name for word in SECRET)
    }
    plugins = filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep))
    ours[PLUGINS_VARIABLE] = os.pathsep.join(
        os.path.abspath(one) if one.endswith(".py") else one for one in plugins
    )
    package = Path(__file__).parents[2]
    paths = [] if package.name == "site-packages" else [str(package)]  # else it is installed there
    paths += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if paths:
        ours["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
    return ours | {THREADS_VARIABLE: str(threads)}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:300]


def _reason(error: Exception) -> str:
    """Why an actor is gone, in a line: of Ray's paragraphs, what it found out."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = next((line for line in lines if line.startswith("The actor is dead because")), "")
    if "creation task" in str(error) or not found:
        found = lines[-1] if lines else type(error).__name__
    return found.partition(" Some common causes")[0].rstrip(".")[:300]
