"""Runs with A_t in each layer: stored, read, gone on with; and runs without, as they were."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from made_runs import make_run
from toy_engine import LAYERS, ToyEngine

from lookback.benchmarks.scenes import ScenesVQA
from lookback.runs import Run
from lookback.runs.layout import CANDIDATES, RunError
from lookback.runs.part import Part
from lookback.runs.plan import Plan
from lookback.signals import SIGNALS

SMALL = ("run", "--benchmark", "scenes-vqa", "--limit", 12, "-n", 4)


@pytest.fixture(autouse=True)
def engine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plan, "load_engine", lambda plan: ToyEngine())


@pytest.fixture
def both(command):
    """The same run with and without."""
    assert command(*SMALL, "--out", "with", "--by-layer")[0] == 0
    assert command(*SMALL, "--out", "without")[0] == 0
    return Run("with"), Run("without")


def test_it_is_one_column_more(both):
    run, plain = both
    for name in (*SIGNALS, "token_ids", "tokens", "text", "quality"):
        first, second = (pq.read_table(one.path / "candidates")[name] for one in both)
        assert first.equals(second)
    frame = pd.read_parquet("with/candidates")
    assert [*frame.columns] == [*CANDIDATES.names, "by_layer"]
    row = frame[frame["length"] > 1].iloc[0]
    assert np.stack(row["by_layer"]).shape == (row["length"], LAYERS)
    for file in (plain.path / "candidates").iterdir():
        assert pq.read_schema(file).names == CANDIDATES.names
    assert run.settings == plain.settings | {"by_layer": True}
    assert "by_layer" not in plain.settings
    assert (run.has_layers, plain.has_layers) == (True, False)


def test_it_is_read_as_it_was_recorded(both):
    run, plain = both
    assert (run.lengths == 0).any()
    found = [c.by_layer for row in range(len(run.ids)) for c in run.candidates(row)]
    assert [one.shape for one in found] == [(length, LAYERS) for length in run.lengths]
    np.testing.assert_array_equal(run.by_layer(), np.concatenate(found))
    np.testing.assert_allclose(run.by_layer().mean(1), run.signal("visual_lookback"), atol=1e-6)
    assert {c.by_layer for c in plain.candidates(0)} == {None}
    with pytest.raises(RunError, match=r"without has no signals by layer: .* --by-layer"):
        plain.by_layer()


def test_of_some_items(both):
    run, _ = both
    part = Part(run, run.places[3:5])
    kept = np.repeat((run.head["item"].to_numpy() == 3) | (run.head["item"].to_numpy() == 4),
                     run.lengths)  # fmt: skip
    np.testing.assert_array_equal(part.by_layer(), run.by_layer()[kept])


@pytest.mark.parametrize("first", ["with", "without"])
def test_a_run_is_not_half_with_it(both, command, first):
    more = () if first == "with" else ("--by-layer",)
    code, _, err = command(*SMALL, "--out", first, *more)
    values = ("true, not null") if first == "with" else ("null, not true")
    assert code == 1
    assert f"its by_layer is {values}" in err
    same = ("--by-layer",) if first == "with" else ()
    assert command(*SMALL, "--out", first, *same)[0] == 0


def test_candidates_of_a_file_and_of_a_run(command, tmp_path):
    items = ScenesVQA().items("test", 2)
    lines = [{"id": item.id, "responses": ["red dog", "", "two"]} for item in items]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = ("--candidates", "mine.jsonl", "--by-layer", "--out", "given")
    assert command("run", "--benchmark", "scenes-vqa", *given)[0] == 0
    run = Run("given")
    assert [c.by_layer.shape for c in run.candidates(0)] == [(2, LAYERS), (0, LAYERS), (1, LAYERS)]
    assert command("run", "--candidates", "given", "--by-layer", "--out", "again")[0] == 0
    np.testing.assert_array_equal(Run("again").by_layer(), run.by_layer())
    assert command("run", "--candidates", "given", "--out", "plain")[0] == 0
    assert not Run("plain").has_layers


def test_a_shard_whose_items_all_failed_has_the_column_too(command, monkeypatch):
    def broken():
        raise OSError("broken image")

    items = ScenesVQA().items("test", 12)
    changed = [replace(item, load=broken) if i >= 10 else item for i, item in enumerate(items)]
    monkeypatch.setattr(Plan, "items", lambda plan, benchmark: changed)
    assert command(*SMALL, "--out", "with", "--by-layer")[0] == 3
    run = Run("with")
    assert run.by_layer().shape == (run.lengths.sum(), LAYERS)


def test_an_engine_that_cannot_is_named_before_anything_is_written(command, monkeypatch, tmp_path):
    blind = ToyEngine(frozenset({"sample", "score"}))
    monkeypatch.setattr(Plan, "load_engine", lambda plan: blind)
    code, _, err = command(*SMALL, "--out", "with", "--by-layer")
    assert (code, err.count("\n")) == (1, 1)
    assert "--by-layer needs an engine that can read A_t layer by layer (by_layer): 'toy'" in err
    assert not list((tmp_path / "with").glob("*/*"))
    assert command(*SMALL, "--out", "without")[0] == 0


def test_an_engine_that_never_heard_of_it_can_do_all_else(command, monkeypatch):
    class Older(ToyEngine):
        def sample(self, *args, **settings):
            assert "by_layer" not in settings
            return super().sample(*args, **settings)

    monkeypatch.setattr(Plan, "load_engine", lambda plan: Older())
    assert command(*SMALL, "--out", "without")[0] == 0
    assert Run("without").manifest.failed == 0


def test_an_estimate_counts_the_layers(command):
    plain, layers = (
        json.loads(command(*SMALL, "--dry-run", "--json", *more)[1])["megabytes"]
        for more in ((), ("--by-layer",))
    )
    assert layers == pytest.approx(plain * (21 + 4 * LAYERS) / 21)


def test_a_run_without_a_shard_yet(tmp_path):
    run = make_run(tmp_path / "made", items=0, n=2, layers=3)
    assert run.by_layer().shape == (0, 0)


def test_a_made_up_run_has_none(tmp_path):
    with pytest.raises(RunError, match="no signals by layer"):
        make_run(tmp_path / "made", n=2).by_layer()
