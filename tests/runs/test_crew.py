"""The loop that hands out shards, with workers that are made up: who gets what, who dies when."""

import sys
from collections import deque
from dataclasses import replace

import pytest
from toy_engine import ToyEngine

from lookback.cli.ray import complete_ray
from lookback.registry import PluginError, load_plugin
from lookback.runs.crew import Account, Message, Team, plan_portions
from lookback.runs.layout import RunError
from lookback.runs.plan import Plan
from lookback.runs.workers import portable

ACCOUNT = Account.of(ToyEngine())


class Scripted(Team):
    """Workers that are ready at once and do each portion at once, in pieces of one per shard.

    Args:
        deaths: pairs (worker, its portion from 0); that worker dies in that portion, after a piece.
        accounts: of workers, if not the toy's.
        unready: workers that die while they load.
    """

    def __init__(self, workers, deaths=(), restarts=0, accounts=None, unready=()):
        self.said = []
        super().__init__(None, None, workers, self.said.append)
        self.restarts, self.deaths = restarts, set(deaths)
        self.given, self.kept, self.told = {}, [], deque()
        self.told_accounts, self.unready = accounts or {}, unready

    def start(self, worker):
        self.given[worker] = []
        if worker in self.unready:
            self.told.append(Message(worker, "died", "of a test"))
            return
        self.told.append(Message(worker, "ready", self.told_accounts.get(worker, ACCOUNT)))

    def give(self, worker, portion):
        number = len(self.given[worker])
        self.given[worker].append(portion.shards)
        self.told += [Message(worker, "pieces", 1)]
        if (worker, number) in self.deaths:
            self.told.append(Message(worker, "died", "of a test"))
            return
        self.told += [Message(worker, "pieces", 1)] * (len(portion.shards) - 1)
        self.told.append(Message(worker, "done", portion.shards))

    def receive(self):
        return self.told.popleft()

    def keep(self, value):
        self.kept.append(value)


def run(team, shards=6, in_flight=1):
    told = []
    assert team.load() is ACCOUNT
    team.work(plan_portions(None, range(shards), in_flight), told.append)
    return told


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_every_shard_is_done_once(workers):
    team = Scripted(workers)
    assert run(team) == [1] * 6
    assert sorted(team.kept) == [(shard,) for shard in range(6)]
    assert len(team.given) == min(workers, 6)
    assert team.said == []


@pytest.mark.parametrize(("in_flight", "size"), [(1, 1), (9, 1), (10, 1), (32, 3), (500, 7)])
def test_an_engine_that_wants_many_questions_gets_several_shards(in_flight, size):
    portions = plan_portions(None, range(7), in_flight)
    assert [len(portion.shards) for portion in portions[:-1]] == [size] * (len(portions) - 1)
    assert [shard for portion in portions for shard in portion.shards] == list(range(7))


def test_the_job_of_a_dead_worker_is_done_by_another_and_counted_once():
    team = Scripted(2, deaths=[(0, 1), (2, 0)], restarts=2)
    told = run(team)
    assert sorted(team.kept) == [(shard,) for shard in range(6)]
    assert sum(told) == 6
    assert told.count(-1) == 2
    assert len(team.said) == 2
    assert all("died (of a test): shard" in line for line in team.said)


def test_without_restarts_a_death_ends_the_work():
    with pytest.raises(RunError, match=r"a worker died \(of a test\): run the same command again"):
        run(Scripted(2, deaths=[(1, 0)]))


def test_a_job_that_kills_is_handed_out_so_often_and_no_more():
    team = Scripted(1, deaths=[(worker, 0) for worker in range(9)], restarts=3)
    with pytest.raises(RunError, match="died at shard 0, 4 times in a row"):
        run(team)
    assert sum(map(len, team.given.values())) == 4


def test_deaths_at_different_shards_are_not_added_up():
    """A run of weeks may lose many workers."""
    team = Scripted(1, deaths=[(worker, 1) for worker in range(5)], restarts=1)
    run(team)
    assert sorted(team.kept) == [(shard,) for shard in range(6)]
    assert len(team.said) == 5


def test_workers_that_die_while_they_load_are_replaced():
    """Such deaths count in a row: not those before one that loaded."""
    team = Scripted(2, unready=[0, 1, 3, 4], restarts=2)
    assert sum(run(team)) == 6
    assert sorted(team.kept) == [(shard,) for shard in range(6)]
    assert sorted(worker for worker, given in team.given.items() if given) == [2, 5]
    assert len(team.said) == 4
    assert not any("shard" in line for line in team.said)


def test_a_model_that_kills_is_loaded_so_often_and_no_more():
    team = Scripted(1, unready=range(9), restarts=3)
    with pytest.raises(RunError, match=r"a worker died, 4 times in a row \(of a test\)"):
        team.load()
    assert len(team.given) == 4


def test_deaths_while_loading_are_not_added_to_those_at_a_shard():
    team = Scripted(1, deaths=[(1, 0)], unready=[0, 2], restarts=1)
    run(team)
    assert sorted(team.kept) == [(shard,) for shard in range(6)]
    assert len(team.said) == 3


def test_an_idle_worker_takes_over_from_a_dead_one():
    """It has its model already, which one started anew would have to load."""
    team = Scripted(2, deaths=[(1, 0)], restarts=1)
    run(team, shards=2)
    assert team.given == {0: [(0,), (1,)], 1: [(1,)], 2: []}


def test_what_a_worker_has_done_counts_when_it_dies_later():
    team = Scripted(2, restarts=1)

    def keep(shards):
        team.kept.append(shards)
        if shards == (0,):  # and has nothing to do from now on
            team.told.appendleft(Message(0, "died", "of a test"))

    team.keep = keep
    assert sum(run(team, shards=2)) == 2
    assert team.kept == [(0,), (1,)]


def test_where_a_worker_died_is_said():
    accounts = {worker: replace(ACCOUNT, node="node b") for worker in range(3)}
    team = Scripted(1, deaths=[(0, 0), (1, 0)], restarts=1, accounts=accounts)
    team.load()
    with pytest.raises(RunError, match="a worker on node b died at shard 0, 2 times in a row"):
        team.work(plan_portions(None, range(2), 1), lambda count: None)
    assert ["node b" in line for line in team.said] == [True]


@pytest.mark.parametrize(("field", "value"), [("dtype", "float16"), ("versions", {"toy": "2"})])
def test_workers_with_another_model_are_refused(field, value):
    other = replace(ACCOUNT, identity=replace(ACCOUNT.identity, **{field: value}), node="node b")
    team = Scripted(2, accounts={1: other})
    with pytest.raises(RunError, match=f"the worker on node b has another {field} than that on"):
        run(team)


def test_an_error_is_raised_as_it_is():
    team = Scripted(2)
    team.give = lambda worker, portion: team.told.append(
        Message(worker, "error", OSError("no disk"))
    )
    with pytest.raises(OSError, match="no disk"):
        run(team)


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
    settings = plan.settings(ACCOUNT, plan.load_benchmark(), None)
    assert replace(plan, in_flight=8).settings(ACCOUNT, plan.load_benchmark(), None) == settings


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
