"""The pointing game: its hits against eager maps and boxes by hand, its tables, and the page's."""

import re
from dataclasses import replace

import numpy as np
import pytest
from engines.reference import eager_look, inputs_of

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.embedded import LVLM
from lookback.engines.common.model_files import fingerprint
from lookback.looks.look import Picture
from lookback.scenes.render import bounds
from lookback.scenes.scene import Scene, Thing
from tools import pointing

SIDE = 10  # cells of the embedded model
BOXES = [
    [x / SIDE, y / SIDE, (x + 1) / SIDE, (y + 1) / SIDE] for y in range(SIDE) for x in range(SIDE)
]


class Placed:
    """The embedded model, with the plain grid that its vision tower has."""

    def __init__(self):
        self.lb = lookback.load()
        self.sample = self.lb.sample

    def look(self, image, *arguments, **settings):
        found = self.lb.look(image, *arguments, **settings)
        grid = np.arange(SIDE**2).reshape(SIDE, SIDE)
        return replace(found, pictures=(Picture("image:0", image, np.arange(100), BOXES, (grid,)),))


@pytest.fixture(scope="module")
def placed():
    return Placed()


def test_hits_are_those_of_eager_maps(placed):
    """The brightest of 100 cells, of 8 pixels each, and the boxes of what a word names."""
    lb, hits = placed.lb, []
    for index, item in enumerate(get_benchmark("scenes-caption").items("test", 2)):
        image, scene = item.load(), item.load.args[0]
        told = lb.sample(image, item.question, 1, temperature=0, max_new_tokens=120, seed=0)[0]
        inputs = inputs_of(lb, image, item.question)
        weights = eager_look(lb.model, inputs, told.token_ids.tolist(), (0, lb.decoder.layers))
        look = placed.look(image, item.question, told)
        mentions = pointing.mentions_of(placed, index, scene, (image, item.question), told)
        assert mentions
        said = iter(mentions)
        for word in look.words():
            things = scene.of(word.text) or scene.of(word.text.removesuffix("s"))
            if not things:
                continue
            mention = next(one for one in said if one.right)
            y, x = divmod(int(weights[word.tokens].mean(0).argmax()), SIDE)
            on = [
                left <= 8 * x + 4 < right and top <= 8 * y + 4 < bottom
                for left, top, right, bottom in map(bounds, things)
            ]
            assert mention.hits["all", "raw"] == any(on)
            assert mention.signs["log p"] == pytest.approx(
                told.log_prob[word.tokens].mean(), abs=1e-4
            )
            hits.append(any(on))
        assert not [one for one in said if one.right]
    assert sum(hits) > 0
    assert {name for name, _ in mentions[0].hits} == {"all", *map(str, range(lb.decoder.layers))}


def test_points_on_things():
    cup, car = Thing("cup", "red", "large", 0), Thing("car", "blue", "small", 8)
    scene = Scene((cup, car), 0, "x")
    left, top, right, bottom = np.array(bounds(cup)) / 80
    points = np.array([[left, top], [right, bottom], [(left + right) / 2, (top + bottom) / 2]])
    assert pointing.on_things(points, scene, "cup").tolist() == [True, False, True]
    assert pointing.on_things(points, scene, "car").tolist() == [False] * 3
    assert pointing.on_things(points, scene).tolist() == [True, False, True]


def test_without_a_layout_there_is_nothing_to_point_at(placed):
    image = get_benchmark("scenes-caption").items("test", 1)[0].load()
    look = placed.look(image, "Describe the picture.", "a cup")
    nowhere = replace(look, pictures=(Picture("image:0", image, np.arange(100)),))
    with pytest.raises(ValueError, match="layout of this model is not known"):
        pointing.centres(nowhere)


def mention(item, right, hit, sign):
    hits = {("all", way): hit for way in pointing.WAYS}
    return pointing.Mention(item, right, 0.1, hits, {"log p": sign})


def test_tables_by_hand():
    """Three of four right words hit; three of them have more than the wrong one."""
    made = [
        mention(0, True, True, -0.1),
        mention(0, True, True, -0.2),
        mention(1, True, True, -0.6),
        mention(1, True, False, -0.3),
        mention(1, False, False, -0.4),
    ]
    text = pointing.tables(made, 2)
    assert text.startswith("4 words that name a thing that is there, in 4 drawn descriptions each")
    assert "chance 10.0 %" in text
    assert "| all layers | 75.0 [50.0, 100.0] |" in text
    assert "4 right and 1 wrong words" in text
    assert "| log p | 0.75 [" in text


def test_the_page_is_of_the_shipped_weights(tmp_path):
    text = pointing.PAGE.read_text(encoding="utf-8")
    begin = pointing.BEGIN.format(fingerprint(LVLM))
    assert text.count(begin) == 1
    table = text.partition(begin)[2].partition(pointing.END)[0]
    assert f"drawn descriptions each of {pointing.ITEMS} test scenes" in table
    for way in ("all layers", "layer 0", "log p"):
        assert f"| {way} |" in table
    assert f'The other prompt is "{pointing.OTHER}"' in text
    points = float(re.search(r"\| all layers \| ([\d.]+) ", table)[1])
    chance = float(re.search(r"chance ([\d.]+) %", table)[1])
    assert "seven in ten words point at what they name, one in eleven would by chance" in text
    assert (round(points / 10), round(100 / chance)) == (7, 11)
    copy = tmp_path / "look.md"
    copy.write_text(text, encoding="utf-8")
    pointing.write(table.strip("\n") + "\n", fingerprint(LVLM), copy)
    assert copy.read_text(encoding="utf-8") == text  # as the tool writes it
