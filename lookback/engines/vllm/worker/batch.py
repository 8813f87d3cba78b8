"""The requests of vLLM's batch as the tap sees them; made anew only when the batch changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.engines.common.logits import streams
from lookback.engines.vllm.tap_request import Asking, mask_of
from lookback.engines.vllm.worker.ledger import Ledger, Place, Record


@dataclass
class Request:
    """What the tap knows of a request that is being worked on.

    Attributes:
        source: of its prompt's tokens, which are the source.
        first: the row that predicts the first token of the response.
        asking: what is asked for it, if anything.
        record: where its numbers go, if any do.
        uniform: its random numbers, if the tap draws its tokens.
    """

    source: NDArray[np.bool_]
    first: int
    asking: Asking | None = None
    record: Record | None = None
    uniform: NDArray[np.float32] | None = None

    @property
    def given(self) -> bool:
        """Whether its response is there already."""
        return self.asking is not None and self.asking.given is not None


class Requests:
    """All requests that a worker knows, by vLLM's names for them.

    Args:
        runner: vLLM's model runner.
        ledger: where numbers go.
        layers: how many the decoder has.
    """

    def __init__(self, runner: Any, ledger: Ledger, layers: int) -> None:
        self.runner, self.ledger, self.layers = runner, ledger, layers
        self._known: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Request:
        """What is known of one, worked out when it is first seen."""
        if name not in self._known:
            self._known[name] = self._new(name, self.runner.requests[name])
        return self._known[name]

    def forget_ended(self) -> None:
        """Let go of those that vLLM has let go of."""
        there = self.runner.requests
        if len(self._known) > len(there):
            self._known = {name: one for name, one in self._known.items() if name in there}

    def _new(self, name: str, state: Any) -> Request:
        length = len(state.prompt_token_ids)
        params = state.sampling_params
        asking = Asking.of(params.extra_args) if params is not None else None
        source = placeholders(state.mm_features, length)
        if asking is None:
            return Request(source, length - 1)
        # vLLM calls the candidates of one request 0_<its name>, 1_<its name>, ...
        numbered = re.match(r"(\d+)_", name)
        index = int(numbered[1]) if numbered else 0
        room = params.max_tokens if asking.length is None else asking.length
        return Request(
            source if asking.source is None else mask_of(asking.source, length),
            length - (1 if asking.given is None else len(asking.given)),
            asking,
            self.ledger.open(
                f"{asking.key}/{index}",
                room,
                self.layers if asking.by_layer else None,
                asking.top,
            ),
            stream(asking, index if asking.index is None else asking.index, room),
        )


class Batch:
    """The requests of a batch, in its order.

    Args:
        names: vLLM's names for them.
        requests: what is known of them.

    Attributes:
        requests: those.
        prompts: (B,), how many tokens the prompt of each has.
        firsts: (B,), the row that predicts the first token of each response.
        given: whether any response is there already.
        wanted: whether anything is recorded of any.
        drawing: the rows that draw from streams of ours, by their settings, with their random
            numbers (rows, T).
    """

    def __init__(self, names: list[str], requests: list[Request]) -> None:
        self.names, self.requests = list(names), requests
        self.prompts = np.array([len(one.source) for one in requests])
        self.firsts = np.array([one.first for one in requests])
        self.given = any(one.given for one in requests)
        self.wanted = any(one.record is not None for one in requests)
        self.records = [one.record for one in requests]
        self.drawing = _drawing(requests)

    def places(self, ends: NDArray[Any]) -> list[Place | None]:
        """Where the number of each request's last row goes; `ends`: behind it."""
        tokens = (ends - 1 - self.firsts).tolist()
        return [
            None if record is None else record.at(token)
            for record, token in zip(self.records, tokens, strict=True)
        ]


def _drawing(
    requests: list[Request],
) -> list[tuple[tuple[Any, ...], NDArray[np.intp], NDArray[np.float32]]]:
    alike: dict[tuple[Any, ...], list[int]] = {}
    for row, one in enumerate(requests):
        if one.uniform is not None and one.asking is not None:
            asking = one.asking
            alike.setdefault((asking.temperature, asking.top_p, asking.top_k), []).append(row)
    groups = []
    for settings, rows in alike.items():
        numbers = [found for row in rows if (found := requests[row].uniform) is not None]
        uniform = np.zeros((len(rows), max(map(len, numbers))), np.float32)
        for to, given in zip(uniform, numbers, strict=True):
            to[: len(given)] = given
        groups.append((settings, np.array(rows), uniform))
    return groups


def stream(asking: Asking, index: int, length: int) -> NDArray[np.float32] | None:
    """The random numbers of a candidate, if the tap draws its tokens."""
    if asking.seed is None or asking.given is not None:
        return None
    found = streams(asking.seed, 1, asking.done + length, index)[0, asking.done :]
    return np.asarray(found, np.float32)


def placeholders(features: Any, length: int) -> NDArray[np.bool_]:
    """Which tokens of a prompt stand for what an image or a video became."""
    mask = np.zeros(length, dtype=np.bool_)
    for feature in features or ():
        if feature.modality in ("image", "video"):
            for start, end in feature.mm_position.extract_embeds_range():
                mask[start : end + 1] = True
    return mask
