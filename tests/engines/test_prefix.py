"""One prompt, N continuations: the shared keys, the buffers behind them, positions and masks."""

from types import SimpleNamespace

import pytest
import torch

import lookback
from lookback.engines.common.compat import DynamicLayer, causal_mask_function
from lookback.engines.transformers.attention.tap import Call
from lookback.engines.transformers.decoding.prefix import (
    Prefix,
    SharedCache,
    SharedLayer,
    SharedPrefix,
    fold,
    unfold,
)


def numbers(*shape):
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def prompt(source, layers=1, **more):
    """A prompt whose keys and values say which position they are of."""
    source = torch.tensor(source, dtype=torch.bool)
    held = []
    for _ in range(layers):
        layer = DynamicLayer()
        positions = numbers(1, 1, len(source), 1).expand(1, 2, -1, 4)
        layer.update(positions.clone(), 100 + positions)
        held.append(layer)
    cache = SimpleNamespace(layers=held)
    ids = torch.arange(len(source)) + 50
    prefix = Prefix.of(cache, ids, source, torch.zeros(1, 8), torch.zeros(1, 1, 1))
    for name, value in more.items():
        setattr(prefix, name, value)
    return prefix


def test_source_keys_and_their_values_come_first():
    prefix = prompt([0, 1, 1, 0, 1, 0])
    assert prefix.order.tolist() == [1, 2, 4, 0, 3, 5]
    assert (prefix.source, prefix.last, prefix.length) == (3, 55, 6)
    assert prefix.layers[0].keys[0, 1, :, 2].tolist() == [1, 2, 4, 0, 3, 5]
    assert prefix.layers[0].values[0, 1, :, 2].tolist() == [101, 102, 104, 100, 103, 105]


def test_without_its_last_token_a_prompt_is_one_shorter():
    prefix = prompt([0, 1, 1, 0], layers=2, positions=torch.tensor([[9]]))
    shorter = prefix.without_last()
    assert shorter.order.tolist() == [1, 2, 0]
    assert shorter.positions.tolist() == [[8]]
    for layer in shorter.layers:
        assert layer.keys[0, 0, :, 0].tolist() == [1, 2, 0]
        assert layer.values[0, 0, :, 0].tolist() == [101, 102, 100]
    assert prefix.layers[0].keys.shape[2] == 4  # the whole one is as it was


def test_a_prompt_that_ends_with_a_source_token_asks_nothing():
    with pytest.raises(lookback.UnsupportedModelError, match="ends with a source token"):
        prompt([0, 1, 0, 1]).without_last()


def test_a_state_cannot_go_back():
    prefix = prompt([0, 1, 0])
    prefix.layers.append(SimpleNamespace())
    with pytest.raises(lookback.UnsupportedModelError, match="cannot go back by one token"):
        prefix.without_last()


@pytest.mark.parametrize("sizes", [[1] * 40, [3, 40, 1], [16, 1], [17, 17], [5, 10, 20, 60]])
def test_buffers_grow_and_forget_nothing(sizes):
    layer = SharedLayer(prompt([0, 1, 0]).layers[0])
    whole = numbers(2, 2, sum(sizes), 4)
    for part in whole.split(sizes, 2):
        keys, values = layer.update(part, -part)
    assert torch.equal(keys, whole)
    assert torch.equal(values, -whole)
    assert layer.get_seq_length() == 3 + sum(sizes)
    assert layer.get_mask_sizes(2) == (3 + sum(sizes) + 2, 0)
    assert keys.lookback_prefix is layer.prefix


def test_those_that_stay_keep_their_keys_and_values():
    layer = SharedLayer(prompt([0, 1, 0]).layers[0])
    layer.update(numbers(4, 2, 3, 4), -numbers(4, 2, 3, 4))
    layer.reorder_cache(torch.tensor([3, 1]))
    keys, values = layer.update(numbers(2, 2, 1, 4), -numbers(2, 2, 1, 4))
    kept = torch.cat([numbers(4, 2, 3, 4)[[3, 1]], numbers(2, 2, 1, 4)], 2)
    assert torch.equal(keys, kept)
    assert torch.equal(values, -kept)


def test_positions_go_on_after_the_prompt():
    cache = SharedCache(prompt([0, 1, 0]), 2)
    ids = torch.zeros(2, 3, dtype=torch.long)
    assert cache.next_positions(ids).tolist() == [[3, 4, 5]] * 2
    cache.fed = 4
    assert cache.next_positions(ids).tolist() == [[7, 8, 9]] * 2
    told = SharedCache(prompt([0, 1, 0], positions=torch.tensor([[[7]], [[2]], [[2]]])), 2)
    told.fed = 1
    assert told.next_positions(ids).tolist() == [[[8, 9, 10]] * 2, [[3, 4, 5]] * 2, [[3, 4, 5]] * 2]


@pytest.mark.parametrize("heads", [2, 4])
def test_folding_and_back(heads):
    query = numbers(3, heads, 5, 4)
    folded = fold(query, 2)
    assert folded.shape == (1, 2, 3 * heads // 2 * 5, 4)
    assert torch.equal(unfold(folded, 5, heads), query.unflatten(1, (2, -1)))


def mask_for(reader, padding):
    return reader.mask(
        None,
        batch_size=1,
        q_length=2,
        kv_length=5,
        q_offset=3,
        kv_offset=0,
        mask_function=causal_mask_function,
        attention_mask=padding,
    )


def test_a_plain_causal_mask_is_none_and_padding_is_not():
    reader = SharedPrefix(prompt([0, 1, 0]))
    assert mask_for(reader, None) is None
    assert mask_for(reader, torch.ones(1, 5, dtype=torch.bool)) is None
    padding = torch.ones(1, 5, dtype=torch.bool)
    padding[0, 1] = False
    found = mask_for(reader, padding)
    assert found.tolist() == [[[[True, False, True, True, False], [True, False, True, True, True]]]]


def call(reader, mask, keys=2, marked=True):
    layer = SharedLayer(reader.prefix.layers[0])
    key, value = layer.update(torch.randn(1, 2, keys, 4), torch.randn(1, 2, keys, 4))
    key = key if marked else key.clone()
    return Call(print, torch.nn.Module(), torch.randn(1, 2, 2, 4), key, value, mask, {})


@pytest.mark.parametrize("mask", [torch.zeros(1, 1, 2, 5), torch.ones(1, 2, 2, 5) > 0,
                                  torch.ones(1, 1, 2, 4) > 0])  # fmt: skip
def test_a_mask_of_a_models_own_is_refused(mask):
    reader = SharedPrefix(prompt([0, 1, 0]))
    with pytest.raises(lookback.UnsupportedModelError, match="a mask of its own"):
        reader.attend(call(reader, mask))


def test_keys_that_changed_behind_the_cache_are_refused():
    reader = SharedPrefix(prompt([0, 1, 0]))
    with pytest.raises(lookback.UnsupportedModelError, match="changes its keys after"):
        reader.attend(call(reader, None, marked=False))


@pytest.mark.parametrize("hidden", [None, [[True, False]], [[True, True]]])
@pytest.mark.parametrize("masked", [False, True])
def test_what_may_be_seen_is_in_the_order_of_the_text(hidden, masked):
    """Masks, hidden source tokens, both: against softmax over prompt and continuation."""
    torch.manual_seed(0)
    prefix = prompt([0, 1, 1, 0])
    keys = prefix.layers[0]
    keys.keys, keys.values = torch.randn(1, 2, 4, 4), torch.randn(1, 2, 4, 4)
    seen = torch.ones(2, 6, dtype=torch.bool).tril(4)
    if masked:
        seen = torch.tensor([[1, 0, 1, 1, 1, 0], [0, 1, 0, 1, 0, 1]]).bool()
    mask = seen[None, None] if masked else None
    if hidden is not None:
        seen = seen & ~torch.tensor([False, *hidden[0], False, False, False])
        hidden = torch.tensor(hidden)
    reader = SharedPrefix(prefix, hidden=hidden)
    one = call(reader, mask)
    out, _ = reader.attend(one)
    back = prefix.order.argsort()
    whole = torch.cat([keys.keys[:, :, back], one.key], 2)
    values = torch.cat([keys.values[:, :, back], one.value], 2)
    weights = (one.query @ whole.mT * 0.5).masked_fill(~seen, -torch.inf).softmax(-1)
    torch.testing.assert_close(out.transpose(1, 2), weights @ values)
    torch.testing.assert_close(reader.lookback(1)[0, 0], weights[0, :, :, 1:3].sum(-1).mean(0))


def test_masks_of_an_earlier_pass_are_forgotten():
    """They are known by their ids, which come again."""
    reader = SharedPrefix(prompt([0, 1, 0]))
    reader.attend(call(reader, torch.ones(1, 1, 2, 5, dtype=torch.bool)))
    assert reader._folded
    mask_for(reader, None)
    assert not reader._folded
