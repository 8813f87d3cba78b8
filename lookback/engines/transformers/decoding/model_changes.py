"""Detect that a model was changed, which makes the keys that were kept of its passes wrong.

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
    """Detects changes of one model.

    It misses weights that were written past torch's count (see above) where none of the numbers
    that are compared changed: when a few rows of an embedding are set through `.data`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._last = _Snapshot(model)

    def changed(self) -> bool:
        """Whether the model was changed since the last call, or since this was made."""
        before, self._last = self._last, _Snapshot(self._model)
        return not self._last.equals(before)


class _Snapshot:
    def __init__(self, model: PreTrainedModel) -> None:
        tensors: dict[int, Tensor] = {}
        configs: dict[int, PretrainedConfig] = {}
        self.settings: list[Any] = []
        for module in model.modules():
            held = vars(module)
            for tensor in (*held["_parameters"].values(), *held["_buffers"].values()):
                if tensor is not None:
                    tensors[id(tensor)] = tensor
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
        self.tensors = [ref(tensor) for tensor in tensors.values()]
        self.marks = [_mark(tensor) for tensor in tensors.values()]
        self.numbers = _numbers(tensors.values())

    def equals(self, other: _Snapshot) -> bool:
        return (
            self.marks == other.marks
            and all(a() is b() for a, b in zip(self.tensors, other.tensors, strict=True))
            and self.settings == other.settings
            and all(torch.equal(one, other.numbers[kind]) for kind, one in self.numbers.items())
        )


def _settings(items: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Return names and values of settings, containers of settings and functions, in a row.

    Not of tensors, None (what a prompt leaves is a tensor or None) and other objects.
    """
    values: list[Any] = []
    for name, value in items:
        if type(value) in _SCALARS or isinstance(value, (int, float, str)):
            values += (name, value)
        elif isinstance(value, dict):
            values += (name, _settings(value.items()))
        elif isinstance(value, (list, tuple)):
            values += (name, _settings(enumerate(value)))
        elif isinstance(value, (set, frozenset)):
            values += (name, frozenset(value))
        elif callable(value) and not isinstance(value, (torch.nn.Module, PretrainedConfig)):
            values += (name, value)
    return values


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's numbers are where it says they are."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return plain and not tensor.is_meta


def _mark(tensor: Tensor) -> tuple[Any, ...]:
    place = tensor.data_ptr() if _is_plain(tensor) else 0
    written = 0 if tensor.is_inference() else tensor._version
    return tensor.dtype, tensor.device, tensor.shape, place, written


def _numbers(tensors: Iterable[Tensor]) -> dict[Any, Tensor]:
    """Return some numbers of each tensor, as bytes (NaN equals itself), by device and dtype."""
    samples: dict[Any, list[Tensor]] = {}
    for tensor in filter(_is_plain, tensors):
        if tensor.is_contiguous() and tensor.numel() > PLACES * RUN:
            step = (tensor.numel() - RUN) // (
                PLACES - 1
            ) - 1 | 1  # odd: not always the same columns
            sample = tensor.detach().as_strided((PLACES, RUN), (step, 1))
        else:
            sample = tensor.detach().flatten()
        samples.setdefault((tensor.device, tensor.dtype, sample.ndim), []).append(sample)
    return {kind: torch.cat(group).view(torch.uint8) for kind, group in samples.items()}
