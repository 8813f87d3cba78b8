"""`lookback export`: JSON lines beside the run itself, options, errors; others in with_tools."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from made_runs import make_run, write_shard

from lookback.benchmarks.base import get_benchmark
from lookback.integrations.exports import FORMATS, base, inspect_ai
from lookback.integrations.exports.base import Request, Shown, _difference, export
from lookback.io.json_values import plain
from lookback.runs import Run
from lookback.runs.layout import RunError, read_table
from lookback.runs.part import by_shard
from lookback.signals import SIGNALS
from lookback.studies.common.selection import outcome

SCORERS = ("lookback", "self_certainty", "vauq", "usc", "random", "oracle", "majority")


def quiet(done, total):
    """Nobody watches."""


def strict(line):
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(line, parse_constant=refuse)


def lines_of(path):
    return [strict(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(
        tmp_path_factory.mktemp("runs") / "run",
        items=13,
        n=5,
        failed=(3,),
        empty=((1, 2),),
        recorded=("vauq", "usc@5"),
        layers=3,
    )


@pytest.fixture(scope="module")
def written(run, tmp_path_factory):
    """All of it: the lines, what was said of them, and the run that was opened for it."""
    out, opened = tmp_path_factory.mktemp("out") / "run.jsonl", Run(run.path)
    said = export("jsonl", Request(opened, out, SCORERS), quiet, signals=True)
    return lines_of(out), said, opened


class TestJsonl:
    def test_items_are_the_runs(self, run, written):
        lines = written[0]
        rows = run.items.to_pylist()
        assert [line["id"] for line in lines] == [row["id"] for row in rows]
        for line, row in zip(lines, rows, strict=True):
            assert line["truth"] == json.loads(row["truth"])
            assert line["messages"] == json.loads(row["messages"])
            assert (line["question"], line["image"]) == (row["question"], row["image"])
            assert (line["run"], line["model"]) == (run.id, "made-up")
        assert (lines[3]["error"], lines[3]["candidates"]) == (rows[3]["error"], [])

    def test_candidates_are_the_runs(self, run, written):
        fine = [line for line in written[0] if line["error"] is None]
        for row, line in enumerate(fine):
            for told, kept in zip(line["candidates"], run.candidates(row), strict=True):
                assert (told["index"], told["text"]) == (kept.index, kept.text)
                assert (told["length"], told["finish"]) == (len(kept.signals), kept.finish)
                assert told["token_ids"] == kept.token_ids.tolist()
                assert told["tokens"] == list(kept.tokens)
                for name in (*SIGNALS, "by_layer"):
                    shown = np.array(told[name], np.float32).reshape(getattr(kept, name).shape)
                    np.testing.assert_array_equal(shown, getattr(kept, name))

    @pytest.mark.parametrize("scorer", SCORERS)
    def test_scores_and_ranks_are_the_runs(self, run, written, scorer):
        scores = run.scores(scorer)
        fine = [line for line in written[0] if line["error"] is None]
        for row, line in enumerate(fine):
            told = [one["scores"][scorer] for one in line["candidates"]]
            there = np.array([np.nan if one is None else one for one in told])
            np.testing.assert_allclose(there, scores[row], rtol=1e-12)
            ranks = [one["ranks"][scorer] for one in line["candidates"]]
            assert sorted(ranks) == [1, 2, 3, 4, 5]
            slowly = sorted(range(5), key=lambda i: (np.isnan(there[i]), -there[i], i))
            assert [ranks[i] for i in slowly] == [1, 2, 3, 4, 5]
        assert fine[1]["candidates"][2]["scores"]["lookback"] is None  # it is empty

    @pytest.mark.parametrize("scorer", SCORERS)
    def test_the_mean_quality_is_that_of_the_studies(self, run, written, scorer):
        told = written[1].metrics[scorer]
        assert told == pytest.approx(outcome(run, scorer, 5).mean(), rel=1e-12)

    def test_what_was_counted(self, written):
        said = written[1]
        assert (said.items, said.failed, said.candidates, said.images) == (13, 1, 60, None)

    def test_tokens_of_one_shard_are_read_at_a_time(self, run, written):
        assert written[2]._signals == {}
        parts = list(by_shard(run))
        assert [len(part.places) for part in parts] == [9, 3]
        assert [len(part.signal("log_prob")) for part in parts] == [
            part.lengths.sum() for part in parts
        ]

    def test_flat_with_fewer_candidates(self, command, run, tmp_path):
        out = tmp_path / "deep" / "flat.jsonl"
        status, said, _ = command(
            *("export", run.path, "--to", "jsonl", "--out", out, "--flat", "-n", 2),
            *("--alpha", 0, "--scorers", "lookback,entropy", "--json"),
        )
        assert status == 0
        lines, summary = lines_of(out), json.loads(said)
        assert len(lines) == 24 == summary["candidates"]
        expected = run.scores("lookback", 2, alpha=0).ravel()
        told = [one["scores"]["lookback"] for one in lines]
        np.testing.assert_allclose(told, expected, rtol=1e-12)
        assert {one["index"] for one in lines} == {0, 1}
        assert "log_prob" not in lines[0]
        assert summary["metrics"]["lookback"] == pytest.approx(
            outcome(run, "lookback", 2, alpha=0).mean()
        )
        assert (summary["format"], summary["id"], summary["failed"]) == ("jsonl", run.id, 1)

    def test_numbers_that_are_none(self, tmp_path):
        made = make_run(tmp_path / "run", items=2, n=2)
        rows = read_table(made.path, "candidates", 0).to_pylist()
        for row in rows:
            row["quality"] = float("nan")
        rows[0]["entropy"][0] = float("inf")
        write_shard(made.path, "candidates", 0, rows)
        items = read_table(made.path, "items", 0).to_pylist()
        items[0]["truth"] = '{"best": NaN, "words": ["\\ud800", "a"]}'
        write_shard(made.path, "items", 0, items)
        out = tmp_path / "a.jsonl"
        request = Request(Run(made.path), out, ("lookback", "oracle"))
        said = export("jsonl", request, quiet, signals=True)
        first = lines_of(out)[0]
        assert first["truth"] == {"best": None, "words": ["\ufffd", "a"]}
        assert first["candidates"][0]["quality"] is None
        assert first["candidates"][0]["entropy"][0] is None
        assert said.metrics == {"lookback": None, "oracle": None}

    def test_a_control(self, run, tmp_path):
        for image in ("none", "random"):
            control = make_run(tmp_path / image, items=3, n=2, image=image, controls=run)
            export("jsonl", Request(control, tmp_path / f"{image}.jsonl"), quiet)
        assert lines_of(tmp_path / "none.jsonl")[0]["image"] is None

    def test_a_run_in_which_every_item_failed(self, command, tmp_path):
        make_run(tmp_path / "run", items=2, n=2, failed=(0, 1))
        status, said, _ = command(
            "export", tmp_path / "run", "--to", "jsonl", "--out", tmp_path / "a.jsonl"
        )
        assert (status, said) == (0, f"{tmp_path / 'a.jsonl'}: 2 items, 2 failed, 0 candidates\n")
        assert [line["candidates"] for line in lines_of(tmp_path / "a.jsonl")] == [[], []]

    def test_an_object_store(self, command, run):
        address = "memory://exports/run.jsonl"
        status, said, _ = command("export", run.path, "--to", "jsonl", "--out", address)
        assert status == 0
        assert said.splitlines()[0] == f"{address}: 13 items, 1 failed, 60 candidates"
        import fsspec

        kept = fsspec.filesystem("memory").cat("/exports/run.jsonl").decode()
        assert len([strict(line) for line in kept.splitlines()]) == 13


class TestWholeOrNothing:
    def test_what_is_there_stays(self, command, run, tmp_path):
        out = tmp_path / "mine.jsonl"
        out.write_text("mine")
        status, _, said = command("export", run.path, "--to", "jsonl", "--out", out)
        assert (status, out.read_text()) == (1, "mine")
        assert "is there already" in said

    def test_what_ends_early_leaves_nothing(self, run, tmp_path, monkeypatch):
        def broken(request):
            yield from [one for _, one in zip(range(2), whole(request), strict=False)]
            raise KeyboardInterrupt

        whole = base.entries
        monkeypatch.setattr(base, "entries", broken)
        with pytest.raises(KeyboardInterrupt):
            export("jsonl", Request(run, tmp_path / "a.jsonl"), quiet)
        assert list(tmp_path.iterdir()) == []

    def test_a_damaged_run_gives_nothing(self, command, tmp_path):
        make_run(tmp_path / "run", items=12, n=2)
        file = tmp_path / "run" / "candidates" / "00001.parquet"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        status, _, said = command(
            "export", tmp_path / "run", "--to", "jsonl", "--out", tmp_path / "a.jsonl"
        )
        assert status == 1
        assert "00001" in said
        assert not (tmp_path / "a.jsonl").exists()


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (
                ("--to", "csv"),
                "no export format named 'csv'; there are: jsonl, inspect, hf-dataset",
            ),
            (("--to", "jsonl", "--images"), "--images means nothing to jsonl"),
            (("--to", "inspect", "--flat"), "--flat means nothing to inspect"),
            (("--to", "inspect"), "writes a file that ends in .eval or .json"),
            (("--to", "jsonl", "--scorers", "luck"), "no scorer named 'luck'"),
            (("--to", "jsonl", "--scorers", "entropy", "--lam", 2), "has no setting 'lam'"),
            (("--to", "jsonl", "--scorers", "vauq", "--lam", 2), "recorded"),
            (("--to", "jsonl", "--scorers", "clipscore"), "has no clipscore scores"),
            (("--to", "jsonl", "--scorers", "usc", "-n", 3), "has no usc scores for N = 3"),
            (("--to", "jsonl", "--scorers", "lookback,lookback"), "name each once"),
            (("--to", "jsonl", "-n", 6), "has 5 candidates per item"),
            (("--to", "jsonl", "-n", 0), "N = 0"),
            (("--to", "jsonl", "--alpha", "nan"), "alpha"),
        ],
    )
    def test_one_line_that_says_what_is_wrong(self, command, run, tmp_path, options, said):
        status, out, errors = command("export", run.path, "--out", tmp_path / "a.txt", *options)
        assert (status, out) == (1, "")
        assert said in errors
        assert "bug" not in errors
        assert errors.count("\n") == 1
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("form", "module", "package", "name"),
        [
            ("inspect", "inspect_ai", "inspect-ai", "a.eval"),
            ("hf-dataset", "datasets", "datasets", "a"),
        ],
    )
    def test_a_library_that_is_missing(
        self, command, run, tmp_path, monkeypatch, form, module, package, name
    ):
        monkeypatch.setitem(sys.modules, module, None)
        status, _, said = command("export", run.path, "--to", form, "--out", tmp_path / name)
        assert status == 1
        assert f"--to {form} needs {package}" in said
        assert "pip install 'lookback-vlm[export]'" in said
        assert list(tmp_path.iterdir()) == []

    def test_what_a_library_lacks_is_named(self, tmp_path, monkeypatch):
        (tmp_path / "half_a_library.py").write_text("import surely_not_there")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ImportError, match="surely_not_there"):
            base.need("half_a_library", "half", "half")

    def test_several_runs_are_not_one(self, command, tmp_path):
        for name in ("a", "b"):
            make_run(tmp_path / "runs" / name, items=1, n=1)
        status, _, said = command(
            "export", tmp_path / "runs", "--to", "jsonl", "--out", tmp_path / "a.jsonl"
        )
        assert status == 1
        assert "no run in" in said

    def test_every_format_is_in_the_help(self, command, monkeypatch):
        monkeypatch.setenv("COLUMNS", "120")
        _, said, _ = command("export", "--help")
        assert all(name in said for name in FORMATS)


class TestShown:
    """What the model was shown, made again; and only if it is the same."""

    @pytest.fixture
    def items(self):
        return get_benchmark("scenes-vqa").items("test", 2)

    @pytest.fixture
    def row(self, items):
        item = items[0]
        messages = plain(item.conversation.to_json())
        return {"id": item.id, "image": item.id, "messages": messages, "item": 0}

    @pytest.fixture
    def shown(self, tmp_path, items):
        made = make_run(tmp_path / "run", "scenes-vqa", items=2, n=1)
        found = Shown(made)  # whose items have other names
        found._places = {item.id: place for place, item in enumerate(items)}
        found._again._names = {place: item.id for place, item in enumerate(items)}
        return found

    def test_the_same_picture(self, shown, row):
        found = shown.of(row)
        assert found.to_json() == row["messages"]
        assert len(found.images) == 1

    def test_none_and_another_items(self, shown, items, row):
        assert shown.of(row | {"image": None, "messages": None}).images == []
        other = items[1]
        found = shown.of(row | {"image": other.id, "messages": None})
        assert found.images[0].tobytes() == other.image.tobytes()

    def test_another_picture_or_question_is_not_taken(self, shown, items, row):
        other = items[1]
        assert "the run was shown sha256:" in shown.of(row | {"image": other.id})
        words = json.loads(json.dumps(row["messages"]).replace('"text": "', '"text": "Now: '))
        assert "other words" in shown.of(row | {"messages": words})
        assert "otherwise" in _difference(shown.of(row), row["messages"] * 2)

    def test_a_benchmark_that_is_not_here(self, tmp_path):
        made = make_run(tmp_path / "run", "vqav2", items=1, n=1)
        assert "vqav2" in Shown(made).of({"id": "x"})


@pytest.mark.parametrize(
    ("truth", "target"),
    [
        ({"answer": "5", "kind": "count"}, "5"),
        ({"answers": ["2", "two"], "type": "number"}, "answers: 2, two; type: number"),
        ({"answer": 5}, "5"),
        ("a dog", "truth: a dog"),
        ({}, ""),
        (None, ""),
    ],
)
def test_what_is_right_in_words(truth, target):
    assert inspect_ai._target(truth) == target


def test_a_request_is_checked_before_anything_is_written(run, tmp_path):
    request = Request(run, tmp_path / "a.jsonl")
    with pytest.raises(RunError, match="N = 9"):
        replace(request, n=9)
