"""Every decoder behind one tower against eager attention maps: the long tail, `make test-rest`."""

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_signals, inputs_of, noise
from zoo import DECODER_NAMES, TOLERANCE, build

import lookback
from lookback.signals import SIGNALS

pytestmark = pytest.mark.zoo


@pytest.mark.parametrize("name", DECODER_NAMES)
def test_signals_equal_those_from_attention_maps(name):
    """Given, sampled and recorded."""
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    inputs = inputs_of(lb, noise(), QUESTION)
    torch.manual_seed(0)
    with lookback.record(zoo.model, zoo.processor) as rec:
        out = zoo.model.generate(**inputs, do_sample=True, max_new_tokens=6, num_return_sequences=2)
    found = [
        *lb.score(noise(), QUESTION, [[30, 41, 52, 63, 74, 85], [33]]),
        *lb.sample(noise(), QUESTION, 3, temperature=1.2, max_new_tokens=6, seed=1),
        *rec.candidates(out),
    ]
    for candidate in (one for one in found if len(one.signals)):
        expected = eager_signals(zoo.model, inputs, candidate.token_ids.tolist())
        ours = np.stack([getattr(candidate, signal) for signal in SIGNALS])
        np.testing.assert_allclose(ours, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert np.ptp(np.concatenate([one.visual_lookback for one in found])) > 0.01
