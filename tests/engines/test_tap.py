"""The tap itself: what the last row may see, which layers were read, what a layer tells."""

import copy
import json
import pickle
import weakref

import numpy as np
import pytest
import torch
from engines.reference import (
    QUESTION,
    attention,
    eager_maps,
    inputs_of,
    noise,
    prefill,
    whole,
)
from zoo import OLDEST, build
from zoo.configs_odd import SPARSE, build_odd

import lookback
from lookback.engines.transformers.attention.tap import (
    Call,
    LastRow,
    _bias_of_row,
    current_reader,
    reading,
    tapped,
)
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.support import decoder_configs

CPU = torch.device("cpu")


def visible(keys, seen, window):
    """Which of a layer's keys the last of `seen` positions may look at, one by one."""
    oldest = max(0, seen - keys)  # a sliding cache holds the newest positions
    first = 0 if window is None else seen - window  # a window counts the row's own position
    return [first <= oldest + place < seen for place in range(keys)]


def shown(bias, keys):
    return [True] * keys if bias is None else (bias[0, 0] == 0).tolist()


@pytest.mark.parametrize("window", [None, 1, 4, 8, 9, 10, 11])
@pytest.mark.parametrize(("keys", "seen"), [(9, 9), (9, 20), (9, 5), (9, 8), (9, 10)])
def test_the_keys_that_the_last_row_sees(keys, seen, window):
    """All of them, the newest alone, or some with room to spare; with every kind of window."""
    expected = visible(keys, seen, window)
    assert shown(_bias_of_row(None, 2, keys, seen, window, CPU), keys) == expected
    padding = torch.ones(1, seen, dtype=torch.long)
    padding[0, : seen - 3] = 0
    if keys <= seen:  # as a flash kernel is given it
        both = [a and b for a, b in zip(expected, padding[0, -keys:].tolist(), strict=True)]
        assert shown(_bias_of_row(padding, 2, keys, seen, window, CPU), keys) == both


@pytest.mark.parametrize("heads", [1, 2])
def test_the_row_of_a_whole_mask_is_its_last(heads):
    mask = torch.rand(3, heads, 4, 12, generator=torch.Generator().manual_seed(0)) < 0.5
    expected = mask[:, :, 3, :9]  # a static cache's mask may be longer than its keys
    assert torch.equal(_bias_of_row(mask, 2, 9, 9, None, CPU) == 0, expected)
    numbers = torch.randn(3, heads, 4, 12, dtype=torch.bfloat16)
    found = _bias_of_row(numbers, 2, 9, 9, None, CPU)
    assert torch.equal(found, numbers[:, :, 3, :9].float())


def test_a_mask_for_some_of_the_heads_is_refused():
    with pytest.raises(lookback.UnsupportedModelError, match="4 heads attends with 2 masks"):
        _bias_of_row(torch.ones(1, 2, 1, 9, dtype=torch.bool), 4, 9, 9, None, CPU)


def test_a_mask_that_is_no_tensor_is_refused():
    with pytest.raises(lookback.UnsupportedModelError, match="Blocks"):
        _bias_of_row(type("Blocks", (), {})(), 4, 9, 9, None, CPU)


@pytest.fixture(params=[0, 1, 2])
def partly_tapped(request):
    """An engine on a model of 3 layers, one of which reads a config that is not the decoder's."""
    zoo = build("llava")
    model = copy.deepcopy(zoo.model)
    lb = lookback.load(model, zoo.processor)
    attention = model.get_decoder().layers[request.param].self_attn
    own = copy.deepcopy(attention.config)
    own.__class__ = type("OwnConfig", (type(own),), {})
    attention.config = own
    return lb


def test_a_layer_that_the_tap_does_not_see_is_refused(partly_tapped):
    """The mean over the other layers would be a number, and not A_t."""
    lb = partly_tapped
    inputs = inputs_of(lb, noise(), QUESTION)
    refused = pytest.raises(lookback.UnsupportedModelError, match="saw 2 of 3 attention layers")
    with refused:
        prefill(Decoder(lb.model), inputs)
    with lookback.record(lb), refused:
        lb.model.generate(**inputs, max_new_tokens=2)


@pytest.mark.parametrize("read", [0, 1, 2, 4])
def test_a_reader_counts_its_layers(read):
    reader = LastRow(torch.zeros(1, 5, dtype=torch.bool))
    for _ in range(read):
        reader.add(torch.zeros(1, 2, 1))
    with pytest.raises(lookback.UnsupportedModelError, match=f"saw {read} of 3"):
        reader.lookback(3)
    assert reader.layers_read == 0  # and the next pass begins anew


def test_heads_count_alike_whatever_layer_they_are_in():
    """Eq. 3: the mean over all heads of all layers, not over the layers' means."""
    reader = LastRow(torch.zeros(1, 5, dtype=torch.bool), by_layer=True)
    reader.add(torch.tensor([0.2, 0.4, 0.6]).view(1, 3, 1))
    reader.add(torch.tensor([0.8]).view(1, 1, 1))
    torch.testing.assert_close(reader.lookback(2).flatten(), torch.tensor([0.5, 0.4, 0.8]))


def test_a_share_that_is_rounded_beyond_one_is_one():
    reader = LastRow(torch.zeros(1, 5, dtype=torch.bool))
    reader.add(torch.tensor([1.0000002, 1.0000002]).view(1, 2, 1))
    assert reader.lookback(1).item() == 1.0


def call(keys=6, window=None, mask=None, seed=0):
    query, key = torch.randn(2, 1, 2, keys, 4, generator=torch.Generator().manual_seed(seed))
    return Call(lambda *a, **k: (a[1], None), torch.nn.Module(), query, key, key, mask,
                {"sliding_window": window})  # fmt: skip


def shares(reader, *calls):
    for one in calls:
        reader.attend(one)
    return reader.lookback(len(calls)).tolist()


def test_layers_of_one_pass_may_have_windows_of_their_own():
    """What is made ready for one layer is taken by those alone that look the same way."""
    source = torch.tensor([[True, True, False, False, True, False]])
    both = shares(LastRow(source, by_layer=True), call(window=2), call(window=None))
    alone = [shares(LastRow(source), call(window=window)) for window in (2, None)]
    assert both[1:] == [alone[0][0], alone[1][0]]
    assert alone[0] != alone[1]


def test_a_reader_begins_each_pass_anew():
    """With as many keys and no mask again, but another source (a static cache, for instance)."""
    source = torch.tensor([[True, False, False, False, False, False]])
    reader = LastRow(source)
    first = shares(reader, call())
    reader.source = ~source
    assert shares(reader, call()) == shares(LastRow(~source), call()) != first


def test_a_mask_is_known_as_long_as_it_is_remembered():
    """By its id, which another mask may get once it is gone."""
    reader = LastRow(torch.zeros(1, 6, dtype=torch.bool))
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    alive = weakref.ref(mask)
    reader.attend(call(mask=mask))
    del mask
    assert alive() is not None
    reader.reset()
    assert alive() is None


def test_a_reader_works_inside_its_block_alone():
    outer, inner = (LastRow(torch.zeros(1, 1, dtype=torch.bool)) for _ in range(2))
    with reading(outer):
        with reading(inner):
            assert current_reader() is inner
        with reading(None):
            assert current_reader() is None
        assert current_reader() is outer
    assert current_reader() is None


def test_the_scale_is_the_layers_own_or_of_its_heads():
    assert call().settings().scale == 0.5  # heads of 4
    told = Call(print, torch.nn.Module(), torch.zeros(1, 2, 6, 4), None, None, None, {"scaling": 3})
    assert told.settings().scale == 3.0


def sparse(name):
    if OLDEST:
        pytest.skip("transformers 5.16 has no such decoder")
    return build_odd(name).model


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_models_that_compare_the_name_do_what_they_do_without_the_tap(name, implementation):
    """Sparse layers build their mask for some attention functions by name, and for no others."""
    model, ids = sparse(name), torch.arange(10, 40)[None]
    with attention(model, implementation), torch.no_grad():
        plain = model(input_ids=ids).logits
        with lookback.record(model):
            inside = model(input_ids=ids).logits
        with tapped(decoder_configs(model)), reading(None):
            at_work = model(input_ids=ids).logits
    assert torch.equal(inside, plain)
    assert torch.equal(at_work, plain)


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa"])
def test_keys_that_a_sparse_layer_does_not_choose_are_not_read(name):
    """Without a cache, which has keys of another kind."""
    model = sparse(name)
    inputs = inputs_of(lookback.load(build("llava").model, build("llava").processor), noise())
    with lookback.record(model) as rec:
        out = model.generate(
            **inputs, max_new_tokens=4, do_sample=False, use_cache=False, eos_token_id=-1
        )
    (one,) = rec.candidates(out)
    columns = (inputs["input_ids"][0] == model.config.image_token_id).nonzero()[:, 0]
    for t in range(1, 4):  # what a row chooses may change with the tokens behind it
        _, maps = eager_maps(model, whole(model, inputs, one.token_ids[:t]))
        rows = torch.cat([m[:, -1] for m in maps])
        assert (rows == 0).any(-1).all()  # few keys are chosen
        np.testing.assert_allclose(one.visual_lookback[t], rows[:, columns].sum(-1).mean(), 1e-4)


@pytest.mark.parametrize("name", SPARSE)
def test_continuations_of_a_sparse_layer_are_refused(name):
    with pytest.raises(lookback.UnsupportedModelError, match="Layer"):
        Decoder(sparse(name))


def test_the_name_is_the_models_own_to_all_that_compare_it():
    config = build("llava").model.config.get_text_config()
    plain = config._attn_implementation
    with tapped([config]):
        name = config._attn_implementation
        for same in (name, copy.deepcopy(config)._attn_implementation):
            assert same == plain
            assert plain == same
            assert (same != plain) is False
            assert same in ("eager", plain)
            assert same.startswith(plain)
            assert f"{same}" == json.loads(json.dumps(same)) == plain
            assert {"other": 1, plain: 2}.get(same) is None  # registries look up the tap by it
        assert {name: 3}[pickle.loads(pickle.dumps(name))] == 3
    assert type(config._attn_implementation) is str
