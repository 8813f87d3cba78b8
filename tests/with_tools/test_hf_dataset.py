"""A run as a folder that the real `datasets.load_dataset` reads."""

import json

import numpy as np
import pytest
import yaml
from datasets import Image, List, Value, load_dataset
from made_runs import make_run

import lookback
from lookback.integrations.exports import hf_datasets
from lookback.integrations.exports.base import Request, export
from lookback.integrations.exports.hf_datasets import split_name
from lookback.signals import SIGNALS


def quiet(done, total):
    """Nobody watches."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def run(tmp_path):
    return make_run(
        tmp_path / "run", items=12, n=3, failed=(3,), empty=((1, 2),), recorded=("vauq",), layers=2
    )


def load(folder):
    return load_dataset(str(folder), split="test")


def front(folder):
    text = (folder / "README.md").read_text("utf-8")
    return yaml.safe_load(text.split("---\n")[1]), text


class TestItems:
    def test_rows_are_the_runs(self, run, tmp_path):
        request = Request(run, tmp_path / "out", ("lookback", "vauq"))
        said = export("hf-dataset", request, quiet, signals=True)
        rows = load(tmp_path / "out")
        assert rows["id"][:] == run.items["id"].to_pylist()
        assert [json.loads(one) for one in rows["truth"]] == [{"categories": ["dog"]}] * 12
        assert rows[3]["error"] == "ValueError: broken image"
        assert rows[3]["candidates"] == []
        fine = [row for row in rows if row["error"] is None]
        scores, quality = run.scores("lookback"), run.quality()
        for number, row in enumerate(fine):
            for told, kept in zip(row["candidates"], run.candidates(number), strict=True):
                place = number, kept.index
                assert told["text"] == kept.text
                assert told["quality"] == quality[place]
                expected = scores[place]
                if np.isnan(expected):
                    assert told["scores"]["lookback"] is None
                else:
                    assert told["scores"]["lookback"] == pytest.approx(expected, rel=1e-12)
                for name in SIGNALS:
                    np.testing.assert_array_equal(np.float32(told[name]), getattr(kept, name))
                layers = np.float32(told["by_layer"]).reshape(kept.by_layer.shape)
                np.testing.assert_array_equal(layers, kept.by_layer)
        assert (said.items, said.failed, said.candidates) == (12, 1, 33)

    def test_types(self, run, tmp_path):
        export("hf-dataset", Request(run, tmp_path / "out"), quiet, signals=True)
        features = load(tmp_path / "out").features
        candidate = features["candidates"].feature
        assert features["item"] == Value("int32")
        assert candidate["log_prob"] == List(Value("float32"))
        assert candidate["by_layer"] == List(List(Value("float32")))
        assert candidate["scores"] == {"lookback": Value("float64")}
        assert "images" not in features


def test_flat(run, tmp_path):
    export("hf-dataset", Request(run, tmp_path / "out", n=2), quiet, flat=True)
    rows = load(tmp_path / "out")
    assert len(rows) == 22
    assert rows["text"][:] == [t for t, i in zip(run.texts, run.index, strict=True) if i < 2]
    told = [one["lookback"] for one in rows["scores"]]
    np.testing.assert_allclose(told, run.scores("lookback", 2).ravel(), rtol=1e-12)


class TestImages:
    def test_those_that_were_shown(self, drawn, tmp_path):
        from lookback.benchmarks.base import get_benchmark

        said = export("hf-dataset", Request(drawn["own"], tmp_path / "out"), quiet, images=True)
        rows = load(tmp_path / "out")
        assert rows.features["images"] == List(Image())
        items = get_benchmark("scenes-vqa").items("test", 4)
        assert said.images == 4
        for item, row in zip(items, rows, strict=True):
            (shown,) = row["images"]
            assert shown.tobytes() == item.image.tobytes()
        assert "Its 4 images are included" in front(tmp_path / "out")[1]

    def test_controls(self, drawn, tmp_path):
        for image, count in (("none", 0), ("random", 4)):
            out = tmp_path / image
            assert (
                export("hf-dataset", Request(drawn[image], out), quiet, images=True).images == count
            )
            assert len(load(out)[0]["images"]) == count // 4
            assert "this is a control" in front(out)[1]

    def test_one_that_cannot_be_had_is_an_error(self, run, tmp_path):
        before = sorted(tmp_path.iterdir())
        with pytest.raises(ValueError, match="--no-images goes without"):
            export("hf-dataset", Request(run, tmp_path / "out"), quiet, images=True)
        assert sorted(tmp_path.iterdir()) == before


class TestCard:
    def test_what_it_says(self, drawn, tmp_path):
        request = Request(drawn["own"], tmp_path / "out", ("lookback", "entropy"))
        said = export("hf-dataset", request, quiet)
        data, text = front(tmp_path / "out")
        assert "license" not in data
        assert data["configs"][0]["data_files"][0]["split"] == "test"
        assert {one["name"] for one in data["dataset_info"]["features"]} >= {"id", "candidates"}
        for words in (
            "# embedded on Scenes",
            "| sampling: temperature | 1.2 |",
            "| sampling: seed | 42 |",
            f"| run | {drawn['own'].id} |",
            f"| {said.metrics['entropy']:.4f} |",
            "Its images are not included",
            "choose one before you publish",
            f"`lookback export` {lookback.__version__}",
        ):
            assert words in text, words

    def test_its_example_runs(self, run, tmp_path, capsys):
        from documents import blocks

        for name, flat in (("items", False), ("flat", True)):
            out = tmp_path / name
            export("hf-dataset", Request(run, out), quiet, flat=flat)
            (code,) = blocks(front(out)[1], "python")
            exec(code.replace("PATH", str(out)), {})
        assert "Describe the picture." in capsys.readouterr().out


def test_the_python_of_its_page_runs(run, tmp_path, monkeypatch, capsys):
    from documents import ROOT, blocks, read

    export("hf-dataset", Request(run, tmp_path / "caption-dataset"), quiet)
    monkeypatch.chdir(tmp_path)
    for code in blocks(read(ROOT / "docs" / "export.md"), "python"):
        exec(code, {})
    assert "{'lookback': " in capsys.readouterr().out


class TestWholeOrNothing:
    def test_what_ends_early_leaves_nothing(self, run, tmp_path, monkeypatch):
        before = sorted(tmp_path.iterdir())

        def broken(*given):
            raise OSError("the disk is full")

        monkeypatch.setattr(hf_datasets, "make_card", broken)
        with pytest.raises(OSError, match="disk is full"):
            export("hf-dataset", Request(run, tmp_path / "out"), quiet)
        assert sorted(tmp_path.iterdir()) == before

    def test_no_store(self, command, run):
        status, _, said = command(
            "export", run.path, "--to", "hf-dataset", "--out", "memory://bucket/out"
        )
        assert status == 1
        assert "write it here, then copy it there" in said


@pytest.mark.parametrize(
    ("split", "name"), [("test", "test"), ("all", "full"), ("val-2014/x", "val_2014_x")]
)
def test_split_names(split, name):
    assert split_name(split) == name
