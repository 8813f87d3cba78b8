"""By trial, on every family: a token's box is what the token sees, and nothing else.

The attention of each vision tower is muted, so that no patch can see another; then a spot in the
picture changes the tokens that cover it and no others.
"""

import numpy as np
import pytest
from engines import real_processors
from engines.seeing import asking, change, embeddings, grey, pictures_of, with_spot, without_mixing
from PIL import Image
from zoo import EXTRA_NAMES, MORE_NAMES, NAMES, build
from zoo.torchvision_parts import install

import lookback
from lookback.families import LAYOUTS

PLACED = [
    name
    for name in NAMES + EXTRA_NAMES + MORE_NAMES
    if name not in ("idefics2", "aria")  # resampled: test_layouts.py
]
REAL = [f"{name}, its own processor" for name in real_processors.IMAGES]
SIZES = [(150, 90), (70, 160), (33, 34)]  # width and height; the last is hardly over a tile
MOST = 8  # cells of a grid that are tried


@pytest.fixture(params=PLACED + REAL)
def lb(request, monkeypatch):
    name, own, _ = request.param.partition(", ")
    if own:
        install(monkeypatch)
        return real_processors.IMAGES[name]()
    zoo = build(name)
    return lookback.load(zoo.model, zoo.processor)


def cells(picture, grid):
    """Some of the grid's tokens that have a place, its corners among them."""
    rng = np.random.default_rng(len(picture.columns))
    corners = grid[[0, 0, -1, -1], [0, -1, 0, -1]]
    chosen = np.concatenate([corners, rng.permutation(grid.ravel())])
    placed = [c for c in dict.fromkeys(chosen.tolist()) if np.isfinite(picture.boxes[c]).all()]
    return placed[:MOST]


@pytest.mark.parametrize("size", SIZES)
def test_a_spot_changes_the_token_whose_box_it_is_in(lb, size):
    image = grey(size)
    (picture,) = pictures_of(lb, asking(image))
    assert picture.boxes is not None
    assert picture.grids
    with without_mixing(lb.model):
        before = embeddings(lb, asking(image))
        for grid in picture.grids:
            for cell in cells(picture, grid):
                spotted = asking(with_spot(image, picture.boxes[cell]))
                changed = change(before, embeddings(lb, spotted))[grid]
                assert changed.max() > 1e-3
                assert grid.ravel()[changed.argmax()] == cell


@pytest.mark.parametrize("size", SIZES[:2])
def test_a_token_sees_nothing_but_its_box(lb, size):
    """All else is painted over, but for half a cell around it that resizing mixes in."""
    image = grey(size)
    pixels = np.array(image)
    (picture,) = pictures_of(lb, asking(image))
    with without_mixing(lb.model):
        before = embeddings(lb, asking(image))
        for grid in picture.grids:
            x0, y0, x1, y1 = picture.boxes[grid.ravel()].T
            wide, high = np.nanmax(x1 - x0) / 2, np.nanmax(y1 - y0) / 2
            for cell in cells(picture, grid)[:5]:
                x0, y0, x1, y1 = picture.boxes[cell]
                across = slice(*_pixels(x0 - wide, x1 + wide, size[0]))
                down = slice(*_pixels(y0 - high, y1 + high, size[1]))
                other = np.array(grey(size, seed=1)) // 2
                other[down, across] = pixels[down, across]
                after = embeddings(lb, asking(Image.fromarray(other)))
                changed = change(before, after)
                assert changed[cell] < 1e-4, (cell, picture.boxes[cell])
                assert len(changed) == 1 or np.delete(changed, cell).max() > 1e-2


def _pixels(start, end, size):
    return max(0, int(np.floor(start * size))), int(np.ceil(end * size))


def test_every_family_with_a_layout_is_tried():
    types = {build(name).model.config.model_type for name in PLACED}
    assert types == {name for name, one in LAYOUTS.items() if one.kind != "resampled"}
