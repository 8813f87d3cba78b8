"""Between text and token ids: how a question becomes a prompt, and a response its tokens.

A response is tokenized *in its place*, behind the end of the prompt. A SentencePiece model writes
"▁The" after "ASSISTANT:", a byte-level one "The" after a newline; whether a blank stands between
prompt and answer is what the chat template does with an assistant's turn (`lead`). So what was
sampled and is given back as text gets the tokens the model wrote, wherever those are the
tokenizer's own spelling of that text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from lookback.families import Family

if TYPE_CHECKING:
    from PIL.Image import Image

_MARK = "LOOKBACK"


class Prompter:
    """A processor's way of asking: prompts, model inputs, and responses to and from token ids.

    Args:
        processor: a transformers processor (or anything with its call, `tokenizer` and template).
        family: used where the processor has no chat template.
        image_token: the id of the image placeholder.
        prompt: overrides both; a text with `{image}`, `{question}` and `{response}`.
    """

    def __init__(
        self, processor: Any, family: Family, image_token: int, prompt: str | None = None
    ) -> None:
        self.processor = processor
        self.tokenizer: Any = getattr(processor, "tokenizer", None)
        if self.tokenizer is None:
            raise TypeError(f"{type(processor).__name__} has no tokenizer: pass the full processor")
        has_template = getattr(processor, "chat_template", None) is not None
        self.format = prompt or (None if has_template else family.prompt)
        self.can_ask = has_template or self.format is not None
        if self.format is not None and "{question}" not in self.format:
            raise ValueError(f"prompt {self.format!r} has no {{question}} in it")
        self.placeholder = getattr(
            processor, "image_token", None
        ) or self.tokenizer.convert_ids_to_tokens(image_token)
        self._special = [t for t in self.tokenizer.all_special_tokens if t]
        self._special_ids = set(self.tokenizer.all_special_ids)

    def text(self, images: int, question: str) -> str:
        """The prompt for a question about so many images."""
        if self.placeholder in question:
            raise ValueError(
                f"the question contains the image placeholder {self.placeholder!r}: images are put "
                "into the prompt for you, leave it out"
            )
        if self.format is not None:
            return self._format(images, question)[0]
        return self._template(_turn("user", question, images), add_generation_prompt=True)

    def _format(self, images: int, question: str) -> tuple[str, str]:
        assert self.format is not None
        head, _, _ = self.format.partition("{response}")
        # Replaced in one go each, so that braces in a question stay what they are.
        prompt = head.rstrip(" ").replace("{image}", self.placeholder * images)
        return prompt.replace("{question}", question), head[len(head.rstrip(" ")) :]

    def _template(self, *turns: dict[str, Any], add_generation_prompt: bool) -> str:
        text: str = self.processor.apply_chat_template(
            list(turns), add_generation_prompt=add_generation_prompt, tokenize=False
        )
        return text

    @cached_property
    def lead(self) -> str:
        """What the template puts between the end of a prompt and the assistant's words."""
        if self.format is not None:
            return self._format(0, "")[1]
        if not self.can_ask:
            return ""
        asked, answered = _turn("user", "?", 0), _turn("assistant", _MARK, 0)
        prompt = self._template(asked, add_generation_prompt=True)
        full = self._template(asked, answered, add_generation_prompt=False)
        between, mark, _ = full.removeprefix(prompt).partition(_MARK)
        return between if mark and full.startswith(prompt) and not between.strip() else ""

    def inputs(
        self, images: Sequence[Sequence[Image]], texts: Sequence[str], model: Any
    ) -> dict[str, Any]:
        """Model inputs for one or several prompts, padded on the left, on the model's device."""
        arguments: dict[str, Any] = {"text": list(texts), "return_tensors": "pt"}
        if any(images):
            arguments["images"] = [list(one) for one in images]
        if len(texts) > 1:
            arguments |= {"padding": True, "padding_side": "left"}
        bos = self.tokenizer.bos_token
        if bos and texts[0].startswith(bos):  # the template wrote it: not a second time
            arguments["add_special_tokens"] = False
        inputs = self.processor(**arguments)
        return to_model({k: v for k, v in inputs.items() if k != "labels"}, model)

    def encode(self, prompt_ids: Sequence[int], response: str) -> list[int]:
        """The tokens of `response` as the model would have written it after the prompt.

        Raises:
            ValueError: an empty response, one with a special token in it, or one with characters
                that the tokenizer cannot write.
        """
        if not response.strip():
            raise ValueError(f"the response {response!r} is empty: there is nothing to score")
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
        # Each token behind its neighbour shows its leading blank; one batched call decodes all.
        context = [*tail[-1:], *ids][: len(ids)]
        pairs = self._batch_decode([[a, b] for a, b in zip(context, ids, strict=True)])
        singles = self._batch_decode([[a] for a in context])
        pieces = [pair.removeprefix(one) for pair, one in zip(pairs, singles, strict=True)]
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

    def pieces(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> list[str]:
        """Each id between angle brackets."""
        return [f"<{token}>" for token in ids]

    def decode(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
        """All of them in a row."""
        return "".join(self.pieces(prompt_ids, ids))


def to_model(inputs: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Move tensors to the model's device, and pixels to its dtype."""
    return {
        name: value.to(model.device, model.dtype if value.is_floating_point() else None)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }


def _turn(role: str, text: str, images: int) -> dict[str, Any]:
    content = [{"type": "image"}] * images + [{"type": "text", "text": text}]
    return {"role": role, "content": content}
