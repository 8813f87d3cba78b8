"""What differs between LVLM families, as data: one row per family; nothing else branches.

A family is found by the model config's `model_type`. A model with no row of its own gets `GENERIC`:
the paper's single global setting, and its image token read from the config as for all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """One row of the table.

    Attributes:
        name: as the paper writes it.
        alpha, lam: the paper's hyperparameters for it.
        vauq_layers: decoder layers VAUQ reads, end exclusive; None means the middle half.
        vauq_k: the share of vision tokens VAUQ masks.
        clip: the dual encoder for CLIPScore: a hub id, a folder, or "embedded".
        prompt: how to ask when the processor has no chat template: `{image}`, `{question}` and
            `{response}` stand for the image placeholder(s), the question and the model's answer.
    """

    name: str
    alpha: float = 0.25
    lam: float = 1.25
    vauq_layers: tuple[int, int] | None = None
    vauq_k: float = 0.5
    clip: str = "openai/clip-vit-base-patch32"
    prompt: str | None = None

    @property
    def defaults(self) -> dict[str, float]:
        """The settings of LookBack's score for this family."""
        return {"alpha": self.alpha, "lam": self.lam}


GENERIC = Family("any other LVLM")

FAMILIES: dict[str, Family] = {
    "llava": Family(
        "LLaVA-1.5",
        alpha=7.0,
        lam=1.5,
        vauq_layers=(10, 25),
        vauq_k=0.6,
        prompt="USER: {image}\n{question} ASSISTANT: {response}",
    ),
    "qwen2_5_vl": Family("Qwen2.5-VL", alpha=0.5, lam=1.25, vauq_layers=(12, 26), vauq_k=0.5),
    "internvl": Family("InternVL3", alpha=0.25, lam=1.25, vauq_layers=(10, 25), vauq_k=0.4),
    "paligemma": Family("PaliGemma", prompt="{image}{question}{response}"),
}


def family_of(config: Any) -> Family:
    """The family of a transformers model config (or of anything with a `model_type`).

    A model can bring its own settings: an entry `lookback` in its config.json, with the fields of
    a `Family`, goes before the table.

    Raises:
        ValueError: that entry is of another shape.
    """
    own = getattr(config, "lookback", None)
    if own is not None:
        _check_own(own)
        return Family(**own)
    return FAMILIES.get(config.model_type, GENERIC)


def _check_own(own: Any) -> None:
    """Refuse settings in a model's config that are no `Family`; None stands where it may."""
    if not isinstance(own, Mapping) or "name" not in own:
        raise ValueError(
            f"the model's config has lookback = {own!r:.60}: it must be settings with a name"
        )
    for key, value in own.items():
        kinds = _KINDS.get(key)
        if kinds is None:
            raise ValueError(f"the model's config has an unknown lookback setting {key!r:.60}")
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"the model's config has lookback.{key} = {value!r:.60}")


_KINDS: dict[str, Any] = {
    "name": str,
    **dict.fromkeys(("alpha", "lam", "vauq_k"), (int, float)),
    "vauq_layers": (list, tuple, type(None)),
    "clip": str,
    "prompt": (str, type(None)),
}


def image_token_id(config: Any) -> int:
    """The id of the placeholder that the vision tokens replace, as the model's own config says it.

    Raises:
        ValueError: the config names no such token, so no image enters the context, or names one
            that cannot be.
    """
    for key in ("image_token_id", "image_token_index"):
        value = getattr(config, key, None)
        if isinstance(value, int):
            return _token_id(key, value)
    raise ValueError(
        f"the config of this {config.model_type!r} model has neither image_token_id nor "
        "image_token_index: LookBack needs a decoder whose context holds the vision tokens"
    )


def video_token_id(config: Any) -> int | None:
    """The same for videos; None for a model that takes none."""
    for key in ("video_token_id", "video_token_index"):
        value = getattr(config, key, None)
        if isinstance(value, int):
            return _token_id(key, value)
    return None


def _token_id(key: str, value: int) -> int:
    if not 0 <= value < 2**31:
        raise ValueError(f"{key} = {value} in the model's config: a token id is needed")
    return value


TESTED = frozenset(
    [
        "aria",
        "aya_vision",
        "cohere2_vision",
        "deepseek_vl",
        "deepseek_vl_hybrid",
        "ernie4_5_vl_moe",
        "exaone4_5",
        "gemma3",
        "gemma4",
        "glm46v",
        "glm4v",
        "glm4v_moe",
        "glm_ocr",
        "hunyuan_vl",
        "idefics2",
        "idefics3",
        "internvl",
        "janus",
        "lfm2_vl",
        "lighton_ocr",
        "llama4",
        "llava",
        "llava_next",
        "llava_next_video",
        "llava_onevision",
        "mistral3",
        "ovis2",
        "paddleocr_vl",
        "paligemma",
        "qianfan_ocr",
        "qwen2_5_vl",
        "qwen2_vl",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_vl",
        "qwen3_vl_moe",
        "smolvlm",
        "video_llama_3",
        "video_llava",
        "vipllava",
    ]
)
"""Model types that the project's tests compare with the model's own attention maps."""
