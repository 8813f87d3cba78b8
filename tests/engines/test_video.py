"""Videos in a conversation: their tokens are vision, alone and beside images."""

import re

import numpy as np
import pytest
from engines.reference import QUESTION, eager_signals, noise
from zoo import TOLERANCE, build
from zoo.videos import AS_IMAGES, FRAMES, PATCHES, VIDEO

import lookback
from lookback.conversations import Conversation
from lookback.signals import SIGNALS

CLIP = [noise(seed // 2) for seed in range(6)]  # three steps in time, of two frames each


@pytest.fixture(params=PATCHES)
def lb(request, monkeypatch):
    return with_video(request.param, monkeypatch)


def with_video(name, monkeypatch):
    """The family `name`, able to see videos for the time of a test."""
    zoo = build(name)
    monkeypatch.setattr(zoo.processor, "video_processor", VIDEO[name](zoo.processor))
    return lookback.load(zoo.model, zoo.processor)


def asking(*parts):
    content = [{"type": kind, kind: media} for kind, media in parts]
    return [{"role": "user", "content": [*content, {"type": "text", "text": QUESTION}]}]


@pytest.mark.parametrize(
    ("messages", "source"),
    [
        (asking(("video", CLIP)), None),
        (asking(("image", noise(7)), ("video", CLIP)), None),
        (asking(("video", CLIP), ("image", noise(7))), "video:0"),
        (asking(("video", CLIP), ("image", noise(7))), "image:0"),
        (asking(("video", CLIP[:2]), ("video", CLIP)), "video:1"),
        (asking(("video", CLIP[:2]), ("video", CLIP)), "last-turn"),
    ],
)
def test_signals_equal_eager_maps(lb, messages, source):
    compare(lb, messages, source, last=3 / 4)  # three steps of four


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize(
    ("messages", "source"),
    [
        (asking(("video", CLIP)), None),
        (asking(("image", noise(7)), ("video", CLIP)), None),
        (asking(("video", CLIP), ("image", noise(7))), "video:0"),
        (asking(("video", CLIP), ("image", noise(7))), "image:0"),
        (asking(("video", CLIP[::-1]), ("video", CLIP)), "video:1"),
    ],
)
def test_frames_of_videos_of_one_length_equal_eager_maps(name, messages, source, monkeypatch):
    compare(with_video(name, monkeypatch), messages, source, last=1 / 2)


def compare(lb, messages, source, last):
    """Signals against maps; `last` is the share of the video tokens that the second video has."""
    inputs, mask = lb.inputs(Conversation.from_messages(messages), source)
    (found,) = lb.score(messages=messages, responses=["a red circle"], source=source)
    expected = eager_signals(lb.model, inputs, found.token_ids.tolist(), mask)
    ours = np.stack([getattr(found, name) for name in SIGNALS])
    np.testing.assert_allclose(ours, expected, atol=TOLERANCE, rtol=TOLERANCE)
    ids = inputs["input_ids"][0]
    counts = {kind: int((ids == token).sum()) for kind, token in lb.prompter.media_tokens.items()}
    wanted = {
        None: counts["image"] + counts["video"],
        "last-turn": counts["video"],
        "video:0": counts["video"],
        "image:0": counts["image"],
        "video:1": counts["video"] * last,
    }
    assert int(mask.sum()) == wanted[source] > 0


def test_the_argument_says_the_same_as_a_message(lb):
    (spoken,) = lb.score(messages=asking(("video", CLIP)), responses=["a dog"])
    (plain,) = lb.score(None, QUESTION, ["a dog"], video=CLIP)
    np.testing.assert_array_equal(plain.visual_lookback, spoken.visual_lookback)
    drawn = lb.sample(None, QUESTION, 2, video=CLIP, max_new_tokens=4, seed=0)
    assert drawn.messages[0]["content"][0]["type"] == "video"
    assert len(lb.generate(None, ["what?", "why?"], video=CLIP, max_new_tokens=2)) == 2
    assert np.isfinite(drawn.scores("usc", max_new_tokens=2)).all()


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5"])
def test_timestamps_between_frames_are_not_counted(name, monkeypatch):
    """Qwen3-VL writes the time before each step: text between the vision tokens of one video."""
    lb = with_video(name, monkeypatch)
    inputs, mask = lb.inputs(Conversation.from_messages(asking(("video", CLIP))), None)
    ids = inputs["input_ids"][0]
    inside = ids[mask.nonzero()[0, 0] : mask.nonzero()[-1, 0] + 1]
    between = lb.prompter.decode_all(inside[inside != lb.prompter.media_tokens["video"]].tolist())
    assert between.count("seconds>") == 2  # the first of three stands before them all
    assert (ids[mask] == lb.prompter.media_tokens["video"]).all()


@pytest.mark.parametrize("name", AS_IMAGES)
def test_frames_written_as_images_are_refused(name, monkeypatch):
    """Nothing in the prompt tells them from images."""
    lb = with_video(name, monkeypatch)
    with pytest.raises(lookback.UnsupportedModelError, match="no video token"):
        lb.score(messages=asking(("video", CLIP)), responses=["a"])
    with pytest.raises(lookback.UnsupportedModelError, match="no video token"):
        lb.score(messages=asking(("image", noise()), ("video", CLIP)), responses=["a"])


def test_a_response_may_not_have_the_videos_placeholder(lb):
    token = lb.prompter.media_tokens["video"]
    with pytest.raises(ValueError, match="is the video placeholder"):
        lb.score(noise(), QUESTION, [[30, token]])


def test_a_model_that_takes_none_says_so():
    zoo = build("llava")
    with pytest.raises(lookback.UnsupportedModelError, match="takes no videos"):
        lookback.load(zoo.model, zoo.processor).score(
            messages=asking(("video", CLIP)), responses=["a"]
        )


@pytest.mark.parametrize("name", ["qwen2_vl", "llava_onevision", "glm4v"])
def test_a_question_may_not_have_the_videos_placeholder(name):
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    token = zoo.processor.tokenizer.convert_ids_to_tokens(lb.prompter.media_tokens["video"])
    for ask in (lambda image, text: lb.score(image, text, ["a"]), lb.generate):
        with pytest.raises(ValueError, match=re.escape(repr(token))):
            ask(noise(), f"what {token} is it?")


def test_a_text_behind_a_video_and_an_image_is_found(lb):
    """In the order in which they stand in the prompt, not by their kinds."""
    messages = asking(("video", CLIP), ("image", noise(7)))
    messages[0]["content"][-1]["source"] = True
    inputs, mask = lb.inputs(Conversation.from_messages(messages))
    assert lb.processor.tokenizer.decode(inputs["input_ids"][0][mask]).strip() == QUESTION
