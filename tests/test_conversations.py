"""Conversations: what the chat format may look like, and what is said of anything else."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from engines.reference import noise

from lookback.conversations import Conversation, Source, SourceError
from lookback.io.limits import LimitError


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def user(*parts):
    return [{"role": "user", "content": list(parts)}]


TEXT = {"type": "text", "text": "what?"}


def test_image_and_question_are_a_conversation_of_one_turn():
    one = Conversation.of(noise(), "what?")
    assert [(turn.role, turn.text) for turn in one.turns] == [("user", "what?")]
    assert [part.kind for part in one.turns[0].parts] == ["image", "text"]
    two = Conversation.of([noise(), noise(1)], "what?")
    assert len(two.images) == 2
    assert Conversation.of(None, "what?").images == []
    assert one.question == one.transcript == "what?"


@pytest.mark.parametrize("key", ["image", "url", "path"])
def test_an_image_stands_under_any_of_its_names(tmp_path, key):
    noise().save(tmp_path / "a.png")
    (image,) = Conversation.from_messages(
        user({"type": "image", key: str(tmp_path / "a.png")}, TEXT)
    ).images
    assert image.tobytes() == noise().tobytes()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "image": png(noise())},
        {"type": "image", "base64": base64.b64encode(png(noise())).decode()},
        {"type": "image", "image": noise()},
    ],
)
def test_an_image_may_be_in_the_message(part):
    conversation = Conversation.from_messages(user(part, TEXT))
    assert conversation.images[0].tobytes() == noise().tobytes()
    (kept,) = conversation.to_json()
    assert kept["content"][0]["image"].startswith("sha256:")
    assert kept["content"][1] == TEXT


def test_files_and_urls_keep_their_names():
    parts = [
        {"type": "image", "image": "a.png"},
        {"type": "image_url", "image_url": {"url": "https://x.org/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": "b.png"},
    ]
    kept = Conversation.from_messages(user(*parts, TEXT)).to_json()
    names = ["a.png", "https://x.org/a.png", "b.png"]
    assert [part.get("image") for part in kept[0]["content"]] == [*names, None]
    again = Conversation.from_messages(kept).to_json()
    assert again == kept == json.loads(json.dumps(kept))


def test_other_pixels_have_another_hash():
    names = {
        json.dumps(Conversation.of(image, "?").to_json())
        for image in (noise(), noise(1), noise().convert("L"), noise().resize((40, 49)))
    }
    assert len(names) == 4
    assert Conversation.of(noise(), "?").to_json() == Conversation.of(noise(), "?").to_json()


def test_a_video_is_its_frames():
    frames = [noise(0), noise(1), noise(2)]
    found = Conversation.from_messages(user({"type": "video", "video": frames}, TEXT))
    assert [len(video) for video in found.videos] == [3]
    assert found.images == []
    assert len(found.to_json()[0]["content"][0]["video"]) == 3
    assert found.source() == Source(videos=frozenset({0}))


def test_arrays_and_tensors_are_images_and_frames():
    image = noise()
    expected = Conversation.of([image], "what?", video=[image, image])
    pixels = np.asarray(image)
    clip = np.stack([pixels, pixels])
    for array in (np.array, torch.tensor):
        given = [
            Conversation.of(array(pixels), "what?", video=array(clip)),
            Conversation.of([array(pixels)], "what?", video=list(array(clip))),
            Conversation.from_messages(
                user(
                    {"type": "image", "image": array(pixels)},
                    {"type": "video", "video": array(clip)},
                    TEXT,
                )
            ),
        ]
        for one in given:
            assert [i.tobytes() for i in one.images] == [image.tobytes()]
            assert [[i.tobytes() for i in video] for video in one.videos] == [[image.tobytes()] * 2]
            assert one.to_json() == expected.to_json()


@pytest.mark.parametrize("media", [np.zeros((3, 40, 50)), torch.zeros(3, 40, 50), 42, [noise()]])
def test_what_is_no_image_is_named_without_what_is_in_it(media):
    given = Conversation.from_messages(user({"type": "image", "image": media}, TEXT))
    for ask in (lambda: given.images, given.to_json):
        with pytest.raises(ValueError, match="is no image") as error:
            ask()
        assert len(str(error.value)) < 400


@pytest.mark.parametrize("video", [3, b"abc", noise(), np.zeros((40, 50, 3), np.uint8)])
def test_what_is_no_video_is_refused_at_once(video):
    with pytest.raises(ValueError, match="video"):
        Conversation.of(None, "what?", video=video)


def test_turns_and_transcript():
    messages = [
        {"role": "system", "content": "Be brief."},
        *user({"type": "image", "image": noise()}, {"type": "text", "text": "who?"}),
        {"role": "assistant", "content": [{"type": "text", "text": "a dog"}]},
        *user(TEXT),
    ]
    found = Conversation.from_messages(messages)
    assert found.question == "what?"
    assert found.transcript == "System: Be brief.\nUser: who?\nAssistant: a dog\nUser: what?"


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ("what?", "must be a list of turns"),
        ([], "there are none"),
        ([{"role": "assistant", "content": "a"}], "the last is 'assistant'"),
        (["what?"], r"messages\[0\] is no turn"),
        ([{"role": "tool", "content": "a"}], r"messages\[0\]: the role is 'tool'"),
        ([{"role": "user"}], "must be text or parts"),
        ([{"role": "user", "content": []}], "must be text or parts"),
        (user("what?"), r"messages\[0\].content\[0\] is no part"),
        (user({"type": "text"}), "the text is None"),
        (user({"type": "input_audio"}), "the type is 'input_audio'; there are text, image"),
        (user({"type": "image"}, TEXT), r"content\[0\] has no image in it"),
        (user({"type": "image", "base64": "?"}, TEXT), "the image is no base64"),
        (user({"type": "video", "video": 3}, TEXT), "as a file or as a list of its frames"),
        (user({"type": "text", "text": "a", "source": "yes"}), "must be true or false"),
        ([{"role": "user", "content": "a\ud800"}], r"messages\[0\].*ud800"),
        (user(TEXT, {"type": "text", "text": "a\ud800"}), r"messages\[0\].content\[1\].*ud800"),
    ],
)
def test_anything_else_is_named(messages, said):
    with pytest.raises(ValueError, match=said):
        Conversation.from_messages(messages)


def test_other_images_for_the_same_words():
    parts = [{"type": "image", "image": noise(0)}, TEXT, {"type": "image", "image": noise(1)}]
    found = Conversation.from_messages(user(*parts))
    pixels = [image.tobytes() for image in found.with_images([noise(5)]).images]
    assert pixels == [noise(5).tobytes()] * 2
    pixels = [image.tobytes() for image in found.with_images([noise(5), noise(6)]).images]
    assert pixels == [noise(5).tobytes(), noise(6).tobytes()]  # in their order
    blind = found.with_images(None)
    assert (blind.images, blind.question) == ([], "what?")
    with pytest.raises(SourceError):
        blind.source()
    assert not blind.source("none")


def test_what_is_marked_is_the_source():
    parts = [{"type": "image", "image": noise(0)}, TEXT | {"source": True}, TEXT]
    found = Conversation.from_messages(user(*parts))
    assert found.source() == Source(texts=frozenset({0}))
    assert found.source("image:0") == Source(images=frozenset({0}))
    assert found.source(["image:0", "marked"]) == Source(frozenset({0}), texts=frozenset({0}))
    assert found.to_json()[0]["content"][1]["source"] is True
    assert np.all([found.with_images(None).source().texts == {0}])


@pytest.mark.parametrize("asked", [2, True, "image", [5]])
def test_what_is_no_source_is_named(asked):
    with pytest.raises(SourceError, match=f"source = {asked[0] if asked == [5] else asked!r}"):
        Conversation.of(noise(), "what?").source(asked)


def test_all_texts_together_are_of_limited_length(monkeypatch):
    monkeypatch.setenv("LOOKBACK_MAX_TEXT_CHARACTERS", "100")
    assert Conversation.of(None, "a" * 100).question == "a" * 100
    turns = [{"role": role, "content": "a" * 40} for role in ("user", "assistant", "user")]
    with pytest.raises(LimitError, match=r"120 characters.*LOOKBACK_MAX_TEXT_CHARACTERS"):
        Conversation.of(messages=turns)
    with pytest.raises(LimitError, match="101 characters"):
        Conversation.of(noise(), "a" * 101)
    with pytest.raises(LimitError, match="101 characters"):
        Conversation.of(None, "what?").with_question("a" * 101)


def test_a_text_of_a_hundred_megabytes_is_refused_before_any_tokenizer():
    with pytest.raises(LimitError, match="100,000,000 characters"):
        Conversation.of(None, "a" * 10**8)
