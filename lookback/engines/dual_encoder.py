"""A dual encoder of image and text (CLIP and its like) from the transformers library."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookback.embedded import CLIP
from lookback.io.images import load_images

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.conversations import Images

PREFIX = "A photo depicts "
"""What CLIPScore puts before each text, unless the model's config has `lookback["prefix"]`."""
KEPT = 256  # images whose embedding is remembered
BATCH = 64  # texts per pass


class DualEncoder:
    """Embeddings of unit length; those of the images seen last are kept.

    `model` is a transformers model with `get_image_features` and `get_text_features`.
    """

    def __init__(self, model: Any, processor: Any) -> None:
        self.model = model.eval()
        self.processor = processor
        self.prefix: str = (getattr(model.config, "lookback", None) or {}).get("prefix", PREFIX)
        self.length = int(model.config.text_config.max_position_embeddings)
        self._seen: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    @classmethod
    def load(cls, name: str) -> DualEncoder:
        """Load from a hub id or a folder, once; "embedded" is the package's own."""
        return _load(str(CLIP) if name == "embedded" else name)

    def image(self, image: Images) -> NDArray[np.float32]:
        """Return the embedding of one image; of several, that of their mean direction."""
        pictures = load_images(image)
        if not pictures:
            raise ValueError("CLIPScore needs an image: these candidates were made without one")
        mean = np.mean([self._picture(picture) for picture in pictures], axis=0)
        return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)

    def _picture(self, picture: Image) -> NDArray[np.float32]:
        key = repr((picture.mode, picture.size)).encode() + picture.tobytes()
        if key not in self._seen:
            inputs = self.processor(images=[picture], return_tensors="pt")
            with torch.no_grad():
                features = self.model.get_image_features(
                    pixel_values=self._to_model(inputs["pixel_values"])
                )
            self._seen[key] = _unit(features)[0]
            if len(self._seen) > KEPT:
                self._seen.popitem(last=False)
        return self._seen[key]

    def texts(self, texts: Sequence[str], prefix: str | None = None) -> NDArray[np.float32]:
        """Return the embeddings of texts behind the prefix, cut so that the end token stays."""
        before = self.prefix if prefix is None else prefix
        embeddings = []
        for start in range(0, len(texts), BATCH):
            inputs = self.processor(
                text=[before + text.strip() for text in texts[start : start + BATCH]],
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=self.length,
            )
            with torch.no_grad():
                features = self.model.get_text_features(
                    input_ids=self._to_model(inputs["input_ids"]),
                    attention_mask=self._to_model(inputs["attention_mask"]),
                )
            embeddings.append(_unit(features))
        return np.concatenate(embeddings)

    def _to_model(self, tensor: torch.Tensor) -> torch.Tensor:
        dtype = self.model.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(self.model.device, dtype)


@lru_cache(maxsize=2)
def _load(name: str) -> DualEncoder:
    from transformers import AutoModel

    from lookback.engines.common.model_files import LOADING, explaining, hub_options, load_processor

    with LOADING, explaining(name):
        model = AutoModel.from_pretrained(name, dtype=torch.float32, **hub_options(name))
    for method in ("get_image_features", "get_text_features"):
        if not hasattr(model, method):
            raise ValueError(f"{name} is a {type(model).__name__}: CLIPScore needs a dual encoder")
    return DualEncoder(model, load_processor(name))


def _unit(features: Any) -> NDArray[np.float32]:
    values = features if isinstance(features, torch.Tensor) else features.pooler_output
    return torch.nn.functional.normalize(values.float(), dim=-1).cpu().numpy()
