"""The dual encoder of CLIPScore: what it is given, what it keeps, and lengths of one."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.reference import noise
from PIL import Image

from lookback.engines import dual_encoder
from lookback.engines.common.model_files import LOADING
from lookback.engines.dual_encoder import DualEncoder


class Model:
    """Embeds a picture as its mean and spread, a text as its tokens' numbers."""

    config = SimpleNamespace(text_config=SimpleNamespace(max_position_embeddings=6))
    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self):
        self.images = self.texts = 0

    def eval(self):
        return self

    def get_image_features(self, pixel_values):
        assert pixel_values.dtype == self.dtype
        self.images += 1
        return torch.stack([pixel_values.mean((1, 2, 3)), pixel_values.std((1, 2, 3))], 1)

    def get_text_features(self, input_ids, attention_mask):
        assert input_ids.dtype == attention_mask.dtype == torch.long
        self.texts += 1
        return SimpleNamespace(pooler_output=(input_ids * attention_mask).double())


class Processor:
    def __init__(self):
        self.said = []

    def __call__(self, images=None, text=None, **options):
        if images is not None:
            pixels = [torch.from_numpy(np.asarray(one, dtype=np.float32)) for one in images]
            return {"pixel_values": torch.stack(pixels)}
        self.said += text
        assert options["truncation"]
        assert options["max_length"] == 6
        ids = torch.tensor([[len(one), 1] for one in text])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.fixture
def encoder():
    return DualEncoder(Model(), Processor())


def test_embeddings_have_unit_length_also_of_several_images(encoder):
    pictures = [noise(), Image.new("RGB", noise().size, "grey")]
    both = encoder.image(pictures)
    apart = [encoder.image(one) for one in pictures]
    assert apart[0] @ apart[1] < 0.9  # their mean is shorter than they are
    assert np.linalg.norm(both) == pytest.approx(1, abs=1e-6)
    mean = np.mean(apart, axis=0)
    np.testing.assert_allclose(both, mean / np.linalg.norm(mean), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(encoder.texts(["a", "bcd"]), axis=1), 1, rtol=1e-6)


def test_images_seen_last_are_kept(encoder, monkeypatch):
    monkeypatch.setattr(dual_encoder, "KEPT", 2)
    for seed, passes in ((0, 1), (1, 2), (0, 2), (2, 3), (1, 3), (2, 3), (0, 4)):
        encoder.image(noise(seed))
        assert encoder.model.images == passes
    assert len(encoder._seen) == 2


def test_images_of_the_same_bytes_may_be_of_another_shape(encoder):
    pixels = bytes(range(48))
    for size in ((4, 4), (2, 8)):
        encoder.image(Image.frombytes("RGB", size, pixels))
    assert encoder.model.images == 2


def test_every_text_is_embedded_whatever_the_batch(encoder, monkeypatch):
    texts = ["x" * i for i in range(1, 8)]
    whole = encoder.texts(texts)
    monkeypatch.setattr(dual_encoder, "BATCH", 3)
    np.testing.assert_array_equal(encoder.texts(texts), whole)
    assert len(whole) == 7
    assert encoder.model.texts == 1 + 3


def test_the_prefix_is_the_models_the_callers_or_clipscores(encoder):
    encoder.texts([" a cat "])
    encoder.texts(["a cat"], prefix="")
    encoder.prefix = "Seen: "
    encoder.texts(["a cat"])
    assert encoder.processor.said == ["A photo depicts a cat", "a cat", "Seen: a cat"]


def test_without_an_image_there_is_nothing_to_compare(encoder):
    with pytest.raises(ValueError, match="CLIPScore needs an image"):
        encoder.image(None)


def test_a_model_of_one_kind_is_refused_and_one_is_loaded_at_a_time(monkeypatch):
    import threading

    import transformers

    free = []

    def from_pretrained(name, dtype):
        other = threading.Thread(target=lambda: free.append(LOADING.acquire(blocking=False)))
        other.start()
        other.join()
        return torch.nn.Linear(1, 1)

    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", from_pretrained)
    with pytest.raises(ValueError, match=r"someones/text-model is a Linear: .* a dual encoder"):
        DualEncoder.load("someones/text-model")
    assert free == [False]
