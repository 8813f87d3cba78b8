"""Where a response looked, against eager attention maps: rows, heads, layers, masks, sources."""

import copy

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_look, eager_maps, inputs_of, noise
from engines.test_video import CLIP, asking, with_video
from zoo import TOLERANCE, build

import lookback
from lookback.conversations import Conversation, SourceError
from lookback.engines.transformers.attention import source_weights
from lookback.engines.transformers.check import PeakMemory
from lookback.engines.transformers.decoding.source_attention import look

RESPONSE = [30, 31, 45, 33, 90, 35, 52]
FAMILIES = [
    "llava",
    "llava_gqa",  # query heads share key heads
    "qwen2_5_vl",
    "gemma3",  # windows shorter than the prompt, and images that see both ways
    "paligemma",  # a prompt whose rows see one another
    "lfm2_vl",  # convolutions
    "qwen3_5",  # states
    "gemma4",  # layers that share keys; unequal heads
    "llama4",  # attention in chunks
    "paligemma2",  # capped scores
]


def engine(name):
    zoo = build(name)
    return lookback.load(zoo.model, zoo.processor)


@pytest.fixture(params=FAMILIES)
def lb(request):
    return engine(request.param)


@pytest.fixture
def llava():
    return engine("llava")


def layer_choices(depth):
    return [(0, depth), (depth // 2, depth), (0, 1)]


def test_every_weight_equals_the_maps(lb):
    """Every row and column, of all layers and of some."""
    inputs, depth = inputs_of(lb, noise()), lb.decoder.layers
    for layers in layer_choices(depth):
        found = lb.look(noise(), QUESTION, RESPONSE, layers=layers)
        expected = eager_look(lb.model, inputs, RESPONSE, layers)
        assert (found.weights.shape, found.layers) == (expected.shape, layers)
        np.testing.assert_allclose(found.weights, expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("name", ["gemma3", "gemma4"])
def test_a_window_that_ends_within_the_image(name):
    """Of its tokens those that a row does not see have nothing, and the others all of it."""
    lb = engine(name)
    found = lb.look(noise(), "?", RESPONSE, layers=(0, 1))
    expected = eager_look(lb.model, inputs_of(lb, noise(), "?"), RESPONSE, (0, 1))
    np.testing.assert_allclose(found.weights, expected, atol=TOLERANCE, rtol=TOLERANCE)
    seen = (found.weights > 0).sum(1).tolist()
    assert 0 < seen[0] < found.source
    assert seen == [max(0, seen[0] - t) for t in range(len(seen))]  # one less with every token


def test_each_layer_sums_to_its_share(lb):
    scored = lb.score(noise(), QUESTION, [RESPONSE], by_layer=True)[0]
    for layer in range(lb.decoder.layers):
        found = lb.look(noise(), QUESTION, RESPONSE, layers=(layer, layer + 1))
        np.testing.assert_allclose(found.weights.sum(1), scored.by_layer[:, layer], atol=1e-6)


@pytest.mark.parametrize("scores", [1, 200])
@pytest.mark.parametrize("rows", [1, 3])
def test_pieces_do_not_matter(lb, rows, scores, monkeypatch):
    """Rows that go through a few at a time, and scores that are held a few at a time."""
    expected = lb.look(noise(), QUESTION, RESPONSE).weights
    monkeypatch.setattr(source_weights, "MATH_SCORES", scores)
    lb.decoder.batch_rows = rows
    found = lb.look(noise(), QUESTION, RESPONSE).weights
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "qwen3_5"])
@pytest.mark.parametrize("source", [None, "image:0", "image:1"])
def test_one_image_of_several(name, source):
    """Columns are the source's tokens in the order of the prompt, picture by picture."""
    lb, images = engine(name), [noise(1), noise(2, (40, 64))]
    found = lb.look(images, QUESTION, RESPONSE, source=source)
    inputs, mask = lb.inputs(Conversation.of(images, QUESTION), source)
    expected = eager_look(lb.model, inputs, RESPONSE, (0, lb.decoder.layers), mask)
    np.testing.assert_allclose(found.weights, expected, atol=TOLERANCE, rtol=TOLERANCE)
    names = ["image:0", "image:1"] if source is None else [source]
    assert [one.name for one in found.pictures] == names
    assert [one.image.size for one in found.pictures] == [
        images[int(one[-1])].size for one in names
    ]
    columns = np.concatenate([one.columns for one in found.pictures])
    assert columns.tolist() == list(range(int(mask.sum())))
    for one in found.pictures:  # the same tokens as if this picture alone were the source
        alone = lb.look(images, QUESTION, RESPONSE, source=one.name)
        np.testing.assert_allclose(found.weights[:, one.columns], alone.weights, atol=1e-6)


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_vl", "llava_onevision"])
@pytest.mark.parametrize("source", [None, "video:0", "image:0"])
def test_videos(name, source, monkeypatch):
    lb = with_video(name, monkeypatch)
    messages = asking(("image", noise(7)), ("video", CLIP))
    found = lb.look(messages=messages, response=RESPONSE, source=source)
    inputs, mask = lb.inputs(Conversation.from_messages(messages), source)
    expected = eager_look(lb.model, inputs, RESPONSE, (0, lb.decoder.layers), mask)
    np.testing.assert_allclose(found.weights, expected, atol=TOLERANCE, rtol=TOLERANCE)
    names = ["image:0", "video:0"] if source is None else [source]
    assert list(dict.fromkeys(one.name.partition("/")[0] for one in found.pictures)) == names
    assert np.concatenate([one.columns for one in found.pictures]).max() == found.source - 1


def test_a_text_as_the_source(llava):
    """Its tokens stand for no picture."""
    parts = [
        {"type": "image", "image": noise()},
        {"type": "text", "text": "The sky is blue today.", "source": True},
    ]
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "what is blue?"},
    ]
    found = llava.look(messages=messages, response="sky", relative_to="who?")
    (scored,) = llava.score(messages=messages, responses="sky")
    np.testing.assert_allclose(found.weights.sum(1), scored.visual_lookback, atol=1e-6)
    assert found.pictures == ()
    with pytest.raises(ValueError, match=r"no picture 0: this look has none; look\.weights"):
        found.heatmap(0)
    assert found.baseline.shape == found.weights.shape
    parts[1], messages = {"type": "text", "text": "what is blue?", "source": True}, messages[:1]
    messages[0]["content"] = parts
    with pytest.raises(SourceError, match="the question's own text is part of the source"):
        llava.look(messages=messages, response="sky", relative_to="who?")


def test_a_baseline_is_the_same_tokens_after_another_question(llava):
    other = "Describe the image."
    found = llava.look(noise(), QUESTION, "a red dog", relative_to=other)
    ids = found.token_ids.tolist()
    np.testing.assert_array_equal(
        found.baseline, llava.look(noise(), other, ids, layers=(0, 3)).weights
    )
    np.testing.assert_array_equal(found.weights, llava.look(noise(), QUESTION, ids).weights)
    assert not np.allclose(found.baseline, found.weights)


def test_texts_ids_and_candidates_are_one(llava):
    text = llava.look(noise(), QUESTION, "a red dog")
    (scored,) = llava.score(noise(), QUESTION, "a red dog")
    assert (text.text, text.tokens) == ("a red dog", scored.tokens)
    for response in (scored, scored.token_ids.tolist(), scored.token_ids):
        found = llava.look(noise(), QUESTION, response)
        np.testing.assert_array_equal(found.weights, text.weights)
        assert found.token_ids.tolist() == scored.token_ids.tolist()
        assert (found.text, found.tokens) == ("a red dog", scored.tokens)
    drawn = llava.sample(noise(), QUESTION, 1, max_new_tokens=5, seed=1)[0]
    found = llava.look(noise(), QUESTION, drawn)
    np.testing.assert_allclose(found.weights.sum(1), drawn.visual_lookback, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_rows_still_sum_to_the_share(dtype):
    """What a kernel rounds does not tear them apart."""
    zoo = build("llava")
    lb = lookback.load(copy.deepcopy(zoo.model).to(dtype), zoo.processor)
    found = lb.look(noise(), QUESTION, RESPONSE)
    (scored,) = lb.score(noise(), QUESTION, [RESPONSE])
    np.testing.assert_allclose(found.weights.sum(1), scored.visual_lookback, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"image": None}, SourceError, "this prompt has no source"),
        ({"source": "none"}, SourceError, 'source = "none": there is nothing that a response'),
        ({"response": ""}, ValueError, "empty"),
        ({"response": []}, ValueError, "empty"),
        ({"response": ["a dog", "a cat"]}, ValueError, "one response, got 2"),
        ({"response": [[30], [31]]}, ValueError, "one response, got 2"),
        ({"response": 7}, ValueError, "the response is 7"),
        ({"response": [10**6]}, ValueError, "token id 1000000 is outside the vocabulary"),
        ({"layers": (0, 9)}, ValueError, r"layers 0-9 .* has 3 attention layers"),
        ({"layers": (2, 2)}, ValueError, "layers 2-2"),
        ({"layers": (-1, 2)}, ValueError, "layers -1-2"),
        ({"layers": 2}, ValueError, "layers = 2: the first and the end"),
        ({"layers": (0.5, 2)}, ValueError, r"layers = \(0.5, 2\): the first and the end"),
        ({"source": "image:1"}, SourceError, "image:1"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(llava, arguments, error, message):
    given = {"image": noise(), "question": QUESTION, "response": "a dog"} | arguments
    with pytest.raises(error, match=message):
        llava.look(**given)


def test_several_candidates_are_refused(llava):
    drawn = llava.sample(noise(), QUESTION, 2, max_new_tokens=3, seed=1)
    with pytest.raises(ValueError, match="one response, got 2"):
        llava.look(noise(), QUESTION, drawn)


def test_progress_is_told_of_all_passes(llava):
    seen = []
    llava.decoder.batch_rows = 2
    llava.look(noise(), QUESTION, RESPONSE, relative_to="who?", progress=lambda *x: seen.append(x))
    assert seen[0] == (1, 14)
    assert seen[-1] == (14, 14)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    seen.clear()
    llava.look(noise(), QUESTION, [30], progress=lambda *x: seen.append(x))
    assert seen == [(1, 1)]


def peak_of_looking(lb, length, layers):
    """Bytes that a look of one response takes beside what scoring it takes."""
    inputs, mask = lb.inputs(Conversation.of(noise(), QUESTION))
    response = [30 + i % 60 for i in range(length)]
    with PeakMemory() as memory:
        look(lb.decoder, inputs, mask, response, layers)
    with PeakMemory() as plain:
        lb.decoder.score(lb.decoder.prefill(inputs, mask), [response])
    return memory.peak - plain.peak, int(mask.sum())


def test_memory_does_not_grow_with_layers_and_heads(llava, monkeypatch):
    """As much for one layer as for all; for rows, far less than the maps of one layer's heads."""
    monkeypatch.setattr(source_weights, "MATH_SCORES", 1000)
    llava.decoder.batch_rows = 10**6
    taken = {
        (length, depth): peak_of_looking(llava, length, (0, depth))
        for length in (100, 200)
        for depth in (1, 3)
    }
    heads, source = llava.model.config.text_config.num_attention_heads, taken[100, 1][1]
    assert taken[100, 3] == taken[100, 1]
    assert taken[200, 3] == taken[200, 1]
    more = taken[200, 3][0] - taken[100, 3][0]
    assert more <= 100 * source * 4 * 3  # the rows themselves, those of a layer, their sum
    assert heads > 3


def test_an_ordinary_prompt_costs_nothing_more(llava):
    """Weights of its last row are read only if they are asked for."""
    inputs, mask = llava.inputs(Conversation.of(noise(), QUESTION))
    assert llava.decoder.prefill(inputs, mask).weights is None
    read = llava.decoder.prefill(inputs, mask, (0, 3)).weights
    _, maps = eager_maps(llava.model, inputs)
    expected = torch.cat([m[:, -1, mask] for m in maps]).mean(0, keepdim=True)
    torch.testing.assert_close(read, expected, atol=TOLERANCE, rtol=TOLERANCE)
