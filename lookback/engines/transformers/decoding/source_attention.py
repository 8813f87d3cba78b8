"""Which source tokens a continuation looks at, and its signals once those are hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lookback.engines.common.continuations import Continuation, padded, unpadded
from lookback.engines.common.options import Progress
from lookback.engines.transformers.attention.source_weights import Importance, RowWeights
from lookback.engines.transformers.attention.tap import reading
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.prefix import Prefix, SharedCache, SharedPrefix
from lookback.engines.transformers.decoding.session import ModelSession


def knockout(
    decoder: Decoder,
    prefix: Prefix,
    responses: Sequence[Sequence[int]],
    layers: tuple[int, int],
    share: float,
    progress: Progress | None = None,
    again: Callable[[Tensor], Prefix] | None = None,
) -> list[Continuation]:
    """Return the signals of continuations once each loses the source tokens it looks at most.

    Importance of a source token: the attention it receives from the continuation's own rows, over
    the heads of the layers first..last - 1. The most important share is then hidden, in every
    layer: from the rows that predict the continuation, while the prompt before them is shared as it
    is; or, if `again` is given, from all rows. It sends the prompt through the model with some of
    its source tokens hidden, (source,), once for each continuation.
    """
    if not prefix.source:
        raise ValueError("this prompt has no source tokens to hide")

    def core(batch: list[Sequence[int]], session: ModelSession) -> Tensor:
        """(n, source), the most important of each."""
        received = _importance(decoder, prefix, batch, layers, session)
        hidden = torch.zeros_like(received, dtype=torch.bool)
        count = max(1, int(prefix.source * share))
        return hidden.scatter_(1, received.topk(count).indices, True)

    if again is not None:
        hidden = decoder.batched(prefix, responses, lambda *some: [*core(*some)], None)
        return _score_hidden(decoder, again, responses, hidden, progress)
    shorter = prefix.without_last()

    def hide(batch: list[Sequence[int]], session: ModelSession) -> list[Continuation]:
        hidden = core(batch, session)
        ids = padded(batch).to(prefix.logits.device)
        asked = torch.full_like(ids[:, :1], prefix.last)
        rows = torch.cat([asked, ids[:, :-1]], 1)
        reader = SharedPrefix(shorter, hidden=hidden)
        signals = decoder.empty_signals(ids.shape, ids.device)
        decoder.read_rows(shorter, reader, rows, ids, signals, session)
        return unpadded(batch, signals)

    return decoder.batched(prefix, responses, hide, progress)


def _score_hidden(
    decoder: Decoder,
    again: Callable[[Tensor], Prefix],
    responses: Sequence[Sequence[int]],
    hidden: Sequence[Tensor],
    progress: Progress | None,
) -> list[Continuation]:
    """Return the signals of continuations, each after a prompt that hides tokens of its own."""
    continuations: list[Continuation] = []
    for ids, mask in zip(responses, hidden, strict=True):
        prefix = again(mask)
        work = partial(decoder.score_batch, prefix, by_layer=False, hidden=mask[None])
        continuations += decoder.batched(prefix, [ids], work, None)
        if progress is not None:
            progress(len(continuations), len(responses))
    return continuations


def look(
    decoder: Decoder,
    inputs: Mapping[str, Any],
    source: Tensor,
    response: Sequence[int],
    layers: tuple[int, int],
    progress: Progress | None = None,
) -> Tensor:
    """Return the attention that each token's row pays to each source token, (T, source).

    It is the mean over all heads of the chosen layers (end exclusive) of the row that predicts the
    token; with all layers a row sums to A_t. The first token's row is read in the prompt's own
    pass: layers with a state cannot go back.
    """
    prefix = decoder.prefill(inputs, source, layers)
    if prefix.weights is None:
        raise ValueError("this prompt has no source tokens to look at")
    decoder.check_length(prefix, len(response))
    ids = torch.tensor([list(response)], device=prefix.logits.device)
    weights = prefix.weights.new_empty(len(response), prefix.source)
    weights[:1] = prefix.weights
    cache, reader = SharedCache(prefix, 1), RowWeights(prefix, layers)
    report = progress or (lambda done, total: None)
    report(1, len(response))
    with decoder.session(prefix) as session, reading(reader):
        for part in decoder.pieces(1, len(response) - 1):
            session.yield_turn()
            decoder.forward(ids[:, :-1][:, part], cache, reader, keep=decoder.last_row)
            weights[1:][part] = reader.rows.take()
            report(1 + cache.fed, len(response))
    return weights


def _importance(
    decoder: Decoder,
    prefix: Prefix,
    responses: list[Sequence[int]],
    layers: tuple[int, int],
    session: ModelSession,
) -> Tensor:
    """Attention that each source token receives from each response's rows, (n, source)."""
    ids = padded(responses).to(prefix.logits.device)
    n, length = ids.shape
    ends = torch.tensor([len(one) for one in responses], device=ids.device)
    valid = torch.arange(length, device=ids.device) < ends[:, None]
    cache, reader = SharedCache(prefix, n), Importance(prefix, n, layers)
    with reading(reader):
        for part in decoder.pieces(n, length):
            session.yield_turn()
            reader.valid = valid[:, part]
            decoder.forward(ids[:, part], cache, reader, keep=decoder.last_row)
    return reader.received
