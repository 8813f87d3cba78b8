"""torch.compile: as many graphs with the tap as without, and the numbers of the model as it is."""

import copy

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, inputs_of, noise, prefill
from torch._dynamo.utils import counters
from transformers import CompileConfig
from zoo import build

import lookback
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.signals import SIGNALS


@pytest.fixture
def model():
    """One of its own, and a compiler that remembers nothing."""
    torch._dynamo.reset()
    yield copy.deepcopy(build("llava_gqa").model)
    torch._dynamo.reset()


@pytest.fixture
def inputs():
    zoo = build("llava_gqa")
    return inputs_of(lookback.load(zoo.model, zoo.processor), noise(), QUESTION)


def in_generate(model):
    """As generate compiles its steps on a GPU: a static cache, and the whole call in one graph."""
    config = CompileConfig(backend="eager", mode=None, fullgraph=True)
    config._compile_all_devices = True
    return {"cache_implementation": "static", "compile_config": config}


def forward(model):
    model.forward = torch.compile(model.forward, backend="eager")
    return {"cache_implementation": "static"}


def module(model):
    model.compile(backend="eager")
    return {"cache_implementation": "static"}


@pytest.mark.parametrize("way", [in_generate, forward, module])
def test_the_tap_adds_no_graph(model, inputs, way):
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    with lookback.record(model) as recorder:
        plain = model.generate(**inputs, **settings)
        expected = recorder.candidates(plain)[0].signals
    more = way(model)
    graphs = []
    for tap in (False, True):
        torch._dynamo.reset()
        counters.clear()
        vars(model).pop("_compiled_call", None)
        if tap:
            with lookback.record(model) as recorder:
                out = model.generate(**inputs, **settings, **more)
                found = recorder.candidates(out)[0].signals
        else:
            out = model.generate(**inputs, **settings, **more)
        assert torch.equal(out, plain)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[1] >= 1
    for name in SIGNALS:
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), atol=1e-5, rtol=1e-5
        )
    assert np.ptp(found.visual_lookback) > 0  # every step was read, not one for all


@pytest.mark.parametrize("way", [forward, module])
def test_the_engine_runs_a_compiled_model_as_it_is_written(model, inputs, way):
    responses = [[30, 31, 32, 33], [40]]
    decoder = Decoder(model)
    plain = decoder.score(prefill(decoder, inputs), responses)
    way(model)
    decoder = Decoder(model)
    counters.clear()
    found = decoder.score(prefill(decoder, inputs), responses)
    assert not counters["stats"]
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_array_equal(one.signals, other.signals)
    model(input_ids=torch.tensor([[5, 6, 7]]))
    assert counters["stats"]["unique_graphs"]  # and others find it compiled again


def test_two_models_of_one_class_do_not_share_a_reading(model, inputs):
    """Code may be used again for another model of the same shape: not with the first's layers."""
    other = copy.deepcopy(model)
    for weight in other.parameters():
        weight.data.mul_(1.1)
    settings = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    found = []
    for one in (model, other):
        with lookback.record(one) as recorder:
            plain = recorder.candidates(one.generate(**inputs, **settings))[0]
        settings_compiled = settings | in_generate(one)
        with lookback.record(one) as recorder:
            compiled = recorder.candidates(one.generate(**inputs, **settings_compiled))[0]
        np.testing.assert_allclose(
            compiled.visual_lookback, plain.visual_lookback, atol=1e-5, rtol=1e-5
        )
        found.append(compiled.visual_lookback)
    assert np.abs(found[0] - found[1]).max() > 1e-4
