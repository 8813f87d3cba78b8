"""One prompt, N continuations: the prompt's keys and values are held once and shared by all.

`Prefix` is what a prompt's pass leaves behind. `SharedCache` is a transformers cache of n
continuations: to the model it looks as long as prompt and continuation together, but it stores and
returns the continuations' keys alone. `SharedPrefix`, the reader, then attends to the shared
prompt (all continuations as rows of one batch) and to each continuation's own keys, and joins the
two. In every layer the prompt's source keys come first, so that they are one slice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    HybridLayer,
    HybridSlidingLayer,
    StateLayer,
    causal_mask_function,
    sdpa_mask,
)
from lookback.engines.transformers.attention.partial import Part, attend, blend, join
from lookback.engines.transformers.attention.tap import Call, Reader
from lookback.engines.transformers.decoding.session import State
from lookback.engines.transformers.support import text_config

KEYED = (DynamicLayer, HybridLayer)
"""Layers that keep every key, alone or beside a state."""


def prompt_cache(model: PreTrainedModel) -> DynamicCache:
    """Return an empty cache for one prompt.

    Windows are the mask's business: layers that slide keep every key here, so that continuations
    can share them.

    Raises:
        UnsupportedModelError: the model has a cache layer of its own, or a kind without any.
    """
    try:
        cache = DynamicCache(config=text_config(model))
    except KeyError as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} has layers of the kind {error}, for which transformers has no "
            "cache: its responses cannot continue after their prompt"
        ) from None
    cache.layers = [_unwindowed(layer) for layer in cache.layers]
    check_layers(cache.layers)
    return cache


def check_layers(layers: list[Any]) -> None:
    """Raise UnsupportedModelError if a layer of a cache is of a class that is not understood."""
    for layer in layers:
        if type(layer) not in (*KEYED, StateLayer):
            raise UnsupportedModelError(
                f"the keys of a {type(layer).__name__} cannot be shared between continuations: "
                "what such a cache layer keeps is not known to LookBack"
            )


def has_state(layers: list[Any]) -> bool:
    """Whether a layer keeps a state (convolution, linear attention), with or without keys."""
    return any(type(layer) in (StateLayer, HybridLayer) for layer in layers)


def _unwindowed(layer: Any) -> Any:
    if type(layer) is DynamicSlidingWindowLayer:
        return DynamicLayer()
    if type(layer) is HybridSlidingLayer:
        return HybridLayer(number_of_states=layer.number_of_states)
    return layer


@dataclass
class Prefix:
    """A prompt that went through the model once.

    Attributes:
        layers: the prompt's cache, one entry per layer; attention keys have their source first.
        order: the prompt's positions in the order in which `layers` hold them.
        source: how many of them are source tokens.
        last: the id of the last token, whose row predicts the first response token.
        logits: (1, V), that prediction.
        lookback: (1 + L, 1, 1), its A_t, over all layers and in each of them.
        weights: (1, source), its attention on each source token, if it was asked for.
        state: what the pass left on the model's modules.
        positions: (..., 1, 1), where the next token stands, if the prompt said where its tokens
            do; None if that is for the model to say.
    """

    layers: list[Any]
    order: Tensor
    source: int
    last: int
    logits: Tensor
    lookback: Tensor
    weights: Tensor | None = None
    state: State = field(default_factory=dict)
    positions: Tensor | None = None

    @property
    def length(self) -> int:
        return len(self.order)

    @classmethod
    def of(
        cls, cache: Cache, ids: Tensor, source: Tensor, logits: Tensor, lookback: Tensor
    ) -> Prefix:
        """Take over a prompt's cache; of its `ids` (P,), `source` (P,) marks the source tokens.

        Raises:
            UnsupportedModelError: a layer does not hold one key per token, or is of a class that
                is not understood.
        """
        order = torch.cat([source.nonzero()[:, 0], (~source).nonzero()[:, 0]])
        check_layers(cache.layers)
        for layer in cache.layers:
            if type(layer) in KEYED and layer.is_initialized:
                if layer.keys.shape[2] != len(ids):
                    raise UnsupportedModelError(
                        f"a {type(layer).__name__} holds {layer.keys.shape[2]} keys after a prompt "
                        f"of {len(ids)} tokens: they are not the decoder's own context"
                    )
                places = order.to(layer.keys.device)
                layer.keys = layer.keys.index_select(2, places)
                layer.values = layer.values.index_select(2, places)
        return cls(list(cache.layers), order, int(source.sum()), int(ids[-1]), logits, lookback)

    def without_last(self) -> Prefix:
        """Return the prompt without its last token, so that this row can be computed again.

        Raises:
            UnsupportedModelError: a layer keeps a state instead of keys, or the prompt ends with a
                source token.
        """
        if self.order[-1] != self.length - 1:
            raise UnsupportedModelError("the prompt ends with a source token: nothing is asked")
        for layer in self.layers:
            if type(layer) is not DynamicLayer:
                raise UnsupportedModelError(
                    f"a {type(layer).__name__} cannot go back by one token: this model mixes "
                    "attention with other layers"
                )
        layers = []
        for layer in self.layers:
            shorter = copy.copy(layer)
            if layer.is_initialized:
                shorter.keys, shorter.values = layer.keys[:, :, :-1], layer.values[:, :, :-1]
            layers.append(shorter)
        positions = None if self.positions is None else self.positions - 1
        return replace(self, layers=layers, order=self.order[:-1], positions=positions)


class SharedLayer(DynamicLayer):
    """The continuations' keys of one layer, in buffers that grow by doubling."""

    def __init__(self, prefix: DynamicLayer) -> None:
        super().__init__()
        self.prefix = prefix
        self.length = 0
        self.keys: Any = None
        self.values: Any = None

    def lazy_initialization(self, key_states: Tensor, *args: Any, **kwargs: Any) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append; return the continuations' keys and values, without the prompt's."""
        self.lazy_initialization(key_states)
        self.keys = self._append(self.keys, key_states)
        self.values = self._append(self.values, value_states)
        self.length += key_states.shape[2]
        keys: Any = self.keys[:, :, : self.length]
        # How the reader finds the prompt's keys: layers that share keys pass this very tensor on.
        keys.lookback_prefix = self.prefix
        return keys, self.values[:, :, : self.length]

    def _append(self, buffer: Tensor | None, new: Tensor) -> Tensor:
        end = self.length + new.shape[2]
        if buffer is None or buffer.shape[2] < end:
            batch, heads, _, dim = new.shape
            grown = new.new_empty(batch, heads, max(end, 2 * self.length, 16), dim)
            if buffer is not None:
                grown[:, :, : self.length] = buffer[:, :, : self.length]
            buffer = grown
        buffer[:, :, self.length : end] = new
        return buffer

    def get_seq_length(self) -> int:
        # Prompt and continuation together: positions continue after the prompt.
        return self.prefix.get_seq_length() + self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        # Masks cover the whole context, prompt first.
        return self.get_seq_length() + query_length, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.length:
            kept = beam_idx.to(self.keys.device)  # layers may live on several devices
            self.keys = self.keys[kept, :, : self.length]
            self.values = self.values[kept, :, : self.length]


class SharedHybridLayer(StateLayer, SharedLayer):
    """A layer with a state beside its keys: the keys are shared, each continuation has a state."""

    def __init__(self, prefix: Any, n: int) -> None:
        SharedLayer.__init__(self, prefix)
        state = {k: v for k, v in vars(prefix).items() if k not in vars(self)}
        self.__dict__.update(copy.deepcopy(state))
        self.device, self.dtype = prefix.device, prefix.dtype
        StateLayer.reorder_cache(self, torch.zeros(n, dtype=torch.long))

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        # Keys come by position, states by name.
        (SharedLayer if args else StateLayer).lazy_initialization(self, *args, **kwargs)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        SharedLayer.reorder_cache(self, beam_idx)
        StateLayer.reorder_cache(self, beam_idx)


class SharedCache(Cache):
    """A cache of n continuations of one prefix, empty at first."""

    def __init__(self, prefix: Prefix, n: int) -> None:
        super().__init__(layers=[_shared(layer, n) for layer in prefix.layers])
        self.prefix = prefix
        self.fed = 0  # tokens of each continuation that went through the model

    def next_positions(self, ids: Tensor) -> Tensor:
        """Return `position_ids` of the next tokens (n, R)."""
        start = self.prefix.positions
        if start is None:
            start = torch.full((1, 1), self.prefix.length, device=ids.device)
        n, rows = ids.shape
        steps = torch.arange(self.fed, self.fed + rows, device=ids.device)
        return (start + steps).expand(*start.shape[:-2], n, rows)


def _shared(layer: Any, n: int) -> Any:
    check_layers([layer])
    if type(layer) is DynamicLayer:
        return SharedLayer(layer)
    if type(layer) is HybridLayer:
        return SharedHybridLayer(layer, n)
    # A state without keys is small: each continuation has its own.
    own = copy.deepcopy(layer)
    own.reorder_cache(torch.zeros(n, dtype=torch.long))
    return own


class SharedPrefix(Reader):
    """Attention of n continuations over a shared prompt and over their own tokens.

    Args:
        prefix: the prompt.
        tap: False records nothing and attends to the prompt in one piece: the bound that the tap is
            measured against.
        hidden: (n, source), the source tokens, in the prefix's order, that each continuation may
            not look at.
        by_layer: keep each layer's own share too.
    """

    watches = False
    """Whether `observe` is to be called."""

    def __init__(
        self,
        prefix: Prefix,
        *,
        tap: bool = True,
        hidden: Tensor | None = None,
        by_layer: bool = False,
    ) -> None:
        super().__init__(by_layer=by_layer)
        self.prefix = prefix
        self.tap = tap
        self.hidden = hidden
        self._folded: dict[Any, tuple[Tensor, Tensor]] = {}

    def mask(self, base: Callable[..., Any], **kwargs: Any) -> Tensor | None:
        """Return None for the plain causal mask (`attend` needs none), else a boolean mask."""
        self._folded.clear()
        if kwargs.get("mask_function") is causal_mask_function and not _hides(kwargs):
            return None
        return sdpa_mask(**(kwargs | {"allow_is_causal_skip": False}))

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """Return the join of both parts; the model's own function is not called."""
        query, key, mask = call.query, call.key, call.mask
        prompt = getattr(key, "lookback_prefix", None)
        if prompt is None:
            raise UnsupportedModelError(
                f"{call.layer} changes its keys after they went through the cache: continuations "
                "cannot share the prompt"
            )
        scale, softcap, _ = call.settings()
        _check_types(call)
        heads, rows = query.shape[1:3]
        kv_heads, length = key.shape[1], self.prefix.length
        self._check_mask(call)
        folded = fold(query, kv_heads)
        visible = None if mask is None else self._fold_mask(mask, query, kv_heads)

        def over_prompt(start: int, end: int, shown: Tensor | None = None) -> Part:
            keys, values = prompt.keys[:, :, start:end], prompt.values[:, :, start:end]
            seen = None if visible is None else visible[..., start:end]
            if shown is not None:
                seen = shown if seen is None else seen & shown
            return attend(folded, keys, values, scale=scale, softcap=softcap, mask=seen)

        source = self.prefix.source if self.tap else 0
        asked, looked = over_prompt(source, length), None
        if source:
            shown = None if self.hidden is None else self._fold_shown(query, kv_heads)
            blind = mask is not None or shown is not None
            asked, looked = join(over_prompt(0, source, shown), asked, blind=blind)
        # From here on heads are (H_kv, g): to split an axis costs nothing, to merge two a copy.
        asked = Part(*(unfold(x, rows, heads) for x in asked))
        own = Part(*(x.unflatten(1, (kv_heads, -1)) for x in self._own(call)))
        out, share = blend(asked, own, blind=mask is not None)
        if self.tap:
            mass = (
                torch.zeros_like(share) if looked is None else unfold(looked, rows, heads) * share
            ).flatten(1, 2)
            if self.watches:
                self.observe(call, prompt.keys[0, :, :source], mass)
            self.add(mass)
        # (n, H_kv, g, R, D) as models want it, (n, R, H, D).
        return out.to(query.dtype).permute(0, 3, 1, 2, 4).flatten(2, 3).contiguous(), None

    def _check_mask(self, call: Call) -> None:
        """Raise UnsupportedModelError if the model put its own mask in the place of `mask`'s."""
        mask, keys = call.mask, self.prefix.length + call.key.shape[2]
        if mask is not None and (
            mask.dtype != torch.bool or mask.shape[1:] != (1, call.query.shape[2], keys)
        ):
            raise UnsupportedModelError(
                f"{call.layer} attends with a mask of its own ({mask.dtype}, {tuple(mask.shape)}) "
                "that changes its scores: continuations cannot share the prompt"
            )

    def observe(self, call: Call, source_keys: Tensor, mass: Tensor) -> None:
        """If it `watches`: called in every layer with (H_kv, source, D) and what the rows pay to
        all of the source, (n, H, R)."""

    def _own(self, call: Call) -> Part:
        """Each continuation over its own tokens."""
        query, key, value, mask = call.query, call.key, call.value, call.mask
        scale, softcap, _ = call.settings()
        rows, keys = query.shape[2], key.shape[2]
        own = None if mask is None else mask[..., self.prefix.length :]
        if mask is None and 1 < rows < keys:  # a later piece of a long response
            own = torch.ones(rows, keys, dtype=torch.bool, device=key.device).tril(keys - rows)
            own = own[None, None]
        causal = own is None and rows == keys > 1
        return attend(query, key, value, scale=scale, softcap=softcap, mask=own, causal=causal)

    def _fold_shown(self, query: Tensor, kv_heads: int) -> Tensor:
        """Return which source keys each row may look at, folded as the query is."""
        assert self.hidden is not None
        n, heads, rows, _ = query.shape
        shown = ~self.hidden.to(query.device)[:, None, None]
        return shown.expand(n, heads // kv_heads, rows, -1).reshape(1, 1, -1, self.prefix.source)

    def _fold_mask(self, mask: Tensor, query: Tensor, kv_heads: int) -> Tensor:
        """Return the mask of the prompt's keys, folded as the query is. Layers share masks."""
        if id(mask) not in self._folded:
            n, heads, rows, _ = query.shape
            order = self.prefix.order.to(mask.device)
            prompt = mask[..., : self.prefix.length].index_select(-1, order)
            prompt = prompt.expand(n, heads // kv_heads, rows, -1)
            self._folded[id(mask)] = (mask, prompt.reshape(1, 1, -1, self.prefix.length))
        return self._folded[id(mask)][1]


def _check_types(call: Call) -> None:
    """Raise UnsupportedModelError if a layer attends in several data types."""
    if not call.query.dtype == call.key.dtype == call.value.dtype:
        tensors = (call.query, call.key, call.value)
        types = [str(one.dtype).removeprefix("torch.") for one in tensors]
        raise UnsupportedModelError(
            f"{call.layer} attends with queries, keys and values in {', '.join(types)}: is "
            "torch.autocast active inside the model's forward (mixed precision of accelerate)? "
            "Load the model without it, with dtype=..."
        )


def _hides(kwargs: dict[str, Any]) -> bool:
    padding = kwargs.get("attention_mask")
    return padding is not None and not bool(padding.all())


def fold(query: Tensor, kv_heads: int) -> Tensor:
    """(n, H, R, D) to (1, H_kv, n * g * R, D).

    Every continuation's rows look at the same prompt keys: they, and the query heads that share a
    key head, become the rows of one batch.
    """
    return query.unflatten(1, (kv_heads, -1)).permute(1, 0, 2, 3, 4).flatten(1, 3)[None]


def unfold(x: Tensor, rows: int, heads: int) -> Tensor:
    """(1, H_kv, n * g * R, ...) to (n, H_kv, g, R, ...): a view."""
    groups = heads // x.shape[1]
    return x[0].unflatten(1, (-1, groups, rows)).transpose(0, 1)


def without_padding(inputs: Mapping[str, Any], source: Tensor) -> tuple[dict[str, Any], Tensor]:
    """Return a prompt's inputs, and the mask of its source (P,), without padding at either end.

    Causal decoders see the rest as if the padding had never been there: generation counts their
    positions without it.

    Raises:
        ValueError: the attention mask does more than pad, or pads source tokens.
    """
    ids: Tensor = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    if mask is None:
        return dict(inputs), source
    if mask.shape != ids.shape:
        raise ValueError(
            f"attention_mask has the shape {tuple(mask.shape)}, the prompt's tokens "
            f"{tuple(ids.shape)}: only a mask of padding is understood"
        )
    seen = mask[0].bool()
    if seen.all():
        return dict(inputs), source
    places = seen.nonzero()[:, 0]
    if not len(places):
        raise ValueError("attention_mask hides the whole prompt: nothing is asked")
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first != len(places):
        raise ValueError(
            "attention_mask hides tokens inside the prompt: leave them out, only padding before "
            "and after it is understood"
        )
    if source.to(seen.device)[~seen].any():
        raise ValueError("attention_mask hides source tokens: they are padding or source, not both")
    kept = slice(first, last)
    return {name: _cut(name, value, ids, kept) for name, value in inputs.items()}, source[kept]


def _cut(name: str, value: Any, ids: Tensor, kept: slice) -> Any:
    """Cut the padding's values from what has one value per token."""
    if not isinstance(value, Tensor):
        return value
    if value.shape == ids.shape or (name == "position_ids" and value.shape[-1] == ids.shape[1]):
        return value[..., kept]
    return value
