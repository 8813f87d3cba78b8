"""The passes themselves: batches, pieces, masks, rows, precision."""

import copy

import numpy as np
import pytest
import torch
from engines.reference import (
    QUESTION,
    eager_maps,
    eager_signals,
    inputs_of,
    noise,
    prefill,
    whole,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from zoo import build

import lookback
from lookback.engines.common.continuations import batches
from lookback.engines.transformers.attention.tap import Call, LastRow
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.prefix import Prefix, SharedCache
from lookback.signals import SIGNALS

LOOK = SIGNALS.index("visual_lookback")

RESPONSES = [[30, 31, 32, 33, 34, 35, 36], [40], [50, 51, 52], [60, 61, 62, 63, 64]]


def setup(name, images=1):
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    inputs = inputs_of(lb, [noise(i) for i in range(images)] or None, QUESTION)
    return zoo.model, Decoder(zoo.model), inputs


@pytest.mark.parametrize("name", ["llava_gqa", "qwen2_5_vl", "gemma3", "paligemma2", "lfm2_vl"])
@pytest.mark.parametrize("rows", [1, 3, 5, 12])
def test_small_batches_and_pieces_change_nothing(name, rows):
    """A budget of one row scores token by token; of three, a later piece has several rows."""
    _, decoder, inputs = setup(name)
    at_once = decoder.score(prefill(decoder, inputs), RESPONSES)
    decoder.batch_rows = rows
    pieces = decoder.score(prefill(decoder, inputs), RESPONSES)
    for a, b in zip(at_once, pieces, strict=True):
        np.testing.assert_allclose(a.signals, b.signals, atol=1e-5, rtol=1e-5)


def test_a_response_does_not_depend_on_the_others():
    _, decoder, inputs = setup("llava")
    prefix = prefill(decoder, inputs)
    together = decoder.score(prefix, RESPONSES)
    for response, found in zip(RESPONSES, together, strict=True):
        alone = decoder.score(prefix, [response])[0]
        np.testing.assert_allclose(alone.signals, found.signals, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "idefics3", "internvl", "gemma3"])
def test_several_images(name):
    """Vision tokens in several places of the prompt, of all images, count."""
    model, decoder, inputs = setup(name, images=2)
    one = setup(name)[2]
    image = decoder.image_token
    assert (inputs["input_ids"] == image).sum() == 2 * (one["input_ids"] == image).sum()
    for found, response in zip(
        decoder.score(prefill(decoder, inputs), RESPONSES), RESPONSES, strict=True
    ):
        expected = eager_signals(model, inputs, response)
        np.testing.assert_allclose(found.signals, expected, atol=1e-5, rtol=1e-5)


def test_a_window_that_cuts_through_the_image():
    """After a short question, the sliding layers see some of the vision tokens and not others."""
    zoo = build("gemma3")
    lb = lookback.load(zoo.model, zoo.processor)
    decoder, inputs = Decoder(zoo.model), inputs_of(lb, noise(), "a")
    window = zoo.model.config.text_config.sliding_window
    seen = (inputs["input_ids"][0, 1 - window :] == decoder.image_token).sum()
    assert 0 < seen < (inputs["input_ids"] == decoder.image_token).sum()
    for found, response in zip(
        decoder.score(prefill(decoder, inputs), RESPONSES), RESPONSES, strict=True
    ):
        expected = eager_signals(zoo.model, inputs, response)
        np.testing.assert_allclose(found.signals, expected, atol=1e-5, rtol=1e-5)


def test_without_an_image_nothing_looks_back():
    model, decoder, inputs = setup("llava", images=0)
    prefix = prefill(decoder, inputs)
    for found, response in zip(decoder.score(prefix, RESPONSES), RESPONSES, strict=True):
        expected = eager_signals(model, inputs, response)
        np.testing.assert_allclose(found.signals, expected, atol=1e-5, rtol=1e-5)
        assert (found.signals[LOOK] == 0).all()


def test_the_row_read_is_the_predicting_one():
    """A response of one token is read from the prompt alone: its own row never existed."""
    model, decoder, inputs = setup("llava")
    found = [decoder.score(prefill(decoder, inputs), [[t]])[0].signals[LOOK, 0] for t in (30, 90)]
    assert found[0] == found[1]  # whatever the token is
    own_row = eager_signals(model, inputs, [30, 31])[3, 1]
    assert abs(found[0] - own_row) > 1e-3  # and the token's own row says something else


def test_the_prefix_is_held_once_whatever_n():
    _, decoder, inputs = setup("llava")
    prefix = prefill(decoder, inputs)
    for cache in (SharedCache(prefix, 2), SharedCache(prefix, 50)):
        for shared, layer in zip(cache.layers, prefix.layers, strict=True):
            assert shared.prefix is layer
    assert all(layer.keys.shape[0] == 1 for layer in prefix.layers)


def test_vision_keys_come_first():
    _, decoder, inputs = setup("idefics3")
    prefix = prefill(decoder, inputs)
    ids = inputs["input_ids"][0][prefix.order]
    assert (ids[: prefix.source] == decoder.image_token).all()
    assert not (ids[prefix.source :] == decoder.image_token).any()
    assert sorted(prefix.order.tolist()) == list(range(prefix.length))


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "internvl", "gemma3"])
def test_bfloat16(name):
    """Against eager maps of the same bfloat16 model: both round, so the tolerance is its own."""
    zoo = build(name)
    model = copy.deepcopy(zoo.model).bfloat16()
    lb = lookback.load(model, zoo.processor)
    inputs = inputs_of(lb, noise(), QUESTION)
    found = Decoder(model).score(prefill(Decoder(model), inputs), RESPONSES)
    exact = Decoder(zoo.model)
    full = exact.score(
        prefill(exact, inputs_of(lookback.load(zoo.model, zoo.processor), noise(), QUESTION)),
        RESPONSES,
    )
    for one, reference, response in zip(found, full, RESPONSES, strict=True):
        eager = eager_signals(model, inputs, response)
        # As near to float32 as the library's own eager way is, within a factor and a floor.
        ours = np.abs(one.signals - reference.signals).max(1)
        theirs = np.abs(eager - reference.signals).max(1)
        assert (ours <= 3 * theirs + 0.05).all(), (ours, theirs)
        np.testing.assert_allclose(one.signals[LOOK], eager[LOOK], atol=0.03)


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "gemma3", "paligemma2", "lfm2_vl"])
def test_float64(name):
    """Rows are joined in float32, which is what signals are told in."""
    zoo = build(name)
    model = copy.deepcopy(zoo.model).double()
    lb = lookback.load(model, zoo.processor)
    inputs, response = inputs_of(lb, noise()), RESPONSES[0]
    drawing = {"max_new_tokens": 6, "seed": 1, "by_layer": True, "keep_end": True}
    drawn = lb.sample(noise(), QUESTION, 2, **drawing, top_log_probs=2)[0]
    scored = lb.score(noise(), QUESTION, [response, response[:2]], by_layer=True)[0]
    for found in (drawn, scored):
        expected = eager_signals(model, inputs, found.token_ids)
        ours = np.stack([getattr(found, name) for name in SIGNALS])
        np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-5)
    looked = lb.look(noise(), QUESTION, response).weights.sum(1)
    np.testing.assert_allclose(looked, scored.visual_lookback, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_data_type_of_torch_changes_nothing(dtype):
    zoo = build("llava")
    lb = lookback.load(zoo.model, zoo.processor)

    def ask():
        drawn = lb.sample(noise(), QUESTION, 2, max_new_tokens=5, seed=1, top_log_probs=3)
        hidden = lb.knockout(noise(), QUESTION, RESPONSES, layers=(0, 3), share=0.4)
        looked = lb.look(noise(), QUESTION, RESPONSES[0]).weights
        found = [*drawn, *hidden]
        rows = [getattr(one, name).tolist() for one in found for name in SIGNALS]
        return rows, [one.top.log_prob.tolist() for one in drawn], looked.tolist()

    plain = ask()
    torch.set_default_dtype(dtype)
    try:
        assert ask() == plain
    finally:
        torch.set_default_dtype(torch.float32)


def test_autocast_is_refused_by_name():
    """Around a call, around loading, and inside the model."""
    zoo = build("llava")
    lb = lookback.load(zoo.model, zoo.processor)
    wrapped = copy.deepcopy(zoo.model)
    wrapped.forward = torch.autocast("cpu", dtype=torch.bfloat16)(wrapped.forward)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for ask in (
            lambda: lb.score(noise(), QUESTION, ["a dog"]),
            lambda: lb.sample(noise(), QUESTION, 2, max_new_tokens=2),
            lambda: lb.look(noise(), QUESTION, "a dog"),
            lambda: lookback.load(copy.deepcopy(zoo.model), zoo.processor),
        ):
            with pytest.raises(ValueError, match=r"autocast.*bfloat16"):
                ask()
        with torch.autocast("cpu", enabled=False):
            assert len(lb.score(noise(), QUESTION, ["a dog"])) == 1
    with pytest.raises(lookback.UnsupportedModelError, match=r"bfloat16.*autocast"):
        lookback.load(wrapped, zoo.processor)


def test_the_model_is_left_as_it_was():
    _, decoder, inputs = setup("paligemma2")
    before = [c._attn_implementation for c in decoder.configs]
    decoder.score(prefill(decoder, inputs), RESPONSES)
    assert [c._attn_implementation for c in decoder.configs] == before


def test_training_mode_is_refused():
    model, decoder, inputs = setup("llava")
    model.train()
    try:
        with pytest.raises(ValueError, match=r"model\.eval\(\)"):
            prefill(decoder, inputs)
    finally:
        model.eval()


def test_too_long_is_refused():
    _, decoder, inputs = setup("llava")
    prefix = prefill(decoder, inputs)
    decoder.max_length = prefix.length + 3
    with pytest.raises(ValueError, match="the model takes"):
        decoder.score(prefix, [[30] * 4])
    assert len(decoder.score(prefix, [[30] * 3])[0].token_ids) == 3
    drawn = draw(decoder, prefix, max_new_tokens=50)
    assert {len(one.token_ids) for one in drawn} == {3}
    decoder.max_length = prefix.length + 1  # room for one token
    assert len(decoder.score(prefill(decoder, inputs), [[30]])[0].token_ids) == 1
    decoder.max_length = prefix.length
    with pytest.raises(ValueError, match="the prompt has"):
        prefill(decoder, inputs)


def draw(decoder, prefix, n=4, **settings):
    defaults = {
        "temperature": 1.2,
        "top_p": 0.9,
        "top_k": None,
        "max_new_tokens": 10,
        "seed": 1,
        "end_tokens": [],
    }
    return decoder.sample(prefix, n, **(defaults | settings))


def make_call(function=print, keys=9, **kwargs):
    query, key = torch.zeros(1, 2, 9, 4), torch.zeros(1, 2, keys, 4)
    return Call(function, torch.nn.Linear(1, 1), query, key, key, None, kwargs)


def test_keys_of_another_context_are_refused():
    """Cross-attention that no config tells of shows in the number of keys."""
    reader = LastRow(torch.zeros(1, 9, dtype=torch.bool), keys=9)
    with pytest.raises(lookback.UnsupportedModelError, match="30 keys where the context has 9"):
        reader.attend(make_call(keys=30))


@pytest.mark.parametrize("extra", ["s_aux", "position_bias"])
def test_unknown_terms_in_the_scores_are_refused(extra):
    with pytest.raises(lookback.UnsupportedModelError, match=extra):
        make_call(**{extra: torch.ones(1)}).settings()


def test_sinks_that_a_layer_keeps_to_itself_are_refused():
    call = make_call()
    call.module.sinks = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(lookback.UnsupportedModelError, match="sinks"):
        call.settings()


def test_a_softcap_that_sdpa_would_drop_is_refused():
    assert make_call(softcap=3.0).settings().softcap == 3.0
    with pytest.raises(lookback.UnsupportedModelError, match="attn='eager'"):
        make_call(sdpa_attention_forward, softcap=3.0).settings()


def test_batches_respect_the_budget_and_hold_everyone():
    lengths = [5, 1, 9, 3, 3, 30, 2]
    found = list(batches(lengths, 12))
    assert sorted(i for batch in found for i in batch) == list(range(7))
    for batch in found:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * longest <= 12


def test_progress_counts_what_is_done():
    _, decoder, inputs = setup("llava")
    prefix, seen = prefill(decoder, inputs), []
    decoder.batch_rows = 7
    decoder.score(prefix, RESPONSES, lambda *done: seen.append(done))
    assert seen == [(1, 4), (2, 4), (4, 4)]
    seen.clear()
    draw(decoder, prefix, max_new_tokens=3, progress=lambda *done: seen.append(done))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", ["llava_gqa", "gemma3"])
def test_each_layer_tells_its_own_share(name):
    """Of given responses, in pieces, and of drawn ones; over all heads they make up A_t."""
    model, decoder, inputs = setup(name)
    prefix, prompt = prefill(decoder, inputs), inputs["input_ids"].shape[1]
    decoder.batch_rows = 9
    found = decoder.score(prefix, RESPONSES, by_layer=True)
    ends = list(range(0, 400, 9))
    found += draw(decoder, prefix, end_tokens=ends, max_new_tokens=5, by_layer=True)
    for one in found:
        _, maps = eager_maps(model, whole(model, inputs, one.token_ids))
        rows = slice(prompt - 1, prompt - 1 + len(one.token_ids))
        columns = (inputs["input_ids"][0] == decoder.image_token).nonzero()[:, 0]
        expected = torch.stack([m[:, rows][..., columns].sum(-1).mean(0) for m in maps], 1)
        np.testing.assert_allclose(one.by_layer, expected, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(one.by_layer.mean(1), one.signals[LOOK], atol=1e-5)
    assert decoder.score(prefix, RESPONSES)[0].by_layer is None


def test_marks_that_are_not_true_or_false_are_refused():
    _, decoder, inputs = setup("llava")
    source = (inputs["input_ids"][0] == decoder.image_token).long()
    with pytest.raises(ValueError, match=r"source is torch\.int64"):
        decoder.prefill(inputs, source)


def test_prefix_reads_only_what_it_is_given():
    _, decoder, inputs = setup("llava")
    assert isinstance(prefill(decoder, inputs), Prefix)
    double = {k: torch.cat([v, v]) for k, v in inputs.items()}
    with pytest.raises(ValueError, match="batch of 2"):
        prefill(decoder, double)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, -1)])
def test_a_source_of_another_shape_is_refused(shape):
    """It would be spread over the prompt without a word."""
    _, decoder, inputs = setup("llava")
    source = (inputs["input_ids"][0] == decoder.image_token).view(1, -1)
    source = source if shape == (1, -1) else source[0, :1].view(shape)
    with pytest.raises(ValueError, match="one mark per token"):
        decoder.prefill(inputs, source)


def test_a_token_that_the_model_does_not_know_is_named():
    model, decoder, inputs = setup("llava")
    known = model.get_input_embeddings().weight.shape[0]
    inputs["input_ids"][0, -1] = known
    with pytest.raises(ValueError, match=f"has the token {known}, and the model knows {known}"):
        prefill(decoder, inputs)


def test_another_index_error_stays_what_it_is(monkeypatch):
    model, decoder, inputs = setup("llava")

    def fail(**_):
        raise IndexError("a bug")

    monkeypatch.setattr(model, "forward", fail)
    with pytest.raises(IndexError, match="a bug"):
        prefill(decoder, inputs)
