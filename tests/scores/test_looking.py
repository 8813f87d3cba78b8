"""CLIPScore and VAUQ on small models of the real classes."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as hf
from engines.reference import QUESTION, eager_signals, inputs_of, noise
from zoo import build

import lookback
from lookback.conversations import Conversation
from lookback.engines.dual_encoder import PREFIX, DualEncoder
from lookback.signals import Asked
from tools.training.export import export_clip
from tools.training.losses import clip_texts
from tools.training.models import make_clip, make_tokenizer
from tools.training.recipe import TINY

TEXTS = ["a red cup", "two blue fish and a tree", "a dog", "the cup is " + "very " * 100 + "red"]


@pytest.fixture(scope="module")
def lb():
    zoo = build("llava")
    return lookback.load(zoo.model, zoo.processor)


@pytest.fixture(scope="module")
def cands(lb):
    return lb.sample(noise(), QUESTION, 4, max_new_tokens=8, seed=1).scorable()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dual encoder with random weights, saved as such models are."""
    path = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    tokenizer = make_tokenizer(TINY)
    export_clip(make_clip(TINY, tokenizer), tokenizer, path)
    config = json.loads((path / "config.json").read_text())
    assert config.pop("lookback") == {"prefix": " "}  # others' models have no such entry
    (path / "config.json").write_text(json.dumps(config))
    return path


def slow_clipscore(folder, image, text, prefix):
    """From the files alone, one text at a time, tokens put together by hand."""
    model = hf.CLIPModel.from_pretrained(folder).float().eval()
    processor = hf.CLIPProcessor.from_pretrained(folder)
    body = processor.tokenizer(prefix + text, add_special_tokens=False)["input_ids"]
    ids = [processor.tokenizer.bos_token_id, *body[:75], processor.tokenizer.eos_token_id]
    pixels = processor(images=[image], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]), pixel_values=pixels)
    return 2.5 * max(float((out.image_embeds[0] * out.text_embeds[0]).sum()), 0.0)


@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_clipscore_is_two_and_a_half_cosines(folder, prefix):
    encoder = DualEncoder.load(str(folder))
    image = noise(3)
    got = 2.5 * np.clip(encoder.texts(TEXTS, prefix) @ encoder.image(image), 0, None)
    expected = [slow_clipscore(folder, image, text, prefix) for text in TEXTS]
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_long_texts_keep_their_end_token(folder):
    encoder = DualEncoder.load(str(folder))
    ids = encoder.processor(
        text=[TEXTS[3]], truncation=True, max_length=encoder.length, return_tensors="pt"
    )["input_ids"]
    assert ids.shape[1] == encoder.length == 77
    assert ids[0, -1] == encoder.processor.tokenizer.eos_token_id
    assert clip_texts(encoder.processor.tokenizer, [TEXTS[3]])["input_ids"].shape == (1, 77)


def test_clipscore_ranks_candidates_and_its_prefix_is_the_published_one(cands, folder):
    scores = cands.scores("clipscore", clip=str(folder))
    encoder = DualEncoder.load(str(folder))
    assert encoder.prefix == PREFIX == "A photo depicts "
    expected = [slow_clipscore(folder, noise(), c.text.strip(), PREFIX) for c in cands]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert (scores >= 0).all()
    bare = cands.scores("clipscore", clip=encoder, prefix="")
    assert not np.allclose(bare, scores)


def test_a_model_can_bring_its_own_prefix(cands, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "own")
    config = json.loads((folder / "config.json").read_text()) | {"lookback": {"prefix": "So: "}}
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    own = cands.scores("clipscore", clip=str(tmp_path / "own"))
    np.testing.assert_allclose(own, cands.scores("clipscore", clip=str(folder), prefix="So: "))


def test_a_picture_is_encoded_once(cands, folder, monkeypatch):
    encoder = DualEncoder(*(lambda e: (e.model, e.processor))(DualEncoder.load(str(folder))))
    calls = []
    whole = encoder.model.get_image_features
    monkeypatch.setattr(
        encoder.model, "get_image_features", lambda **kw: calls.append(1) or whole(**kw)
    )
    for _ in range(3):
        cands.rank("clipscore", clip=encoder)
    assert len(calls) == 1
    encoder.image(noise(9))
    assert len(calls) == 2


def test_clipscore_does_not_look_at_other_candidates(cands, folder):
    alone = [cands[i : i + 1].scores("clipscore", clip=str(folder))[0] for i in range(len(cands))]
    np.testing.assert_allclose(cands.scores("clipscore", clip=str(folder)), alone, atol=1e-6)


def test_clipscore_needs_an_image_and_a_dual_encoder(cands, folder, tmp_path):
    blind = replace(cands, asked=Asked(cands.asked.engine, Conversation.of(None, "what?")))
    with pytest.raises(ValueError, match="needs an image"):
        blind.rank("clipscore", clip=str(folder))
    hf.BertModel(
        hf.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=9)
    ).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="BertModel: CLIPScore needs a dual encoder"):
        cands.rank("clipscore", clip=str(tmp_path))


@pytest.mark.parametrize("rows", ["response", "all"])
def test_vauq_is_entropy_less_what_hiding_adds(lb, cands, rows):
    masked = lb.knockout(noise(), QUESTION, list(cands), layers=(0, 2), share=0.5, rows=rows)
    h = np.array([c.entropy.astype(float).mean() for c in cands])
    hm = np.array([c.entropy.astype(float).mean() for c in masked])
    settings = {"layers": (0, 2), "k": 0.5, "rows": rows}
    np.testing.assert_allclose(cands.scores("vauq", **settings), -(h - (hm - h)), rtol=1e-6)
    np.testing.assert_allclose(cands.scores("vauq", alpha=0, **settings), -h, rtol=1e-6)
    np.testing.assert_allclose(
        cands.scores("vauq", alpha=2.5, **settings), -(h - 2.5 * (hm - h)), rtol=1e-6
    )


def test_vauq_hides_from_all_rows_as_its_own_script_does(cands):
    settings = {"layers": (0, 2), "k": 0.5}
    plain = cands.scores("vauq", **settings)
    np.testing.assert_allclose(plain, cands.scores("vauq", rows="all", **settings))
    assert not np.allclose(plain, cands.scores("vauq", rows="response", **settings))
    with pytest.raises(ValueError, match="rows = 'some': hide from 'response' or from 'all'"):
        cands.scores("vauq", rows="some", **settings)


def test_vauqs_alpha_is_its_own(cands):
    """LLaVA's alpha = 7 is LookBack's, not VAUQ's."""
    assert cands.defaults["alpha"] == 7
    settings = {"layers": (0, 2), "k": 0.5}
    np.testing.assert_allclose(
        cands.scores("vauq", **settings), cands.scores("vauq", alpha=1.0, **settings)
    )


def test_visual_gain_is_what_the_image_adds_to_log_p(lb, cands):
    """Against plain passes over prompt and response, with the image and without, token by token."""
    expected = {}
    for image in (noise(), None):
        inputs = inputs_of(lb, image, QUESTION)
        passes = [eager_signals(lb.model, inputs, c.token_ids.tolist())[0] for c in cands]
        expected[image is None] = np.array([values.mean() for values in passes])
    plain = expected[False] - expected[True]
    np.testing.assert_allclose(cands.scores("visual_gain"), plain, atol=1e-5)
    half = expected[False] - 0.5 * expected[True]
    np.testing.assert_allclose(cands.scores("visual_gain", beta=0.5), half, atol=1e-5)
    log_p = cands.scores("mean_log_prob")
    np.testing.assert_allclose(cands.scores("visual_gain", beta=0), log_p, rtol=1e-6)
    assert plain.argsort().tolist() != log_p.argsort().tolist()


def test_visual_gain_needs_an_image(cands):
    blind = replace(cands, asked=Asked(cands.asked.engine, Conversation.of(None, "what?")))
    with pytest.raises(ValueError, match="visual_gain needs an image"):
        blind.rank("visual_gain")


def test_model_scorers_use_the_model_that_is_there(lb, cands, monkeypatch):
    """No second copy: nothing is loaded, everything goes through the engine."""
    monkeypatch.setattr(
        hf.PreTrainedModel, "from_pretrained", lambda *a, **k: pytest.fail("loaded a model")
    )
    assert cands.asked.engine is lb
    cands.rank("usc", m=1, max_new_tokens=2)
    cands[:2].rank("judge", max_new_tokens=2)
    cands.rank("vauq", layers=(0, 1), k=0.5)
    cands.rank("visual_gain")
