"""What `torch.compile` sees of the tap: one operator per layer, whatever reads it.

A reader is Python that changes from pass to pass: traced, it would break the graph in every layer,
and be compiled again for every step. As an operator it is opaque: a compiled model has as many
graphs with the tap as without. Graphs that CUDA replays without Python are another matter, so the
operator is marked as unfit for them: what is around it can still be replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

_MODULES: WeakValueDictionary[int, torch.nn.Module] = WeakValueDictionary()
_FUNCTIONS: dict[str, Callable[..., tuple[Tensor, Any]]] = {}


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
    given = {
        "scaling": scaling,
        "softcap": softcap,
        "sliding_window": sliding_window,
        "is_causal": is_causal,
    }
    told = {name: value for name, value in given.items() if value is not None}
    return _FUNCTIONS[function](_MODULES[module], query, key, value, mask, **told)[0]


@_attend.register_fake
def _shape(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *args: Any) -> Tensor:
    batch, heads, rows, _ = query.shape
    return query.new_empty(batch, rows, heads, value.shape[-1])


def name_function(name: str, function: Callable[..., tuple[Tensor, Any]]) -> None:
    """Make an attention function known by a name."""
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
    told: dict[str, Any],
) -> tuple[Tensor, None]:
    """The call of a named attention function, as `torch.compile` is to see it."""
    _remember(module)
    out = _attend(
        query,
        key,
        value,
        mask,
        name,
        id(module),  # guarded: another model with the same code is another graph
        told.get("scaling"),
        told.get("softcap"),
        told.get("sliding_window"),
        told.get("is_causal"),
    )
    return out, None
