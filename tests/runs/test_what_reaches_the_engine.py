"""What a run asks of its engine and benchmark: each setting, the right image, no call too many."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_runs import make_run, write_shard
from toy_engine import ToyEngine

from lookback.benchmarks.base import get_benchmark
from lookback.benchmarks.scenes import ScenesVQA
from lookback.runs import Run
from lookback.runs import run as reading
from lookback.runs.estimate import BYTES_A_TOKEN, estimate
from lookback.runs.layout import RunError, shard_path
from lookback.runs.manifest import Manifest
from lookback.runs.plan import Plan
from lookback.runs.sources import item_seed
from lookback.runs.start import start
from lookback.scores.base import SCORERS, get_scorer
from lookback.signals import SIGNALS


@pytest.fixture
def engine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


def plan(**settings):
    return Plan(**({"benchmark": "scenes-vqa", "limit": 12, "n": 4} | settings))


class TestSettings:
    SMALL = ("run", "--benchmark", "scenes-vqa", "--limit", 2, "--out", "run")

    def test_of_the_sampling(self, command, engine):
        given = ("-n", 3, "--temperature", 0.7, "--top-p", 0.8, "--max-new-tokens", 5, "--seed", 9)
        assert command(*self.SMALL, *given, "--source", "image:0")[0] == 0
        items = get_benchmark("scenes-vqa").items("test", 2)
        expected = {"n": 3, "temperature": 0.7, "top_p": 0.8, "max_new_tokens": 5}
        expected |= {"top_k": None, "stop": None}
        assert [settings for _, settings in engine.sampled] == [
            expected | {"seed": item_seed(9, item.id)} for item in items
        ]
        run = Run("run")
        kept = {"n": 3, "temperature": 0.7, "top_p": 0.8, "max_new_tokens": 5, "seed": 9}
        assert run.settings["sampling"] == kept
        assert run.items["source"].to_pylist() == ['"image:0"'] * 2

    def test_of_the_sampling_by_default(self, command, engine):
        command(*self.SMALL)
        settings = engine.sampled[0][1]
        expected = {"n": 25, "temperature": 1.2, "top_p": 0.9, "max_new_tokens": 256}
        assert {name: settings[name] for name in expected} == expected

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ((), {}),
            (("--model", "org/name"), {"model": "org/name"}),
            (("--engine", "toy"), {"engine": "toy"}),
            (("--device", "cuda"), {"device": "cuda"}),
            (("--dtype", "bfloat16"), {"dtype": "bfloat16"}),
            (("--revision", "abc"), {"revision": "abc"}),
            (("--device-map", "auto"), {"device_map": "auto"}),
            (("--device-map", '{"a": 0}'), {"device_map": {"a": 0}}),
            (("--trust-remote-code",), {"trust_remote_code": True}),
        ],
    )
    def test_of_the_model(self, command, monkeypatch, tmp_path, given, expected):
        monkeypatch.chdir(tmp_path)
        loaded = []

        def load(model=None, **settings):
            loaded.append({"model": model} | settings)
            return ToyEngine()

        monkeypatch.setattr("lookback.engines.load", load)
        assert command(*self.SMALL, *given)[0] == 0
        assert loaded == [{"model": None, "engine": "transformers", "quiet": True} | expected]

    def test_of_scorers_and_how_many_they_see(self, engine, monkeypatch, tmp_path):
        seen = []
        generate = ToyEngine.generate

        def listening(self, image, prompts, **settings):
            seen.append((len(prompts), settings))
            return generate(self, image, prompts, **settings)

        monkeypatch.setattr(ToyEngine, "generate", listening)
        run = start(plan(limit=2, scorers=("usc@3",)), tmp_path / "run").run
        # One call for an item's three orders: engines answer them in one batch.
        assert [count for count, _ in seen] == [3, 3]
        assert all(settings["max_new_tokens"] == 64 for _, settings in seen)
        assert [len(row) for row in run.table("scores/usc@3")["scores"].to_pylist()] == [3, 3]
        assert [len(row) for row in run.replies("usc@3")] == [3, 3]


class TestControls:
    @pytest.fixture
    def shown(self, engine, monkeypatch):
        """The images that scorers are shown, by the length of what they were asked."""
        found = []
        generate = ToyEngine.generate

        def listening(self, image, prompts, **settings):
            found.append([one.tobytes() for one in image or []])
            return generate(self, image, prompts, **settings)

        monkeypatch.setattr(ToyEngine, "generate", listening)
        return found

    def test_scorers_see_the_image_of_the_control(self, shown, tmp_path):
        start(plan(), tmp_path / "own")
        items = {item.id: item for item in get_benchmark("scenes-vqa").items("test", 12)}
        settings = {"candidates": str(tmp_path / "own"), "scorers": ("usc@2",)}
        random = start(plan(image="random", **settings), tmp_path / "random").run
        expected = [[items[name].image.tobytes()] for name in random.items["image"].to_pylist()]
        assert shown == expected
        assert all(
            one != [items[name].image.tobytes()] for one, name in zip(shown, items, strict=True)
        )
        shown.clear()
        start(plan(image="none", **settings), tmp_path / "none")
        assert shown == [[]] * 12

    def test_a_random_controls_seed_is_part_of_what_it_is(self, engine, tmp_path):
        start(plan(), tmp_path / "own")
        settings = {"candidates": str(tmp_path / "own")}
        runs = {
            (image, seed): start(
                plan(image=image, seed=seed, **settings), tmp_path / f"{image}-{seed}"
            ).run
            for image in ("random", "none")
            for seed in (7, 8)
        }
        assert [runs["random", seed].settings["image_seed"] for seed in (7, 8)] == [7, 8]
        assert runs["random", 7].id != runs["random", 8].id
        assert runs["none", 7].id == runs["none", 8].id
        with pytest.raises(RunError, match="holds another run: its image_seed is 7, not 8"):
            start(plan(image="random", seed=8, **settings), tmp_path / "random-7")


class TestScorersOfBefore:
    def test_they_stay_in_the_manifest_and_are_mended(self, engine, tmp_path):
        folder = tmp_path / "run"
        start(plan(scorers=("usc@3",)), folder)
        start(plan(scorers=("vauq",)), folder)
        usc, vauq = get_scorer("usc").defaults, get_scorer("vauq").defaults
        assert dict(Manifest.read(folder).scorers) == {"usc@3": usc, "vauq": vauq}
        before = shard_path(folder, "scores/usc@3", 1).read_bytes()
        shard_path(folder, "scores/usc@3", 1).unlink()
        summary = start(plan(), folder)  # names none of them
        assert summary.worked == 2
        assert shard_path(folder, "scores/usc@3", 1).read_bytes() == before
        assert dict(summary.run.manifest.scorers) == {"usc@3": usc, "vauq": vauq}

    def test_one_with_other_settings_is_refused(self, engine, tmp_path, monkeypatch):
        import lookback

        monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))

        @lookback.scorer("gaze", needs="model")
        def gaze(candidates, layers=(0, 2)):
            return np.zeros(len(candidates))

        start(plan(scorers=("gaze",)), tmp_path / "run")
        assert start(plan(scorers=("gaze",)), tmp_path / "run").worked == 0
        del SCORERS.entries["gaze"]

        @lookback.scorer("gaze", needs="model")
        def gaze_again(candidates, layers=(0, 3)):
            return np.zeros(len(candidates))

        with pytest.raises(RunError, match=r"gaze scores were made with .*\[0, 2\].*\[0, 3\]"):
            start(plan(scorers=("gaze",)), tmp_path / "run")
        assert Run(tmp_path / "run").finished


class TestManyAtOnce:
    def test_equal_answers_are_judged_once_and_all_of_an_item_together(
        self, engine, tmp_path, monkeypatch
    ):
        asked = []
        scores = ScenesVQA.scores

        def listening(self, item, responses):
            asked.append((item.id, list(responses)))
            return scores(self, item, responses)

        monkeypatch.setattr(ScenesVQA, "scores", listening)
        run = start(plan(n=30), tmp_path / "run").run
        assert [name for name, _ in asked] == run.ids
        for row, (_, texts) in enumerate(asked):
            said = [c.text for c in run.candidates(row)]
            assert texts == list(dict.fromkeys(said))
            assert len(texts) < len(said)

    def test_given_responses_are_scored_in_one_call(self, engine, tmp_path, monkeypatch):
        calls = []
        score = ToyEngine.score

        def listening(self, *given, responses, **settings):
            calls.append(list(responses))
            return score(self, *given, responses=responses, **settings)

        monkeypatch.setattr(ToyEngine, "score", listening)
        lines = [
            {"id": "scenes-vqa/test/1", "responses": ["red", "", "blue"]},
            {"id": "scenes-vqa/test/1", "response": "two"},
        ]
        (tmp_path / "given.jsonl").write_text("\n".join(map(json.dumps, lines)))
        run = start(plan(candidates="given.jsonl"), tmp_path / "run").run
        assert calls == [["red", "blue", "two"]]
        assert run.texts == ["red", "", "blue", "two"]

    def test_a_whole_run_is_scored_in_one_pass(self, tmp_path, monkeypatch):
        import lookback

        monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))
        passes = []

        @lookback.scorer("counting")
        def counting(batch):
            passes.append(len(batch.lengths))
            return batch.mean(batch.log_prob)

        run = make_run(tmp_path / "run", items=13, n=4)
        run.scores("counting")
        run.scores("counting", 2)  # alone, a response has the same score among any n
        assert passes == [13 * 4]

    def test_columns_are_read_once_and_together(self, tmp_path, monkeypatch):
        run = make_run(tmp_path / "run", items=13, n=4)
        read = []
        real = reading.read_table

        def listening(folder, table, shard, columns=None):
            read.append((table, shard, columns))
            return real(folder, table, shard, columns)

        monkeypatch.setattr(reading, "read_table", listening)
        run.signals()
        run.signals()
        assert read == [("candidates", shard, list(SIGNALS)) for shard in (0, 1)]


def test_the_first_n_of_items_with_different_numbers(tmp_path):
    made = make_run(tmp_path / "run", items=12, n=5, empty=((2, 0),))
    sizes = [5, 1, 3, 2, 5, 4, 1, 5, 2, 3, 4, 1]
    rows = [r for r in made.table("candidates").to_pylist() if r["index"] < sizes[r["item"]]]
    for shard in (0, 1):
        here = [row for row in rows if row["item"] // 10 == shard]
        write_shard(made.path, "candidates", shard, here)
    run = Run(made.path)
    assert run.sizes.tolist() == sizes
    for n in (1, 2, 3, 4, 5, 9, None):
        first = [row for row in rows if n is None or row["index"] < n]
        batch = run.batch(n)
        assert batch.sizes.tolist() == [min(size, n or 5) for size in sizes]
        assert batch.lengths.tolist() == [row["length"] for row in first]
        assert list(batch.texts) == [row["text"] for row in first]
        assert batch.quality.tolist() == [row["quality"] for row in first]
        for name in SIGNALS:
            flat = [value for row in first for value in row[name]]
            assert getattr(batch, name).tolist() == flat
        if n is not None and n <= 5:
            grid = run.quality(n)
            for place, size in enumerate(sizes):
                known = [r["quality"] for r in first if r["item"] == place]
                assert grid[place, : len(known)].tolist() == known
                assert np.isnan(grid[place, min(size, n) :]).all()
                for scorer in ("lookback", "majority"):
                    expected = run.candidates(place)[:n].scores(scorer)
                    found = run.scores(scorer, n)[place, : len(known)]
                    np.testing.assert_allclose(found, expected, rtol=1e-12)


class TestTime:
    """With a clock that only the engine moves."""

    @pytest.fixture
    def clock(self, engine, monkeypatch):
        now = {"seconds": 1000.0}
        monkeypatch.setattr("time.perf_counter", lambda: now["seconds"])
        sample, generate = ToyEngine.sample, ToyEngine.generate

        def slow_sample(self, *given, **settings):
            now["seconds"] += 100 if not self.sampled else 10  # the first warms up
            return sample(self, *given, **settings)

        def slow_generate(self, *given, **settings):
            now["seconds"] += 2
            return generate(self, *given, **settings)

        monkeypatch.setattr(ToyEngine, "sample", slow_sample)
        monkeypatch.setattr(ToyEngine, "generate", slow_generate)

    @pytest.mark.parametrize("workers", [1, 2, 5])
    def test_an_estimate_is_shared_by_the_workers(self, clock, workers):
        found = estimate(plan(), workers)
        assert (found.items, found.tried, found.failed) == (12, 4, 0)
        assert found.seconds == pytest.approx(10 * 12 / workers)

    def test_an_estimate_knows_the_scorers_and_the_tokens(self, clock, engine, tmp_path):
        found = estimate(plan(scorers=("usc@2",)), tries=2)
        assert found.tried == 3
        assert found.seconds == pytest.approx((10 + 2) * 12)
        run = start(plan(), tmp_path / "run").run
        tokens = run.grid(run.lengths)[:3].sum()
        assert found.megabytes == pytest.approx(tokens / 3 * 12 * BYTES_A_TOKEN / 1e6)

    def test_an_estimate_counts_what_failed(self, clock, monkeypatch):
        items = list(get_benchmark("scenes-vqa").items("test", 12))

        def broken():
            raise OSError("no image")

        items[2] = replace(items[2], load=broken)
        monkeypatch.setattr(Plan, "items", lambda plan, benchmark: items)
        assert estimate(plan()).failed == 1

    def test_one_item_is_too_few_for_an_estimate(self, clock):
        with pytest.raises(RunError, match="there is nothing to estimate for 1 items: run it"):
            estimate(plan(limit=1))

    def test_timings_are_what_each_piece_took(self, clock, tmp_path):
        run = start(plan(limit=2, scorers=("usc@3",)), tmp_path / "run").run
        assert run.timings() == [
            {"stage": "sample", "item": 0, "responses": 4, "ms": 100_000},
            {"stage": "sample", "item": 1, "responses": 4, "ms": 10_000},
            {"stage": "usc@3", "item": 0, "responses": 3, "ms": 2000},
            {"stage": "usc@3", "item": 1, "responses": 3, "ms": 2000},
        ]
