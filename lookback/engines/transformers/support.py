"""Checks of a model when it is loaded: whether its attention can be read, and in which layers."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

import transformers
from packaging.version import Version
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import attention_name, weight_without_numbers
from lookback.engines.common.model_files import first_end_tokens
from lookback.families import TESTED, image_token_id

if TYPE_CHECKING:
    from lookback.engines.transformers.engine import TransformersEngine


def text_config(model: PreTrainedModel) -> PretrainedConfig:
    """Return the config of the model's text decoder."""
    return model.config.get_text_config(decoder=True)


def decoder_configs(model: PreTrainedModel) -> list[PretrainedConfig]:
    """Return every config object that the decoder's modules read (there may be several copies)."""
    text = text_config(model)
    configs: dict[int, PretrainedConfig] = {id(text): text}
    for module in model.modules():
        config = getattr(module, "config", None)
        if type(config) is type(text):
            configs[id(config)] = config
    return list(configs.values())


def attention_layers(model: PreTrainedModel) -> int:
    """Return the number of the decoder's attention layers, hybrid ones included.

    Layers of linear attention or convolution do not count.
    """
    config = text_config(model)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return int(config.num_hidden_layers)
    return sum(
        kind.startswith("hybrid") or (kind.endswith("attention") and kind != "linear_attention")
        for kind in kinds
    )


def check_attention(name: str | None) -> None:
    """Raise UnsupportedModelError if the attention function of that name cannot be read."""
    if name == "flex_attention":
        raise UnsupportedModelError(
            "attn_implementation = 'flex_attention' cannot be read, as its masks are compiled "
            "blocks: load the model with attn='sdpa', or call model.set_attn_implementation('sdpa')"
        )


def check_evaluating(model: PreTrainedModel) -> None:
    """Raise ValueError if the model, or a part of it, is in training mode, with dropout."""
    for name, module in model.named_modules():
        if module.training:
            part = f" ({name})" if name else ""
            raise ValueError(f"the model{part} is in training mode: call model.eval() first")


def check_supported(model: Any) -> int:
    """Return the id of the model's image token, if the model's attention can be read.

    Raises:
        TypeError: this is no transformers model.
        UnsupportedModelError: its image does not enter the decoder's own context, it does not
            generate from a cache, or it has no weights.
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"expected a transformers model, got {type(model).__name__}")
    name, text = type(model).__name__, text_config(model)
    if model.config.is_encoder_decoder or text.is_encoder_decoder:
        raise UnsupportedModelError(
            f"{name} is an encoder-decoder: its decoder sees the image through cross-attention only"
        )
    if getattr(text, "cross_attention_layers", None):
        raise UnsupportedModelError(
            f"{name} sees the image through cross-attention layers, not as tokens of the decoder's "
            "context: it has no visual lookback in the sense of Eq. 3"
        )
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise UnsupportedModelError(
            f"{name} takes no past_key_values: a response cannot go on after its prompt, only the "
            "language model inside can"
        )
    if not isinstance(model, GenerationMixin):
        raise UnsupportedModelError(
            f"{name} does not write one token after another by transformers' own generate (it is "
            "no GenerationMixin): no row of its attention predicts a token from those before it"
        )
    check_attention(attention_name(text))
    weight = weight_without_numbers(model)
    if weight is not None:
        raise UnsupportedModelError(
            f"{name} has no numbers in {weight}: it is on the meta device; load its weights first, "
            "with from_pretrained or load_state_dict(..., assign=True)"
        )
    try:
        return image_token_id(model.config)
    except ValueError as error:
        raise UnsupportedModelError(f"{name}: {error}") from None


def end_token_ids(model: PreTrainedModel) -> list[int]:
    """Return the end token ids, of the generation config or of the text config."""
    return first_end_tokens(model.generation_config.eos_token_id, text_config(model).eos_token_id)


LOG = logging.getLogger("lookback")
NEWEST = "5.22"
"""The newest release of transformers that the tests run on."""
_SUGGESTED: set[str] = set()  # model types that were named, or are being checked


def suggest_check(model: PreTrainedModel, name: str) -> None:
    """Suggest `lookback check`, once per model type that the tests do not cover."""
    kind = str(model.config.model_type)
    if kind in TESTED or kind in _SUGGESTED:
        return
    _SUGGESTED.add(kind)
    LOG.warning(
        "LookBack's tests have no %s model: `lookback check %s` compares its numbers with the "
        "model's own, here",
        kind,
        name,
    )


def is_checked(model: PreTrainedModel) -> None:
    """Note that the model is being checked: there is no need to suggest it."""
    _SUGGESTED.add(str(model.config.model_type))


def check_release(engine: TransformersEngine) -> None:
    """Check a model's numbers here, if transformers is newer than the newest that is tested.

    Raises:
        UnsupportedModelError: they differ from the model's own.
    """
    installed = Version(transformers.__version__)
    if installed.release[:2] <= Version(NEWEST).release:
        return
    LOG.warning(
        "LookBack's tests know transformers up to %s, this is %s: %r is compared with its own slow "
        "decoding first",
        NEWEST,
        installed,
        engine.name,
    )
    failed = [check for check in engine.check().checks if check.ok is False]
    if failed:
        names = "; ".join(f"{check.what} ({check.note})" for check in failed)
        raise UnsupportedModelError(
            f"with transformers {installed}, LookBack's numbers for {engine.name!r} are not the "
            f"model's own: {names}. Install a release that is tested: pip install "
            f"'transformers=={NEWEST}.*'"
        )
