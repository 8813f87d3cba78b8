"""A_t in each layer, against eager maps: given, sampled and recorded; and the laws it keeps."""

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_by_layer, inputs_of, noise
from zoo import TOLERANCE, build

import lookback
from lookback.conversations import Conversation
from lookback.engines.transformers.attention.tap import Call, LastRow, Reader

FAMILIES = {
    "llava_gqa": 3,
    "qwen2_5_vl": 3,
    "gemma3": 4,  # every other layer with a window that is shorter than the prompt
    "lfm2_vl": 2,  # two of four layers are convolutions
    "qwen3_5": 2,  # two of four layers keep a state
    "gemma4": 6,  # the last layers share the keys of others
}
"""How many layers of each attend."""


@pytest.fixture(params=FAMILIES)
def zoo(request):
    return build(request.param)


@pytest.fixture
def lb(zoo):
    return lookback.load(zoo.model, zoo.processor)


def compare(zoo, lb, candidates):
    inputs = inputs_of(lb, noise())
    for c in candidates:
        assert c.by_layer.shape == (len(c.tokens), FAMILIES[zoo.name])
        if len(c.tokens):
            expected = eager_by_layer(zoo.model, inputs, c.token_ids.tolist())
            np.testing.assert_allclose(c.by_layer, expected, atol=TOLERANCE, rtol=TOLERANCE)
            # As many heads in every layer: then A_t is the mean over layers.
            np.testing.assert_allclose(c.by_layer.mean(1), c.visual_lookback, atol=1e-6)


def test_given_responses(zoo, lb):
    responses = [[30, 31, 32, 33, 34, 35], [40], [50, 51, 52]]
    found = lb.score(noise(), QUESTION, responses, by_layer=True)
    compare(zoo, lb, found)
    layers = np.concatenate([c.by_layer for c in found])
    assert layers.std(axis=1).max() > 0.01  # layers differ


def test_sampled_responses(zoo, lb):
    found = lb.sample(noise(), QUESTION, 4, max_new_tokens=8, seed=3, by_layer=True)
    assert sum(len(c.tokens) for c in found) > 4
    compare(zoo, lb, found)


def test_recorded_responses(zoo, lb):
    torch.manual_seed(0)
    with lookback.record(zoo.model, zoo.processor, by_layer=True) as rec:
        out = zoo.model.generate(
            **inputs_of(lb, noise()), do_sample=True, num_return_sequences=2, max_new_tokens=6
        )
    compare(zoo, lb, rec.candidates(out))


@pytest.fixture
def llava():
    zoo = build("llava")
    return lookback.load(zoo.model, zoo.processor)


def test_of_one_image_among_two(llava):
    images = [noise(1), noise(2)]
    (found,) = llava.score(images, QUESTION, [[30, 31, 32]], source="image:1", by_layer=True)
    inputs, mask = llava.inputs(Conversation.of(images, QUESTION), "image:1")
    expected = eager_by_layer(llava.model, inputs, [30, 31, 32], mask)
    np.testing.assert_allclose(found.by_layer, expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_without_a_source_it_is_zero(llava):
    (found,) = llava.score(None, QUESTION, [[30, 31]], source="none", by_layer=True)
    assert found.by_layer.tolist() == [[0.0] * 3] * 2


def test_piece_by_piece(llava):
    """A long response goes through in pieces, many responses in batches."""
    responses = [list(range(30, 30 + length)) for length in (9, 2, 7, 7)]
    whole = llava.score(noise(), QUESTION, responses, by_layer=True)
    llava.decoder.batch_rows = 3
    for a, b in zip(whole, llava.score(noise(), QUESTION, responses, by_layer=True), strict=True):
        np.testing.assert_allclose(a.by_layer, b.by_layer, atol=TOLERANCE)


def test_it_is_cut_with_the_tokens(llava):
    """At the end token and at a stop text."""
    draw = {"n": 8, "max_new_tokens": 12, "seed": 5, "by_layer": True}
    whole = llava.sample(noise(), QUESTION, keep_end=True, **draw)
    ended = llava.sample(noise(), QUESTION, **draw)
    stop = next(c.tokens[2] for c in ended if len(c.tokens) > 4)
    stopped = llava.sample(noise(), QUESTION, stop=stop, **draw)
    shorter = 0
    for a, *others in zip(whole, ended, stopped, strict=True):
        for b in others:
            assert len(b.by_layer) == len(b.tokens)
            np.testing.assert_allclose(b.by_layer, a.by_layer[: len(b.tokens)], atol=TOLERANCE)
            shorter += len(b.tokens) < len(a.tokens)
    assert shorter


def test_it_is_not_kept_unless_asked_for(llava):
    assert {c.by_layer for c in llava.sample(noise(), QUESTION, 2, max_new_tokens=3)} == {None}
    assert {c.by_layer for c in llava.score(noise(), QUESTION, ["a"])} == {None}
    with lookback.record(llava) as rec:
        out = llava.model.generate(**inputs_of(llava, noise()), max_new_tokens=2)
    assert {c.by_layer for c in rec.candidates(out)} == {None}


class Given(Reader):
    """A reader that is handed its shares."""

    def attend(self, call: Call):
        raise AssertionError("no model is asked")


def test_layers_of_unequal_heads_weigh_by_heads():
    reader = Given(by_layer=True)
    shares = [torch.rand(2, heads, 3) for heads in (2, 8, 4)]
    for share in shares:
        reader.add(share)
    found = reader.lookback(3)
    assert found.shape == (4, 2, 3)
    for row, share in zip(found[1:], shares, strict=True):
        torch.testing.assert_close(row, share.mean(1))
    torch.testing.assert_close(found[0], torch.cat(shares, 1).mean(1))
    weights = torch.tensor([2.0, 8.0, 4.0]) / 14
    torch.testing.assert_close(found[0], (found[1:] * weights[:, None, None]).sum(0))


def test_a_reader_begins_anew():
    reader = LastRow(torch.zeros(1, 3, dtype=torch.bool), by_layer=True)
    reader.add(torch.full((1, 2, 1), 0.5))
    reader.reset()  # a pass that broke off
    reader.add(torch.full((1, 2, 1), 0.25))
    assert reader.lookback(1).flatten().tolist() == [0.25, 0.25]
