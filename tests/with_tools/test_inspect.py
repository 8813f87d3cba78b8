"""A run as a log of Inspect AI, read back with its own `read_eval_log`."""

import base64
import io
from datetime import datetime

import numpy as np
import pytest
from inspect_ai.log import (
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample_summaries,
    recompute_metrics,
)
from inspect_ai.model import ContentImage, ContentText
from made_runs import make_run
from PIL import Image

import lookback
from lookback.integrations.exports.base import Request, export
from lookback.integrations.exports.inspect_ai import LARGEST
from lookback.runs import Run
from lookback.studies import Runs, get_study

SCORERS = ("lookback", "self_certainty", "vauq", "usc", "random", "oracle")


def quiet(done, total):
    """Nobody watches."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "run"
    return make_run(folder, items=12, n=5, failed=(3,), recorded=("vauq", "usc@5"))


@pytest.fixture(scope="module", params=["eval", "json"])
def log(run, request, tmp_path_factory):
    out = tmp_path_factory.mktemp("logs") / f"a.{request.param}"
    export("inspect", Request(run, out, SCORERS), quiet)
    return read_eval_log(str(out))


class TestNumbers:
    def test_they_are_those_of_the_study(self, run, log):
        rows = get_study("main")(Runs([run], ns=(5,)), {}).rows
        told = {row["method"]: row["value"] for row in rows if row["N"] == 5}
        found = {one.name: 100 * one.metrics["mean"].value for one in log.results.scores}
        assert set(found) == set(SCORERS)
        for name, value in found.items():
            assert value == pytest.approx(told[name], rel=1e-12), name

    def test_they_are_those_that_inspect_computes(self, log):
        before = {
            one.name: {key: metric.value for key, metric in one.metrics.items()}
            for one in log.results.scores
        }
        again = log.model_copy(deep=True)
        recompute_metrics(again)
        after = {
            one.name: {key: metric.value for key, metric in one.metrics.items()}
            for one in again.results.scores
        }
        assert set(after) == set(before)
        for name, metrics in before.items():
            assert set(metrics) == {"mean", "stderr"}
            for key, value in metrics.items():
                assert after[name][key] == pytest.approx(value, rel=1e-9), (name, key)

    def test_each_sample_has_its_picks(self, run, log):
        samples = {sample.id: sample for sample in log.samples}  # a log's order is by id
        fine = [samples[name] for name in run.ids]
        assert len(samples) == 12
        quality, scores = run.quality(), run.scores("lookback")
        for row, sample in enumerate(fine):
            index = int(np.argmax(scores[row]))
            said = run.candidates(row)[index].text
            assert (sample.output.completion, sample.scores["lookback"].answer) == (said, said)
            assert sample.scores["lookback"].value == quality[row, index]
            assert sample.scores["lookback"].metadata["index"] == index
            assert [one["text"] for one in sample.metadata["candidates"]] == [
                one.text for one in run.candidates(row)
            ]

    def test_a_failed_item_is_an_error(self, run, log):
        (failed,) = [sample for sample in log.samples if sample.error is not None]
        assert (failed.id, failed.error.message) == (
            "scenes-caption/test/3",
            "ValueError: broken image",
        )
        assert (log.results.total_samples, log.results.completed_samples) == (12, 11)
        assert log.results.scores[0].scored_samples == 11


def test_what_the_viewer_reads_first(run, tmp_path):
    """Its list of logs, a log's head, and the summaries of its samples."""
    export("inspect", Request(run, tmp_path / "a.eval"), quiet, images=False)
    (found,) = list_eval_logs(str(tmp_path))
    assert found.name.endswith("/a.eval")
    head = read_eval_log(found, header_only=True)
    assert (head.samples, head.eval.model) == (None, "made-up")
    told = {one.id: one.scores for one in read_eval_log_sample_summaries(found)}
    assert set(told) == set(run.items["id"].to_pylist())
    assert told[run.ids[0]]["lookback"].value == head_of_picks(run)


def head_of_picks(run):
    return run.quality()[0, int(np.argmax(run.scores("lookback")[0]))]


def test_what_was_evaluated(run, log):
    spec = log.eval
    assert (log.status, spec.task, spec.model) == ("success", "scenes-caption", "made-up")
    assert spec.created == "2026-01-01T00:00:00+00:00"
    assert spec.packages["lookback-vlm"] == lookback.__version__
    assert (spec.model_generate_config.seed, spec.model_generate_config.num_choices) == (42, 5)
    assert spec.dataset.samples == 12
    assert spec.dataset.sample_ids == run.items["id"].to_pylist()
    assert spec.metadata["settings"] == run.settings
    assert log.plan.steps[0].params == {"n": 5, "scorer": "lookback", "alpha": 0.5, "lam": 1.25}


class TestDrawn:
    """A run of the embedded model: its pictures are in the log."""

    def pictures(self, sample):
        content = [part for turn in sample.input for part in turn.content]
        found = [part.image for part in content if isinstance(part, ContentImage)]
        return [
            Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")
            for uri in found
        ]

    def written(self, run, tmp_path, **options):
        out = tmp_path / "a.eval"
        said = export("inspect", Request(run, out), quiet, **options)
        # Pictures are kept once each, apart from the samples that show them.
        return read_eval_log(str(out), resolve_attachments=True), said

    def test_its_own_pictures(self, drawn, tmp_path):
        from lookback.benchmarks.base import get_benchmark

        log, said = self.written(drawn["own"], tmp_path, signals=True)
        assert (said.images, said.notes) == (4, ())
        items = get_benchmark("scenes-vqa").items("test", 4)
        for item, sample in zip(items, log.samples, strict=True):
            (shown,) = self.pictures(sample)
            assert max(shown.size) <= LARGEST
            assert shown.tobytes() == item.image.tobytes()  # small: kept as it is
            texts = [p.text for turn in sample.input for p in turn.content if p.type == "text"]
            assert texts == [item.question]
            assert sample.target == item.truth["answer"]
            assert sample.metadata["truth"] == item.truth
            assert sample.total_time > 0
        began, ended = map(datetime.fromisoformat, (log.stats.started_at, log.stats.completed_at))
        taken = sum(row["ms"] for row in drawn["own"].timings())
        assert (ended - began).total_seconds() == pytest.approx(taken / 1000, abs=1e-5)
        assert sum(sample.total_time for sample in log.samples) == pytest.approx(taken / 1000)
        first = log.samples[0].metadata["candidates"][0]
        kept = drawn["own"].candidates(0)[0]
        np.testing.assert_array_equal(np.float32(first["log_prob"]), kept.log_prob)
        assert log.eval.model == "embedded"
        assert log.eval.model_generate_config.temperature == 1.2

    def test_controls(self, drawn, tmp_path):
        log, said = self.written(drawn["none"], tmp_path / "none")
        assert (said.images, said.notes) == (0, ())
        assert self.pictures(log.samples[0]) == []
        log, said = self.written(drawn["random"], tmp_path / "random")
        assert (said.images, said.notes) == (4, ())
        others = drawn["random"].items["image"].to_pylist()
        ids = drawn["own"].ids
        own, _ = self.written(drawn["own"], tmp_path / "own")
        for sample, other in zip(log.samples, others, strict=True):
            assert sample.id != other
            (shown,), (theirs,) = (
                self.pictures(sample),
                self.pictures(own.samples[ids.index(other)]),
            )
            assert shown.tobytes() == theirs.tobytes()

    def test_without_pictures(self, drawn, tmp_path):
        log, said = self.written(drawn["own"], tmp_path, images=False)
        assert said.images is None
        part = log.samples[0].input[0].content[0]
        assert isinstance(part, ContentText)
        assert part.text.startswith("[image: sha256:")


class TestLost:
    def test_pictures_that_cannot_be_had(self, run, tmp_path):
        said = export("inspect", Request(run, tmp_path / "a.eval"), quiet)
        assert said.images == 0
        assert said.notes[0].startswith("11 items are without their images")

    def test_somebody_insists(self, run, tmp_path):
        with pytest.raises(ValueError, match="--no-images goes without"):
            export("inspect", Request(run, tmp_path / "a.eval"), quiet, images=True)
        assert list(tmp_path.iterdir()) == []


def test_no_quality(tmp_path):
    from made_runs import write_shard

    from lookback.runs.layout import read_table

    made = make_run(tmp_path / "new", items=3, n=2)
    rows = [
        row | {"quality": float("nan")}
        for row in read_table(made.path, "candidates", 0).to_pylist()
    ]
    write_shard(made.path, "candidates", 0, rows)
    said = export("inspect", Request(Run(made.path), tmp_path / "b.eval"), quiet, images=False)
    log = read_eval_log(str(tmp_path / "b.eval"))
    assert said.metrics == {"lookback": None}
    assert log.results.scores == []
    assert log.samples[0].scores == {}
    assert log.samples[0].output.completion
