"""`model.generate(custom_generate=FOLDER)`: transformers loads it, `record` by hand agrees."""

import math
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import torch
from documents import ROOT, blocks, read
from engines.reference import inputs_of
from transformers import GenerationConfig, dynamic_module_utils

import lookback
from lookback.benchmarks import get_benchmark
from lookback.conversations import Conversation
from lookback.integrations.custom_generate import FOLDER, BestOfN

N, LONGEST = 6, 20
ASK = "Describe the picture."


@pytest.fixture(scope="module")
def lb():
    return lookback.load()


@pytest.fixture(scope="module")
def image():
    return get_benchmark("scenes-caption").items("test", 1)[0].image


@pytest.fixture
def inputs(lb, image):
    return inputs_of(lb, image, ASK) | {"max_new_tokens": LONGEST}


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """Where transformers copies a repository's code to."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))


def ours(lb, inputs, seed=3, **settings):
    torch.manual_seed(seed)
    settings = {"n": N, "processor": lb.processor} | settings
    return lb.model.generate(**inputs, custom_generate=FOLDER, trust_remote_code=True, **settings)


def interrupt(*_):
    raise RuntimeError("interrupted")


def by_hand(lb, inputs, seed=3, n=N, **settings):
    torch.manual_seed(seed)
    with lookback.record(lb) as rec:
        out = lb.model.generate(**inputs, do_sample=True, num_return_sequences=n, **settings)
    return out, rec


@pytest.mark.parametrize(
    ("scorer", "params"),
    [
        ("lookback", {}),
        ("lookback", {"alpha": 3.0, "lam": 0.5}),
        ("mean_log_prob", {}),
        ("majority", {}),
        ("consensus", {"weights": "lookback", "beta": 0.2}),
    ],
)
def test_the_best_sequence_is_the_one_that_record_finds(lb, inputs, scorer, params):
    out, rec = by_hand(lb, inputs)
    best = rec.candidates(out).best(scorer, **params)
    found = ours(lb, inputs, scorer=scorer, **params)
    length = inputs["input_ids"].shape[1] + len(best.token_ids) + (best.finish == "end")
    assert found.tolist() == [out[best.index, :length].tolist()]  # nothing behind its end


def test_the_scorers_settings_matter(lb, inputs):
    scores = [
        ours(lb, inputs, return_dict_in_generate=True, lam=lam).sequences_scores for lam in (0.5, 2)
    ]
    assert not torch.equal(*scores)


def test_as_a_dict_all_are_there_best_first(lb, inputs):
    out, rec = by_hand(lb, inputs)
    cands = rec.candidates(out)
    ranked = cands.rank("lookback")
    found = ours(lb, inputs, return_dict_in_generate=True)
    assert type(found).__name__ == BestOfN.__name__
    assert found.sequences.tolist() == out[[one.index for one in ranked]].tolist()
    np.testing.assert_allclose(found.sequences_scores, [one.score for one in ranked])
    (drawn,) = found.candidates
    assert [one.text for one in drawn] == [one.text for one in cands]
    assert found[0] is found.sequences  # as every ModelOutput


def test_padding_behind_a_stop_string_is_no_part_of_a_response(lb, image, inputs):
    """Recorded signals are those of the tokens up to the stop, scored anew."""
    more = {"stop_strings": ["."], "tokenizer": lb.processor.tokenizer}
    found = ours(lb, inputs | {"max_new_tokens": 40}, **more, return_dict_in_generate=True)
    (drawn,) = found.candidates
    assert {"stop", "length"} & {one.finish for one in drawn}
    assert len({len(one.token_ids) for one in drawn}) > 1
    assert not any("<pad>" in one.text for one in drawn)
    again = lb.score(image, ASK, [one.token_ids.tolist() for one in drawn])
    np.testing.assert_allclose(drawn.scores(), again.scores(), atol=1e-4)


def test_some_of_the_best(lb, inputs):
    out, rec = by_hand(lb, inputs)
    ranked = rec.candidates(out).rank("lookback")
    found = ours(lb, inputs, num_return_sequences=2)
    assert len(found) == 2
    for row, one in zip(found, ranked, strict=False):
        assert row.tolist() == out[one.index, : found.shape[1]].tolist()


def test_of_several_prompts_each_has_its_best(lb, image):
    asked = [Conversation.of(image, one) for one in (ASK, "What colour is the largest thing here?")]
    texts = [lb.prompter.text(one) for one in asked]
    inputs = lb.prompter.inputs(asked, texts, lb.model) | {"max_new_tokens": LONGEST}
    out, rec = by_hand(lb, inputs)
    found = ours(lb, inputs)
    assert len(found) == 2
    for i in range(2):
        best = rec.candidates(out, i).best("lookback")
        assert found[i].tolist() == out[i * N + best.index, : found.shape[1]].tolist()
    assert len(ours(lb, inputs, return_dict_in_generate=True).sequences) == 2 * N


def test_temperature_is_the_configs_unless_it_is_given(lb, inputs):
    out, rec = by_hand(lb, inputs, temperature=0.3, top_p=0.7)
    best = out[rec.candidates(out).best().index]
    config = GenerationConfig(
        temperature=0.3, top_p=0.7, eos_token_id=lb.end_tokens, pad_token_id=0
    )
    for settings in ({"temperature": 0.3, "top_p": 0.7}, {"generation_config": config}):
        found = ours(lb, inputs, **settings)
        assert found[0].tolist() == best[: found.shape[1]].tolist()


def test_the_model_is_left_as_it_was(lb, inputs):
    before = dict(lb.model.__dict__)
    ours(lb, inputs)
    with pytest.raises(RuntimeError, match="interrupted"):
        ours(lb, inputs, stopping_criteria=[interrupt])
    assert lb.model.__dict__.keys() == before.keys()


def test_a_model_that_says_nothing_has_said_it(lb, inputs):
    end = lb.end_tokens[0]
    nothing = inputs | {"suppress_tokens": [i for i in range(lb.decoder.vocab) if i != end]}
    found = ours(lb, nothing, return_dict_in_generate=True)
    assert found.sequences[:, inputs["input_ids"].shape[1] :].tolist() == [[end]] * N
    assert all(math.isnan(score) for score in found.sequences_scores)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n": 0}, "n = 0"),
        ({"n": 2.5}, "n = 2.5"),
        ({"num_return_sequences": 7}, "at most 6"),
        ({"do_sample": False}, "do_sample=False"),
        ({"num_beams": 2}, "num_beams = 2"),
        ({"streamer": object()}, "streamer"),
        ({"output_logits": True}, "output_logits=True"),
        ({"scorer": "lookbak"}, "Did you mean 'lookback'"),
        ({"scorer": "usc"}, "needs the model, again"),
        ({"scorer": "oracle"}, "quality of each response"),
        ({"alpha": -1.0}, "alpha"),
        ({"scorer": "mean_log_prob", "alpha": 1.0}, "alpha"),  # generate knows of no alpha
        ({"alfa": 1.0}, "alfa"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_drawn(lb, inputs, settings, said):
    passes = []
    hook = lb.model.register_forward_pre_hook(lambda *_: passes.append(1))
    with pytest.raises(ValueError, match=said):
        ours(lb, inputs, **settings)
    hook.remove()
    assert not passes


def test_texts_need_a_processor(lb, inputs, monkeypatch):
    monkeypatch.setattr(lb.model, "name_or_path", "")
    with pytest.raises(ValueError, match="processor="):
        ours(lb, inputs, scorer="majority", processor=None)
    assert len(ours(lb, inputs, processor=None)) == 1  # LookBack needs none


def test_transformers_says_what_to_install(lb, inputs, monkeypatch):
    known = dynamic_module_utils.importlib.metadata.version

    def version(name):
        if name == "lookback-vlm":
            raise PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(dynamic_module_utils.importlib.metadata, "version", version)
    with pytest.raises(ImportError, match=r"lookback-vlm>=0.2 \(installed: None\)"):
        ours(lb, inputs)


def test_code_is_run_only_if_it_is_trusted(lb, inputs):
    with pytest.raises(ValueError, match="trust_remote_code"):
        lb.model.generate(**inputs, custom_generate=FOLDER, trust_remote_code=False, n=N)


def test_the_card_says_what_it_is():
    head = (Path(FOLDER) / "README.md").read_text(encoding="utf-8").split("---")[1]
    assert "- custom_generate" in head


def test_the_page(lb, inputs, monkeypatch, capsys):
    names = {"model": lb.model, "processor": lb.processor, "inputs": dict(inputs)}
    del names["inputs"]["max_new_tokens"]
    monkeypatch.setattr(lb.model.generation_config, "max_new_tokens", 8)
    for block in blocks(read(ROOT / "docs" / "custom-generate.md"), "python"):
        exec(block, names)
    assert "torch.Size([8, " in capsys.readouterr().out
    assert f"hf upload YOUR-NAME/lookback {Path(FOLDER).relative_to(ROOT)}" in read(
        ROOT / "docs" / "custom-generate.md"
    )
