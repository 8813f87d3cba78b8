"""`lookback.ray.Scorer` without Ray: what each column means. In Ray: tests/runs/test_ray.py."""

import io
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from toy_engine import ToyEngine

from lookback.integrations.ray_data import ADDED
from lookback.ray import Scorer
from lookback.runs.sources import item_seed

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
PICTURE = Image.fromarray(PIXELS)
ASK = "What is this?"


def stored():
    file = io.BytesIO()
    PICTURE.save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def engine():
    return ToyEngine()


def objects(*values):
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def column(values):
    return values.to_pylist()


def test_pixels_bytes_and_paths_are_pictures(engine, tmp_path):
    """`ray.data.read_images` gives pixels, `read_binary_files` bytes."""
    (tmp_path / "a.png").write_bytes(stored())
    scorer = Scorer(engine="toy", n=2, seed=5)
    expected = engine.sample(PICTURE, ASK, 2, seed=5, max_new_tokens=256).scores("lookback")
    asked = np.array([ASK, ASK])
    for image in (np.stack([PIXELS] * 2), objects(stored(), str(tmp_path / "a.png"))):
        found = scorer({"image": image, "question": asked})
        assert column(found["error"]) == [None, None]
        for scores in column(found["scores"]):
            assert scores == [None if np.isnan(one) else one for one in expected]
        assert found["image"] is image


def test_several_pictures_and_conversations(engine):
    scorer = Scorer(engine="toy", n=1, seed=5)
    several = objects(objects(stored(), stored()))
    found = scorer({"image": several, "question": np.array([ASK])})
    assert column(found["responses"]) == [[engine.sample([PICTURE] * 2, ASK, 1, seed=5)[0].text]]
    turns = [{"role": "user", "content": [{"type": "text", "text": "Look:", "source": True}]}]
    found = scorer({"messages": np.array([json.dumps(turns)])})
    assert column(found["error"]) == [None]
    expected = engine.sample(messages=turns, n=1, seed=5)
    assert column(found["responses"]) == [[expected[0].text]]


def test_a_table_gets_columns_and_keeps_its_own():
    batch = pa.table({"question": [ASK] * 2, "image": [stored(), None], "responses": [["red"]] * 2})
    found = Scorer(engine="toy", signals=["log_prob"])(batch)
    assert found.column_names == ["question", "image", *ADDED, "log_prob"]
    assert {name: found.schema.field(name).type for name in ADDED} == ADDED
    assert found["error"].to_pylist()[0] is None
    assert "source" in found["error"].to_pylist()[1]  # there is nothing to look at
    assert batch.column_names == ["question", "image", "responses"]


def test_questions_are_asked_in_one_call(monkeypatch):
    calls = []
    real = ToyEngine.sample_many

    def listening(self, questions, **settings):
        calls.append((len(questions), settings["n"], settings["temperature"]))
        return real(self, questions, **settings)

    monkeypatch.setattr(ToyEngine, "sample_many", listening)
    scorer = Scorer(engine="toy", n=3, temperature=0.5)
    images = objects(stored(), b"broken", stored())
    found = scorer({"image": images, "question": np.array([ASK] * 3)})
    assert [one is None for one in column(found["error"])] == [True, False, True]
    assert calls == [(3, 3, 0.5)]


def test_scorers_that_ask_again_and_their_settings(engine):
    batch = {"image": objects(stored()), "question": np.array([ASK])}
    batch["responses"] = objects(["red", "blue", "two dog"])
    asked = engine.score(PICTURE, ASK, ["red", "blue", "two dog"])
    for name, settings in (("usc", {}), ("lookback", {"alpha": 0.1, "lam": 3.0})):
        found = Scorer(engine="toy", scorer=name, scorer_settings=settings)(batch)
        assert column(found["scores"]) == [asked.scores(name, **settings).tolist()]


@pytest.mark.parametrize("name", [0, "", "a"])
def test_every_id_but_none_has_a_seed_of_its_own(engine, name):
    """0 and the empty text are ids too: only a row without one takes the seed as it is."""
    scorer = Scorer(engine="toy", n=2, seed=5)
    batch = {"image": objects(stored(), stored()), "question": np.array([ASK] * 2)}
    found = column(scorer(batch | {"id": objects(name, None)})["responses"])
    for responses, seed in zip(found, (item_seed(5, str(name)), 5), strict=True):
        assert responses == [one.text for one in engine.sample(PICTURE, ASK, 2, seed=seed)]
    assert found[0] != found[1]


def test_what_is_wrong_with_a_row_is_its_error():
    batch = {"image": objects(*[stored()] * 3), "question": np.array([ASK] * 3)}
    batch["responses"] = objects("a text", [], ["red"])
    found = Scorer(engine="toy")(batch)
    first, second, third = column(found["error"])
    assert "must be a list of texts" in first
    assert "nothing to score" in second
    assert third is None
    batch["responses"] = objects([5.9], ["red", None], [["red"]])
    for error, value in zip(
        column(Scorer(engine="toy")(batch)["error"]), ("5.9", "None", "['red']"), strict=True
    ):
        assert value in error
    failing = Scorer(engine="toy", scorer="visual_gain")  # which needs an image
    told = [{"role": "user", "content": [{"type": "text", "text": "Look:", "source": True}]}]
    found = failing({"messages": np.array([json.dumps(told)]), "responses": objects(["red"])})
    assert column(found["responses"]) == [["red"]]
    assert "needs an image" in column(found["error"])[0]


@pytest.mark.parametrize("pixels", [PIXELS / 255, np.zeros((3, 8, 8), np.uint8), PIXELS[:0]])
def test_pixels_that_are_no_picture_are_the_rows_error(pixels):
    found = Scorer(engine="toy", n=1)({"image": pixels[None], "question": np.array([ASK])})
    (error,) = column(found["error"])
    assert str(pixels.shape) in error or "(4 x 0)" in error


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"signals": ["beauty"]}, "signals has 'beauty': there are log_prob"),
        ({"scorer": "beauty"}, "no scorer named 'beauty'"),
        ({"n": 0}, "n = 0"),
        ({"scorer_settings": {"lam": float("nan")}}, "lam = nan"),
        ({"engine": "beauty"}, "no engine named 'beauty'"),
    ],
)
def test_settings_are_checked_when_it_is_made(settings, said):
    with pytest.raises(ValueError, match=said):
        Scorer(**({"engine": "toy"} | settings))


def test_batches_that_cannot_be_read():
    scorer = Scorer(engine="toy")
    with pytest.raises(TypeError, match='batch_format="numpy" or "pyarrow"'):
        scorer([ASK])
    with pytest.raises(ValueError, match="neither a column `question` nor `messages`"):
        scorer({"image": objects(stored())})


def test_importing_it_imports_neither_ray_nor_torch():
    code = "import sys, lookback.ray; print({'ray', 'torch'} & sys.modules.keys() or 'neither')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "neither"
