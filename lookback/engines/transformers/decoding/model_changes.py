"""Whether a model is still the one it was: if not, what was kept of its passes is of no use.

Weights can be written in ways that torch does not count (`.data`, fused optimizers, NumPy), and to
read them all takes longer than a step of decoding. So what is compared is cheap to read: which
tensors a model has, where they are and how often torch wrote to them; some numbers of each; and the
settings, functions and hooks of its modules, by which adapters are switched on and off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

PLACES, RUN = 16, 16
"""Of each tensor, runs of so many numbers are compared at so many places, evenly spread."""

_OF_TORCH = frozenset(vars(torch.nn.Module()))
_SCALARS = frozenset({bool, int, float, str})


class ChangeDetector:
    """Notices that a model was changed.

    It does not notice weights that were written past torch's count (see above) where none of the
    numbers that are compared changed: when a few rows of an embedding are set through `.data`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._last = _Look(model)

    def changed(self) -> bool:
        """Whether it was, since the last call or since this was made."""
        before, self._last = self._last, _Look(self._model)
        return not self._last.equals(before)


class _Look:
    """What a model looks like now."""

    def __init__(self, model: PreTrainedModel) -> None:
        tensors: dict[int, Tensor] = {}
        configs: dict[int, PretrainedConfig] = {}
        self.settings: list[Any] = []
        for module in model.modules():
            held = vars(module)
            for one in (*held["_parameters"].values(), *held["_buffers"].values()):
                if one is not None:
                    tensors[id(one)] = one
            config = held.get("config")
            if isinstance(config, PretrainedConfig):
                configs[id(config)] = config
            self.settings.append(type(module))
            self.settings.append(held["training"])
            self.settings += held["_forward_pre_hooks"].values()
            self.settings += held["_forward_hooks"].values()
            self.settings += _settings((k, v) for k, v in held.items() if k not in _OF_TORCH)
        for config in configs.values():
            self.settings += _settings(vars(config).items())
        self.tensors = [ref(one) for one in tensors.values()]
        self.marks = [_mark(one) for one in tensors.values()]
        self.numbers = _numbers(tensors.values())

    def equals(self, other: _Look) -> bool:
        """Whether nothing differs."""
        return (
            self.marks == other.marks
            and all(a() is b() for a, b in zip(self.tensors, other.tensors, strict=True))
            and self.settings == other.settings
            and all(torch.equal(one, other.numbers[kind]) for kind, one in self.numbers.items())
        )


def _settings(items: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Names and values of what are settings, containers of settings or functions, in a row.

    Not of tensors, of None (what a prompt leaves is a tensor or None) and of other objects.
    """
    found: list[Any] = []
    for name, value in items:
        if type(value) in _SCALARS or isinstance(value, (int, float, str)):
            found += (name, value)
        elif isinstance(value, dict):
            found += (name, _settings(value.items()))
        elif isinstance(value, (list, tuple)):
            found += (name, _settings(enumerate(value)))
        elif isinstance(value, (set, frozenset)):
            found += (name, frozenset(value))
        elif callable(value) and not isinstance(value, (torch.nn.Module, PretrainedConfig)):
            found += (name, value)
    return found


def _is_plain(tensor: Tensor) -> bool:
    """Whether its numbers are where it says they are."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return plain and not tensor.is_meta


def _mark(tensor: Tensor) -> tuple[Any, ...]:
    place = tensor.data_ptr() if _is_plain(tensor) else 0
    written = 0 if tensor.is_inference() else tensor._version
    return tensor.dtype, tensor.device, tensor.shape, place, written


def _numbers(tensors: Iterable[Tensor]) -> dict[Any, Tensor]:
    """Some numbers of each tensor, as bytes (NaN is equal to itself), those of a kind together."""
    found: dict[Any, list[Tensor]] = {}
    for one in filter(_is_plain, tensors):
        if one.is_contiguous() and one.numel() > PLACES * RUN:
            step = (one.numel() - RUN) // (PLACES - 1) - 1 | 1  # odd: not always the same columns
            some = one.detach().as_strided((PLACES, RUN), (step, 1))
        else:
            some = one.detach().flatten()
        found.setdefault((one.device, one.dtype, some.ndim), []).append(some)
    return {kind: torch.cat(some).view(torch.uint8) for kind, some in found.items()}
