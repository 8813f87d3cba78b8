"""What a pass leaves behind on the modules of a model, kept apart for everybody who uses it.

Some models keep part of a prompt on themselves: Qwen-VL writes `rope_deltas`, the shift of its
positions, on a module, and the next pass reads it, whosever prompt it is. So a prompt takes its own
values with it, they are put back before its continuations, and whoever uses the model in between
finds it as he left it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

# What torch itself keeps on every module (weights, hooks, ...) is nothing that a pass leaves.
_FIXED = frozenset(vars(torch.nn.Module())) - {"_buffers"}
_OF_A_PROMPT = ("rope_deltas",)  # None in a fresh model; a prompt without images leaves it alone

State = dict[torch.nn.Module, dict[str, Any]]
"""The attributes of each module; lists and dicts are copies, anything else is the value itself."""

_LOCKS: WeakKeyDictionary[torch.nn.Module, threading.RLock] = WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


@contextmanager
def borrowed(model: torch.nn.Module, state: State | None = None) -> Iterator[None]:
    """Use the model with a state of one's own inside the block; then give it back as it was.

    One at a time: others, in other threads, wait.

    Args:
        model: the model.
        state: of the prompt that goes on; None to begin a new prompt.
    """
    with _lock(model):
        before = snapshot(model)
        try:
            if state is None:
                _forget(model)
            else:
                restore(state)
            yield
        finally:
            restore(before)


def snapshot(model: torch.nn.Module) -> State:
    """Every attribute of the model's modules that a pass may change by assigning to it.

    Buffers are among them (rotary frequencies that grow with the length), weights are not.
    """
    return {
        module: {k: _copied(v) for k, v in vars(module).items() if k not in _FIXED}
        for module in model.modules()
    }


def restore(state: State) -> None:
    """Make attributes what a snapshot says, as far as they are data.

    Flags and functions stay: they tell what has been set up (hooks, for instance), and that is not
    undone by forgetting it.
    """
    for module, wanted in state.items():
        held = module.__dict__
        for name, value in wanted.items():
            now = held.get(name)
            if now is value or _same(now, value):
                continue
            if _is_data(now) and _is_data(value):
                _put(held, name, value)
        for name in held.keys() - wanted.keys() - _FIXED:
            if held[name] is not None and _is_data(held[name]):
                del held[name]


def _forget(model: torch.nn.Module) -> None:
    """Take away what another prompt left: a new one may read it without having written it."""
    for module in model.modules():
        for name in _OF_A_PROMPT:
            if vars(module).get(name) is not None:
                setattr(module, name, None)


def _lock(model: torch.nn.Module) -> threading.RLock:
    with _LOCKS_LOCK:
        return _LOCKS.setdefault(model, threading.RLock())


def _copied(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value


def _is_data(value: Any) -> bool:
    """Tensors and numbers, containers of these, and nothing at all."""
    if isinstance(value, dict):
        return all(map(_is_data, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    return value is None or (
        isinstance(value, (torch.Tensor, int, float)) and not isinstance(value, bool)
    )


def _same(one: Any, other: Any) -> bool:
    """Whether it was left alone: the very same object, or a container of the same ones."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if type(one) is list:
        return len(one) == len(other) and all(map(_same, one, other))
    return False


def _put(held: dict[str, Any], name: str, value: Any) -> None:
    """Set an attribute; a list or dict is filled again, as others may hold it too."""
    now = held.get(name)
    if type(value) is list and type(now) is list:
        now[:] = value
    elif type(value) is dict and type(now) is dict:
        now.clear()
        now.update(value)
    else:
        held[name] = _copied(value)
