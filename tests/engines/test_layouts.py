"""What holds for every map, and that there is none rather than a wrong one."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.seeing import QUESTION, asking, grey, pictures_of
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import EXTRA_NAMES, MORE_NAMES, NAMES, ONE_RUN, build

import lookback
from lookback.conversations import Conversation
from lookback.engines.transformers.layouts.grids import NoMapError, patch_tokens
from lookback.engines.transformers.layouts.views import read_views, view_steps, view_tokens
from lookback.families import LAYOUTS, Layout

ALL = NAMES + EXTRA_NAMES + MORE_NAMES
# One of each kind, with its own image processor.
KINDS = ["llava", "qwen2_5_vl", "internvl", "llava_next", "idefics3", "mistral3", "gemma3", "janus"]


def engine(name):
    zoo = build(name)
    return lookback.load(zoo.model, zoo.processor)


def quiet_pictures(lb, conversation, source=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pictures_of(lb, conversation, source)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(KINDS),
    size=st.tuples(st.integers(12, 200), st.integers(12, 200)),
    points=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20),
)
def test_a_grid_covers_what_it_sees_once(name, size, points):
    (picture,) = pictures_of(engine(name), asking(grey(size)))
    boxes = picture.boxes
    placed = np.isfinite(boxes[:, 0])
    assert (boxes[placed] >= 0).all()
    assert (boxes[placed] <= 1).all()
    assert (boxes[placed, 0] < boxes[placed, 2]).all()
    assert (boxes[placed, 1] < boxes[placed, 3]).all()
    used = np.concatenate([grid.ravel() for grid in picture.grids])
    assert len(set(used.tolist())) == len(used)
    assert used.min() >= 0
    assert placed[np.setdiff1d(np.arange(len(boxes)), used)].sum() == 0
    for grid in picture.grids:
        mine = boxes[grid.ravel()]
        mine = mine[np.isfinite(mine[:, 0])]
        x0, y0, x1, y1 = mine.T
        area = (x1.max() - x0.min()) * (y1.max() - y0.min())
        assert ((x1 - x0) * (y1 - y0)).sum() == pytest.approx(area, abs=1e-4)
        for x, y in points:
            inside = (x0.min() < x < x1.max()) and (y0.min() < y < y1.max())
            at = (x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)
            assert at.sum() == (1 if inside else at.sum())
            assert at.sum() <= 1


@pytest.mark.parametrize("name", ALL)
def test_several_images_share_the_columns(name):
    """Every column of the source is one image's; the second alone has the same map."""
    lb = engine(name)
    images = grey((64, 40)), grey((30, 90), seed=1)
    both = quiet_pictures(lb, asking(*images))
    assert [picture.name for picture in both] == ["image:0", "image:1"]
    assert [picture.image.size for picture in both] == [(64, 40), (30, 90)]
    columns = np.concatenate([picture.columns for picture in both])
    assert columns.tolist() == list(range(len(columns)))
    if name in ONE_RUN:
        return
    (second,) = quiet_pictures(lb, asking(*images), "image:1")
    assert second.name == "image:1"
    assert second.columns.tolist() == list(range(len(both[1].columns)))
    if second.boxes is not None:
        np.testing.assert_array_equal(second.boxes, both[1].boxes)


def test_a_text_is_in_no_picture():
    lb = engine("llava")
    content = [
        {"type": "text", "text": "the red car", "source": True},
        {"type": "image", "image": grey((64, 64)), "source": True},
        {"type": "text", "text": QUESTION},
    ]
    conversation = Conversation.from_messages([{"role": "user", "content": content}])
    _, mask = lb.inputs(conversation)
    (picture,) = pictures_of(lb, conversation)
    before = int(mask.sum()) - 16
    assert before > 0
    assert picture.columns.tolist() == list(range(before, before + 16))


def test_a_conversation_without_pictures_has_none():
    lb = engine("llava")
    content = [{"type": "text", "text": QUESTION, "source": True}]
    assert pictures_of(lb, Conversation.from_messages([{"role": "user", "content": content}])) == ()


def assert_flat(lb, reason, images=1):
    with pytest.warns(UserWarning, match=reason):
        found = pictures_of(lb, asking(*[grey((64, 48))] * images))
    assert all(picture.boxes is None and picture.grids == () for picture in found)
    return found


@pytest.mark.parametrize("name", ["idefics2", "aria"])
def test_tokens_made_from_the_whole_picture_have_no_map(name):
    (picture,) = assert_flat(engine(name), "made from the whole picture")
    assert picture.columns.tolist() == list(range(len(picture.columns)))


def test_an_unknown_model_has_no_map(monkeypatch):
    monkeypatch.delitem(LAYOUTS, "llava")
    assert_flat(engine("llava"), "is not known")


@pytest.mark.parametrize(
    ("name", "where", "setting", "value"),
    [
        ("llava", "vision_config", "patch_size", 16),
        ("qwen2_5_vl", "vision_config", "spatial_merge_size", 1),
        ("internvl", None, "downsample_ratio", 0.25),
        ("internvl", None, "downsample_ratio", 0.0),
        ("llava_next", "vision_config", "patch_size", 8),
        ("llava_next", "vision_config", "image_size", 16),  # more tiles than there are
        ("gemma3", None, "mm_tokens_per_image", 4),
        ("gemma3", None, "mm_tokens_per_image", 0),
        ("gemma3", None, "mm_tokens_per_image", 10_000),  # more than there are patches
        ("llama4", "vision_config", "pixel_shuffle_ratio", 0.25),
    ],
)
def test_what_does_not_add_up_has_no_map(name, where, setting, value, monkeypatch):
    """A config that says something else than the prompt: no guess."""
    lb = engine(name)
    config = getattr(lb.model.config, where) if where else lb.model.config
    monkeypatch.setattr(config, setting, value)
    assert_flat(lb, "no map of where")


def test_a_picture_turned_over_has_no_map(monkeypatch):
    """A processor that shows pictures in a way that no layout has."""
    lb = engine("llava")
    images = lb.processor.image_processor
    whole = type(images).preprocess

    def mirrored(self, *args, **kwargs):
        found = whole(self, *args, **kwargs)
        found["pixel_values"] = found["pixel_values"].flip(-1)
        return found

    monkeypatch.setattr(type(images), "preprocess", mirrored)
    assert_flat(lb, "cannot be measured")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3)])
def test_a_tiny_picture_gives_a_map_or_says_why_not(name, size):
    lb = engine(name)
    try:
        lb.inputs(asking(grey(size)))
    except ValueError:
        return  # the processor itself refuses
    (picture,) = quiet_pictures(lb, asking(grey(size)))
    assert picture.columns.tolist() == list(range(len(picture.columns)))
    assert picture.boxes is None or np.isfinite(picture.boxes).any()


def shown(views, tower="clip_vision_model"):
    """A config with 2 x 2 cells in a view, and what a processor makes of pictures: black views."""
    config = SimpleNamespace(vision_config=SimpleNamespace(patch_size=4, model_type=tower))
    pixels = torch.zeros(views, 3, 8, 8)
    inputs = {"pixel_values": pixels, "pixel_values_videos": pixels[None]}
    return config, SimpleNamespace(places=(inputs, inputs, inputs), numbers=inputs)


@pytest.mark.parametrize(
    ("views", "counts", "tower"),
    [
        (2, [4], "clip_vision_model"),  # a view that is nobody's
        (1, [8], "clip_vision_model"),  # a view is missing
        (2, [4, 5], "clip_vision_model"),  # a class token of one view alone
        (1, [5], "siglip_vision_model"),  # one of a tower that has none
    ],
)
def test_views_that_do_not_make_up_the_tokens_are_not_shared_out(views, counts, tower):
    config, probe = shown(views, tower)
    with pytest.raises(NoMapError):
        view_tokens(Layout("views"), config, probe, [(8, 8)] * len(counts), counts)


@pytest.mark.parametrize(
    ("count", "tower"), [(10, "siglip_vision_model"), (12, "clip_vision_model")]
)
def test_frames_with_tokens_that_the_tower_does_not_make_have_no_map(count, tower):
    config, probe = shown(2, tower)
    with pytest.raises(NoMapError, match=f"{count} tokens"):
        view_steps(Layout("views"), config, probe, 0, [(8, 8)] * 2, count)


def test_each_picture_is_merged_by_its_own_number():
    """VideoLLaMA 3 says it with each; 4 x 4 patches, and 4 x 8 of which two by two are merged."""
    inputs = {
        "image_grid_thw": torch.tensor([[1, 4, 4], [1, 4, 8]]),
        "image_merge_sizes": torch.tensor([1, 2]),
    }
    found = patch_tokens(LAYOUTS["video_llama_3"], SimpleNamespace(), inputs, "image")
    assert [one.grids[0].places.shape for one in found] == [(4, 4), (2, 4)]


def test_views_are_cut_to_the_sizes_that_are_said_of_each_and_of_no_others():
    """Sizes of the images say nothing of their tiles."""
    pixels, config = torch.zeros(2, 3, 8, 8), SimpleNamespace()
    cut = read_views({"pixel_values": pixels, "image_sizes": [[4, 6], [8, 2]]}, config)
    assert [one.shape for one in cut] == [(3, 4, 6), (3, 8, 2)]
    whole = read_views({"pixel_values": pixels, "image_sizes": [[4, 6]]}, config)
    assert [one.shape for one in whole] == [(3, 8, 8)] * 2
