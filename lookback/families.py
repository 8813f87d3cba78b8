"""What differs between LVLM families, as data: one row per family; nothing else branches.

A family is found by the model config's `model_type`. A model with no row of its own gets `GENERIC`:
the paper's single global setting, and its image token read from the config as for all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


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
    """Return the family of a transformers model config (or of anything with a `model_type`).

    A model can bring its own settings: an entry `lookback` in its config.json, with the fields of
    a `Family`, takes precedence over the table.

    Raises:
        ValueError: that entry is malformed.
    """
    own = getattr(config, "lookback", None)
    if own is not None:
        _check_own(own)
        return Family(**own)
    return FAMILIES.get(config.model_type, GENERIC)


def _check_own(own: Any) -> None:
    """Raise ValueError if settings in a model's config are no `Family`."""
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
    """Return the id of the placeholder that vision tokens replace, from the model's config.

    Raises:
        ValueError: the config names no such token, so no image enters the context, or an
            impossible one.
    """
    token = _token_id(config, "image")
    if token is None:
        raise ValueError(
            f"the config of this {config.model_type!r} model has neither image_token_id nor "
            "image_token_index: LookBack needs a decoder whose context holds the vision tokens"
        )
    return token


def video_token_id(config: Any) -> int | None:
    """Return the same for videos; None for a model that takes none."""
    return _token_id(config, "video")


def _token_id(config: Any, kind: str) -> int | None:
    for key in (f"{kind}_token_id", f"{kind}_token_index"):
        value = getattr(config, key, None)
        if isinstance(value, int):
            if not 0 <= value < 2**31:
                raise ValueError(f"{key} = {value} in the model's config: a token id is needed")
            return value
    return None


@dataclass(frozen=True)
class Layout:
    """How the vision tokens of a model are laid out on its picture.

    Names of settings are looked up in the model's config, with a dot for a nested config.

    Attributes:
        kind: "views": the model is shown squares of pixels (the picture, or tiles of it and an
            overview), and each becomes rows of tokens. "mosaic": the same, but the tiles are put
            together again, cut to the picture, and written row by row with a token after each
            (LLaVA's anyres). "patches": the whole picture in patches, whose rows and columns come
            with them. "resampled": every token is made from the whole picture, so none has a place.
        merge: the setting that says how many patches side by side are merged into a token; a
            number below 1 is its inverse. "" for one token per patch.
        side: instead of that, the setting that says how many tokens there are per view.
        overview: where the view of the whole picture stands among the tiles.
        row_end: whether the end of a row is a vision token too, and the image's begin and end.
        frames: the setting for the frames of a video instead of `merge`; "half" for a grid with
            half as many rows and columns, rounded up, and one token behind all frames.
    """

    kind: Literal["views", "mosaic", "patches", "resampled"]
    merge: str = ""
    side: str = ""
    overview: Literal["first", "last"] = "last"
    row_end: bool = False
    frames: str = ""


_MERGED = Layout("patches", merge="vision_config.spatial_merge_size")

LAYOUTS: dict[str, Layout] = {
    **dict.fromkeys(
        ["llava", "vipllava", "video_llava", "paligemma", "deepseek_vl", "deepseek_vl_hybrid"],
        Layout("views"),
    ),
    "janus": Layout("views"),
    "gemma3": Layout("views", side="mm_tokens_per_image", overview="first"),
    **dict.fromkeys(["mistral3", "lighton_ocr"], Layout("views", merge="spatial_merge_size")),
    **dict.fromkeys(["internvl", "qianfan_ocr"], Layout("views", merge="downsample_ratio")),
    **dict.fromkeys(
        ["aya_vision", "cohere2_vision", "lfm2_vl"], Layout("views", merge="downsample_factor")
    ),
    **dict.fromkeys(["idefics3", "smolvlm"], Layout("views", merge="scale_factor")),
    "llama4": Layout("views", merge="vision_config.pixel_shuffle_ratio"),
    "ovis2": Layout("views", merge="vision_config.hidden_stride", overview="first"),
    "llava_next": Layout("mosaic", overview="first"),
    "llava_next_video": Layout("mosaic", overview="first", frames="spatial_pool_stride"),
    "llava_onevision": Layout("mosaic", overview="first", frames="half"),
    **dict.fromkeys(
        ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"], _MERGED
    ),
    **dict.fromkeys(["glm4v", "glm46v", "glm4v_moe", "glm_ocr", "exaone4_5"], _MERGED),
    **dict.fromkeys(["paddleocr_vl", "ernie4_5_vl_moe"], _MERGED),
    "video_llama_3": Layout("patches"),
    "gemma4": Layout("patches", merge="vision_config.pooling_kernel_size"),
    "hunyuan_vl": Layout("patches", merge="vision_config.spatial_merge_size", row_end=True),
    **dict.fromkeys(["idefics2", "aria"], Layout("resampled")),
}
"""Layouts by model type; all other types have no heat map."""
TESTED = frozenset(LAYOUTS)
"""Model types that the project's tests check against eager attention: all of these."""
