"""Engines that have many questions in flight: what a run asks of them, and what it keeps."""

import pytest
from test_producing import results
from toy_engine import ToyEngine

from lookback.benchmarks.base import Item, get_benchmark
from lookback.engines import Engine
from lookback.runs import Run
from lookback.runs.estimate import estimate
from lookback.runs.plan import Plan
from lookback.runs.start import start

ITEMS = 35


class Busy(ToyEngine):
    """Answers from the last question to the first, and takes a second per call and question."""

    in_flight = 20

    def __init__(self, tells=True):
        super().__init__()
        self.calls, self.tells, self.now = [], tells, 0.0

    def sample_many(self, questions, *, return_exceptions=False, progress=None, **settings):
        assert return_exceptions
        self.calls.append(len(questions))
        self.now += 1 + len(questions)
        found = super().sample_many(
            questions[::-1],
            return_exceptions=True,
            progress=progress if self.tells else None,
            **settings,
        )
        return found[::-1]


@pytest.fixture
def use(monkeypatch):
    def use(engine):
        monkeypatch.setattr(Plan, "load_engine", lambda plan: engine)
        monkeypatch.setattr("time.perf_counter", lambda: getattr(engine, "now", 0.0))
        return engine

    return use


def plan(**settings):
    return Plan(**({"benchmark": "scenes-vqa", "limit": ITEMS, "n": 3} | settings))


def test_the_contract_says_one_after_another():
    assert Engine.in_flight == ToyEngine().in_flight == 1


@pytest.mark.parametrize("tells", [True, False])
def test_shards_are_asked_about_together_and_are_the_same(tmp_path, use, tells):
    use(ToyEngine())
    start(plan(scorers=("vauq",), look=5), tmp_path / "whole")
    engine, told = use(Busy(tells)), []
    run = start(
        plan(scorers=("vauq",), look=5),
        tmp_path / "run",
        progress=lambda done, total: told.append(done),
    ).run
    assert engine.calls == [20, 15]
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert told[0] == 0
    assert told[-1] == 3 * ITEMS
    if tells:
        assert told == list(range(3 * ITEMS + 1))
    # Nobody can tell how long each took: each has its share of its call.
    took = [row["ms"] for row in run.timings() if row["stage"] == "sample"]
    assert took == [1000 * 21 / 20] * 20 + [round(1000 * 16 / 15, 3)] * 15


@pytest.mark.parametrize(
    ("many", "calls"), [(1, [1] * 35), (4, [4, 4, 2] * 3 + [4, 1]), (99, [35])]
)
def test_the_plan_has_the_last_word(tmp_path, use, many, calls):
    engine = use(Busy())
    start(plan(in_flight=many), tmp_path / "run")
    assert engine.calls == calls
    use(ToyEngine())
    start(plan(), tmp_path / "whole")
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_a_broken_picture_fails_its_item_alone(tmp_path, use, monkeypatch):
    items = list(get_benchmark("scenes-vqa").items("test", ITEMS))

    def broken():
        raise OSError("truncated")

    items[7] = Item(items[7].id, items[7].question, items[7].truth, broken)
    monkeypatch.setattr(Plan, "items", lambda plan, benchmark: items)
    engine = use(Busy())
    summary = start(plan(), tmp_path / "run")
    assert engine.calls == [19, 15]
    assert summary.failed == [(items[7].id, "OSError: truncated")]
    assert summary.worked == ITEMS
    use(ToyEngine())
    start(plan(), tmp_path / "whole")
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_a_question_that_fails_in_the_engine_fails_alone(tmp_path, use, monkeypatch):
    real = ToyEngine.sample

    def failing(self, *given, seed, **settings):
        if len(self.sampled) == 3:
            self.sampled.append(None)
            raise RuntimeError("too long")
        return real(self, *given, seed=seed, **settings)

    monkeypatch.setattr(ToyEngine, "sample", failing)
    use(Busy())
    summary = start(plan(), tmp_path / "run")
    assert [error for _, error in summary.failed] == ["RuntimeError: too long"]
    assert Run(tmp_path / "run").places.tolist() == [i for i in range(ITEMS) if i != 16]


def test_an_engine_that_gives_something_else_is_named(tmp_path, use, monkeypatch):
    monkeypatch.setattr(ToyEngine, "sample", lambda self, **settings: "an answer")
    use(ToyEngine())
    summary = start(plan(limit=2), tmp_path / "run")
    assert {error for _, error in summary.failed} == {
        "TypeError: the engine gave str, not Candidates"
    }


def test_an_estimate_asks_as_many_at_once(use):
    engine = use(Busy())
    found = estimate(plan())
    assert engine.calls == [1, 20]
    assert found.tried == 21
    assert found.seconds == pytest.approx(ITEMS * 21 / 20)
