"""The tap: an attention function that hands every decoder layer's attention to a reader.

Transformers looks attention functions up by name. `tapped` puts ours in front of the one that a
model's text decoder uses ("sdpa", "eager", ...), for the time of a `with` block, and leaves the
vision tower alone. Without a reader the call goes to the model's own function; code that compares
the name still finds the model's own (`TapName`).

A reader decides what is read in a pass: `LastRow` here (prompts, and calls of `generate`), and
`prefix.SharedPrefix` (N continuations of one prompt).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PretrainedConfig

from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    AttentionInterface,
    AttentionMaskInterface,
    attention_function,
    attention_name,
    sdpa_attention_forward,
    set_attention_name,
)
from lookback.engines.common.fair_lock import survive_forks
from lookback.engines.transformers.attention.compiled import name_function, traced
from lookback.engines.transformers.attention.kernels import additive
from lookback.engines.transformers.attention.partial import share_of_last_row
from lookback.engines.transformers.support import check_attention

_SPECIAL = ("s_aux", "bias", "indices", "sinks", "block_mask", "head_mask")
"""Arguments by which a layer changes its scores, or chooses its keys, in its own way."""

_READER: ContextVar[Reader | None] = ContextVar("lookback_reader", default=None)


@dataclass(frozen=True)
class Call:
    """One layer's call of its attention function."""

    function: Callable[..., Any]  # the one the model would use without the tap
    module: torch.nn.Module
    query: Tensor  # (B, H, R, D)
    key: Tensor  # (B, H_kv, K, D)
    value: Tensor
    mask: Tensor | None
    kwargs: dict[str, Any]

    @property
    def layer(self) -> str:
        return type(self.module).__name__

    def run(self) -> tuple[Tensor, Tensor | None]:
        """Compute what the model would have computed."""
        out: tuple[Tensor, Tensor | None] = self.function(
            self.module, self.query, self.key, self.value, self.mask, **self.kwargs
        )
        return out

    def settings(self) -> Settings:
        """Return scale, softcap and window.

        Raises:
            UnsupportedModelError: the layer changes its scores in another way.
        """
        for name in _special(self.kwargs):
            raise UnsupportedModelError(
                f"{self.layer} attends with {name!r}, which LookBack cannot read"
            )
        if getattr(self.module, "sinks", None) is not None:  # not always passed as s_aux
            raise UnsupportedModelError(
                f"{self.layer} attends with learned sinks, which LookBack cannot read"
            )
        softcap = self.kwargs.get("softcap")
        if softcap is not None and self.function is sdpa_attention_forward:
            # Some releases of transformers ignore it there.
            raise UnsupportedModelError(
                f"{self.layer} caps its scores, sdpa does not: load it with attn='eager'"
            )
        scale = self.kwargs.get("scaling")
        return Settings(
            scale=self.query.shape[-1] ** -0.5 if scale is None else float(scale),
            softcap=softcap,
            window=self.kwargs.get("sliding_window"),
        )


def _special(kwargs: dict[str, Any]) -> list[str]:
    return [
        name
        for name, value in kwargs.items()
        if value is not None and any(word in name for word in _SPECIAL)
    ]


class Settings(NamedTuple):
    """How a layer attends."""

    scale: float
    softcap: float | None
    window: int | None


class Reader(ABC):
    """Collects, over the layers of one pass, the share of attention paid to the source.

    `by_layer`: keep each layer's own share too.
    """

    def __init__(self, *, by_layer: bool = False) -> None:
        self.by_layer = by_layer
        self._shares: list[Tensor] = []  # (B, H, R) per layer

    def reset(self) -> None:
        """Drop what was read, for instance of a pass that failed."""
        self._shares = []

    @abstractmethod
    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """Compute the layer's attention, as `call.run()` would, and `add` its shares."""

    def mask(self, base: Callable[..., Any], **kwargs: Any) -> Any:
        """Return the mask for the layers; by default the one that `base` makes."""
        return base(**kwargs)

    @property
    def layers_read(self) -> int:
        """How many layers of the pass have been added: the index of the current one."""
        return len(self._shares)

    def add(self, shares: Tensor) -> None:
        """Add one layer's shares: (B, H, R)."""
        self._shares.append(shares)

    def lookback(self, layers: int) -> Tensor:
        """Return A_t (Eq. 3) of the pass that just ended, and reset.

        It is (1, B, R), the mean over all heads of all layers; with `by_layer` (1 + L, B, R): then
        follows the mean over each layer's heads, in the order of the layers.

        Raises:
            UnsupportedModelError: the tap did not see all `layers` of the decoder.
        """
        shares = self._shares
        self.reset()
        if not shares or len(shares) != layers:
            raise UnsupportedModelError(
                f"the tap saw {len(shares)} of {layers} attention layers: this model (or part of "
                "it) computes attention with code of its own, so its visual lookback cannot be read"
            )
        device = shares[0].device  # layers may live on several
        shares = [share.to(device) for share in shares]
        means = [torch.cat(shares, 1).mean(1)]  # layers may differ in their number of heads
        if self.by_layer:
            means += [share.mean(1) for share in shares]
        return torch.stack(means).clamp_(0.0, 1.0)


class Unread(Reader):
    """Reads nothing, for passes of a tapped model that are not recorded."""

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        return call.run()


class LastRow(Reader):
    """Reads the last row of each pass: the one that predicts the next token.

    `source` (B, K) marks the source positions among all positions up to that row. `keys` is how
    many keys each layer must have, if known: not in a sliding or a static cache.
    """

    def __init__(self, source: Tensor, keys: int | None = None, *, by_layer: bool = False) -> None:
        super().__init__(by_layer=by_layer)
        self.source = source
        self.keys = keys
        self._aligned: dict[Any, tuple[Tensor | None, Tensor, Tensor | None]] = {}

    def reset(self) -> None:
        super().reset()
        self._aligned = {}

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        scale, softcap, window = call.settings()
        keys = call.key.shape[2]
        if self.keys is not None and keys != self.keys:
            raise UnsupportedModelError(
                f"{call.layer} attends to {keys} keys where the context has {self.keys}: they are "
                "not the decoder's own context (cross-attention?)"
            )
        source, bias = self._of_keys(call, window)
        share = share_of_last_row(
            call.query, call.key, source, scale=scale, softcap=softcap, bias=bias
        )
        self.observe(call, source, bias, share)
        self.add(share[..., None])
        return call.run()

    def observe(self, call: Call, source: Tensor, bias: Tensor | None, share: Tensor) -> None:
        """Called in every layer, for subclasses, with its source keys (B, K), what is added to its
        last row's scores (B or 1, H or 1, K) and that row's share (B, H)."""

    def _of_keys(self, call: Call, window: int | None) -> tuple[Tensor, Tensor | None]:
        """Return which of a layer's keys are source, (B, K), and what to add to their scores.

        Layers of one pass mostly share both, so they are kept, with the mask, until it ends.
        """
        keys, heads, device = call.key.shape[2], call.query.shape[1], call.key.device
        key = id(call.mask), keys, heads, window, device
        if key not in self._aligned:
            seen = self.source.shape[1]
            # A sliding cache has the newest positions only, a static one unused ones at its end.
            source = self.source[:, max(0, seen - keys) :].to(device)
            source = torch.nn.functional.pad(source, (0, keys - source.shape[1]))
            bias = _bias_of_row(call.mask, heads, keys, seen, window, device)
            self._aligned[key] = call.mask, source, bias
        return self._aligned[key][1:]


def _bias_of_row(
    mask: Tensor | None, heads: int, keys: int, seen: int, window: int | None, device: torch.device
) -> Tensor | None:
    """Return what hides keys from the last row, (B or 1, H or 1, K); None if it sees all.

    The mask is (B, 1, R, K) for sdpa and eager, boolean or additive; (B, K) for flash kernels,
    which window by themselves; or None: nothing is hidden but the unused end of a static cache.

    Raises:
        UnsupportedModelError: it is another kind of mask.
    """
    if mask is not None and not isinstance(mask, Tensor):
        raise UnsupportedModelError(
            f"a layer attends with a {type(mask).__name__}, which LookBack cannot read: load the "
            "model with attn='sdpa'"
        )
    if mask is not None and mask.ndim == 4:
        if mask.shape[1] not in (1, heads):
            raise UnsupportedModelError(
                f"a layer of {heads} heads attends with {mask.shape[1]} masks of its own, which "
                "LookBack cannot read"
            )
        row = mask[:, :, -1, :keys]
        return additive(row) if row.dtype == torch.bool else row.float()
    if mask is None and keys <= seen and (window is None or keys <= window):
        return None
    position = torch.arange(keys, device=device) + max(0, seen - keys)
    shown = position < seen
    if window is not None:
        shown = shown & (position >= seen - window)
    shown = shown[None]
    if mask is not None:
        shown = shown & mask[:, -keys:].bool()
    return additive(shown)[:, None]


@contextmanager
def reading(reader: Reader | None) -> Iterator[None]:
    """Hand the attention of tapped models to `reader`, if any, inside the block."""
    token = _READER.set(reader)
    try:
        yield
    finally:
        _READER.reset(token)


def current_reader() -> Reader | None:
    """Return the reader of this context, if any."""
    return _READER.get()


_TAPS: dict[int, tuple[int, str | None]] = {}  # config id -> how many taps, what was there before
_TAPS_LOCK = threading.Lock()
survive_forks(_TAPS_LOCK)


@contextmanager
def tapped(configs: list[PretrainedConfig]) -> Iterator[None]:
    """Put the tap in front of a decoder's attention inside the block, given its configs.

    Blocks may overlap, in one thread or several: the last to leave restores what the first found,
    unless it was changed meanwhile.

    Raises:
        UnsupportedModelError: this attention cannot be read.
    """
    for config in configs:
        check_attention(attention_name(config))
    with _TAPS_LOCK:
        for config in configs:
            count, base = _TAPS.get(id(config), (0, None))
            name = attention_name(config)
            base = base if isinstance(name, TapName) else name
            _TAPS[id(config)] = count + 1, base
            set_attention_name(config, _register(base or "eager"))
    try:
        yield
    finally:
        with _TAPS_LOCK:
            for config in configs:
                count, base = _TAPS.pop(id(config))
                if count > 1:
                    _TAPS[id(config)] = count - 1, base
                elif isinstance(attention_name(config), TapName):
                    set_attention_name(config, base)


class TapName(str):
    """The name of an attention function, equal to the model's own, under which the tap is found.

    Models do different things by the name (sparse layers build their mask for "eager" and "sdpa"
    only). So it is equal to the model's own, and only its hash, by which registries look functions
    up, differs.
    """

    __slots__ = ()
    __eq__ = str.__eq__
    __ne__ = str.__ne__

    def __hash__(self) -> int:
        return hash(f"lookback_{self}")


@cache
def _register(base: str) -> TapName:
    name = TapName(base)
    name_function(base, partial(_attention, base))
    AttentionInterface.register(name, partial(_compilable, base))
    # The same name must be registered for masks, or transformers ignores them.
    AttentionMaskInterface.register(name, partial(_mask, base))
    return name


def _compilable(
    base: str,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,  # some models pass it by this name
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    if torch.compiler.is_compiling():
        known = base in ("sdpa", "eager") and not kwargs.get("dropout") and not _special(kwargs)
        if known:  # these use no other arguments
            return traced(base, module, query, key, value, attention_mask, kwargs)
        return _untraced(base, module, query, key, value, attention_mask, **kwargs)
    return _attention(base, module, query, key, value, attention_mask, **kwargs)


def _attention(
    base: str,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    function = _base_function(type(module).__module__, base)
    call = Call(function, module, query, key, value, mask, kwargs)
    reader = _READER.get()
    return call.run() if reader is None else reader.attend(call)


_untraced = torch.compiler.disable(_attention)


def _mask(base: str, **kwargs: Any) -> Any:
    function = ALL_MASK_ATTENTION_FUNCTIONS[base]
    if torch.compiler.is_compiling():  # only our own passes need another, and are not compiled
        return function(**kwargs)
    reader = _READER.get()
    return function(**kwargs) if reader is None else reader.mask(function, **kwargs)


@cache
def _base_function(source: str, base: str) -> Callable[..., Any]:
    function = attention_function(source, base)
    if function is None:
        raise UnsupportedModelError(
            f"{source} has no {base!r} attention function that can be called"
        )
    return function
