"""Cache layers are known by their exact class: whatever a model derives for itself is refused."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.reference import eager_signals, inputs_of, noise, prefill
from transformers import cache_utils
from zoo import build
from zoo.configs_odd import build_odd

import lookback
from lookback.engines.common.compat import DynamicLayer, HybridLayer, StateLayer
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.prefix import SharedCache, has_state, prompt_cache

RESPONSES = [[30, 31, 32, 33, 34, 35, 36], [40], [50, 51, 52]]
LIBRARY = ["DynamicLayer", "DynamicSlidingWindowLayer", "LinearAttentionLayer"]


@pytest.fixture(params=LIBRARY)
def own_layer(request, monkeypatch):
    """A kind of layer that looks like one of the library's and keeps keys in a way of its own."""
    base = getattr(cache_utils, request.param)
    settings = {"sliding_window": 16} if "Sliding" in request.param else {}
    own = type("KeepsEveryOtherKey", (base,), {"__init__": lambda s: base.__init__(s, **settings)})
    monkeypatch.setitem(cache_utils.DYNAMIC_LAYER_TYPE_MAPPING, "full_attention", own)


@pytest.mark.usefixtures("own_layer")
def test_a_layer_that_a_model_derives_is_refused_by_name():
    """On a model whose config names its layers' kinds."""
    zoo = build("llava")
    model = copy.deepcopy(zoo.model)
    with pytest.raises(lookback.UnsupportedModelError, match="KeepsEveryOtherKey"):
        score(model, zoo.processor)


def score(model, processor):
    lb = lookback.load(model, processor)
    inputs = inputs_of(lb, noise())
    decoder = lb.decoder
    return inputs, decoder.score(prefill(decoder, inputs), RESPONSES)


def test_the_prompt_and_window_cache_of_a_real_model_is_refused():
    """Unlimited-OCR keeps the prompt and a window behind it; a plain layer would keep all."""
    ocr = pytest.importorskip("transformers.models.unlimited_ocr.modeling_unlimited_ocr")
    config = ocr.UnlimitedOcrConfig(text_config={"num_hidden_layers": 2})
    with pytest.raises(lookback.UnsupportedModelError, match="ReferenceSlidingWindowLayer"):
        prompt_cache(SimpleNamespace(config=config))


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        ([DynamicLayer], False),
        ([DynamicLayer, StateLayer], True),
        ([HybridLayer, DynamicLayer], True),  # its keys are not all that it keeps
    ],
)
def test_layers_that_keep_a_state(kinds, state):
    assert has_state([kind.__new__(kind) for kind in kinds]) is state


def test_a_kind_without_a_cache_is_refused(monkeypatch):
    monkeypatch.delitem(cache_utils.DYNAMIC_LAYER_TYPE_MAPPING, "full_attention")
    zoo = build("llava")
    with pytest.raises(lookback.UnsupportedModelError, match="kind 'full_attention'"):
        prompt_cache(zoo.model)


def test_a_cache_with_fewer_keys_than_tokens_is_refused(monkeypatch):
    """A layer of the right class whose keys a model cut by itself."""
    zoo = build("llava")
    inputs = inputs_of(lookback.load(zoo.model, zoo.processor), noise())
    model = copy.deepcopy(zoo.model)

    def cut(module, args, kwargs, output):
        layer = kwargs["past_key_values"].layers[1]
        layer.keys, layer.values = layer.keys[:, :, 1:], layer.values[:, :, 1:]

    decoder = Decoder(model)
    model.register_forward_hook(cut, with_kwargs=True)
    with pytest.raises(lookback.UnsupportedModelError, match="keys after a prompt of"):
        prefill(decoder, inputs)


@pytest.mark.parametrize("name", ["falcon_h1", "zamba2"])
def test_a_state_beside_keys_goes_on_with_shared_keys(name):
    zoo = build_odd(name)
    inputs, found = score(zoo.model, zoo.processor)
    for one, response in zip(found, RESPONSES, strict=True):
        expected = eager_signals(zoo.model, inputs, response)
        np.testing.assert_allclose(one.signals, expected, atol=2e-5, rtol=2e-5)


def test_continuations_of_a_hybrid_leave_in_any_order():
    zoo = build_odd("falcon_h1")
    decoder = Decoder(zoo.model)
    prefix = prefill(decoder, inputs_of(lookback.load(zoo.model, zoo.processor), noise()))
    layer = SharedCache(prefix, 3).layers[0]
    layer.update(torch.arange(3.0).view(3, 1, 1, 1), torch.arange(3.0).view(3, 1, 1, 1))
    layer.conv_states[0] += torch.arange(3.0).view(3, 1, 1)
    before = layer.conv_states[0].clone()
    layer.reorder_cache(torch.tensor([2, 0]))
    assert layer.keys[:, 0, 0, 0].tolist() == [2, 0]
    assert torch.equal(layer.conv_states[0], before[[2, 0]])
    assert prefix.layers[0].conv_states[0].shape[0] == 1  # the prompt's own is not touched
