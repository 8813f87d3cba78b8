"""Inspect AI, datasets, LlamaIndex and others have an environment of their own (`make test-tools`);
elsewhere nothing here can be tested."""

import importlib.util
import os

if importlib.util.find_spec("inspect_ai") is None:
    collect_ignore_glob = ["test_*.py"]

os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("INSPECT_DISABLE_MODEL_API", "1")

import pytest


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """A small run of the embedded model, and controls of it: nothing about it is made up."""
    from lookback.runs.plan import Plan
    from lookback.runs.start import start

    folder = tmp_path_factory.mktemp("runs")
    own = Plan("scenes-vqa", limit=4, n=3, max_new_tokens=12, by_layer=True)
    found = {"own": start(own, folder / "own").run}
    for image in ("none", "random"):
        again = Plan("scenes-vqa", limit=4, candidates=str(folder / "own"), image=image)
        found[image] = start(again, folder / image).run
    return found


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    """photo.jpg, in a folder of its own; large enough that VLMEvalKit does not enlarge it."""
    from lookback.scenes.render import render
    from lookback.scenes.scene import sample_scene

    folder = tmp_path_factory.mktemp("photo")
    picture = render(sample_scene(5)).resize((240, 240))
    picture.save(folder / "photo.jpg", quality=95)
    return folder / "photo.jpg"
