"""Boxes whose numbers were worked out by hand from what each processor is documented to do."""

import numpy as np
import pytest
import transformers as hf
from engines.seeing import asking, grey, pictures_of
from transformers.models.gemma3.processing_gemma3 import Gemma3ProcessorKwargs
from zoo import build
from zoo.images import IMAGE, SQUARE

import lookback


def picture_of(name, size):
    """The map of one grey picture, of that width and height."""
    zoo = build(name)
    (found,) = pictures_of(lookback.load(zoo.model, zoo.processor), asking(grey(size)))
    return found


def edges(picture, grid=0):
    """Of one grid: where columns begin and end, then the same for rows; each cell agrees."""
    boxes = picture.boxes[picture.grids[grid]]  # (rows, columns, 4)
    for side, axis in ((0, 0), (2, 0), (1, 1), (3, 1)):
        other = np.take(boxes[..., side], [0], axis=axis)
        np.testing.assert_array_equal(boxes[..., side], np.broadcast_to(other, boxes.shape[:2]))
    return boxes[0, :, 0], boxes[0, :, 2], boxes[:, 0, 1], boxes[:, 0, 3]


def check(picture, x, y, grid=0, within=1e-6):
    """Edges as given: one more than there are cells."""
    left, right, top, bottom = edges(picture, grid)
    for found, wanted in ((left, x[:-1]), (right, x[1:]), (top, y[:-1]), (bottom, y[1:])):
        np.testing.assert_allclose(found, np.clip(wanted, 0, 1), atol=within)


@pytest.fixture
def llava_with(monkeypatch):
    """LLaVA with another image processor."""

    def make(image_processor, size):
        zoo = build("llava")
        monkeypatch.setattr(zoo.processor, "image_processor", image_processor)
        return picture_of("llava", size)

    return make


def test_llava_sees_the_middle_of_a_wide_picture():
    """64 x 48 becomes 42 x 32, of which 5 columns at either end are cut off."""
    picture = picture_of("llava", (64, 48))
    assert picture.grids[0].tolist() == np.arange(16).reshape(4, 4).tolist()
    check(picture, (5 + 8 * np.arange(5)) / 42, np.arange(5) / 4)


def test_llava_sees_the_middle_of_a_tall_picture():
    """41 x 97 becomes 32 x 75; 43 rows too many, 21 of them above."""
    check(picture_of("llava", (41, 97)), np.arange(5) / 4, (21 + 8 * np.arange(5)) / 75)


def test_a_stretched_picture_is_seen_whole(llava_with):
    made = hf.CLIPImageProcessorPil(size=SQUARE, do_center_crop=False)
    check(llava_with(made, (64, 48)), np.arange(5) / 4, np.arange(5) / 4)


def test_a_picture_that_is_padded_to_a_square_first(llava_with):
    """64 x 48 gets 8 rows above and below, then 64 become 32: a cell is 16 of the old rows."""
    made = hf.LlavaImageProcessorPil(do_pad=True, size={"shortest_edge": IMAGE}, crop_size=SQUARE)
    picture = llava_with(made, (64, 48))
    check(picture, np.arange(5) / 4, (16 * np.arange(5) - 8) / 48)


def test_a_crop_that_is_larger_than_the_picture_is_padding_around_it(llava_with):
    """48 x 48 becomes 24 x 24 with 4 pixels around it."""
    made = hf.CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size=SQUARE)
    picture = llava_with(made, (48, 48))
    check(picture, (8 * np.arange(5) - 4) / 24, (8 * np.arange(5) - 4) / 24)


def test_wholly_padded_cells_have_no_place(llava_with):
    """48 x 48 becomes 16 x 16, right in the middle of 32."""
    made = hf.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size=SQUARE)
    picture = llava_with(made, (48, 48))
    placed = np.isfinite(picture.boxes[picture.grids[0], 0])
    assert placed.tolist() == [[False] * 4, *[[False, True, True, False]] * 2, [False] * 4]
    np.testing.assert_allclose(picture.boxes[5], [0, 0, 0.5, 0.5], atol=1e-6)


def test_patches_that_do_not_fill_a_view_leave_its_end_unseen(llava_with, monkeypatch):
    """35 pixels have room for 4 patches of 8: the last three columns no token sees."""
    size = {"height": 35, "width": 35}
    made = hf.CLIPImageProcessorPil(size=size, do_center_crop=False)
    picture = llava_with(made, (70, 70))
    check(picture, 8 * np.arange(5) / 35, 8 * np.arange(5) / 35)


def test_a_class_token_that_is_kept_has_no_place(monkeypatch):
    zoo = build("llava")
    monkeypatch.setattr(zoo.processor, "vision_feature_select_strategy", "full")
    monkeypatch.setattr(zoo.model.config, "vision_feature_select_strategy", "full")
    picture = picture_of("llava", (64, 64))
    assert np.isnan(picture.boxes[0]).all()
    assert picture.grids[0].tolist() == (1 + np.arange(16)).reshape(4, 4).tolist()


def test_internvl_has_two_tiles_and_then_the_whole():
    picture = picture_of("internvl", (90, 30))
    tiles, whole = picture.grids
    tile = np.arange(16).reshape(4, 4)
    assert tiles.tolist() == np.hstack([tile, 16 + tile]).tolist()
    assert whole.tolist() == (32 + tile).tolist()
    check(picture, np.arange(9) / 8, np.arange(5) / 4)
    check(picture, np.arange(5) / 4, np.arange(5) / 4, grid=1)


def test_idefics3_has_rows_of_tiles_and_then_the_whole():
    picture = picture_of("idefics3", (48, 40))
    tile = np.arange(4).reshape(2, 2)
    rows = [np.hstack([tile, 4 + tile]), np.hstack([8 + tile, 12 + tile])]
    assert picture.grids[0].tolist() == np.vstack(rows).tolist()
    assert picture.grids[1].tolist() == (16 + tile).tolist()
    check(picture, np.arange(5) / 4, np.arange(5) / 4)


def test_ovis2_has_the_whole_before_its_tiles():
    picture = picture_of("ovis2", (40, 64))
    assert picture.grids[1].ravel().tolist() == [0, 1, 2, 3]
    assert sorted(picture.grids[0].ravel().tolist()) == list(range(4, 12))


def test_llava_next_pads_a_wide_picture_and_ends_each_row():
    """90 x 30 becomes 64 x 22 in two tiles of 32, 5 rows of padding above; cells of 16."""
    picture = picture_of("llava_next", (90, 30))
    assert picture.grids[1].tolist() == [[0, 1], [2, 3]]
    assert picture.grids[0].tolist() == [[4, 5, 6, 7], [9, 10, 11, 12]]
    assert np.isnan(picture.boxes[[8, 13]]).all()  # the newlines
    assert len(picture.columns) == 14
    check(picture, np.arange(5) / 4, (16 * np.arange(3) - 5) / 22)


def test_llava_next_cuts_off_rows_of_padding():
    """90 x 30 again with cells of 8: the first and last of four rows are left out.

    By the model's reckoning 8 columns of cells go with 2 rows; those are rows 8 to 24 of 32.
    """
    picture = picture_of("llava_next_video", (90, 30))
    assert picture.grids[0].shape == (2, 8)
    check(picture, np.arange(9) / 8, (8 * np.arange(1, 4) - 5) / 22)


@pytest.mark.parametrize(("width", "left", "shown"), [(30, 5, 22), (15, 10, 11)])
def test_llava_next_cuts_off_columns_of_padding(width, left, shown):
    """Tall pictures, which become 22 (or 11) x 64: of four columns the first and last go."""
    picture = picture_of("llava_next_video", (width, 90))
    assert picture.grids[0].shape == (8, 2)
    check(picture, (8 * np.arange(1, 4) - left) / shown, np.arange(9) / 8)


def test_llava_next_cuts_off_as_many_columns_as_fit_on_both_sides():
    """50 x 64 in four tiles: 7 columns of padding at the left, cells of 8.

    By the model's reckoning 8 rows of cells go with 6 columns: one is left out on either side.
    """
    picture = picture_of("llava_next_video", (50, 64))
    assert picture.grids[0].shape == (8, 6)
    check(picture, (8 * np.arange(1, 8) - 7) / 50, np.arange(9) / 8)


@pytest.mark.parametrize(
    ("size", "columns", "rows"),
    [
        ((64, 56), 16, 14),  # of 3 x 64 cells 224: 1.08 times too many to a side, which is let pass
        ((56, 64), 14, 16),
        ((64, 64), 13, 13),  # 256: 1.15 times
    ],
)
def test_llava_onevision_scales_down_what_is_too_much_by_a_tenth(size, columns, rows, monkeypatch):
    """Four tiles of 8 x 8 cells, 4 pixels each; the padding of whole cells is cut off before."""
    zoo = build("llava_onevision")
    monkeypatch.setattr(zoo.model.config.vision_config, "patch_size", 4)
    monkeypatch.setattr(zoo.processor, "num_image_tokens", 8 * 8)
    for one in (zoo.processor, zoo.model.config):
        monkeypatch.setattr(one, "vision_aspect_ratio", "anyres_max_3")
    picture = picture_of("llava_onevision", size)
    assert picture.grids[0].shape == (rows, columns)
    check(picture, np.arange(columns + 1) / columns, np.arange(rows + 1) / rows)


def test_llava_onevision_scales_many_tiles_down(monkeypatch):
    """Four tiles of 2 x 2 cells where one is the most: 2 x 2 cells for all of them."""
    zoo = build("llava_onevision")
    monkeypatch.setattr(zoo.processor, "vision_aspect_ratio", "anyres_max_1")
    monkeypatch.setattr(zoo.model.config, "vision_aspect_ratio", "anyres_max_1")
    picture = picture_of("llava_onevision", (64, 64))
    assert picture.grids[0].tolist() == [[4, 5], [7, 8]]
    check(picture, np.arange(3) / 2, np.arange(3) / 2)


def test_llava_onevision_pads_each_of_several_pictures_to_a_square():
    zoo = build("llava_onevision")
    lb = lookback.load(zoo.model, zoo.processor)
    first, second = pictures_of(lb, asking(grey((60, 40)), grey((40, 80))))
    check(first, np.arange(3) / 2, (30 * np.arange(3) - 10) / 40, within=1e-3)
    check(second, (40 * np.arange(3) - 20) / 40, np.arange(3) / 2, within=1e-3)
    assert second.columns.tolist() == [5, 6, 7, 8, 9]
    assert np.isnan(second.boxes[4]).all()


def test_gemma_3_pans_and_scans(monkeypatch):
    """A picture three times as wide as it is high: the whole, and three crops of a third each."""
    settings = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 8}
    for name, value in settings.items():
        monkeypatch.setitem(Gemma3ProcessorKwargs._defaults["images_kwargs"], name, value)
    picture = picture_of("gemma3", (150, 50))
    assert picture.grids[1].ravel().tolist() == list(range(16))
    tile = np.arange(16).reshape(4, 4)
    assert picture.grids[0].tolist() == np.hstack([16 + tile, 32 + tile, 48 + tile]).tolist()
    check(picture, np.arange(13) / 12, np.arange(5) / 4)


def test_crops_of_unlike_sizes_are_grids_of_their_own(monkeypatch):
    """Of 40 columns three crops have 14, 14 and 12, and each is stretched to the same square."""
    settings = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 8}
    for name, value in settings.items():
        monkeypatch.setitem(Gemma3ProcessorKwargs._defaults["images_kwargs"], name, value)
    picture = picture_of("gemma3", (40, 14))
    assert len(picture.grids) == 4
    for grid, (start, end) in enumerate([(0, 14), (14, 28), (28, 40)]):
        left, right, *_ = edges(picture, grid)
        wanted = np.linspace(start, end, 5) / 40
        np.testing.assert_allclose(left, wanted[:-1], atol=5e-3)
        np.testing.assert_allclose(right, wanted[1:], atol=5e-3)


def test_qwen_merges_patches_two_by_two_over_the_whole():
    picture = picture_of("qwen2_5_vl", (40, 48))
    assert picture.grids[0].tolist() == np.arange(30).reshape(6, 5).tolist()
    check(picture, np.arange(6) / 5, np.arange(7) / 6)


def test_pixtral_writes_its_breaks_beside_the_vision_tokens():
    picture = picture_of("mistral3", (48, 32))
    assert picture.grids[0].tolist() == np.arange(24).reshape(4, 6).tolist()
    check(picture, np.arange(7) / 6, np.arange(5) / 4)


def test_hunyuan_counts_its_rows_ends_as_vision_tokens():
    """A token before, one after each row, one behind: none of them lies anywhere."""
    picture = picture_of("hunyuan_vl", (40, 48))
    rows, columns = picture.grids[0].shape
    assert len(picture.columns) == 2 + rows * (columns + 1)
    assert picture.grids[0][0, 0] == 1
    assert picture.grids[0][1, 0] == columns + 2
    assert np.isnan(picture.boxes[:, 0]).sum() == rows + 2
    check(picture, np.arange(columns + 1) / columns, np.arange(rows + 1) / rows)


def test_janus_pads_a_tall_picture_at_its_sides():
    """40 x 160 becomes 8 x 32, 12 columns from either side: half of two cells of 8 each."""
    picture = picture_of("janus", (40, 160))
    boxes = picture.boxes[picture.grids[0]]
    assert np.isfinite(boxes[..., 0]).tolist() == [[False, True, True, False]] * 4
    for row, line in enumerate(boxes[:, 1:3]):
        top, bottom = row / 4, (row + 1) / 4
        wanted = [[0, top, 0.5, bottom], [0.5, top, 1, bottom]]
        np.testing.assert_allclose(line, wanted, atol=1e-6)


def test_the_embedded_model_sees_all_of_a_picture():
    lb = lookback.load()
    (picture,) = pictures_of(lb, asking(grey((64, 48))))
    check(picture, np.arange(11) / 10, np.arange(11) / 10)
