"""Responses between text and token ids.

A response is tokenized *in its place*, behind the end of the prompt. A SentencePiece model writes
"▁The" after "ASSISTANT:", a byte-level one "The" after a newline; whether a blank stands between
prompt and answer is what the chat template does with an assistant's turn (`lead`). So what was
sampled and is given back as text gets the tokens the model wrote, wherever those are the
tokenizer's own spelling of that text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from lookback.io.limits import TEXT_CHARACTERS

MOST_SPELLED = 2**16
"""Texts of tokens that are kept before all are forgotten."""


class Spelling(ABC):
    """How a tokenizer spells responses.

    Args:
        tokenizer: of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._spelled: dict[tuple[int, int], str] = {}  # see `_behind`
        self._special = [t for t in tokenizer.all_special_tokens if t]
        self._special_ids = set(tokenizer.all_special_ids)

    @property
    @abstractmethod
    def lead(self) -> str:
        """What stands between a prompt and its answer: a blank, or nothing."""

    def decode_all(self, ids: Sequence[int]) -> str:
        """The text of some tokens, special ones too."""
        return self._batch_decode([list(ids)])[0]

    def encode(self, prompt_ids: Sequence[int], response: str) -> list[int]:
        """The tokens of `response` as the model would have written it after the prompt.

        Raises:
            ValueError: an empty response, one with a special token in it, or one with characters
                that the tokenizer cannot write.
        """
        if not response.strip():
            raise ValueError(f"the response {response!r} is empty: there is nothing to score")
        TEXT_CHARACTERS.check(len(response), "the response")
        for token in self._special:
            if token in response:
                raise ValueError(
                    f"the response {response!r} contains the special token {token!r}: leave it "
                    "out, or give the response as token ids"
                )
        text = response if response.startswith(self.lead) else self.lead + response
        for anchor in (self._tail_text(prompt_ids), ""):
            before = self._tokenize(anchor)
            ids = self._tokenize(anchor + text)
            if ids[: len(before)] == before:
                break
            # A token reaches across the border, which no model would write: try without the prompt.
        ids = ids[len(before) :]
        if self.tokenizer.unk_token_id is not None and self.tokenizer.unk_token_id in ids:
            raise ValueError(f"the tokenizer has no token for part of the response {response!r}")
        return ids

    def decode(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
        """The text of a response, without the blank that leads it."""
        return self._after(self._tail(prompt_ids), ids).removeprefix(self.lead)

    def pieces(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> list[str]:
        """The text of each token; joined, they give `lead` (if it was written) and the response.

        A character spread over several tokens stands with the last of them.
        """
        if not ids:
            return []
        tail = self._tail(prompt_ids)
        whole = self._after(tail, ids)
        pieces = self._behind(list(zip([*tail[-1:], *ids], ids, strict=False)))
        if "".join(pieces) == whole:
            return pieces
        pieces, done = [], ""
        for i in range(1, len(ids) + 1):
            text = self._after(tail, ids[:i])
            if text.endswith("\ufffd") and i < len(ids):  # half a character
                text = done
            pieces.append(text[len(done) :])
            done = text
        return pieces

    def alternatives(
        self, prompt_ids: Sequence[int], ids: Sequence[int], others: Sequence[Sequence[int]]
    ) -> list[list[str]]:
        """The texts of other tokens that could have stood in the place of each token.

        Part of a character is U+FFFD.
        """
        context = [*self._tail(prompt_ids)[-1:], *ids]
        pairs = [(a, b) for a, row in zip(context, others, strict=False) for b in row]
        texts = iter(self._behind(pairs))
        return [[next(texts) for _ in row] for row in others]

    def _behind(self, pairs: Sequence[tuple[int, int]]) -> list[str]:
        """The text of each second token behind the first, which shows its leading blank.

        They are kept: who hears a response while it is written asks for the same ones again.
        """
        if len(self._spelled) > MOST_SPELLED:
            self._spelled = {}
        known = self._spelled
        new = [pair for pair in dict.fromkeys(pairs) if pair not in known]
        if new:
            both = self._batch_decode([list(pair) for pair in new])
            first = self._batch_decode([[a] for a, _ in new])
            known |= {p: b.removeprefix(a) for p, a, b in zip(new, first, both, strict=True)}
        return [known[pair] for pair in pairs]

    def _tail(self, prompt_ids: Sequence[int]) -> list[int]:
        """The prompt from its last special token on: all that the next tokens depend on."""
        start = len(prompt_ids) - 1
        while start > 0 and prompt_ids[start] not in self._special_ids:
            start -= 1
        return list(prompt_ids[max(start, 0) :])

    def _tail_text(self, prompt_ids: Sequence[int]) -> str:
        return self._batch_decode([self._tail(prompt_ids)])[0]

    def _after(self, tail: Sequence[int], ids: Sequence[int]) -> str:
        before, both, alone = self._batch_decode([list(tail), [*tail, *ids], list(ids)])
        return both[len(before) :] if both.startswith(before) else alone

    def _tokenize(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []

    def _batch_decode(self, ids: list[list[int]]) -> list[str]:
        texts: list[str] = self.tokenizer.batch_decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return texts


class IdText:
    """Stands in for a tokenizer that nobody gave: the text of a token is its id, as in <42>."""

    def alternatives(
        self, prompt_ids: Sequence[int], ids: Sequence[int], others: Sequence[Sequence[int]]
    ) -> list[list[str]]:
        """Each id between angle brackets."""
        return [self.pieces(prompt_ids, row) for row in others]

    def pieces(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> list[str]:
        """Each id between angle brackets."""
        return [f"<{token}>" for token in ids]

    def decode(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
        """All of them in a row."""
        return "".join(self.pieces(prompt_ids, ids))
