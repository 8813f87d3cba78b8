"""Measuring what a processor shows: real image processors at their real sizes, and pure cases."""

import numpy as np
import pytest
import transformers as hf
from PIL import Image
from zoo import OLDEST

from lookback.engines.transformers.layouts.grids import NoMapError
from lookback.engines.transformers.layouts.probe import (
    Pixels,
    _slope,
    fit,
    frame_numbers,
    join,
    locate,
)


def views(processor, size, **settings):
    """What a processor shows of a picture of that width and height, view by view."""
    paints = (Image.new("RGB", size, "black"), Image.new("RGB", size, "white"), _slope(size))
    three = [
        np.asarray(processor(one, return_tensors="np", **settings)["pixel_values"], dtype=float)
        for one in paints
    ]
    black, white, slope = (one.reshape(-1, *one.shape[-3:]) for one in three)
    return [locate(*view, size) for view in zip(black, white, slope, strict=True)]


def check(lines, x, y, within=1e-9):
    """Start of the view and pixels of the whole picture in it, both as whole pixels."""
    for line, (start, length) in zip(lines, (x, y), strict=True):
        assert line.step == pytest.approx(1 / length, rel=within)
        assert line.start == pytest.approx(start / length, abs=within)


def test_clip_at_its_real_size():
    """1024 x 683 becomes 503 x 336, of which 83 columns are left of the crop."""
    processor = hf.CLIPImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}
    )
    (view,) = views(processor, (1024, 683))
    check(fit(view), (83, 503), (0, 336))


def test_a_small_picture_that_is_made_larger():
    processor = hf.CLIPImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}
    )
    (view,) = views(processor, (60, 40))
    check(fit(view), (84, 504), (0, 336))


def test_internvl_at_its_real_size():
    """1600 x 900 in 12 tiles at most: 4 columns of 2 rows, and the whole behind them."""
    processor = hf.GotOcr2ImageProcessorPil(size={"height": 448, "width": 448}, max_patches=12)
    *tiles, whole = views(processor, (1600, 900), crop_to_patches=True)
    assert len(tiles) == 8
    check(fit(join(tiles, 2, 4)), (0, 4 * 448), (0, 2 * 448))
    check(fit(tiles[5]), (448, 4 * 448), (448, 2 * 448), within=1e-3)  # one alone tells less
    check(fit(whole), (0, 448), (0, 448))
    assert fit(join(tiles, 4, 2)) is None
    assert fit(join(tiles, 1, 8)) is None


def test_llava_next_at_its_real_size():
    """1333 x 400 becomes 1008 x 303 in three tiles of 336, 16 rows of padding above."""
    processor = hf.LlavaNextImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}
    )
    whole, *tiles = views(processor, (1333, 400))
    assert len(tiles) == 3
    check(fit(join(tiles, 1, 3)), (0, 1008), (-16, 303))
    check(fit(whole), (0, 336), (0, 336))


@pytest.mark.skipif(OLDEST, reason="there this processor needs torchvision")
def test_idefics3_at_its_real_size():
    """Lanczos, the widest of the filters: 1200 x 800 in 4 columns of 3 rows."""
    *tiles, whole = views(hf.Idefics3ImageProcessorPil(), (1200, 800))
    assert len(tiles) == 12
    check(fit(join(tiles, 3, 4)), (0, 4 * 364), (0, 3 * 364))
    check(fit(whole), (0, 364), (0, 364))


def test_deepseek_at_its_real_size():
    """A tall picture in the middle of a square: 300 x 900 becomes 128 x 384."""
    (view,) = views(hf.DeepseekVLImageProcessorPil(), (300, 900))
    check(fit(view), (-128, 128), (0, 384))
    assert np.isnan(view.x[:, :127]).all()
    assert np.isfinite(view.x[:, 130:250]).all()


def made(width, height, size=(64, 64)):
    """A view that shows the whole of a picture."""
    x, y = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    return Pixels(x, y, size)


def test_what_is_no_line_has_no_fit():
    view = made(32, 32)
    assert fit(view) is not None
    assert fit(Pixels(view.x[:, ::-1], view.y, view.size)) is None  # mirrored
    assert fit(Pixels(view.y, view.x, view.size)) is None  # lying on its side
    assert fit(Pixels(view.x**2, view.y, view.size)) is None  # bent
    assert fit(Pixels(0 * view.x + 0.5, view.y, view.size)) is None  # one colour
    assert fit(Pixels(0 * view.x + np.nan, view.y, view.size)) is None  # padding alone


def test_a_few_pixels_of_padding_do_not_matter():
    view = made(40, 40)
    x = view.x.copy()
    x[:, :10] = np.nan
    found = fit(Pixels(x, view.y, view.size))
    check(found, (0, 40), (0, 40))


@pytest.mark.parametrize("frames", [2, 8, 64])
def test_which_frames_are_shown(frames):
    shown = sorted(np.random.default_rng(frames).choice(frames, frames // 2, replace=False))
    grey = np.round(255 * np.array(shown) / (frames - 1)) / 255
    black, white = (np.full((len(shown), 3, 4, 4), value) for value in (-1.0, 1.0))
    numbers = black + 2 * grey[:, None, None, None]
    assert frame_numbers(black, white, numbers, frames) == shown


def test_frames_that_cannot_be_told_are_not_guessed():
    black, white = np.zeros((1, 4)), np.ones((1, 4))
    with pytest.raises(NoMapError, match="which of the 3 frames"):
        frame_numbers(black, white, np.full((1, 4), 0.25), 3)
