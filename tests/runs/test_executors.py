"""The loop that assigns shards, with workers that are made up: who gets what, who dies when."""

import sys
import threading
from dataclasses import replace

import pytest
from timeouts import HANG_SECONDS
from toy_engine import ToyEngine

from lookback.cli.ray import complete_ray
from lookback.registry import PluginError, load_plugin
from lookback.runs.executors import (
    RETRIES,
    EngineInfo,
    PoolWorker,
    WorkerDiedError,
    WorkerPool,
    plan_batches,
    portable,
)
from lookback.runs.layout import RunError
from lookback.runs.plan import Plan

INFO = EngineInfo.of(ToyEngine())


class Scripted(PoolWorker):
    """Does each batch at once, in pieces of one per shard."""

    def __init__(self, pool, number):
        self.pool, self.number, self.shards, self.is_closed = pool, number, [], False

    def load(self):
        if self.number in self.pool.unready:
            raise WorkerDiedError("of a test")
        return self.pool.infos.get(self.number, INFO)

    def run(self, batch, report):
        number = len(self.shards)
        self.shards.append(batch.shards)
        report(1)
        if (self.number, number) in self.pool.deaths:
            raise WorkerDiedError("of a test")
        for _ in batch.shards[1:]:
            report(1)
        self.pool.made.append(batch.shards)

    def close(self):
        self.is_closed = True


class ScriptedPool(WorkerPool):
    """A pool of such workers.

    Args:
        deaths: pairs (worker, its batch from 0); that worker dies in that batch, after a piece.
        infos: of workers, if not the toy's.
        unready: workers that die while they load.
    """

    def __init__(self, workers, deaths=(), infos=None, unready=()):
        self.said, self.made, self.started = [], [], []
        self.deaths, self.infos, self.unready = set(deaths), infos or {}, unready
        super().__init__(self.start_next, workers, self.said.append)

    def start_next(self):
        self.started.append(Scripted(self, len(self.started)))
        return self.started[-1]


@pytest.fixture
def make(request):
    """A function that makes a pool, which is closed at the end."""

    def make(*given, **settings):
        pool = ScriptedPool(*given, **settings)
        request.addfinalizer(pool.close)
        return pool

    return make


def run(pool, shards=6, in_flight=1):
    reported = []
    assert pool.load() is INFO
    pool.run(plan_batches(None, range(shards), in_flight), reported.append)
    return reported


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_every_shard_is_done_once(make, workers):
    pool = make(workers)
    assert run(pool) == [1] * 6
    assert sorted(pool.made) == [(shard,) for shard in range(6)]
    assert len(pool.started) == min(workers, 6)
    assert pool.said == []
    pool.close()
    assert all(worker.is_closed for worker in pool.started)


@pytest.mark.parametrize(("in_flight", "size"), [(1, 1), (9, 1), (10, 1), (32, 3), (500, 7)])
def test_an_engine_that_wants_many_questions_gets_several_shards(in_flight, size):
    batches = plan_batches(None, range(7), in_flight)
    assert [len(batch.shards) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert [shard for batch in batches for shard in batch.shards] == list(range(7))


def test_the_batch_of_a_dead_worker_is_made_by_another_and_counted_once(make):
    pool = make(2, deaths=[(0, 0), (2, 0)])
    reported = run(pool)
    assert sorted(pool.made) == [(shard,) for shard in range(6)]
    assert sum(reported) == 6
    assert reported.count(-1) == len(pool.said) >= 1
    assert all("a worker died (of a test): shard" in line for line in pool.said)
    assert pool.started[0].is_closed


def test_a_batch_that_kills_is_tried_so_often_and_no_more(make):
    pool = make(1, deaths=[(worker, 0) for worker in range(9)])
    with pytest.raises(RunError, match=r"a worker died at shard 0, 4 times in a row \(of a test\)"):
        run(pool)
    assert sum(len(worker.shards) for worker in pool.started) == 1 + RETRIES == 4
    assert len(pool.said) == RETRIES


def test_deaths_at_different_shards_are_not_added_up(make):
    """A run of weeks may lose many workers."""
    pool = make(1, deaths=[(worker, 1) for worker in range(5)])
    run(pool)
    assert sorted(pool.made) == [(shard,) for shard in range(6)]
    assert len(pool.said) == 5


def test_workers_that_die_while_they_load_are_replaced(make):
    """Such deaths count in a row: not those before one that loaded."""
    pool = make(1, unready=[0, 1, 2, 4, 5, 6], deaths=[(3, 0)])
    assert sum(run(pool)) == 6
    assert sorted(pool.made) == [(shard,) for shard in range(6)]
    assert [worker.number for worker in pool.started if worker.shards] == [3, 7]
    assert len([line for line in pool.said if "its model is loaded again" in line]) == 6


def test_a_model_that_kills_is_loaded_so_often_and_no_more(make):
    pool = make(1, unready=range(9))
    with pytest.raises(RunError, match=r"a worker died, 4 times in a row \(of a test\)"):
        pool.load()
    assert len(pool.started) == 4


def test_an_idle_worker_takes_over_from_a_dead_one(make):
    """It has its model already, which one started anew would have to load."""
    pool = make(2, deaths=[(1, 0)])
    is_idle = threading.Event()

    class Slow(Scripted):
        def load(self):  # as long as a model takes
            assert self.number == 0 or is_idle.wait(HANG_SECONDS)
            return super().load()

        def run(self, batch, report):
            if self.number == 1:
                assert is_idle.wait(HANG_SECONDS)
            super().run(batch, report)
            is_idle.set()

    pool.start = lambda: pool.started.append(Slow(pool, len(pool.started))) or pool.started[-1]
    run(pool, shards=2)
    assert sorted(pool.made) == [(0,), (1,)]
    assert pool.started[0].shards[0] == (0,)


def test_workers_that_find_no_room_are_not_waited_for(make):
    pool = make(3)
    is_over = threading.Event()

    class Waiting(Scripted):
        def load(self):
            assert self.number == 0 or is_over.wait(HANG_SECONDS)
            return super().load()

        def close(self):
            is_over.set()

    pool.start = lambda: pool.started.append(Waiting(pool, len(pool.started))) or pool.started[-1]
    run(pool)
    assert len(pool.started[0].shards) == 6
    assert not is_over.is_set()


def test_where_a_worker_died_is_said(make):
    infos = {worker: replace(INFO, node="node b") for worker in range(9)}
    pool = make(1, deaths=[(worker, 0) for worker in range(9)], infos=infos)
    pool.load()
    with pytest.raises(RunError, match="a worker on node b died at shard 0, 4 times in a row"):
        pool.run(plan_batches(None, range(2), 1), lambda count: None)
    assert ["a worker on node b died" in line for line in pool.said] == [True] * RETRIES


@pytest.mark.parametrize(("field", "value"), [("dtype", "float16"), ("versions", {"toy": "2"})])
def test_workers_with_another_model_are_refused(make, field, value):
    other = replace(INFO, identity=replace(INFO.identity, **{field: value}), node="node b")
    pool = make(2, infos={1: other})
    pool.load()
    with pytest.raises(RunError, match=f"the worker on node b has another {field} than that on"):
        pool.run(plan_batches(None, range(10_000), 1), lambda count: None)


def test_an_error_is_raised_as_it_is(make, monkeypatch):
    def fail(worker, batch, report):
        raise OSError("no disk")

    monkeypatch.setattr(Scripted, "run", fail)
    with pytest.raises(OSError, match="no disk"):
        run(make(2))


@pytest.mark.parametrize("workers", [1, 2])
def test_what_stops_the_progress_stops_the_run(make, workers):
    def stop(count):
        raise KeyboardInterrupt

    pool = make(workers)
    pool.load()
    with pytest.raises(KeyboardInterrupt):
        pool.run(plan_batches(None, range(6), 1), stop)


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        (["--ray"], ["--ray", "auto"]),
        (["--ray", "--workers", "2"], ["--ray", "auto", "--workers", "2"]),
        (["--ray", "host:1", "-n", "2"], ["--ray", "host:1", "-n", "2"]),
        (["--ray=host:1"], ["--ray=host:1"]),
        (["--", "--ray"], ["--", "--ray"]),
        (["--ray-cpus", "2"], ["--ray-cpus", "2"]),
    ],
)
def test_ray_needs_no_address(given, completed):
    assert complete_ray(given) == completed


def test_in_flight_is_checked_and_decides_no_results():
    with pytest.raises(RunError, match="in_flight = 0"):
        Plan("scenes-vqa", in_flight=0)
    plan = Plan("scenes-vqa")
    settings = plan.settings(INFO, plan.load_benchmark(), None)
    assert replace(plan, in_flight=8).settings(INFO, plan.load_benchmark(), None) == settings


@pytest.mark.parametrize("error", ["KeyError('x')", "SystemExit(0)", "GeneratorExit"])
def test_what_a_plugin_raises_in_a_worker_names_the_plugin(tmp_path, error):
    """The traceback, which says where it was, does not go to another process."""
    plugin = tmp_path / "mine.py"
    plugin.write_text(f"def call():\n    raise {error}\n")
    load_plugin(str(plugin))
    modules = list(sys.modules.values())
    (module,) = [one for one in modules if getattr(one, "__file__", "") == str(plugin)]
    try:
        module.call()
    except BaseException as raised:
        told = portable(raised)
    assert isinstance(told, PluginError)
    assert str(plugin) in str(told)
    assert error[:8] in str(told)
