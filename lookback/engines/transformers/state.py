"""What a pass leaves behind on the modules of a model, kept apart for everybody who uses it.

Some models keep part of a prompt on themselves: Qwen-VL writes `rope_deltas`, the shift of its
positions, on a module, and the next pass reads it, whosever prompt it is. So a prompt takes its own
values with it, they are put back before its continuations, and whoever uses the model in between
finds it as he left it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from lookback.engines.transformers.turns import turns_of

# What torch itself keeps on every module (weights, hooks, ...) is nothing that a pass leaves.
_FIXED = frozenset(vars(torch.nn.Module())) - {"_buffers"}
_OF_A_PROMPT = ("rope_deltas",)  # None in a fresh model; a prompt without images leaves it alone

State = dict[torch.nn.Module, dict[str, Any]]
"""The attributes of each module; lists and dicts are copies, anything else is the value itself."""


@contextmanager
def borrowed(model: torch.nn.Module, state: State | None = None) -> Iterator[None]:
    """Use the model with a state of one's own inside the block; then give it back as it was.

    One at a time: others, in other threads, wait.

    Args:
        model: the model.
        state: of the prompt that goes on; None to begin a new prompt.
    """
    turns = turns_of(model)
    with turns:
        before = snapshot(model)
        turns.lent += 1
        try:
            if state is None:
                _forget(model)
            else:
                restore(state)
            yield
        finally:
            turns.lent -= 1
            restore(before)


class Loan:
    """`borrowed`, with more around it, that can be interrupted between two passes.

    Args:
        model: the model.
        state: of the prompt that goes on; None to begin a new prompt.
        around: makes what else is to last as long as the model is borrowed.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        state: State | None = None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._model = model
        self._state = state
        self._around = around
        self._turns = turns_of(model)
        self._open = ExitStack()

    def __enter__(self) -> Loan:
        with ExitStack() as stack:
            stack.enter_context(borrowed(self._model, self._state))
            stack.enter_context(self._around())
            self._open = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def offer(self) -> None:
        """Let others that wait for the model have it first, as it was before the loan.

        Not inside another loan of the same thread: that one's passes are not to be interrupted.
        """
        if not self._turns.wanted or self._turns.lent > 1:
            return
        self._state = snapshot(self._model)  # passes may have moved it on
        self._open.close()
        self._turns.offer()
        self.__enter__()


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
