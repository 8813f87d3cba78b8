"""What is asked of a model once: its layers, its configs, its end tokens, its weights."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
from zoo import build

import lookback
from lookback.engines.transformers import support
from lookback.engines.transformers.support import (
    attention_layers,
    check_supported,
    decoder_configs,
    end_token_ids,
    fingerprint,
    rope_switches,
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


LONG = {"rope_type": "longrope", "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("parameters", "lengths"),
    [
        (None, []),
        ({"rope_type": "default", "original_max_position_embeddings": 4096}, []),
        (LONG, [4096]),
        ({"full_attention": LONG, "sliding_attention": {"rope_type": "default"}}, [4096]),
        ({"rope_type": "longrope", "original_max_position_embeddings": None}, []),
    ],
)
def test_lengths_where_all_positions_turn(parameters, lengths):
    """Told for all layers at once, or for each kind of layer."""
    assert rope_switches(with_text_config(rope_parameters=parameters)) == lengths


def test_every_copy_of_the_decoders_config_is_found():
    """A module may hold one of its own, and the vision tower's is another thing."""
    model = copy.deepcopy(build("llava").model)
    layer = model.get_decoder().layers[1].self_attn
    layer.config = copy.deepcopy(layer.config)
    found = {id(config) for config in decoder_configs(model)}
    assert found == {id(model.config.text_config), id(layer.config)}


@pytest.mark.parametrize(
    ("given", "generation", "text", "ids"),
    [
        (None, 5, 7, [5]),
        (None, [5, 6], 7, [5, 6]),
        (None, None, 7, [7]),
        (None, None, None, []),
        (3, [5, 6], 7, [3]),
        (0, 5, 7, [0]),  # an id like any other
        (None, 0, 7, [0]),
    ],
)
def test_end_tokens_are_the_ones_given_then_of_generation_then_of_the_text(
    given, generation, text, ids
):
    model = with_text_config(eos_token_id=text)
    model.generation_config = SimpleNamespace(eos_token_id=generation)
    assert end_token_ids(model, given) == ids


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

    def test_large_files_count_by_name_and_size(self, folder, monkeypatch):
        monkeypatch.setattr(support, "WHOLE", 6)
        before = fingerprint(folder)
        (folder / "a.safetensors").write_bytes(b"WEIGHTS")
        assert fingerprint(folder) == before
        (folder / "a.safetensors").write_bytes(b"weights!")
        assert fingerprint(folder) != before

    def test_the_order_in_which_a_disk_lists_files_does_not_matter(self, folder, monkeypatch):
        before, glob = fingerprint(folder), Path.glob
        monkeypatch.setattr(Path, "glob", lambda *given: sorted(glob(*given), reverse=True))
        reverse = fingerprint(folder)
        monkeypatch.setattr(Path, "glob", lambda *given: sorted(glob(*given)))
        assert before == reverse == fingerprint(folder)

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
