"""Benchmarks' files in an object store: the same items and images as on disk."""

import json
import uuid

import pytest
from PIL import Image
from test_amber import ANNOTATIONS, QUERIES, RELATION
from test_chair import coco  # noqa: F401  (a fixture)
from test_hallusionbench import ROWS
from test_vqav2 import write

from lookback.benchmarks.base import get_benchmark
from lookback.benchmarks.files import MissingFile
from lookback.io.storage import to_path


def copy(folder):
    """The same files in a store."""
    there = to_path(f"memory://{uuid.uuid4().hex}/data")
    for path in folder.rglob("*"):
        if path.is_file():
            (there / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())
    return there


def picture(path, color):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 3), color).save(path)


def assert_same(name, folder, split="all"):
    there = copy(folder)
    here, away = (get_benchmark(name, place).items(split) for place in (folder, str(there)))
    assert [(i.id, i.question, i.truth) for i in here] == [
        (i.id, i.question, i.truth) for i in away
    ]
    images = 0
    for one, other in zip(here, away, strict=True):
        try:
            expected = one.image
        except MissingFile:
            with pytest.raises(MissingFile, match="memory://"):
                _ = other.image
            continue
        assert (expected and expected.tobytes()) == (other.image and other.image.tobytes())
        images += expected is not None
    assert images
    with pytest.raises(MissingFile, match="memory://nowhere/at-all"):
        get_benchmark(name, "memory://nowhere/at-all").items(split)


@pytest.mark.parametrize("place", ["val2014", "images"])
def test_vqav2(tmp_path, place):
    (tmp_path / "vqav2").mkdir()
    write(tmp_path / "vqav2")
    picture(tmp_path / "vqav2" / place / "COCO_val2014_000000000042.jpg", "red")
    assert_same("vqav2", tmp_path)


@pytest.mark.parametrize("below", ["", "annotations"])
def test_chair(coco, below):  # noqa: F811
    if below:
        (coco / below).mkdir()
        for path in [*coco.glob("*.json")]:
            path.rename(coco / below / path.name)
    picture(coco / "val2014" / "COCO_val2014_000000000007.jpg", "blue")
    assert_same("chair", coco)


def test_hallusionbench(tmp_path):
    (tmp_path / "HallusionBench.json").write_text(json.dumps(ROWS))
    for row in ROWS:
        if row["filename"]:
            picture(tmp_path / row["filename"], "green")
    assert_same("hallusionbench", tmp_path)


def test_amber(tmp_path):
    (tmp_path / "data").mkdir()
    for name, data in [
        ("query/query_generative.json", QUERIES),
        ("annotations.json", ANNOTATIONS),
        ("relation.json", RELATION),
    ]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(data))
    (tmp_path / "safe_words.txt").write_text("sign\nlight")
    picture(tmp_path / "image" / "AMBER_1.jpg", "white")
    assert_same("amber", tmp_path)
