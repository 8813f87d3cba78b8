"""The requests of vLLM's batch as the tap sees them, rebuilt only when the batch changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookback.engines.common.logits import streams
from lookback.engines.vllm.tap_request import TapRequest, mask_of
from lookback.engines.vllm.worker.ledger import Ledger, Place, Record


@dataclass
class Request:
    """A request in vLLM's batch.

    Attributes:
        source: which of its prompt's tokens are the source.
        first: the row that predicts the first token of the response.
        tap_request: what to record, if anything.
        record: where its signals go, if any do.
        uniform: its random numbers, if the tap draws its tokens.
    """

    source: NDArray[np.bool_]
    first: int
    tap_request: TapRequest | None = None
    record: Record | None = None
    uniform: NDArray[np.float32] | None = None

    @property
    def given(self) -> bool:
        """Whether its response is given, not drawn."""
        return self.tap_request is not None and self.tap_request.given is not None


class Requests:
    """All requests of a worker, by vLLM's names for them."""

    def __init__(self, runner: Any, ledger: Ledger, layers: int) -> None:
        self.runner, self.ledger, self.layers = runner, ledger, layers
        self._known: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Request:
        """Return a request, made when it is first seen."""
        if name not in self._known:
            self._known[name] = self._new(name, self.runner.requests[name])
        return self._known[name]

    def forget_ended(self) -> None:
        """Drop the requests that vLLM has dropped."""
        current = self.runner.requests
        if len(self._known) > len(current):
            self._known = {name: one for name, one in self._known.items() if name in current}

    def _new(self, name: str, state: Any) -> Request:
        length = len(state.prompt_token_ids)
        params = state.sampling_params
        tap_request = TapRequest.of(params.extra_args) if params is not None else None
        source = placeholders(state.mm_features, length)
        if tap_request is None:
            return Request(source, length - 1)
        # vLLM calls the candidates of one request 0_<its name>, 1_<its name>, ...
        numbered = re.match(r"(\d+)_", name)
        index = int(numbered[1]) if numbered else 0
        room = params.max_tokens if tap_request.length is None else tap_request.length
        return Request(
            source if tap_request.source is None else mask_of(tap_request.source, length),
            length - (1 if tap_request.given is None else len(tap_request.given)),
            tap_request,
            self.ledger.open(
                f"{tap_request.key}/{index}",
                room,
                self.layers if tap_request.by_layer else None,
                tap_request.top,
            ),
            stream(tap_request, index if tap_request.index is None else tap_request.index, room),
        )


class Batch:
    """The requests of a batch, in its order.

    Attributes:
        prompts: (B,), how many tokens the prompt of each has.
        firsts: (B,), the row that predicts the first token of each response.
        given: whether any response is given.
        wanted: whether anything is recorded of any.
        drawing: the rows whose tokens the tap draws, by their settings, with their random numbers
            (rows, T).
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
        """Return where the signals of each request's last row go; `ends`: behind it."""
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
        if one.uniform is not None and one.tap_request is not None:
            tap_request = one.tap_request
            alike.setdefault(
                (tap_request.temperature, tap_request.top_p, tap_request.top_k), []
            ).append(row)
    groups = []
    for settings, rows in alike.items():
        numbers = [found for row in rows if (found := requests[row].uniform) is not None]
        uniform = np.zeros((len(rows), max(map(len, numbers))), np.float32)
        for to, given in zip(uniform, numbers, strict=True):
            to[: len(given)] = given
        groups.append((settings, np.array(rows), uniform))
    return groups


def stream(tap_request: TapRequest, index: int, length: int) -> NDArray[np.float32] | None:
    """Return the random numbers of a candidate, if the tap draws its tokens."""
    if tap_request.seed is None or tap_request.given is not None:
        return None
    numbers = streams(tap_request.seed, 1, tap_request.done + length, index)[0, tap_request.done :]
    return np.asarray(numbers, np.float32)


def placeholders(features: Any, length: int) -> NDArray[np.bool_]:
    """Return which tokens of a prompt stand for images and videos."""
    mask = np.zeros(length, dtype=np.bool_)
    for feature in features or ():
        if feature.modality in ("image", "video"):
            for start, end in feature.mm_position.extract_embeds_range():
                mask[start : end + 1] = True
    return mask
