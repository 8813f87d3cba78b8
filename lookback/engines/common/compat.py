"""All that LookBack uses of torch and transformers beyond their public names.

If a release of either library moves one of these, this is the file to change. pyproject.toml states
the tested releases; `make test` runs the newest of them, `make test-oldest` the oldest.
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
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_iter as tree_iter
from transformers import AttentionInterface as AttentionInterface
from transformers import AttentionMaskInterface as AttentionMaskInterface
from transformers import (
    Cache,
    DynamicCache,
    GenerationConfig,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
    StaticCache,
    cache_utils,
)
from transformers.cache_utils import DynamicLayer as DynamicLayer
from transformers.cache_utils import DynamicSlidingWindowLayer as DynamicSlidingWindowLayer
from transformers.image_processing_utils import select_best_resolution as select_best_resolution
from transformers.integrations.sdpa_attention import (
    sdpa_attention_forward as sdpa_attention_forward,
)
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS as ALL_MASK_ATTENTION_FUNCTIONS,
)
from transformers.masking_utils import causal_mask_function as causal_mask_function
from transformers.masking_utils import sdpa_mask as sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.utils import ModelOutput as ModelOutput

from lookback.engines.common.fair_lock import survive_forks
from lookback.errors import UnsupportedModelError

# Cache layers: a state (convolution, linear attention) and no keys; a state and keys.
StateLayer: Any = cache_utils.LinearAttentionLayer
HybridLayer: Any = cache_utils.LinearAttentionAndFullAttentionLayer
HybridSlidingLayer: Any = getattr(
    cache_utils, "LinearAttentionAndSlidingWindowAttentionLayer", None
)


CACHES = (Cache, DynamicCache, StaticCache)
"""Caches that return what their layers do, in order. Exact types: a subclass may differ."""
LAYERS_BY_POSITION: tuple[type, ...] = tuple(
    getattr(cache_utils, name)
    for name in (
        "DynamicLayer",
        "DynamicSlidingWindowLayer",
        "StaticLayer",
        "StaticSlidingWindowLayer",
        "LinearAttentionAndFullAttentionLayer",
        "LinearAttentionAndSlidingWindowAttentionLayer",
        "LinearAttentionAndStaticFullAttentionLayer",
        "LinearAttentionAndStaticSlidingWindowAttentionLayer",
    )
    if hasattr(cache_utils, name)  # not all are in every release
)
"""Cache layers whose keys are the context's positions in order: all, or the newest."""
KEYLESS_LAYERS = (StateLayer,)
STOPPING_CRITERIA = "_get_stopping_criteria"
"""The method by which `generate` makes the stopping criteria of a call."""


def unwrapped(model: Any) -> Any:
    """Return the transformers model inside the wrappers of `torch.compile` and PEFT.

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
    """Whether a processor is of the class that transformers has for this model type, if any."""
    usual = PROCESSOR_MAPPING_NAMES.get(model.config.model_type)
    return usual is None or usual in [kind.__name__ for kind in type(processor).__mro__]


def weight_without_numbers(model: PreTrainedModel) -> str | None:
    """Return the first weight on the meta device; None if there is none.

    Weights that accelerate has offloaded do not count: a hook fetches them.
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
    """Wrap the calls of a model that `model.compile()` was called on, inside the block."""
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
_EAGER: list[Any] = []  # the stance, once for each open block


@contextmanager
def uncompiled(model: PreTrainedModel) -> Iterator[None]:
    """Run passes inside the block uncompiled, whatever of the model was compiled in place.

    The stance is global: other compiled models run uncompiled, too, until the last block ends. So
    it is set only for a model that needs it.
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
    model: PreTrainedModel, config: GenerationConfig | None, kwargs: dict[str, Any]
) -> GenerationConfig:
    """Return the settings that `generate(generation_config=config, **kwargs)` uses."""
    settings: GenerationConfig = model._prepare_generation_config(config, **kwargs)[0]
    return settings


def generation_steps(model: torch.nn.Module) -> list[str]:
    """Return the methods by which a model's own class prepares the passes of `generate`.

    They may read and write what the class keeps on its modules. The library's own do not count,
    nor do those that were set on the model itself.
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
    """Return settings by which `generate` need not find out that this process is not distributed.

    It would import much for that, which takes a second.
    """
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    knows = "synced_gpus" in inspect.signature(generate).parameters
    return {"synced_gpus": False} if knows and not distributed else {}


def attention_name(config: PretrainedConfig) -> str | None:
    """Return the name under which a config's modules look up their attention function."""
    name: str | None = config._attn_implementation
    return name


def set_attention_name(config: PretrainedConfig, name: str | None) -> None:
    """Set that name and nothing else: the public setter checks it and loads kernels."""
    config._attn_implementation = name


def attention_function(module: str, name: str) -> Callable[..., Any] | None:
    """Return the attention function that a modeling file calls by that name; None if none.

    Each modeling file has an eager function of its own, and may override others.
    """
    namespace = vars(sys.modules[module])
    if name == "eager":
        return namespace.get("eager_attention_forward")
    function: Callable[..., Any] = namespace.get(
        "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS
    )[name]
    return function


def hub_commit(name: str, revision: str | None) -> str | None:
    """Return the commit of a hub id's revision in the local cache; None for a folder.

    The cache keeps each commit in a folder of its name.
    """
    if Path(name).exists():
        return None
    path = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(path).parent.name if isinstance(path, str) else None


def flash_attention_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Call the kernel behind scaled_dot_product_attention on CPU, which returns log-sum-exps.

    It takes grouped heads and strided keys as they are.
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
    """Call the same of CUDA; it takes no bias."""
    assert bias is None
    outputs = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, 0.0, causal, False, scale=scale
    )
    return outputs[0], outputs[1]


def memory_efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Call the other fused kernel of CUDA, which takes a bias, but no grouped heads.

    It needs the bias for every head, with rows aligned to 16 numbers, and pads the log-sum-exp to
    multiples of 32 rows.
    """
    rows, keys = query.shape[2], key.shape[2]
    if bias is not None:
        aligned = bias.new_empty(*bias.shape[:-1], -(-keys // 16) * 16)
        aligned[..., :keys] = bias
        bias = aligned[..., :keys].expand(query.shape[0], query.shape[1], rows, keys)
    outputs = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, True, 0.0, causal, scale=scale
    )
    return outputs[0], outputs[1][:, :, :rows]


def wide_product_on_cuda(one: Tensor, other: Tensor) -> Tensor:
    """Return one @ other of three dimensions, from float16 or bfloat16 to float32."""
    return torch.ops.aten.bmm.dtype(one, other, torch.float32)
