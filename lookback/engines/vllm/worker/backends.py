"""Attention mass on the source by a second call of vLLM's attention kernels.

A kernel's output is its attention weights times the values. With an *indicator* in place of the
values, 1 in the cache slots of source tokens and 0 elsewhere, the output is the attention mass on
the source. The indicator is one tensor for all layers. It lives in the slots of the K/V cache, so
what the cache shares or keeps (prefix caching, chunked prefill, several candidates of one prompt,
preemption) holds for it too.

Each kernel has an adapter: where its values lie in memory, and how it is called. Only the rows that
predict a recorded token are read: the last ones of each request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass
class Tail:
    """The rows to read, of the requests of one step: the last ones of each.

    Attributes:
        rows: where they are among the step's tokens; None for all of them.
        starts: where each request's rows begin among them, (requests + 1,), int32.
        longest: the most rows that a request has.
        table: the blocks to attend to, (requests, blocks); None for all of a request's.
        lengths: how many tokens they have, (requests,); None for all.
        causal: whether the rows are the last ones of these tokens.
        plans: scheduler metadata of an adapter's kernel.
    """

    rows: Tensor | None
    starts: Tensor
    longest: int
    table: Tensor | None = None
    lengths: Tensor | None = None
    causal: bool = True
    plans: dict[Any, Any] = field(default_factory=dict)

    def table_of(self, metadata: Any) -> Tensor:
        table: Tensor = metadata.block_table if self.table is None else self.table
        return table

    def lengths_of(self, metadata: Any) -> Tensor:
        lengths: Tensor = metadata.seq_lens if self.lengths is None else self.lengths
        return lengths

    def causal_of(self, metadata: Any) -> Any:
        return metadata.causal if self.causal else False


class Backend(Protocol):
    """The adapter of an attention kernel."""

    def write(self, layer: Any, kv_cache: Tensor, metadata: Any, marks: Tensor) -> None:
        """Write marks of a step's tokens, (tokens, 3), to the slots of the tokens."""
        ...

    def attend(
        self, layer: Any, query: Tensor, kv_cache: Tensor, metadata: Any, tail: Tail
    ) -> Tensor:
        """Return the attention of the tail's rows on marked tokens: (rows, heads, 3 or more)."""
        ...


class CPU:
    """`CPU_ATTN`. Its values lie as its own operation packs them, at the strides of the keys.

    So the indicator is as large as one layer's keys and values, 1/L of the cache.
    """

    def __init__(self) -> None:
        from vllm import _custom_ops, envs

        self.ops, self.split = _custom_ops, envs.VLLM_CPU_ATTN_SPLIT_KV
        self._indicator: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self._layers: dict[int, Tensor] = {}

    def write(self, layer: Any, kv_cache: Tensor, metadata: Any, marks: Tensor) -> None:
        keys, values = self._caches(kv_cache)
        count, (_, heads, _, size) = len(marks), values.shape
        value = kv_cache.new_zeros(count, heads, size)
        value[..., : marks.shape[1]] = marks[:, None]
        slots = metadata.slot_mapping[:count]
        self.ops.cpu_attn_reshape_and_cache(value, value, keys, values, slots, layer.isa)

    def attend(
        self, layer: Any, query: Tensor, kv_cache: Tensor, metadata: Any, tail: Tail
    ) -> Tensor:
        impl = layer.impl
        keys = self._keys(kv_cache)
        _, values = self._caches(kv_cache)
        out = torch.empty(len(query), impl.num_heads, impl.head_size, dtype=query.dtype)
        self.ops.cpu_attention_with_kv_cache(
            query=query,
            key_cache=keys,
            value_cache=values,
            output=out,
            query_start_loc=tail.starts,
            seq_lens=tail.lengths_of(metadata),
            scale=impl.scale,
            causal=tail.causal_of(metadata),
            alibi_slopes=impl.alibi_slopes,
            sliding_window=impl.sliding_window,
            block_table=tail.table_of(metadata),
            softcap=impl.logits_soft_cap,
            scheduler_metadata=self._plan(layer, query, metadata, tail),
            s_aux=impl.sinks,
            dynamic_causal=metadata.dynamic_causal,
            kv_cache_dtype=impl.kv_cache_dtype,
        )
        return out

    def _keys(self, kv_cache: Tensor) -> Tensor:
        place = kv_cache.data_ptr()
        if place not in self._layers:
            self._layers[place], _ = _halves(kv_cache)
        return self._layers[place]

    def _caches(self, kv_cache: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys that nobody reads, and the indicator, of caches of this shape."""
        shape = tuple(kv_cache.shape)
        if shape not in self._indicator:
            self._indicator[shape] = _halves(kv_cache.new_zeros(shape))
        return self._indicator[shape]

    def _plan(self, layer: Any, query: Tensor, metadata: Any, tail: Tail) -> Tensor:
        """Return the kernel's schedule: the step's own if all of its rows and keys are read."""
        if tail.rows is None and tail.table is None:
            plan: Tensor = metadata.scheduler_metadata
            return plan
        impl = layer.impl
        key = (id(metadata) if tail.lengths is None else None, impl.num_heads, impl.sliding_window)
        if key not in tail.plans:
            tail.plans[key] = self.ops.cpu_attn_get_scheduler_metadata(
                num_reqs=len(tail.starts) - 1,
                num_heads=impl.num_heads,
                num_kv_heads=impl.num_kv_heads,
                head_dim=impl.head_size,
                seq_lens=tail.lengths_of(metadata),
                dtype=query.dtype,
                query_start_loc=tail.starts,
                causal=tail.causal_of(metadata),
                sliding_window_size=impl.sliding_window,
                isa=layer.isa,
                enable_kv_split=self.split,
                dynamic_causal=metadata.dynamic_causal,
                kv_cache_dtype=impl.kv_cache_dtype,
            )
        own: Tensor = tail.plans[key]
        return own


def _halves(kv_cache: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values of `CPU_ATTN`'s cache, (blocks, heads, block size, head size)."""
    blocks, heads, size, _ = kv_cache.shape
    keys, values = kv_cache.view(blocks, heads, 2 * size, -1).chunk(2, dim=2)
    return keys, values


class _Paged:
    """What FlashAttention and Triton share: (blocks, heads, block size, keys and values)."""

    def __init__(self) -> None:
        self._indicator: dict[tuple[int, ...], Tensor] = {}

    def write(self, layer: Any, kv_cache: Tensor, metadata: Any, marks: Tensor) -> None:
        # The same in every head; what is behind the marks stays 0.
        flat = self._values(kv_cache).flatten(0, 1)
        slots = metadata.slot_mapping[: len(marks)]
        flat[slots, :, : marks.shape[1]] = marks.to(flat)[:, None]

    def _values(self, kv_cache: Tensor) -> Tensor:
        """Return the indicator of caches of this shape, (blocks, block size, heads, head size)."""
        blocks, heads, size, twice = kv_cache.shape
        key = tuple(kv_cache.shape)
        if key not in self._indicator:
            self._indicator[key] = kv_cache.new_zeros(blocks, size, heads, twice // 2)
        return self._indicator[key]

    def _arguments(
        self, layer: Any, query: Tensor, kv_cache: Tensor, metadata: Any, tail: Tail
    ) -> dict[str, Any]:
        """Return what both functions take, by the same names."""
        impl = layer.impl
        return {
            "q": query,
            "k": kv_cache.transpose(1, 2)[..., : kv_cache.shape[-1] // 2],
            "v": self._values(kv_cache),
            "out": torch.empty_like(query),
            "cu_seqlens_q": tail.starts,
            "max_seqlen_q": tail.longest,
            "seqused_k": tail.lengths_of(metadata),
            "max_seqlen_k": metadata.max_seq_len,
            "softmax_scale": impl.scale,
            "causal": tail.causal_of(metadata),
            "alibi_slopes": impl.alibi_slopes,
            "block_table": tail.table_of(metadata),
            "softcap": impl.logits_soft_cap,
        }


class FlashAttention(_Paged):
    """`FLASH_ATTN`, by its documented layout and function: never run, as no GPU was to be had."""

    def attend(
        self, layer: Any, query: Tensor, kv_cache: Tensor, metadata: Any, tail: Tail
    ) -> Tensor:
        from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func

        impl = layer.impl
        arguments = self._arguments(layer, query, kv_cache, metadata, tail)
        flash_attn_varlen_func(
            **arguments,
            window_size=None if impl.sliding_window is None else list(impl.sliding_window),
            fa_version=impl.vllm_flash_attn_version,
            s_aux=impl.sinks,
        )
        out: Tensor = arguments["out"]
        return out


class Triton(_Paged):
    """`TRITON_ATTN`. Tests run its kernel in Triton's interpreter; it was never run on a GPU."""

    def attend(
        self, layer: Any, query: Tensor, kv_cache: Tensor, metadata: Any, tail: Tail
    ) -> Tensor:
        from vllm.v1.attention.ops.triton_unified_attention import unified_attention

        impl = layer.impl
        arguments = self._arguments(layer, query, kv_cache, metadata, tail)
        ones = query.new_ones(len(tail.starts) - 1, impl.num_kv_heads, dtype=torch.float32)
        unified_attention(
            **arguments,
            window_size=impl.sliding_window,
            use_alibi_sqrt=impl.use_alibi_sqrt,
            q_descale=None,
            k_descale=ones,
            v_descale=ones,
            sinks=impl.sinks,
        )
        out: Tensor = arguments["out"]
        return out


BACKENDS: dict[str, type[Any]] = {
    "CPU_ATTN": CPU,
    "FLASH_ATTN": FlashAttention,
    "TRITON_ATTN": Triton,
}
"""By the name that vLLM gives an attention backend."""
