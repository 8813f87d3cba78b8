"""The tap as a custom operator, for models under `torch.compile`.

A reader is Python that changes from pass to pass: traced, it would break the graph in every layer
and be compiled again for every step. As an operator it is opaque: a compiled model has as many
graphs with the tap as without. The operator is marked as unfit for CUDA graphs, which would be
replayed without Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

_MODULES: WeakValueDictionary[int, torch.nn.Module] = WeakValueDictionary()
_FUNCTIONS: dict[str, Callable[..., tuple[Tensor, Any]]] = {}
_SETTINGS = ("scaling", "softcap", "sliding_window", "is_causal")


@torch.library.custom_op(
    "lookback::attend",
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, Tensor? mask, str function, int module, "
    "float? scaling, float? softcap, int? sliding_window, bool? is_causal) -> Tensor",
    tags=[tag for tag in (getattr(torch.Tag, "cudagraph_unsafe", None),) if tag is not None],
)
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    function: str,
    module: int,
    scaling: float | None,
    softcap: float | None,
    sliding_window: int | None,
    is_causal: bool | None,
) -> Tensor:
    settings = dict(zip(_SETTINGS, (scaling, softcap, sliding_window, is_causal), strict=True))
    kwargs = {name: value for name, value in settings.items() if value is not None}
    return _FUNCTIONS[function](_MODULES[module], query, key, value, mask, **kwargs)[0]


@_attend.register_fake
def _shape(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *args: Any) -> Tensor:
    batch, heads, rows, _ = query.shape
    return query.new_empty(batch, rows, heads, value.shape[-1])


def name_function(name: str, function: Callable[..., tuple[Tensor, Any]]) -> None:
    """Register an attention function by a name."""
    _FUNCTIONS[name] = function


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _remember(module: torch.nn.Module) -> None:
    _MODULES[id(module)] = module


def traced(
    name: str,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    kwargs: dict[str, Any],
) -> tuple[Tensor, None]:
    """Call a named attention function through the operator."""
    _remember(module)
    # The module's id is guarded: another model with the same code is another graph.
    settings = [kwargs.get(setting) for setting in _SETTINGS]
    return _attend(query, key, value, mask, name, id(module), *settings), None
