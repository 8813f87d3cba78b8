"""One recorded call of the user's `generate`, pass by pass.

Each pass gives the logits and A_t of the next token; the pass after it shows which token was
chosen. A pass is identified by its place in the context: a piece of the prompt, or one more token.
Anything else is refused: its signals could not be assigned to a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, MaxLengthCriteria, MaxTimeCriteria, StoppingCriteriaList

from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import CACHES, KEYLESS_LAYERS, LAYERS_BY_POSITION
from lookback.engines.common.continuations import check_signals, stack_signals
from lookback.engines.common.logits import TokenStats, token_stats
from lookback.engines.transformers.attention.tap import Call, LastRow

CANNOT = "this call of generate cannot be recorded: "
LENGTH, STOP, END = 1, 2, 3
FINISH = {0: "length", LENGTH: "length", STOP: "stop", END: "end"}


class Endings(StoppingCriteriaList):
    """The stopping criteria of one call of generate, which record when and why each row ended.

    Token ids do not show it: a row that has ended is padded with ids that the model may also write.
    """

    def __init__(self, criteria: Iterable[Any]) -> None:
        super().__init__(criteria)
        self._reasons: list[Tensor] = []  # (B,) per step: 0 while a row goes on

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Return which rows have ended, (B,), as the list of criteria itself would."""
        reasons = torch.zeros(len(input_ids), dtype=torch.long, device=input_ids.device)
        for criterion in self:
            done = torch.as_tensor(criterion(input_ids, scores, **kwargs), device=input_ids.device)
            reasons = torch.maximum(reasons, done.bool() * _reason(criterion))
        self._reasons.append(reasons)
        return reasons > 0

    def of_rows(self, steps: int) -> list[tuple[int, str]] | None:
        """Return the length of each row's response and why it ended, or None if it is not known.

        An end token is not part of the response. `steps`: how many tokens generate returned.
        """
        if len(self._reasons) < steps:
            return None  # a custom loop, which does not check its criteria after each token
        ends = []
        for row in torch.stack(self._reasons[:steps], 1).tolist():
            last = next((t for t, reason in enumerate(row) if reason), steps - 1)
            ends.append((last + (row[last] != END), FINISH[row[last]]))
        return ends


def _reason(criterion: Any) -> int:
    if hasattr(criterion, "eos_token_id"):  # as generate itself recognises it
        return END
    return LENGTH if isinstance(criterion, (MaxLengthCriteria, MaxTimeCriteria)) else STOP


class Generation(LastRow):
    """Reads the passes of one call of generate; keeps a few numbers per token and row.

    Args:
        given: (B / returned, P), the ids that generate was given, if any.
        returned: how many sequences it returns per prompt.
        vision: the ids of vision placeholders in the prompt.
        layers: attention layers of the model's decoder.
        padding: (B / returned, P), 0 where a prompt is padded, if given.
        owner: the recorder.
        by_layer: keep A_t in each layer too.

    Attributes:
        endings: its stopping criteria, once they are made.
    """

    def __init__(
        self,
        given: Tensor | None,
        returned: int,
        vision: tuple[int, ...],
        layers: int,
        padding: Tensor | None,
        owner: object = None,
        *,
        by_layer: bool = False,
    ) -> None:
        super().__init__(torch.zeros(1, 0, dtype=torch.bool), by_layer=by_layer)
        self.given = given
        self.returned = returned
        self.vision = vision
        self.layers = layers
        self.padding = padding
        self.owner = owner
        self.endings: Endings | None = None
        self.prompt: Tensor | None = None  # (B, P), known from the first pass on
        self.sequences: Tensor | None = None  # what generate returned, the very object
        self.signals: Tensor | None = None  # (4 or 4 + L, T, B), once it has returned
        self._ids: Tensor | None = None  # a copy of what it returned
        self._seen = self.source  # (B, P), the prompt's vision tokens
        self._cache: Any = None
        self._fed = 0  # positions that the passes so far have covered
        self._reading = False
        self.in_compiled_pass = False  # its hooks run around it
        self._lookback: list[Tensor] = []  # (1, B) per prediction, or (1 + L, B)
        self._tokens: list[Tensor] = []  # (B,) per prediction but the newest
        self._stats: list[Tensor] = []  # (3, B) per prediction but the newest
        self._logits: Tensor | None = None  # (B, V), of the newest prediction

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        return super().attend(call) if self._reading else call.run()

    def before(
        self, ids: Tensor | None, cache: Any, mask: Any = None, *, pixels: bool = True
    ) -> None:
        """Note that a pass of the model begins.

        Raises:
            ValueError: it is neither a piece of the prompt nor one token more, or it has vision
                tokens and no pixels.
            UnsupportedModelError: its cache is of a kind whose keys have no known positions.
        """
        if self._cache is not None and cache is not self._cache:
            return  # another pass of the same model, e.g. of a logits processor for guidance
        if ids is None:
            raise ValueError("cannot record a pass on inputs_embeds: the vision tokens have no ids")
        check_cache(cache)
        self.reset()
        past = 0 if cache is None else self._fed or int(cache.get_seq_length())
        if self.prompt is None:
            self.prompt = self._whole_prompt(ids, past)
            if self.padding is None and isinstance(mask, Tensor) and mask.ndim == 2:
                self.padding = mask[:: self.returned]  # made by generate
            self._seen = torch.isin(self.prompt, torch.tensor(self.vision, device=ids.device))
        self._place(self.prompt, ids, past)
        if not pixels and self._seen[:, past : past + ids.shape[1]].any():
            raise ValueError(
                f"{CANNOT}vision tokens go through the model without pixels, so it would not see "
                "the image; give generate the pixels too, and no prefill_chunk_size, for which "
                "transformers leaves them out"
            )
        self._fed = end = past + ids.shape[1]
        # What is generated is never vision, not even a placeholder.
        added = max(0, end - self.prompt.shape[1])
        self.source = torch.nn.functional.pad(self._seen, (0, added))[:, :end]
        whole = past == 0 and (cache is None or type(cache) is DynamicCache)
        self.keys = end if whole else None
        self._reading = True

    def after(self, output: Any) -> None:
        """Note that it ended; keep the prediction of its last row, if the prompt is complete."""
        if not self._reading:
            return
        self._reading = False
        cache = getattr(output, "past_key_values", None)
        check_cache(cache)
        self._cache = self._cache if cache is None else cache
        lookback = self.lookback(self.layers)[..., 0]
        assert self.prompt is not None
        if self._fed >= self.prompt.shape[1]:
            self._logits = output.logits[:, -1].detach()
            self._lookback.append(lookback)

    def finish(self, out: Any) -> bool:
        """Note that generate returned; whether the passes add up to what it returned."""
        sequences = getattr(out, "sequences", out)
        if self.prompt is None or not isinstance(sequences, Tensor) or sequences.ndim != 2:
            return False
        rows, start = self.prompt.shape
        count = sequences.shape[1] - start
        known = self._known()[:, : start + count]
        same = sequences[:, : known.shape[1]].to(known.device)
        if len(sequences) != rows or not 0 < count <= len(self._lookback):
            return False
        if not torch.equal(same, known):
            return False
        if len(self._tokens) < count:
            self._choose(sequences[:, -1])
        stats = torch.stack(self._stats[:count])  # (T, 3, B)
        lookback = torch.stack(self._lookback[:count], 1).to(stats.device)  # (1 or 1 + L, T, B)
        self.signals = stack_signals(TokenStats(*stats.unbind(1)), lookback).cpu()
        check_signals(self.signals)
        self.sequences, self._ids = sequences, sequences.cpu().clone()
        self._cache = self._logits = None
        return True

    def returned_these(self, sequences: Any) -> bool:
        if self._ids is None or not isinstance(sequences, Tensor):
            return False
        return torch.equal(sequences.cpu(), self._ids)

    def prompt_ids(self, prompt: int) -> list[int]:
        """Return one prompt's ids, without its padding."""
        assert self.prompt is not None
        own = self.prompt[prompt * self.returned]
        if self.padding is not None and self.padding.shape[1:] == own.shape:
            own = own[self.padding[prompt].bool().to(own.device)]
        ids: list[int] = own.tolist()
        return ids

    def responses(self, prompt: int) -> list[tuple[int, list[int], str]]:
        """Return one prompt's rows: the number of each, the ids of its response, why it ended.

        Raises:
            ValueError: where the rows ended is not known.
        """
        assert self.prompt is not None
        assert self._ids is not None
        new = self._ids[:, self.prompt.shape[1] :]
        ends = None if self.endings is None else self.endings.of_rows(new.shape[1])
        if ends is None:
            raise ValueError(
                f"{CANNOT}it does not ask its stopping criteria after each token, so where a row "
                "ended is not known"
            )
        rows = range(prompt * self.returned, (prompt + 1) * self.returned)
        return [(row, new[row, : ends[row][0]].tolist(), ends[row][1]) for row in rows]

    def _whole_prompt(self, ids: Tensor, past: int) -> Tensor:
        """Return the ids of the whole prompt, (B, P), from the first pass."""
        if self.given is None and not past:
            return ids.clone()
        whole = ids[:, :0] if self.given is None else self.given.to(ids.device)
        whole = whole.repeat_interleave(self.returned, 0)
        if torch.equal(whole[:, past : past + ids.shape[1]], ids):
            return whole
        if past:
            raise ValueError(
                f"{CANNOT}its cache holds {past} tokens already, and what they are is not known: "
                "give generate the ids (and the attention mask) of the whole context, not of the "
                "new part alone"
            )
        raise ValueError(f"{CANNOT}the model is given other tokens than generate was")

    def _place(self, prompt: Tensor, ids: Tensor, past: int) -> None:
        """Check a pass's place in the context, and keep the token that was chosen before it."""
        end, known = past + ids.shape[1], prompt.shape[1] + len(self._tokens)
        chosen = end > prompt.shape[1]  # its last token is new
        predicted = len(self._lookback) > len(self._tokens)
        if chosen != predicted or (chosen and end != known + 1):
            raise ValueError(
                f"{CANNOT}a pass of {ids.shape[1]} tokens after {past} is neither a piece of the "
                "prompt nor the next token"
            )
        again = ids.shape[1] - chosen
        if again and not torch.equal(ids[:, :again], self._known()[:, past : past + again]):
            raise ValueError(f"{CANNOT}a pass has other tokens than the ones before it")
        if chosen:
            self._choose(ids[:, -1])

    def _known(self) -> Tensor:
        assert self.prompt is not None
        return torch.cat([self.prompt, *(token[:, None] for token in self._tokens)], 1)

    def _choose(self, token: Tensor) -> None:
        """Keep the token that followed the newest prediction, (B,)."""
        assert self.prompt is not None
        assert self._logits is not None
        self._tokens.append(token.to(self.prompt.device))
        self._stats.append(torch.stack(token_stats(self._logits, token.to(self._logits.device))))


def check_cache(cache: Any) -> None:
    """Raise UnsupportedModelError if the order of a cache's keys is not known.

    A layer that is shorter than the context must hold the newest positions, any other all of them
    from the first on. A model's own kind of layer may keep others, so types are compared.
    """
    if cache is None:
        return
    layers = cache.layers if type(cache) in CACHES else [cache]
    for layer in layers:
        if type(layer) not in (*LAYERS_BY_POSITION, *KEYLESS_LAYERS):
            raise UnsupportedModelError(
                f"the cache is (or has) a {type(layer).__name__}: which positions its keys are is "
                "not known, so this model cannot be recorded with it; give generate a "
                "past_key_values=DynamicCache(config=model.config) if the model takes one"
            )
