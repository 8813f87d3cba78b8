"""Scenes for the explorer: drawn by a seed, edited, refused; and the page as a file."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from server.exploring import ABOUT
from server.serving import serving
from strict_html import Page
from toy_engine import ToyEngine

from lookback.scenes.render import bounds, pixels
from lookback.scenes.scene import sample_scene
from lookback.scenes.world import CATEGORIES
from lookback.server.explorer import SEEDS, SceneBody, page, page_data, scene_data

NAMES = ("category", "color", "size", "cell", "look")


def image_of(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def scene_of(seed):
    return scene_data(sample_scene(seed))


def scene_from(body):
    return scene_data(SceneBody.model_validate(body).scene())


def plain(scene):
    return {
        "seed": scene["seed"],
        "things": [{name: thing[name] for name in NAMES} for thing in scene["things"]],
    }


@pytest.mark.parametrize("seed", [0, 7, 11, SEEDS - 1])
def test_a_scene_is_that_of_its_seed(seed):
    scene, true = scene_of(seed), sample_scene(seed)
    assert np.array_equal(np.asarray(image_of(scene["image"])), pixels(true))
    assert [thing["box"] for thing in scene["things"]] == [list(bounds(t)) for t in true.things]
    assert scene_from(plain(scene)) == scene


@pytest.mark.parametrize("seed", range(4))
def test_a_thing_that_is_cut_out_is_what_the_picture_has_there(seed):
    """Laid over what is behind it, it gives the picture, but for rounding."""
    scene = scene_of(seed)
    made = image_of(scene["behind"]).convert("RGBA")
    for thing in scene["things"]:
        made.alpha_composite(image_of(thing["sprite"]), tuple(thing["box"][:2]))
    true = np.asarray(image_of(scene["image"])).astype(int)
    differences = np.abs(np.asarray(made.convert("RGB")).astype(int) - true)
    assert differences.max() < 40  # the grain lies over all of the picture, not under the things
    assert differences.mean() < 1.5
    things = np.abs(np.asarray(image_of(scene["behind"])).astype(int) - true)
    assert things.max() > 100  # without them it is another picture


def test_a_moved_thing_leaves_the_rest():
    scene = scene_of(7)
    asked = plain(scene)
    free = next(c for c in range(9) if c not in [t["cell"] for t in asked["things"]])
    asked["things"][0]["cell"] = free
    moved = scene_from(asked)
    before, after = (np.asarray(image_of(one["image"])) for one in (scene, moved))
    changed = np.zeros(before.shape[:2], bool)
    for box in (scene["things"][0]["box"], moved["things"][0]["box"]):
        left, top, right, bottom = box
        changed[top:bottom, left:right] = True
    assert np.array_equal(before[~changed], after[~changed])
    assert not np.array_equal(before[changed], after[changed])


@pytest.mark.parametrize("seed", range(12))
def test_questions_are_about_what_is_there(seed):
    scene, true = scene_of(seed), sample_scene(seed)
    asked = " ".join(scene["questions"])
    assert len(set(scene["questions"])) == len(scene["questions"]) >= 2
    there = {t.category for t in true.things}
    named = [c for c in CATEGORIES if re.search(rf"\b({c}|{CATEGORIES[c].plural})\b", asked)]
    absent = [c for c in named if c not in there]
    assert len(absent) == 1  # that one is asked about on purpose
    assert f"{absent[0]} in the picture?" in scene["questions"][0]


def broken(**changes):
    scene = plain(scene_of(7))
    scene["things"][1] |= changes
    return scene


@pytest.fixture(scope="module")
def toy():
    with serving(ToyEngine()) as found:
        yield found


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        ([], None, "valid dictionary or object"),
        ({"seed": 1}, "things", "required"),
        (plain(scene_of(7)) | {"more": 2}, "more", "unrecognized"),
        ({"seed": -1, "things": []}, "seed", "seed = -1: Input should be greater than or equal to"),
        ({"seed": True, "things": []}, "seed", "seed = True: Input should be a valid integer"),
        ({"seed": SEEDS, "things": []}, "seed", f"less than {SEEDS}"),
        ({"seed": 1, "things": {}}, "things", "valid list"),
        ({"seed": 1, "things": [plain(scene_of(1))["things"][0]] * 9}, "things", "at most 6"),
        ({"seed": 1, "things": []}, "things", "at least 2"),
        ({"seed": 1, "things": [1, 2]}, "things[0]", "object"),
        (broken(category="elephant"), "things[1].category", "= 'elephant': Input should be 'sun',"),
        (broken(color=["red"]), "things[1].color", "'red'"),
        (broken(size="huge"), "things[1].size", "= 'huge': Input should be 'small' or 'large'"),
        (broken(cell=9), "things[1].cell", "= 9: Input should be less than 9"),
        (broken(cell=1.0), "things[1].cell", "= 1.0: Input should be a valid integer"),
        (broken(look=2**40), "things[1].look", "less than"),
        (broken(place="center"), "things[1].place", "unrecognized"),
        (broken(cell=7), None, "two things are at 'bottom center'"),
    ],
)
def test_what_is_no_scene_is_refused_with_its_place(toy, data, place, words):
    answer = toy.post("/explorer/scene", json=data)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == place
    assert words in error["message"]


def test_the_page_is_strict_html_that_may_ask_its_server_alone():
    odd = "</script><b>\u202e" + "x" * 900
    found = Page(page(ABOUT | {"model": odd}))
    assert found.data()["model"] == odd
    assert found.data()["scorers"].keys() == page_data(ABOUT)["scorers"].keys()
    policy = next(a["content"] for tag, a in found.elements if a.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    linked = [a[n] for _, a in found.elements for n in ("src", "href") if n in a]
    assert [one for one in linked if not one.startswith(("#", "data:"))] == []
    ids = [a["id"] for _, a in found.elements if "id" in a]
    assert len(ids) == len(set(ids))
    labelled = {a["for"] for tag, a in found.elements if tag == "label" and "for" in a}
    assert labelled <= set(ids)


def test_routes(client):
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/explorer/scene", params={"seed": 3}).json() == scene_of(3)
    assert client.post("/explorer/scene", json=plain(scene_of(3))).json() == scene_of(3)
    for answer in (
        client.get("/explorer/scene", params={"seed": -1}),
        client.get("/explorer/scene", params={"seed": "x"}),
        client.get("/explorer/scene"),
    ):
        assert answer.status_code == 400
        assert "seed" in answer.json()["error"]["message"]
