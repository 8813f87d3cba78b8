"""Between text and tokens: prompts by the model's own chat template, and responses to them.

A response is tokenized *in its place*, behind the end of the prompt. A SentencePiece model writes
"▁The" after "ASSISTANT:", a byte-level one "The" after a newline; whether a blank stands between
prompt and answer is what the chat template does with an assistant's turn (`lead`). So what was
sampled and is given back as text gets the tokens the model wrote, wherever those are the
tokenizer's own spelling of that text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jinja2
import torch
from PIL import Image
from transformers import PreTrainedModel

from lookback.conversations import Conversation, Part, Turn
from lookback.engines.common.compat import is_usual_processor
from lookback.errors import UnsupportedModelError, error_line
from lookback.families import Family
from lookback.io.limits import TEXT_CHARACTERS

MOST_SPELLED = 2**16
"""Texts of tokens that are kept before all are forgotten."""
_MARK = "LOOKBACK"


class Prompter:
    """A processor's way of asking: prompts, model inputs, and responses to and from token ids.

    Args:
        processor: a transformers processor (or anything with its call, `tokenizer` and template).
        family: used where the processor has no chat template.
        image_token: the id of the image placeholder.
        video_token: the id of the video placeholder, if the model takes videos.
        prompt: overrides both; a text with `{image}`, `{question}` and `{response}`.
    """

    def __init__(
        self,
        processor: Any,
        family: Family,
        image_token: int,
        video_token: int | None = None,
        prompt: str | None = None,
    ) -> None:
        tokenizer = getattr(processor, "tokenizer", None)
        if tokenizer is None:
            raise TypeError(
                f"{type(processor).__name__} is not a processor for images and text, it has no "
                "tokenizer: give the model's own, e.g. AutoProcessor.from_pretrained(...)"
            )
        self.processor = processor
        self.tokenizer = tokenizer
        self.special_tokens = [token for token in tokenizer.all_special_tokens if token]
        self._special_ids = set(tokenizer.all_special_ids)
        self._spelled: dict[tuple[int, int], str] = {}  # see `_behind`
        has_template = getattr(processor, "chat_template", None) is not None
        self.format = prompt or (None if has_template else family.prompt)
        self.can_ask = has_template or self.format is not None
        if self.format is not None and "{question}" not in str(self.format):
            raise ValueError(f"prompt {self.format!r} has no {{question}} in it")
        self.media_tokens = {"image": image_token}
        if video_token is not None:
            self.media_tokens["video"] = video_token
        self.placeholder = getattr(
            processor, "image_token", None
        ) or self.tokenizer.convert_ids_to_tokens(image_token)

    def check_can_ask(self) -> None:
        """Raise ValueError if there is neither a chat template nor a prompt to ask with."""
        if not self.can_ask:
            raise ValueError(
                f"{type(self.processor).__name__} has no chat template: say how to ask, e.g. "
                "load(..., prompt='USER: {image}\\n{question} ASSISTANT: {response}')"
            )

    def check_fits(self, model: PreTrainedModel) -> None:
        """Check that the processor is this model's, by what it makes of a picture and a question.

        The model is run only if transformers does not pair the processor's class with it.

        Raises:
            UnsupportedModelError: the model's image token is not among the tokens, the model does
                not know one of them, or it cannot be run.
        """
        conversation = Conversation.of(Image.new("RGB", (64, 64)), "?")
        try:
            inputs = self.inputs([conversation], [self.text(conversation)], model)
            ids = set(inputs["input_ids"][0].tolist())
        except Exception:
            return  # of what fails here, the user's own question says what is wrong
        token = self.media_tokens["image"]
        largest = max(ids - set(self.media_tokens.values()), default=0)
        known = getattr(model.get_input_embeddings(), "num_embeddings", largest + 1)
        problem = None
        if token not in ids:
            problem = f"no image token (id {token}) among the decoder's input ids"
        elif largest >= known:
            problem = f"token id {largest}, and the model knows {known} tokens"
        elif not is_usual_processor(self.processor, model):
            problem = _failure(model, inputs)
        if problem is not None:
            raise UnsupportedModelError(
                f"{type(self.processor).__name__} does not fit {type(model).__name__} ({problem}): "
                "is it another model's?"
            )

    def text(self, conversation: Conversation) -> str:
        """Return the prompt for a conversation, with a placeholder for each image and video.

        Raises:
            ValueError: a text has a placeholder in it, or the chat template refuses.
            UnsupportedModelError: it has a video, and the model takes none.
        """
        for kind, placeholder in self._placeholders().items():
            if any(placeholder in part.text for part in conversation.parts("text")):
                raise ValueError(
                    f"the question contains the {kind} placeholder {placeholder!r}: {kind}s are "
                    "put into the prompt for you, leave it out"
                )
        if conversation.parts("video") and "video" not in self.media_tokens:
            raise UnsupportedModelError("this model takes no videos: its config has no video token")
        if self.format is not None:
            return self._format(conversation)[0]
        return self.render(conversation.turns, add_generation_prompt=True)

    def _placeholders(self) -> dict[str, str]:
        """Return what stands for an image, and for a video, in a prompt's text."""
        found = {"image": self.placeholder}
        if "video" in self.media_tokens:
            video = self.tokenizer.convert_ids_to_tokens(self.media_tokens["video"])
        else:  # the processor may put frames in its place all the same
            video = getattr(self.processor, "video_token", None)
        found |= {"video": video} if video else {}
        return found

    def _format(self, conversation: Conversation) -> tuple[str, str]:
        """Return the prompt, and what stands between it and the answer; one turn, images first."""
        assert self.format is not None
        (turn, *more) = conversation.turns
        kinds = [part.kind for part in turn.parts]
        images = kinds.count("image")
        if more or kinds != ["image"] * images + ["text"]:
            raise ValueError(
                f"{type(self.processor).__name__} has no chat template: it can be asked one "
                "question after its images, and no other conversation"
            )
        head, _, _ = self.format.partition("{response}")
        # Replaced in one go each, so that braces in a question stay what they are.
        prompt = head.rstrip(" ").replace("{image}", self.placeholder * images)
        return prompt.replace("{question}", turn.text), head[len(head.rstrip(" ")) :]

    def render(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        messages = [
            {
                "role": turn.role,
                "content": [
                    {"type": "text", "text": part.text}
                    if part.kind == "text"
                    else {"type": part.kind}
                    for part in turn.parts
                ],
            }
            for turn in turns
        ]
        try:
            text: str = self.processor.apply_chat_template(
                messages, add_generation_prompt=add_generation_prompt, tokenize=False
            )
        except jinja2.TemplateError as error:
            raise ValueError(
                f"this model's chat template refuses the conversation: {error}"
            ) from error
        except Exception as error:  # a template is a program, and can fail as any other
            raise ValueError(
                f"this model's chat template is broken: {error_line(error)}"
            ) from error
        return text

    @cached_property
    def lead(self) -> str:
        """What the template puts between a prompt and its answer: a blank, or nothing."""
        asked, answered = _turn("user", "?"), _turn("assistant", _MARK)
        if self.format is not None:
            return self._format(Conversation((asked,)))[1]
        if not self.can_ask:
            return ""
        prompt = self.render([asked], add_generation_prompt=True)
        full = self.render([asked, answered], add_generation_prompt=False)
        between, mark, _ = full.removeprefix(prompt).partition(_MARK)
        return between if mark and full.startswith(prompt) and not between.strip() else ""

    @cached_property
    def tail(self) -> str:
        """What the template puts behind the assistant's words."""
        if self.format is not None:
            return self.format.partition("{response}")[2]
        if not self.can_ask:
            return ""
        turns = [_turn("user", "?"), _turn("assistant", _MARK)]
        return self.render(turns, add_generation_prompt=False).partition(_MARK)[2]

    def inputs(
        self,
        conversations: Sequence[Conversation],
        texts: Sequence[str],
        model: Any,
        length: int | None = None,
    ) -> dict[str, Any]:
        """Return model inputs for prompts, padded on the left, on the model's device.

        Args:
            conversations: one per prompt.
            texts: their prompts, as `text` writes them.
            model: whose device and dtype they get.
            length: pad to so many tokens; by default to the longest prompt.

        Raises:
            ValueError: the processor fails.
        """
        padding: dict[str, Any] = {}
        if length is not None:
            padding = {"padding": "max_length", "max_length": length, "padding_side": "left"}
        inputs = self.process(conversations, texts, **padding)
        return to_model({k: v for k, v in inputs.items() if k != "labels"}, model)

    def processed(self, conversation: Conversation) -> Mapping[str, Any]:
        """Return what the processor makes of one prompt, as it comes."""
        return self.process([conversation], [self.text(conversation)])

    def process(
        self, conversations: Sequence[Conversation], texts: Sequence[str], **options: Any
    ) -> Any:
        """Return what the processor makes of prompts and their images.

        Its settings, and the template that wrote the prompt, come with the model: with odd ones it
        can fail anywhere, with any kind of error.

        Raises:
            ValueError: it fails.
        """
        arguments: dict[str, Any] = {"text": list(texts), "return_tensors": "pt"}
        if any(conversation.images for conversation in conversations):
            arguments["images"] = [conversation.images for conversation in conversations]
        if any(conversation.videos for conversation in conversations):
            arguments["videos"] = [video for one in conversations for video in one.videos]
        if len(texts) > 1:
            arguments |= {"padding": True, "padding_side": "left"}
        if not self.adds_special(texts[0]):
            arguments["add_special_tokens"] = False
        try:
            return self.processor(**arguments | options)
        except (ValueError, OSError, ImportError, MemoryError):
            raise
        except Exception as error:
            raise ValueError(
                f"this model's processor fails: {error_line(error)}; are its files whole, and does "
                "its chat template write one placeholder for each image?"
            ) from error

    def adds_special(self, text: str) -> bool:
        """Whether the tokenizer is to put its own first token before a prompt that has none."""
        bos = self.tokenizer.bos_token
        return not (bos and text.startswith(bos))

    def decode_all(self, ids: Sequence[int]) -> str:
        """Return the text of some tokens, special ones included."""
        return self._batch_decode([list(ids)])[0]

    def encode(self, prompt_ids: Sequence[int], response: str) -> list[int]:
        """Return the tokens of a response as the model would have written it after the prompt.

        Raises:
            ValueError: an empty response, one with a special token in it, or one with characters
                that the tokenizer cannot write.
        """
        if not response.strip():
            raise ValueError(f"the response {response!r} is empty: there is nothing to score")
        TEXT_CHARACTERS.check(len(response), "the response")
        for token in self.special_tokens:
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
        """Return the text of a response, without the blank that leads it."""
        return self._after(self._tail(prompt_ids), ids).removeprefix(self.lead)

    def pieces(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> list[str]:
        """Return the text of each token; joined: `lead`, if it was written, and the response.

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
        """Return the texts of other tokens that could have stood in the place of each token.

        Part of a character is U+FFFD.
        """
        context = [*self._tail(prompt_ids)[-1:], *ids]
        pairs = [(a, b) for a, row in zip(context, others, strict=False) for b in row]
        texts = iter(self._behind(pairs))
        return [[next(texts) for _ in row] for row in others]

    def _behind(self, pairs: Sequence[tuple[int, int]]) -> list[str]:
        """Return the text of each second token behind the first, which shows its leading blank.

        They are kept: a response that is streamed asks for the same ones again.
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
        """Return the prompt from its last special token on: what the next tokens depend on."""
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


def to_model(inputs: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Move tensors to the model's device, and pixels to its dtype."""
    return {
        name: value.to(model.device, model.dtype if value.is_floating_point() else None)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }


def _failure(model: PreTrainedModel, inputs: Mapping[str, Any]) -> str | None:
    """Return why a model cannot be run with what a processor made; None if it can."""
    try:
        with torch.no_grad():
            model(**inputs, use_cache=False)
    except (torch.OutOfMemoryError, MemoryError):
        return None  # that is not the processor's fault
    except Exception as error:
        return error_line(error)
    return None


def _turn(role: str, text: str) -> Turn:
    return Turn(role, (Part("text", text),))


class IdText:
    """Spells responses without a tokenizer: the text of a token is its id, as in <42>."""

    def alternatives(
        self, prompt_ids: Sequence[int], ids: Sequence[int], others: Sequence[Sequence[int]]
    ) -> list[list[str]]:
        return [self.pieces(prompt_ids, row) for row in others]

    def pieces(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> list[str]:
        return [f"<{token}>" for token in ids]

    def decode(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
        return "".join(self.pieces(prompt_ids, ids))
