"""What is asked of a model once: its layers, its configs, its end tokens, its weights."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
from engines.reference import QUESTION, noise
from transformers import AutoConfig, AutoModelForImageTextToText
from zoo import OLDEST, build
from zoo.configs import text, vision

import lookback
from lookback.engines.common import model_files
from lookback.engines.common.model_files import fingerprint
from lookback.engines.transformers.support import (
    attention_layers,
    check_supported,
    decoder_configs,
    end_token_ids,
)


def with_text_config(**values):
    """As much of a model as its text config is."""
    text = SimpleNamespace(**values)
    return SimpleNamespace(config=SimpleNamespace(get_text_config=lambda decoder: text))


@pytest.mark.parametrize(
    ("kinds", "count"),
    [
        (None, 5),
        ([], 5),
        (["full_attention", "sliding_attention", "chunked_attention"], 3),
        (["linear_attention", "full_attention", "conv", "mamba"], 1),
        (["hybrid", "hybrid_mamba", "mamba"], 2),
    ],
)
def test_layers_that_attend(kinds, count):
    model = with_text_config(layer_types=kinds, num_hidden_layers=5)
    assert attention_layers(model) == count


def test_every_copy_of_the_decoders_config_is_found():
    """A module may hold one of its own, and the vision tower's is another thing."""
    model = copy.deepcopy(build("llava").model)
    layer = model.get_decoder().layers[1].self_attn
    layer.config = copy.deepcopy(layer.config)
    found = {id(config) for config in decoder_configs(model)}
    assert found == {id(model.config.text_config), id(layer.config)}


@pytest.mark.parametrize(
    ("generation", "text", "ids"),
    [
        (5, 7, [5]),
        ([5, 6], 7, [5, 6]),
        (None, 7, [7]),
        (None, None, []),
        (0, 7, [0]),  # an id like any other
    ],
)
def test_end_tokens_are_those_of_generation_then_of_the_text(generation, text, ids):
    model = with_text_config(eos_token_id=text)
    model.generation_config = SimpleNamespace(eos_token_id=generation)
    assert end_token_ids(model) == ids


def record(model, processor):
    with lookback.record(model, processor):
        pass


@pytest.fixture(params=[lookback.load, record])
def take(request):
    """The two ways to take a model in: both refuse the same."""
    return lambda model: request.param(model, build("llava").processor)


def test_attention_with_compiled_masks_is_refused(take):
    model = copy.deepcopy(build("llava").model)
    model.config.text_config._attn_implementation = "flex_attention"
    with pytest.raises(lookback.UnsupportedModelError, match="flex_attention"):
        take(model)


def test_attention_with_compiled_masks_is_refused_before_anything_is_loaded():
    with pytest.raises(lookback.UnsupportedModelError, match="flex_attention"):
        lookback.load("nobody/nothing", attn="flex_attention")


def test_attention_with_compiled_masks_that_is_set_later_is_refused():
    zoo = build("llava")
    lb = lookback.load(copy.deepcopy(zoo.model), zoo.processor)
    lb.model.config.text_config._attn_implementation = "flex_attention"
    with pytest.raises(lookback.UnsupportedModelError, match="flex_attention"):
        lb.score(noise(), QUESTION, ["red"])
    assert lb.model.config.text_config._attn_implementation == "flex_attention"


def test_weights_without_numbers_are_refused(take):
    model = copy.deepcopy(build("llava").model).to("meta")
    with pytest.raises(lookback.UnsupportedModelError, match="on the meta device"):
        take(model)
    for module in model.modules():
        module._hf_hook = object()  # accelerate brings them when they are needed
    check_supported(model)


@pytest.mark.skipif(OLDEST, reason="transformers 5.16 has no such model")
def test_a_model_that_does_not_write_token_by_token_is_refused(take):
    config = AutoConfig.for_model("diffusion_gemma", **CANVAS)
    model = AutoModelForImageTextToText.from_config(config).eval()
    with pytest.raises(lookback.UnsupportedModelError, match="DiffusionGemma"):
        take(model)


CANVAS = {
    "text_config": text(
        num_hidden_layers=1,
        layer_types=["full_attention"],
        global_head_dim=16,
        vocab_size=100,
        num_experts=2,
        top_k_experts=1,
        moe_intermediate_size=16,
    ),
    "vision_config": vision(num_key_value_heads=2, head_dim=16, global_head_dim=16),
    "image_token_id": 90,
    "boi_token_id": 91,
    "eoi_token_id": 92,
}


class TestFingerprint:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "a.safetensors").write_bytes(b"weights")
        (tmp_path / "b.safetensors").write_bytes(b"more")
        return tmp_path

    def test_of_what_is_in_the_files(self, folder):
        before = fingerprint(folder)
        assert before == fingerprint(folder)
        (folder / "README.md").write_text("no weights")
        assert fingerprint(folder) == before
        (folder / "a.safetensors").write_bytes(b"Weights")
        assert fingerprint(folder) != before

    @pytest.mark.parametrize("change", ["config", "name"])
    def test_of_the_config_and_of_names(self, folder, change):
        before = fingerprint(folder)
        if change == "config":
            (folder / "config.json").write_text("[]")
        else:
            (folder / "b.safetensors").rename(folder / "c.safetensors")
        assert fingerprint(folder) != before

    def test_of_large_files_blocks_count_from_the_first_byte_to_the_last(self, folder, monkeypatch):
        """Two trainings of one model have files of the same names and sizes."""
        for name, value in {"WHOLE": 99, "BLOCKS": 4, "BLOCK": 10}.items():
            monkeypatch.setattr(model_files, name, value)
        plain = bytes(range(100))
        found = set()
        for place in (None, 0, 9, 30, 99):
            written = bytearray(plain)
            if place is not None:
                written[place] ^= 1
            (folder / "a.safetensors").write_bytes(written)
            found.add(fingerprint(folder))
        assert len(found) == 5
        (folder / "a.safetensors").write_bytes(plain[:15] + b"!" + plain[16:])
        assert fingerprint(folder) in found  # between the blocks

    def test_the_order_in_which_a_disk_lists_files_does_not_matter(self, folder, monkeypatch):
        before, glob = fingerprint(folder), Path.glob
        monkeypatch.setattr(Path, "glob", lambda *given: sorted(glob(*given), reverse=True))
        reverse = fingerprint(folder)
        monkeypatch.setattr(Path, "glob", lambda *given: sorted(glob(*given)))
        assert before == reverse == fingerprint(folder)

    def test_weights_of_before_safetensors_count(self, folder):
        for file in folder.glob("*.safetensors"):
            file.rename(folder / f"pytorch_model-{file.stem}.bin")
        (folder / "training_args.bin").write_bytes(b"1")
        before = fingerprint(folder)
        (folder / "training_args.bin").write_bytes(b"2")
        assert fingerprint(folder) == before
        (folder / "pytorch_model-a.bin").write_bytes(b"WEIGHTS")
        assert fingerprint(folder) != before

    def test_none_without_a_folder(self, tmp_path):
        assert fingerprint(tmp_path / "nowhere") is None
        assert fingerprint(tmp_path) is None


def test_a_model_that_takes_no_cache_is_refused(monkeypatch):
    model = copy.deepcopy(build("llava").model)
    monkeypatch.setattr(type(model), "forward", lambda self, input_ids: None)
    with pytest.raises(lookback.UnsupportedModelError, match="takes no past_key_values"):
        check_supported(model)


def test_an_encoder_decoder_is_refused(monkeypatch):
    model = copy.deepcopy(build("llava").model)
    for config in (model.config, model.config.text_config):
        monkeypatch.setattr(config, "is_encoder_decoder", True)
        with pytest.raises(lookback.UnsupportedModelError, match="is an encoder-decoder"):
            check_supported(model)
        monkeypatch.undo()
