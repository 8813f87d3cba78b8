"""The tap in a vLLM worker: wraps one pass, each decoder layer's attention, and the sampler.

Before a pass it notes which of the step's tokens are the source and which rows to read. After each
layer's attention it calls the same kernel for these rows' mass on the source (`backends`). The
results are filed by response and token (`ledger`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.engines.common.logits import cheap_to_read, token_stats
from lookback.engines.vllm.compat import RUNNER_VARIABLE
from lookback.engines.vllm.worker.backends import BACKENDS, Tail
from lookback.engines.vllm.worker.batch import Batch, Requests
from lookback.engines.vllm.worker.cascade import Cascade, Groups, marks, plain_share
from lookback.engines.vllm.worker.ledger import Ledger, Place
from lookback.engines.vllm.worker.sampler import TapSampler

LOGITS = 2**25
"""Logits that are computed at a time for given responses."""


@dataclass
class Step:
    """One pass over some tokens of some requests.

    Attributes:
        ends: (B,), how many tokens each request has after this pass.
        source: (tokens,), which of the pass's tokens are the source.
        positions: (tokens,), their positions in their requests.
        tail: the rows to read.
        places: where the signals of each such row go; None for a row that is not recorded.
        shares: of each layer so far, (rows, heads of this worker).
        written: metadata whose slots were marked, by id: alive as long as the step.
        cascade: reads rows that share blocks together, if there are any.
    """

    batch: Batch
    ends: NDArray[Any]
    source: Tensor
    positions: NDArray[Any]
    tail: Tail
    places: list[Place | None]
    shares: dict[int, Tensor] = field(default_factory=dict)
    written: dict[int, Any] = field(default_factory=dict)
    cascade: Cascade | None = None

    @property
    def wanted(self) -> bool:
        """Whether anything of it is to be recorded."""
        return self.batch.wanted


class TapError(RuntimeError):
    """A model or setting of vLLM that the tap cannot read."""


class Tap:
    """The tap of one worker.

    Args:
        runner: vLLM's model runner, with the model loaded and its cache made.

    Raises:
        TapError: its attention cannot be read.
    """

    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.layers = decoder_layers(runner)
        self.heads = sum(layer.impl.num_heads for layer in self.layers.values())  # of this worker
        self.ranks = int(runner.vllm_config.parallel_config.tensor_parallel_size)
        self.backend = BACKENDS[backend_name(self.layers)]()
        self.ledger = Ledger()
        self.requests = Requests(runner, self.ledger, len(self.layers))
        self.step: Step | None = None
        self.cascades = len(runner.kv_cache_config.kv_cache_groups) == 1
        self._last: Cascade | None = None
        self.self_test: Any = None  # sees each layer's queries, keys and shares, if there is one
        self._batch = Batch([], [])
        self._pass = runner._model_forward
        self.sampler = TapSampler(self, runner.sampler)
        self.install()

    def install(self) -> None:
        self.runner._model_forward = self._forward
        for number, layer in enumerate(self.layers.values()):
            layer.impl.forward = partial(self._attend, layer.impl.forward, number)
        self.sampler.install()

    def remove(self) -> None:
        """Undo `install`: requests meanwhile leave no marks in the cache."""
        del self.runner._model_forward
        for layer in self.layers.values():
            del layer.impl.forward
        self.sampler.remove()

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        self.step = step = self._begin()
        try:
            out = self._pass(*args, **kwargs)
            if step.wanted:
                self._file(step, out)
        except BaseException:
            self.step = None
            raise
        return out

    def _begin(self) -> Step:
        """Describe the pass that begins."""
        runner = self.runner
        names = runner.input_batch.req_ids
        if names != self._batch.names:
            self.requests.forget_ended()
            self._batch = Batch(names, [self.requests.get(name) for name in names])
        batch = self._batch
        starts = runner.query_start_loc.np[: len(names) + 1]
        ends = runner.optimistic_seq_lens_cpu[: len(names)].numpy().copy()
        counts = np.diff(starts)
        begins = ends - counts
        source = np.zeros(starts[-1], dtype=np.bool_)
        for i in np.flatnonzero(begins < batch.prompts):
            part = batch.requests[i].source[begins[i] : ends[i]]
            source[starts[i] : starts[i] + len(part)] = part
        tails = np.ones(len(names), dtype=np.int32)
        places = batch.places(ends)
        if batch.given:
            tails, places = _all_rows(batch, begins, ends)
        tail = self._tail(starts, counts, tails)
        positions = np.arange(starts[-1]) - np.repeat(starts[:-1] - begins, counts)
        return Step(batch, ends, torch.from_numpy(source), positions, tail, places)

    def _tail(self, starts: NDArray[Any], counts: NDArray[Any], tails: NDArray[np.int32]) -> Tail:
        begins = np.concatenate([[0], np.cumsum(tails)]).astype(np.int32)
        rows = None
        if not np.array_equal(counts, tails):
            pairs = zip(starts[1:], tails, strict=True)
            rows = np.concatenate([np.arange(end - count, end) for end, count in pairs])
        device = self.runner.device
        return Tail(
            None if rows is None else torch.from_numpy(rows).to(device),
            torch.from_numpy(begins).to(device),
            int(tails.max()),
        )

    def _attend(self, original: Any, number: int, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a layer's attention, and then the same for the indicator."""
        out = original(layer, *args, **kwargs)
        query, key, _, kv_cache, metadata = args[:5]
        step = self.step
        if step is None or metadata is None:
            return out
        if id(metadata) not in step.written:
            size = kv_cache.shape[2]
            tokens = marks(step.source, step.positions, size)
            self.backend.write(layer, kv_cache, metadata, tokens)
            step.written[id(metadata)] = metadata
            can = step.wanted and self._can_cascade(step, kv_cache)
            step.cascade = self._last = self._cascade(step, metadata, size) if can else None
        if step.wanted:
            rows = query[: len(step.source)] if step.tail.rows is None else query[step.tail.rows]
            share = self._share(step, layer, rows, kv_cache, metadata)
            step.shares[number] = share.sum(1, dtype=torch.float32)
            if self.self_test is not None:
                self.self_test(number, layer, rows, key[: len(step.source)], share)
        return out

    def _can_cascade(self, step: Step, kv_cache: Tensor) -> bool:
        """Whether there is one row for each request and one block table, and not in float16.

        There an anchor with little weight would have none.
        """
        rows = step.tail.rows is None and step.tail.longest == 1
        return rows and self.cascades and kv_cache.dtype != torch.float16

    def _cascade(self, step: Step, metadata: Any, size: int) -> Cascade | None:
        """Return the cascade of rows that share blocks, if there are any.

        The groups are found again unless the step before had the same batch and a cascade:
        whatever was read in between may have other blocks.
        """
        batch, before = step.batch, self._last
        if before is None or before.batch is not batch:
            before = None
            tables = self.runner.input_batch.block_table[0].block_table.np[: len(batch.names)]
            groups = Groups.of(tables, batch.prompts // size)
        else:
            groups = before.groups
        if groups is None:
            return None
        return Cascade(batch, groups, metadata.block_table, metadata.seq_lens, size, before)

    def _share(
        self, step: Step, layer: Any, query: Tensor, kv_cache: Tensor, metadata: Any
    ) -> Tensor:
        """Return the mass on the source of the step's rows, (rows, heads)."""
        if step.cascade is not None and step.cascade.fits(layer, metadata):
            share = step.cascade.read(self.backend, layer, query, kv_cache, metadata)
            if not cheap_to_read(share) or bool(share.isfinite().all()):
                return share
        return plain_share(self.backend.attend(layer, query, kv_cache, metadata, step.tail))

    def _file(self, step: Step, hidden: Any) -> None:
        """File the attention of a pass that has ended: the mean over all heads of each layer."""
        if len(step.shares) != len(self.layers):
            raise TapError(
                f"{len(step.shares)} of {len(self.layers)} attention layers were read: is a part "
                "of the model compiled or captured beyond the tap? try enforce_eager=True"
            )
        shares = torch.stack([step.shares[number] for number in range(len(self.layers))], 1)
        shares /= self._heads(shares.device)
        wanted = [row for row, place in enumerate(step.places) if place is not None]
        places = [place for place in step.places if place is not None]
        if not wanted:
            return  # a prompt that is still being read
        if len(wanted) < len(step.places):
            shares = shares[torch.tensor(wanted, device=shares.device)]
        self.ledger.file("looks", places, shares)
        if step.batch.given and isinstance(hidden, Tensor):  # else another stage has the logits
            self._read_given(step, hidden)

    def _heads(self, device: torch.device) -> Tensor:
        """Return how many heads each layer has, on all ranks together, (L,)."""
        heads = [layer.impl.num_heads * self.ranks for layer in self.layers.values()]
        return torch.tensor(heads, dtype=torch.float32, device=device)

    def _read_given(self, step: Step, hidden: Tensor) -> None:
        """File statistics of the logits for given responses."""
        rows: list[int] = []
        targets: list[int] = []
        starts = step.tail.starts.tolist()
        for i, request in enumerate(step.batch.requests):
            if request.tap_request is None or request.tap_request.given is None:
                continue
            for row in range(starts[i], starts[i + 1]):
                place = step.places[row]
                if place is not None:
                    rows.append(row)
                    targets.append(request.tap_request.given[place[1]])
        if not rows:
            return
        where = torch.tensor(rows, device=hidden.device)
        if step.tail.rows is not None:
            where = step.tail.rows[where]
        piece = max(1, LOGITS // self.runner.input_batch.vocab_size)
        for first in range(0, len(rows), piece):
            part = slice(first, first + piece)
            logits = self.runner.model.compute_logits(hidden[where[part]])
            if logits is None:
                continue
            ids = torch.tensor(targets[part], device=logits.device)
            places = [place for row in rows[part] if (place := step.places[row]) is not None]
            self.ledger.file("stats", places, torch.stack(token_stats(logits, ids), 1))


def _all_rows(
    batch: Batch, begins: NDArray[Any], ends: NDArray[Any]
) -> tuple[NDArray[np.int32], list[Place | None]]:
    """Return how many rows of each request to read if responses are given, and their places.

    A row before the first that matters belongs to a prompt that is still being read.
    """
    tails = np.ones(len(ends), dtype=np.int32)
    places: list[Place | None] = []
    for i, request in enumerate(batch.requests):
        record, first = request.record, request.first
        if request.given:
            tails[i] = max(1, ends[i] - max(begins[i], first))
        for at in range(ends[i] - tails[i], ends[i]):
            places.append(None if record is None else record.at(int(at) - first))
    return tails, places


def decoder_layers(runner: Any) -> dict[str, Any]:
    """Return the attention layers of a model's decoder by name, in order.

    Raises:
        TapError: one of them cannot be read.
    """
    from vllm.model_executor.layers.attention import Attention
    from vllm.v1.attention.backend import AttentionType
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    if not isinstance(runner, GPUModelRunner):
        raise TapError(
            f"the tap knows vLLM's first model runner, this is {type(runner).__module__}: set "
            f"{RUNNER_VARIABLE}=0"
        )
    context = runner.vllm_config.compilation_config.static_forward_context
    layers = {}
    for name, layer in context.items():
        if type(layer).__name__ == "MLAAttention":
            raise TapError("attention with compressed keys (MLA) cannot be read inside vLLM yet")
        if not isinstance(layer, Attention):
            continue  # a state-space or linear layer: it has no attention
        if layer.attn_type != AttentionType.DECODER:
            raise TapError(
                f"{name} is {layer.attn_type} attention: LookBack reads decoders that attend to "
                "the vision tokens in their own context"
            )
        layers[name] = layer
    if not layers:
        raise TapError("the model has no attention layers in its decoder")
    return layers


def backend_name(layers: dict[str, Any]) -> str:
    """Return the name of the attention backend of all layers.

    Raises:
        TapError: there is no adapter for it.
    """
    names = {layer.attn_backend.get_name() for layer in layers.values()}
    unknown = sorted(names - BACKENDS.keys())
    if unknown or len(names) > 1:
        raise TapError(
            f"attention backend {' and '.join(sorted(names))}: LookBack can read one of "
            f"{', '.join(BACKENDS)}; set attention_backend to one of these"
        )
    return str(names.pop())
