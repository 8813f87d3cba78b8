"""Scenes for the explorer: drawn by a seed, edited, refused; and the page as a file."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from server.exploring import ABOUT
from strict_html import Page

from lookback.scenes.render import bounds, pixels
from lookback.scenes.scene import sample_scene
from lookback.scenes.world import CATEGORIES
from lookback.server.explorer import SEEDS, page, page_data, scene_from, scene_of

NAMES = ("category", "color", "size", "cell", "look")


def image_of(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


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


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "an object with seed and things, not list"),
        ({"seed": 1}, "needs things"),
        ({"seed": 1, "things": [], "more": 2}, "no 'more'"),
        ({"seed": -1, "things": []}, "seed = -1: it must be a whole number from 0"),
        ({"seed": True, "things": []}, "seed = True"),
        ({"seed": SEEDS, "things": []}, f"from 0 to {SEEDS - 1}"),
        ({"seed": 1, "things": {}}, "things: a list of 2 to 6"),
        ({"seed": 1, "things": [1] * 9}, "things: a list of 2 to 6"),
        ({"seed": 1, "things": [1, 2]}, "things[0]: an object, not int"),
        (broken(category="elephant"), "things[1].category = 'elephant': it must be one of sun,"),
        (broken(color=["red"]), "things[1].color = ['red']"),
        (broken(size="huge"), "it must be one of small, large"),
        (broken(cell=9), "things[1].cell = 9: it must be a whole number from 0 to 8"),
        (broken(cell=1.0), "things[1].cell = 1.0"),
        (broken(look=2**40), "things[1].look"),
        (broken(place="center"), "no 'place'"),
        (broken(cell=7), "two things are at 'bottom center'"),
    ],
)
def test_what_is_no_scene_is_refused_in_words(data, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        scene_from(data)
    assert "\n" not in str(error.value)


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
        client.post("/explorer/scene", json=[1]),
    ):
        assert answer.status_code == 400
        assert "seed" in answer.json()["error"]["message"]
