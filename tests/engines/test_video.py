"""Videos in a conversation: their tokens are vision, alone and beside images."""

import numpy as np
import pytest
from engines.reference import QUESTION, eager_signals, noise
from zoo import build
from zoo.images import PilVideo

import lookback
from lookback.conversations import Conversation
from lookback.signals import SIGNALS

CLIP = [noise(seed // 2) for seed in range(6)]  # three steps in time, of two frames each


@pytest.fixture(params=["qwen2_vl", "qwen2_5_vl"])
def lb(request, monkeypatch):
    zoo = build(request.param)
    video = PilVideo(zoo.processor.image_processor)
    monkeypatch.setattr(zoo.processor, "video_processor", video)
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
    inputs, mask = lb._inputs(Conversation.from_messages(messages), source)
    (found,) = lb.score(messages=messages, responses=["a red circle"], source=source)
    expected = eager_signals(lb.model, inputs, found.token_ids.tolist(), mask)
    ours = np.stack([getattr(found, name) for name in SIGNALS])
    np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-4)
    ids = inputs["input_ids"][0]
    counts = {kind: int((ids == token).sum()) for kind, token in lb._prompter.media_tokens.items()}
    wanted = {
        None: counts["image"] + counts["video"],
        "last-turn": counts["video"],
        "video:0": counts["video"],
        "image:0": counts["image"],
        "video:1": counts["video"] * 3 // 4,  # three steps of four
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


def test_a_response_may_not_have_the_videos_placeholder(lb):
    token = lb._prompter.media_tokens["video"]
    with pytest.raises(ValueError, match="is the video placeholder"):
        lb.score(noise(), QUESTION, [[30, token]])


def test_a_model_that_takes_none_says_so():
    zoo = build("llava")
    with pytest.raises(lookback.UnsupportedModelError, match="takes no videos"):
        lookback.load(zoo.model, zoo.processor).score(
            messages=asking(("video", CLIP)), responses=["a"]
        )
