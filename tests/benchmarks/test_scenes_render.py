"""Pixels: the same everywhere, each thing in its cell, edits that change nothing else."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from lookback.benchmarks import GENERATED, get_benchmark
from lookback.benchmarks.scenes import EDITS
from lookback.scenes import Scene, pixels, render
from lookback.scenes.drawings import DRAWINGS
from lookback.scenes.render import TEXTURES, bounds, paste
from lookback.scenes.scene import Thing, generator, sample_scene
from lookback.scenes.world import CATEGORIES, COLORS, IMAGE_SIZE, SIZES
from tools.training.texts import training_rng, training_scene, training_texts


def digest():
    """Pixels and text of training and of every task, in one number."""
    sha = hashlib.sha256()
    for i in range(20):
        sha.update(pixels(training_scene(i)).tobytes())
        sha.update(repr(training_texts(training_scene(i), training_rng(i, epoch=3))).encode())
    for name in GENERATED:
        for item in get_benchmark(name).items("test", limit=8):
            sha.update(item.image.tobytes() + repr((item.question, item.truth)).encode())
    return sha.hexdigest()


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_another_process_makes_the_same(hash_seed):
    code = "import test_scenes_render; print(test_scenes_render.digest())"
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parents[1])])
    env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
    out = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == digest()


def test_nothing_depends_on_what_was_made_before():
    scene = training_scene(7)
    first = pixels(scene)
    for i in range(30):
        pixels(training_scene(i))
    np.testing.assert_array_equal(first, pixels(scene))


def test_pictures_have_the_right_form_and_differ():
    image = render(training_scene(0))
    assert (image.size, image.mode) == ((IMAGE_SIZE, IMAGE_SIZE), "RGB")
    digests = {pixels(training_scene(i)).tobytes() for i in range(200)}
    assert len(digests) == 200


def test_every_category_has_a_drawing_and_keeps_to_its_cell():
    assert set(DRAWINGS) == set(CATEGORIES)
    edges = [0, IMAGE_SIZE / 3, 2 * IMAGE_SIZE / 3, IMAGE_SIZE]
    for i in range(300):
        for t in training_scene(i).things:
            left, top, right, bottom = bounds(t)
            assert edges[t.column] <= left < right <= edges[t.column + 1]
            assert edges[t.row] <= top < bottom <= edges[t.row + 1]


def drawn(category, color="red", size="large"):
    canvas = np.full((IMAGE_SIZE, IMAGE_SIZE, 3), 128, np.int32)
    paste(canvas, Thing(category, color, size, 4))
    return canvas


@pytest.mark.parametrize("size", SIZES)
def test_no_two_categories_or_colours_look_alike(size):
    area = (drawn("ball", size=size) != 128).any(axis=2).sum()
    for a, b in combinations(CATEGORIES, 2):
        far = (np.abs(drawn(a, size=size) - drawn(b, size=size)).max(axis=2) > 60).sum()
        assert far > 0.15 * area, (a, b)
    for a, b in combinations(COLORS, 2):
        for category in CATEGORIES:
            one, two = drawn(category, a, size), drawn(category, b, size)
            far = (np.abs(one - two).max(axis=2) > 60).sum()
            assert far > 0.08 * area, (category, a, b)


def test_small_is_smaller_than_large():
    for category in CATEGORIES:
        small, large = (
            (drawn(category, size=s) != 128).any(axis=2).sum() for s in ("small", "large")
        )
        assert small < 0.6 * large, category


@pytest.mark.parametrize("texture", TEXTURES)
def test_textures_stay_in_range(texture):
    for seed in range(20):
        field = texture(generator(seed, 0))
        assert field.shape == (IMAGE_SIZE, IMAGE_SIZE)
        assert field.min() >= 0
        assert field.max() <= 255


def test_removing_all_things_leaves_the_background():
    scene = training_scene(5)
    empty = pixels(replace(scene, things=()))
    changed = (pixels(scene) != empty).any(axis=2)
    inside = np.zeros_like(changed)
    for t in scene.things:
        left, top, right, bottom = bounds(t)
        inside[top:bottom, left:right] = True
        assert changed[top:bottom, left:right].mean() > 0.15
    assert not changed[~inside].any()


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_changes_only_its_thing(edit):
    pairs = [edit(sample_scene(seed), generator(seed, 9)) for seed in range(60)]
    pairs = [pair for pair in pairs if pair]
    assert len(pairs) > 15
    for original, edited in (pair.pictures for pair in pairs):
        assert isinstance(edited, Scene)
        touched = set(original.things) ^ set(edited.things)
        assert len(touched) == (1 if edit.__name__ == "remove" else 2)
        differs = (pixels(original) != pixels(edited)).any(axis=2)
        assert differs.any()
        for t in touched:
            left, top, right, bottom = bounds(t)
            differs[top:bottom, left:right] = False
        assert not differs.any()
