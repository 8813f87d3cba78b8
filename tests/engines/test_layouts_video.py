"""Frames of videos: which tokens each has, and where they lie on it."""

import warnings

import numpy as np
import pytest
from engines import real_processors
from engines.seeing import (
    change,
    embeddings,
    frame_number,
    grey,
    pictures_of,
    with_spot,
    without_mixing,
)
from engines.test_video import with_video
from zoo.torchvision_parts import install
from zoo.videos import FRAMES, PATCHES

from lookback.conversations import Conversation

CLIP = [grey((120, 80), seed) for seed in range(8)]
STAND_INS = {name: name for name in PATCHES + FRAMES}
REAL = {f"{name}, its own processor": name for name in real_processors.VIDEOS}


@pytest.fixture(params=[*STAND_INS, *REAL])
def lb(request, monkeypatch):
    if request.param in STAND_INS:
        return with_video(request.param, monkeypatch)
    install(monkeypatch)
    return real_processors.with_video(REAL[request.param], monkeypatch)


def asking(frames):
    return Conversation.of(None, "what is in the video?", video=frames)


def test_a_spot_in_a_frame_changes_that_frames_token(lb):
    found = pictures_of(lb, asking(CLIP))
    assert [picture.name for picture in found] == [f"video:0/{k}" for k in range(len(found))]
    shown = [frame_number(one.image, CLIP) for one in found]
    assert shown == sorted(set(shown))
    assert shown[0] == 0
    assert len(shown) > 1
    columns = np.concatenate([picture.columns for picture in found])
    assert columns.tolist() == list(range(len(columns)))
    rng = np.random.default_rng(0)
    with without_mixing(lb.model):
        before = embeddings(lb, asking(CLIP))
        for frame, picture in zip(shown, found, strict=True):
            (grid,) = picture.grids
            for cell in rng.choice(grid.ravel(), 3):
                clip = list(CLIP)
                clip[frame] = with_spot(clip[frame], picture.boxes[cell])
                changed = change(before, embeddings(lb, asking(clip)))
                assert changed.argmax() == picture.columns[cell]
                others = np.setdiff1d(np.arange(len(changed)), picture.columns)
                assert changed[others].max() < 1e-4


def test_merged_frames_are_one_picture(monkeypatch):
    """Qwen takes two frames for a step in time; a spot in the second is the step's too."""
    install(monkeypatch)
    lb = real_processors.with_video("qwen2_vl", monkeypatch)
    found = pictures_of(lb, asking(CLIP))
    assert [frame_number(picture.image, CLIP) for picture in found] == [0, 2, 4, 6]
    second = list(CLIP)
    second[3] = with_spot(CLIP[3], found[1].boxes[5])
    with without_mixing(lb.model):
        changed = change(embeddings(lb, asking(CLIP)), embeddings(lb, asking(second)))
    assert changed.argmax() == found[1].columns[5]


def test_frames_that_the_processor_leaves_out_have_no_picture(monkeypatch):
    """Qwen3-VL takes a list of frames for 24 a second, and 2 of them a second."""
    install(monkeypatch)
    lb = real_processors.with_video("qwen3_vl", monkeypatch)
    clip = [grey((64, 64), seed) for seed in range(24)]
    found = pictures_of(lb, asking(clip))
    shown = [frame_number(one.image, clip) for one in found]
    assert 1 < len(shown) < 12
    assert shown[0] == 0
    assert shown == sorted(set(shown))


def test_the_token_behind_the_frames_has_no_place(monkeypatch):
    lb = with_video("llava_onevision", monkeypatch)
    *_, last = pictures_of(lb, asking(CLIP))
    assert np.isnan(last.boxes[-1]).all()
    assert np.isfinite(last.boxes[:-1]).all()


def test_an_image_and_a_video_have_columns_of_their_own(lb):
    content = [
        {"type": "video", "video": CLIP},
        {"type": "image", "image": grey((90, 60))},
        {"type": "text", "text": "what?"},
    ]
    conversation = Conversation.from_messages([{"role": "user", "content": content}])
    _, mask = lb.inputs(conversation)
    image, *frames = pictures_of(lb, conversation)
    assert image.name == "image:0"
    assert frames[0].name == "video:0/0"
    columns = np.concatenate([one.columns for one in frames] + [image.columns])
    assert columns.tolist() == list(range(int(mask.sum())))
    assert all(one.boxes is not None for one in [image, *frames])


def test_two_videos_are_told_apart(monkeypatch):
    lb = with_video("qwen2_vl", monkeypatch)
    content = [
        {"type": "video", "video": CLIP[:2]},
        {"type": "video", "video": CLIP},
        {"type": "text", "text": "what?"},
    ]
    conversation = Conversation.from_messages([{"role": "user", "content": content}])
    found = pictures_of(lb, conversation)
    assert [one.name for one in found] == ["video:0/0", *(f"video:1/{k}" for k in range(4))]
    assert frame_number(found[1].image, CLIP) == 0
    assert frame_number(found[2].image, CLIP) == 2
    alone = pictures_of(lb, conversation, "video:1")
    assert [one.name for one in alone] == [f"video:1/{k}" for k in range(4)]
    assert alone[0].columns[0] == 0


def test_frames_that_do_not_add_up_have_no_map(monkeypatch):
    lb = with_video("qwen2_vl", monkeypatch)
    monkeypatch.setattr(lb.model.config.vision_config, "spatial_merge_size", 7)
    with pytest.warns(UserWarning, match="no map of where"):
        (flat,) = pictures_of(lb, asking(CLIP))
    assert flat.name == "video:0"
    assert flat.boxes is None
    assert frame_number(flat.image, CLIP) == 0


def test_one_frame_is_a_video_too(lb):
    try:
        lb.inputs(asking(CLIP[:1]))
    except ValueError:
        return  # Qwen3-VL's processor wants two
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = pictures_of(lb, asking(CLIP[:1]))
    assert [one.name for one in found] == ["video:0/0"]
