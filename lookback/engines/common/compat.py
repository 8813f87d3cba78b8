"""What LookBack touches of torch and transformers beyond their public names: here and nowhere else.

A release of either library that moves one of these is mended in this file. pyproject.toml states
the releases that were tested; `make test` runs the newest of them, `make test-oldest` the oldest.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    Cache,
    DynamicCache,
    GenerationConfig,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
    StaticCache,
    cache_utils,
)
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.image_processing_utils import (
    select_best_resolution as select_best_resolution,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    causal_mask_function,
    sdpa_mask,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.utils import ModelOutput

from lookback.engines import UnsupportedModelError
from lookback.engines.common.fair_lock import survive_forks

__all__ = [
    "ALL_MASK_ATTENTION_FUNCTIONS",  # the mask function that the tap stands in front of
    "CACHES",
    "KEYLESS_LAYERS",
    "LAYERS_BY_POSITION",
    "STOPPING_CRITERIA",
    "AttentionInterface",  # where the tap registers its attention function
    "AttentionMaskInterface",  # and, under the same name, its mask function
    "DynamicLayer",  # the cache layer whose keys can be shared, and that SharedLayer extends
    "DynamicSlidingWindowLayer",  # the one that forgets keys: a DynamicLayer takes its place
    "HybridLayer",  # holds a state and keys
    "HybridSlidingLayer",  # the same, and forgets keys
    "ModelOutput",  # what generate returns as a dict
    "StateLayer",  # holds a state (convolution, linear attention) and no keys
    "TorchDispatchMode",  # sees every operation
    "alone_settings",
    "around_compiled_call",
    "attention_function",
    "attention_name",
    "causal_mask_function",  # tells a plain causal mask, which needs no tensor
    "flash_attention_on_cpu",
    "flash_attention_on_cuda",
    "generation_settings",
    "generation_steps",
    "hub_commit",
    "memory_efficient_attention",
    "sdpa_attention_forward",  # tells a layer on sdpa, which drops a softcap
    "sdpa_mask",  # a boolean mask, whatever attention the model uses
    "set_attention_name",
    "tree_iter",
    "uncompiled",
    "unwrapped",
    "wide_product_on_cuda",
]

StateLayer: Any = cache_utils.LinearAttentionLayer
HybridLayer: Any = cache_utils.LinearAttentionAndFullAttentionLayer
# Not in every release; no layer is of this class then.
HybridSlidingLayer: Any = getattr(
    cache_utils, "LinearAttentionAndSlidingWindowAttentionLayer", None
)


def _cache_layers(*names: str) -> tuple[type, ...]:
    """Cache layers by name, as far as this release has them."""
    found = (getattr(cache_utils, name, None) for name in names)
    return tuple(layer for layer in found if layer is not None)


CACHES = (Cache, DynamicCache, StaticCache)
"""Caches that hand over what their layers do, in that order. Exact types: a subclass may not."""

LAYERS_BY_POSITION = _cache_layers(
    "DynamicLayer",
    "DynamicSlidingWindowLayer",
    "StaticLayer",
    "StaticSlidingWindowLayer",
    "LinearAttentionAndFullAttentionLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer",
    "LinearAttentionAndStaticFullAttentionLayer",
    "LinearAttentionAndStaticSlidingWindowAttentionLayer",
)
"""Cache layers whose keys are the context's positions in order: all, or the newest."""

KEYLESS_LAYERS = _cache_layers("LinearAttentionLayer")
"""Cache layers that hold a state and no keys."""


STOPPING_CRITERIA = "_get_stopping_criteria"
"""The method by which `generate` makes the stopping criteria of a call."""


def unwrapped(model: Any) -> Any:
    """The transformers model inside what `torch.compile` and PEFT put around it, if they did.

    Adapters of PEFT are in the model's own layers and stay. Learned prompts are not.

    Raises:
        UnsupportedModelError: the wrapper adds tokens of its own to the prompt.
    """
    while True:
        if _is_optimized_module(model):
            model = model._orig_mod
        elif isinstance(model, PreTrainedModel):
            return model
        elif callable(getattr(model, "get_base_model", None)):  # a PeftModel
            if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
                raise UnsupportedModelError(
                    f"{type(model).__name__} puts a learned prompt before every prompt: LookBack "
                    "reads the model inside, which would not see it"
                )
            model = model.get_base_model()
        else:
            return model


def _is_optimized_module(model: Any) -> bool:
    """Whether `torch.compile` made it; asking must not import the compiler."""
    compiler = sys.modules.get("torch._dynamo")
    return compiler is not None and isinstance(model, compiler.OptimizedModule)


def is_usual_processor(processor: Any, model: PreTrainedModel) -> bool:
    """Whether a processor is of the class that transformers has for models of this type, if any."""
    usual = PROCESSOR_MAPPING_NAMES.get(model.config.model_type)
    return usual is None or usual in [kind.__name__ for kind in type(processor).__mro__]


def weight_without_numbers(model: PreTrainedModel) -> str | None:
    """The first weight that is on the meta device; None if there is none.

    Weights that accelerate has put aside are there too, until a hook fetches them.
    """
    for name, module in model.named_modules():
        if not hasattr(module, "_hf_hook"):
            for weight, values in module.named_parameters(name, recurse=False):
                if values.is_meta:
                    return weight
    return None


@contextmanager
def around_compiled_call(
    model: PreTrainedModel, around: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Put something around the calls of a model that `model.compile()` was called on, for a while.

    Its graph has the hooks inside.
    """
    compiled = model._compiled_call_impl
    if compiled is not None:
        model._compiled_call_impl = around(compiled)
    try:
        yield
    finally:
        if compiled is not None:
            model._compiled_call_impl = compiled


_EAGER_LOCK = threading.Lock()
survive_forks(_EAGER_LOCK)
_EAGER: list[Any] = []  # the stance, once for each block that wants it


@contextmanager
def uncompiled(model: PreTrainedModel) -> Iterator[None]:
    """Passes inside the block run as written, whatever of the model was compiled in place.

    The stance is everybody's: what others have compiled runs as written, too, until the last block
    ends. So it is taken only for a model that needs it.
    """
    if not any(map(_is_compiled, model.modules())):
        yield
        return
    with _EAGER_LOCK:
        stance = _EAGER[0] if _EAGER else torch.compiler.set_stance("force_eager")
        if not _EAGER:
            stance.__enter__()
        _EAGER.append(stance)
    try:
        yield
    finally:
        with _EAGER_LOCK:
            _EAGER.pop()
            if not _EAGER:
                stance.__exit__(None, None, None)


def _is_compiled(module: torch.nn.Module) -> bool:
    forward = module.__dict__.get("forward")
    return module._compiled_call_impl is not None or hasattr(forward, "_torchdynamo_orig_callable")


def generation_settings(
    model: PreTrainedModel, config: GenerationConfig | None, given: dict[str, Any]
) -> GenerationConfig:
    """The settings that `generate(generation_config=config, **given)` uses, defaults and all."""
    found: GenerationConfig = model._prepare_generation_config(config, **given)[0]
    return found


def generation_steps(model: torch.nn.Module) -> list[str]:
    """The methods by which a model's own class prepares the passes of `generate`.

    They may read and write what the class keeps on its modules. Those that are the library's, or
    that somebody has put on the model itself, do not count.
    """
    if not isinstance(model, GenerationMixin):
        return []
    kinds = ("prepare_", "_prepare_", "_expand_inputs", "_update_model_kwargs")
    return [
        name
        for name in dir(GenerationMixin)
        if name.startswith(kinds)
        and name not in vars(model)
        and inspect.isfunction(inspect.getattr_static(type(model), name))
        and getattr(type(model), name) is not getattr(GenerationMixin, name)
    ]


def alone_settings(generate: Callable[..., Any]) -> dict[str, Any]:
    """What tells `generate` that no other process waits for this one, if none does.

    Else it finds out by importing all that could share a model out, which takes a second.
    """
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    knows = "synced_gpus" in inspect.signature(generate).parameters
    return {"synced_gpus": False} if knows and not distributed else {}


def attention_name(config: PretrainedConfig) -> str | None:
    """The name under which a config's modules look up their attention function."""
    name: str | None = config._attn_implementation
    return name


def set_attention_name(config: PretrainedConfig, name: str | None) -> None:
    """Change that name, and nothing else: the public setter checks it, and loads kernels."""
    config._attn_implementation = name


def attention_function(module: str, name: str) -> Callable[..., Any] | None:
    """The attention function that a modeling file calls by that name; None if it has none.

    Each modeling file has an eager function of its own, and may override others for itself.
    """
    namespace = vars(sys.modules[module])
    if name == "eager":
        return namespace.get("eager_attention_forward")
    function: Callable[..., Any] = namespace.get(
        "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS
    )[name]
    return function


def hub_commit(name: str, revision: str | None) -> str | None:
    """The commit of a hub id's revision in the local cache, once loaded; None for a folder.

    A config no longer says which commit it came from (transformers 5.16 still had
    `config._commit_hash`), but the cache keeps each commit in a folder of its name.
    """
    if Path(name).exists():
        return None
    path = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(path).parent.name if isinstance(path, str) else None


def flash_attention_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The kernel behind scaled_dot_product_attention on CPU, with the rows' log-sum-exp.

    That function does not return it. The kernel takes grouped heads and strided keys as they are.
    """
    rows = query.shape[2]
    if rows == 1:
        # One row goes through a product of a vector, which rounds by where the thread's scratch
        # memory lies; four alike go through one of matrices, which does not.
        query = query.expand(-1, -1, 4, -1)
        bias = None if bias is None else bias.expand(-1, -1, 4, -1)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=bias, scale=scale
    )
    return (out[:, :, :1], lse[:, :, :1]) if rows == 1 else (out, lse)


def flash_attention_on_cuda(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The same of CUDA; it takes no bias."""
    assert bias is None
    found = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, 0.0, causal, False, scale=scale
    )
    return found[0], found[1]


def memory_efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The other fused kernel of CUDA, which takes a bias, but no grouped heads.

    It wants the bias for every head, its rows on multiples of 16 numbers, and fills up the
    log-sum-exp to multiples of 32 rows.
    """
    rows, keys = query.shape[2], key.shape[2]
    if bias is not None:
        aligned = bias.new_empty(*bias.shape[:-1], -(-keys // 16) * 16)
        aligned[..., :keys] = bias
        bias = aligned[..., :keys].expand(query.shape[0], query.shape[1], rows, keys)
    found = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, True, 0.0, causal, scale=scale
    )
    return found[0], found[1][:, :, :rows]


def wide_product_on_cuda(one: Tensor, other: Tensor) -> Tensor:
    """one @ other of three dimensions, from float16 or bfloat16 straight to float32."""
    return torch.ops.aten.bmm.dtype(one, other, torch.float32)
