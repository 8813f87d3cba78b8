"""Sessions of one model: each user's state on its modules is kept apart from the others'.

Some models keep part of a prompt on themselves: Qwen-VL writes `rope_deltas`, the shift of its
positions, on a module, and the next pass reads it, whosever prompt it is. So a prompt's values are
saved with it and restored before its continuations, and other users find the model as they left it.

That includes calls that are not LookBack's (`share`): each step of theirs over a model that
LookBack uses, a pass or a method by which their `generate` prepares one, waits for the lock.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MethodType
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from transformers import PreTrainedModel

from lookback.engines.common.compat import generation_steps
from lookback.engines.common.fair_lock import FairLock, lock_for

# What torch itself keeps on every module (weights, hooks, ...) is nothing that a pass leaves.
_FIXED = frozenset(vars(torch.nn.Module())) - {"_buffers"}
_OF_A_PROMPT = ("rope_deltas",)  # None in a fresh model; a prompt without images leaves it alone

State = dict[torch.nn.Module, dict[str, Any]]
"""The attributes of each module; lists and dicts are copies, anything else is the value itself."""


@contextmanager
def exclusive(model: torch.nn.Module, state: State | None = None) -> Iterator[None]:
    """Use the model with a state of its own inside the block; then restore the state before.

    Other threads wait. `state` is that of the prompt that continues; None begins a new prompt.
    """
    turns = lock_for(model)
    with turns:
        before = snapshot(model)
        if not turns.lent:
            turns.undo = functools.partial(restore, before)
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


class ModelSession:
    """`exclusive`, with another context around it, that can yield between two passes.

    Args:
        model: the model.
        state: of the prompt that continues; None to begin a new prompt.
        around: makes the context that lasts as long as the model is held.
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
        self._turns = lock_for(model)
        self._open = ExitStack()

    def __enter__(self) -> ModelSession:
        with ExitStack() as stack:
            stack.enter_context(exclusive(self._model, self._state))
            stack.enter_context(self._around())
            self._open = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def yield_turn(self) -> None:
        """Let waiting users run first, with the model as it was before the session.

        Does nothing inside another session of the same thread, or inside somebody's own pass:
        these must not be interrupted.
        """
        sharing = _SHARING.get(self._model)
        inside = sharing is not None and sharing.steps > 0
        if inside or not self._turns.wanted or self._turns.lent > 1:
            return
        self._state = snapshot(self._model)  # passes may have moved it on
        self._open.close()
        self._turns.offer()
        self.__enter__()


@dataclass(eq=False)
class _Sharing:
    """Steps over a model that are no engine's. Changed only under the model's lock.

    Attributes:
        users: how many engines and recorders share the model with others.
        undo: takes hooks and the like off the model.
        steps: how many steps are open, one inside the other.
        call: the recorded call whose state is on the model; None for everybody else's.
        kept: the states of the others.
        thread: the thread of the last step that belongs to no recorded call.
    """

    model: ReferenceType[torch.nn.Module]
    users: int = 0
    undo: ExitStack = field(default_factory=ExitStack)
    steps: int = 0
    call: object = None
    kept: dict[object, State] = field(default_factory=dict)
    thread: int | None = None

    @property
    def turns(self) -> FairLock | None:
        model = self.model()
        return None if model is None else lock_for(model)

    def begin(self) -> None:
        """Acquire the lock, and restore the model's state as this caller left it."""
        turns = self.turns
        if turns is None:
            return
        turns.acquire()
        if not self.users and not self.steps:  # no longer shared when the turn came
            turns.release()
            return
        self.steps += 1
        if not turns.lent:  # else an engine's own
            self.switch()

    def end(self) -> None:
        turns = self.turns
        if turns is None or not turns.mine or not self.steps:
            return  # a pass that began before the hooks were there
        self.steps -= 1
        if not self.users and not self.steps:
            self.undo.close()
        turns.release()

    def switch(self) -> None:
        """Restore the caller's own state on the model; a new call begins with everybody's."""
        model, (sharing, call) = self.model(), _CALL.get()
        assert model is not None
        call = call if sharing is self else None
        if call is None:
            self.thread = threading.get_ident()
        if call is self.call:
            return
        self.kept[self.call] = snapshot(model)
        restore(self.kept.pop(call) if call in self.kept else self.kept[None])
        self.call = call

    def finish(self, call: object) -> None:
        """End a recorded call: its state becomes everybody's, as after any call of generate, unless
        another thread may continue from what it left itself."""
        left = self.kept.pop(call, None)
        if self.thread in (None, threading.get_ident()):
            if self.call is call:
                self.call, self.thread = None, threading.get_ident()
                self.kept.pop(None, None)
            elif left is not None and self.call is not None:
                self.kept[None] = left
        elif self.call is call:
            self.call = None
            restore(self.kept.pop(None))


_SHARING: WeakKeyDictionary[torch.nn.Module, _Sharing] = WeakKeyDictionary()
_CALL: ContextVar[tuple[_Sharing | None, object]] = ContextVar(
    "lookback_call", default=(None, None)
)


def share(model: torch.nn.Module) -> None:
    """Make every step over the model, whoever makes it, wait for the lock from now on."""
    with lock_for(model):
        sharing = _SHARING.setdefault(model, _Sharing(ref(model)))
        sharing.users += 1
        if sharing.users > 1 or sharing.steps:
            return
        for module in model.modules():  # the inner models can be called by themselves, too
            if module is model or isinstance(module, PreTrainedModel):
                _SHARING.setdefault(module, sharing)
                before = module.register_forward_pre_hook(_before_pass, prepend=True)
                after = module.register_forward_hook(_after_pass, always_call=True)
                sharing.undo.callback(before.remove)
                sharing.undo.callback(after.remove)
        for name in generation_steps(model):
            method = MethodType(_as_step(type(model), name), model)
            setattr(model, name, method)
            sharing.undo.callback(_take_off, vars(model), name, method)


@contextmanager
def shared(model: torch.nn.Module) -> Iterator[None]:
    """`share` inside the block; the last to leave takes hooks and methods off the model."""
    share(model)
    try:
        yield
    finally:
        with lock_for(model):
            sharing = _SHARING[model]
            sharing.users -= 1
            if not sharing.users and not sharing.steps:
                sharing.undo.close()


@contextmanager
def step(model: torch.nn.Module) -> Iterator[None]:
    """Make one step of somebody's call, under the lock, on the state that its last one left."""
    sharing = _SHARING.get(model)
    if sharing is None:
        yield
        return
    sharing.begin()
    try:
        yield
    finally:
        sharing.end()


@contextmanager
def calling(model: torch.nn.Module, call: object) -> Iterator[None]:
    """Count steps of this thread inside the block as one call, with a state of its own."""
    sharing = _SHARING[model]
    token = _CALL.set((sharing, call))
    try:
        yield
    finally:
        _CALL.reset(token)
        with lock_for(model):
            sharing.finish(call)


def _before_pass(module: torch.nn.Module, args: Any) -> None:
    # What is compiled runs without hooks; and a copy of a shared model is not shared.
    if not torch.compiler.is_compiling() and module in _SHARING:
        _SHARING[module].begin()


def _after_pass(module: torch.nn.Module, args: Any, output: Any) -> None:
    if not torch.compiler.is_compiling() and module in _SHARING:
        _SHARING[module].end()


def _take_off(attributes: dict[str, Any], name: str, method: MethodType) -> None:
    if attributes.get(name) is method:  # else somebody has put another there
        del attributes[name]


def _as_step(owner: type, name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(owner, name))
    def method(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        with step(self):
            return getattr(type(self), name)(self, *args, **kwargs)

    return method


def snapshot(model: torch.nn.Module) -> State:
    """Return every attribute of the model's modules that a pass may assign to.

    Buffers are among them (rotary frequencies that grow with the length), weights are not.
    """
    return {
        module: {k: _copied(v) for k, v in vars(module).items() if k not in _FIXED}
        for module in model.modules()
    }


def restore(state: State) -> None:
    """Set attributes to those of a snapshot, as far as they are data.

    Flags and functions stay: they say what has been set up (hooks, for instance), which resetting
    them would not undo.
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
    """Reset what another prompt left: a new one may read it without having written it."""
    for module in model.modules():
        for name in _OF_A_PROMPT:
            if vars(module).get(name) is not None:
                setattr(module, name, None)
        _reset_rotation(module)


def _reset_rotation(module: torch.nn.Module) -> None:
    """Undo what a longer prompt did to frequencies that grow with the length (dynamic).

    The library shrinks them again only for a prompt that is no longer than the model was trained
    for. Some modules have a set for each kind of layer, whose names begin with the kind.
    """
    held, last = vars(module), "max_seq_len_cached"
    first = held.get("original_max_seq_len")
    for name in [name for name in held if name.endswith(last)]:
        kind = name.removesuffix(last)
        frequencies = module._buffers.get(f"{kind}inv_freq")
        original = getattr(module, f"{kind}original_inv_freq", None)
        if first is None or frequencies is None or original is None or held[name] == first:
            continue
        module._buffers[f"{kind}inv_freq"] = original.to(frequencies.device)
        held[name] = first


def _copied(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value


def _is_data(value: Any) -> bool:
    """Whether it is a tensor, a number, None, or a container of these."""
    if isinstance(value, dict):
        return all(map(_is_data, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    return value is None or (
        isinstance(value, (torch.Tensor, int, float)) and not isinstance(value, bool)
    )


def _same(one: Any, other: Any) -> bool:
    """Whether it is the very same object, or a container of the same ones."""
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
    """Set an attribute; a list or dict is changed in place, as others may hold it too."""
    now = held.get(name)
    if type(value) is list and type(now) is list:
        now[:] = value
    elif type(value) is dict and type(now) is dict:
        now.clear()
        now.update(value)
    else:
        held[name] = _copied(value)
