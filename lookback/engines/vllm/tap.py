"""The tap in a vLLM worker: wraps one pass, each decoder layer's attention, and the sampler.

Before a pass it notes which of the step's tokens are the source and which rows are asked about.
After each layer's attention it asks the same kernel for these rows' mass on the source
(`backends`). What comes of it is filed by response and token (`ledger`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookback.engines.transformers.logits import token_stats
from lookback.engines.vllm.asking import Asking, mask_of
from lookback.engines.vllm.backends import BACKENDS, Tail
from lookback.engines.vllm.drawing import Sampling
from lookback.engines.vllm.ledger import Ledger, Record

LOGITS = 2**25
"""Logits that are worked out at a time for responses that are given."""


@dataclass
class Request:
    """What the tap knows of a request that is being worked on.

    Attributes:
        source: of its prompt's tokens, which are the source.
        prompt: how many tokens its prompt has, a given response's among them.
        first: the row that predicts the first token of the response.
        asking: what is asked for it, if anything.
        index: which candidate of its question it is.
        record: where its numbers go.
        uniform: its random numbers, if the tap draws its tokens.
    """

    source: NDArray[np.bool_]
    prompt: int
    first: int
    asking: Asking | None
    index: int = 0
    record: Record | None = None
    uniform: NDArray[np.float64] | None = None


@dataclass
class Step:
    """One pass over some tokens of some requests.

    Attributes:
        requests: in the order of the batch.
        source: (tokens,), which are the source.
        tail: the rows asked about.
        places: whose they are: the record and the place of the token that each row predicts; None
            for a row that nobody wants.
        shares: (rows,) for each layer so far.
        written: metadata whose slots were marked, by id: alive as long as the step.
    """

    requests: list[Request]
    source: Tensor
    tail: Tail
    places: list[tuple[Record, int] | None]
    shares: dict[int, Tensor] = field(default_factory=dict)
    written: dict[int, Any] = field(default_factory=dict)

    @property
    def wanted(self) -> bool:
        """Whether anything of it is to be recorded."""
        return any(place is not None for place in self.places)


class TapError(RuntimeError):
    """A model or setting of vLLM that the tap cannot read; the message says which."""


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
        self.step: Step | None = None
        self.watch: Any = None  # sees each layer's queries, keys and shares, in a self-test
        self._requests: dict[str, Request] = {}
        self._pass = runner._model_forward
        runner._model_forward = self._forward
        for number, layer in enumerate(self.layers.values()):
            layer.impl.forward = partial(self._attend, layer.impl.forward, number)
        self.sampling = Sampling(self, runner.sampler)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        """A pass of the model, watched."""
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
        """What the pass that begins is about."""
        runner = self.runner
        names = runner.input_batch.req_ids
        starts = runner.query_start_loc.np[: len(names) + 1]
        ends = runner.optimistic_seq_lens_cpu[: len(names)].numpy()
        requests = [self._request(name) for name in names]
        if len(self._requests) > len(runner.requests):
            left = runner.requests
            self._requests = {k: v for k, v in self._requests.items() if k in left}
        counts = np.diff(starts)
        begins = ends - counts
        source = np.zeros(starts[-1], dtype=np.bool_)
        tails = np.ones(len(names), dtype=np.int32)
        places: list[tuple[Record, int] | None] = []
        for i, one in enumerate(requests):
            if begins[i] < one.prompt:
                part = one.source[begins[i] : ends[i]]
                source[starts[i] : starts[i] + len(part)] = part
            if one.record is None:
                places.append(None)
                continue
            if one.asking is not None and one.asking.given is not None:
                tails[i] = max(1, ends[i] - max(begins[i], one.first))
            # A row before the first that matters belongs to a prompt still being read.
            for at in range(ends[i] - tails[i], ends[i]):
                place = at - one.first
                fits = 0 <= place < len(one.record.stats)
                places.append((one.record, place) if fits else None)
        return Step(requests, torch.from_numpy(source), self._tail(starts, counts, tails), places)

    def _tail(
        self, starts: NDArray[Any], counts: NDArray[Any], tails: NDArray[np.int32]
    ) -> Tail:
        begins = np.concatenate([[0], np.cumsum(tails)]).astype(np.int32)
        if np.array_equal(counts, tails):
            rows = None
        else:
            rows = np.concatenate([np.arange(b - t, b) for b, t in zip(starts[1:], tails)])
        device = self.runner.device
        return Tail(
            None if rows is None else torch.from_numpy(rows).to(device),
            torch.from_numpy(begins).to(device),
            int(tails.max()),
        )

    def _request(self, name: str) -> Request:
        """What is known of a request, worked out when it is first seen."""
        if name not in self._requests:
            self._requests[name] = self._new(name, self.runner.requests[name])
        return self._requests[name]

    def _new(self, name: str, state: Any) -> Request:
        length = len(state.prompt_token_ids)
        params = state.sampling_params
        asking = Asking.of(params.extra_args) if params is not None else None
        if asking is None:
            return Request(placeholders(state.mm_features, length), length, length - 1, None)
        index = 0 if name.startswith(asking.key) else int(name.partition("_")[0])
        layers = len(self.layers) if asking.by_layer else None
        given = asking.given
        return Request(
            mask_of(asking.source, length),
            length,
            length - (1 if given is None else len(given)),
            asking,
            index,
            self.ledger.open(f"{asking.key}/{index}", asking.length, layers),
            self.sampling.stream(asking, index),
        )

    def _attend(self, original: Any, number: int, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """A layer's attention, and then the same for the indicator."""
        out = original(layer, *args, **kwargs)
        query, key, _, kv_cache, metadata = args[:5]
        step = self.step
        if step is None or metadata is None:
            return out
        if id(metadata) not in step.written:
            self.backend.write(layer, kv_cache, metadata, step.source)
            step.written[id(metadata)] = metadata
        if step.wanted:
            rows = query[: len(step.source)] if step.tail.rows is None else query[step.tail.rows]
            found = self.backend.attend(layer, rows, kv_cache, metadata, step.tail)
            step.shares[number] = found[..., 0].mean(1, dtype=torch.float32) / self.ranks
            if self.watch is not None:
                self.watch(number, layer, rows, key[: len(step.source)], found[..., 0])
        return out

    def _file(self, step: Step, hidden: Any) -> None:
        """File what a pass that has ended showed."""
        if len(step.shares) != len(self.layers):
            raise TapError(
                f"{len(step.shares)} of {len(self.layers)} attention layers were read: is a part "
                "of the model compiled or captured beyond the tap? try enforce_eager=True"
            )
        shares = torch.stack([step.shares[number] for number in range(len(self.layers))], 1)
        wanted = [row for row, place in enumerate(step.places) if place is not None]
        places = [place for place in step.places if place is not None]
        if len(wanted) < len(step.places):
            shares = shares[torch.tensor(wanted, device=shares.device)]
        self.ledger.file("looks", places, shares)
        self._read_given(step, hidden)

    def _read_given(self, step: Step, hidden: Any) -> None:
        """File what the logits say of responses that are given."""
        rows: list[int] = []
        places: list[tuple[Record, int]] = []
        targets: list[int] = []
        offset = 0
        starts = step.tail.starts.tolist()
        for i, one in enumerate(step.requests):
            if one.asking is None or one.asking.given is None:
                continue
            for row in range(starts[i], starts[i + 1]):
                place = step.places[row]
                if place is not None:
                    rows.append(row)
                    places.append(place)
                    targets.append(one.asking.given[place[1]])
        if not rows or not isinstance(hidden, Tensor):  # another pipeline stage has the logits
            return
        where = torch.tensor(rows, device=hidden.device)
        if step.tail.rows is not None:
            where = step.tail.rows[where]
        piece = max(1, LOGITS // self.runner.input_batch.vocab_size)
        for offset in range(0, len(rows), piece):
            part = slice(offset, offset + piece)
            logits = self.runner.model.compute_logits(hidden[where[part]])
            if logits is None:
                continue
            ids = torch.tensor(targets[part], device=logits.device)
            self.ledger.file("stats", places[part], torch.stack(token_stats(logits, ids), 1))


def placeholders(features: Any, length: int) -> NDArray[np.bool_]:
    """Which tokens of a prompt stand for what an image or a video became."""
    mask = np.zeros(length, dtype=np.bool_)
    for feature in features or ():
        if feature.modality not in ("image", "video"):
            continue
        for start, end in feature.mm_position.extract_embeds_range():
            mask[start : end + 1] = True
    return mask


def decoder_layers(runner: Any) -> dict[str, Any]:
    """The attention layers of a model's decoder by name, in their order.

    Raises:
        TapError: one of them cannot be read.
    """
    from vllm.model_executor.layers.attention import Attention
    from vllm.v1.attention.backend import AttentionType

    context = runner.vllm_config.compilation_config.static_forward_context
    found = {}
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
        found[name] = layer
    if not found:
        raise TapError("the model has no attention layers in its decoder")
    return found


def backend_name(layers: dict[str, Any]) -> str:
    """The attention backend of all layers.

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
    return names.pop()
