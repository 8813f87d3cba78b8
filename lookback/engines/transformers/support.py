"""What is asked of a model once, when it is taken in: can it be read, where, and which is it?"""

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
    """The config of the model's text decoder."""
    return model.config.get_text_config(decoder=True)


def decoder_configs(model: PreTrainedModel) -> list[PretrainedConfig]:
    """Every config object that the decoder's modules read (a model may hold several copies)."""
    text = text_config(model)
    found: dict[int, PretrainedConfig] = {id(text): text}
    for module in model.modules():
        config = getattr(module, "config", None)
        if type(config) is type(text):
            found[id(config)] = config
    return list(found.values())


def attention_layers(model: PreTrainedModel) -> int:
    """In how many layers the decoder attends.

    Layers of linear attention or convolution do not; hybrid ones do both.
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
    """Raise ValueError if the model, or a part of it, is in training mode: dropout changes it."""
    for name, module in model.named_modules():
        if module.training:
            part = f" ({name})" if name else ""
            raise ValueError(f"the model{part} is in training mode: call model.eval() first")


def check_supported(model: Any) -> int:
    """The id of the model's image token, if the model can be tapped.

    Raises:
        TypeError: this is no transformers model.
        UnsupportedModelError: its image does not enter the decoder's own context, it cannot be
            sent on after a prompt, or it has no weights.
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
    """The ids that end a turn: of the generation config, or of the text config.

    Raises:
        ValueError: they are no whole numbers.
    """
    return first_end_tokens(model.generation_config.eos_token_id, text_config(model).eos_token_id)


LOG = logging.getLogger("lookback")
NEWEST = "5.22"
"""The newest release of transformers that the tests run on."""
_SAID: set[str] = set()  # model types that nothing more is to be said about


def suggest_check(model: PreTrainedModel, name: str) -> None:
    """Say that this machine can compare the model, unless tests have, or it was said before."""
    kind = str(model.config.model_type)
    if kind in TESTED or kind in _SAID:
        return
    _SAID.add(kind)
    LOG.warning(
        "LookBack's tests have no %s model: `lookback check %s` compares its numbers with the "
        "model's own, here",
        kind,
        name,
    )


def is_checked(model: PreTrainedModel) -> None:
    """It is being compared: there is no need to suggest it."""
    _SAID.add(str(model.config.model_type))


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
