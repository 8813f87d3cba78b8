"""How a conversation becomes a prompt: what the model's own chat template makes of it.

How responses to it are spelled is in `spelling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import jinja2
import torch
from PIL import Image
from transformers import PreTrainedModel

from lookback.conversations import Conversation, Part, SourceError, Turn
from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import is_usual_processor
from lookback.engines.common.tokens import Spelling
from lookback.errors import error_line
from lookback.families import Family

_MARK = "LOOKBACK"


class Prompter(Spelling):
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
        super().__init__(tokenizer)
        self.processor = processor
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
        """Refuse a processor that says nowhere how to ask.

        Raises:
            ValueError: it has no chat template, and no prompt was given.
        """
        if not self.can_ask:
            raise ValueError(
                f"{type(self.processor).__name__} has no chat template: say how to ask, e.g. "
                "load(..., prompt='USER: {image}\\n{question} ASSISTANT: {response}')"
            )

    def check_fits(self, model: PreTrainedModel) -> None:
        """Refuse the processor of another model, by what it makes of a picture and a question.

        Only if it is not of the class that transformers pairs with the model, the model is run.

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
        """The prompt for a conversation, with one placeholder for each image and video.

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
        return self._template(conversation.turns, add_generation_prompt=True)

    def _placeholders(self) -> dict[str, str]:
        """What stands for an image, and for a video, in a prompt's text."""
        found = {"image": self.placeholder}
        if "video" in self.media_tokens:
            video = self.tokenizer.convert_ids_to_tokens(self.media_tokens["video"])
        else:  # the processor may put frames in its place all the same
            video = getattr(self.processor, "video_token", None)
        found |= {"video": video} if video else {}
        return found

    def _format(self, conversation: Conversation) -> tuple[str, str]:
        """The prompt, and what stands between it and the answer; one turn, images first."""
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

    def _template(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
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
        """What the template puts between the end of a prompt and the assistant's words."""
        asked, answered = _turn("user", "?"), _turn("assistant", _MARK)
        if self.format is not None:
            return self._format(Conversation((asked,)))[1]
        if not self.can_ask:
            return ""
        prompt = self._template([asked], add_generation_prompt=True)
        full = self._template([asked, answered], add_generation_prompt=False)
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
        return self._template(turns, add_generation_prompt=False).partition(_MARK)[2]

    def media_words(self, kind: str) -> str:
        """What the template writes for an image (or a video), from its first special token to its
        last; "" if there is none.
        """
        if self.format is not None:
            return self.placeholder
        plain = self._template([_turn("user", _MARK)], add_generation_prompt=False)
        part: Part = Part("image") if kind == "image" else Part("video")
        shown = Turn("user", (part, Part("text", _MARK)))
        more = self._template([shown], add_generation_prompt=False)
        added = self.tokenizer.get_added_vocab()
        tokens = [token for token in added if token in more and token not in plain]
        if not tokens:
            return ""
        first = min(more.index(token) for token in tokens)
        last = max(more.rindex(token) + len(token) for token in tokens)
        return more[first:last]

    def media_expansions(self, order: Sequence[str], conversation: Conversation) -> list[list[int]]:
        """The tokens that the processor makes of each image and video.

        They are shown to it once more, each behind a special token that stands nowhere else.

        Args:
            order: "image" or "video" each, in the order of the prompt.
            conversation: has them.

        Raises:
            SourceError: the processor does not keep them apart.
        """
        words = {kind: self.media_words(kind) for kind in set(order)}
        border = next((t for t in self._special if not any(t in w for w in words.values())), None)
        if border is None:
            raise SourceError("the tokenizer has no special token to tell the images apart by")
        text = "".join(border + words[kind] for kind in order) + border
        inputs = self._process(self._arguments([conversation], [text]))
        ids = inputs["input_ids"][0].tolist()
        number = self.tokenizer.convert_tokens_to_ids(border)
        edges = [i for i, token in enumerate(ids) if token == number][-len(order) - 1 :]
        if len(edges) != len(order) + 1:
            raise SourceError("the processor of this model does not keep its images apart")
        return [ids[a + 1 : b] for a, b in pairwise(edges)]

    def inputs(
        self,
        conversations: Sequence[Conversation],
        texts: Sequence[str],
        model: Any,
        length: int | None = None,
    ) -> dict[str, Any]:
        """Model inputs for one or several prompts, padded on the left, on the model's device.

        Args:
            conversations: one per prompt.
            texts: their prompts, as `text` writes them.
            model: whose device and dtype they get.
            length: pad to so many tokens; by default to the longest prompt.

        Raises:
            ValueError: the processor fails.
        """
        padding = {"padding": "max_length", "max_length": length, "padding_side": "left"}
        arguments = self._arguments(conversations, texts)
        inputs = self._process(arguments | padding if length is not None else arguments)
        return to_model({k: v for k, v in inputs.items() if k != "labels"}, model)

    def processed(self, conversation: Conversation) -> Mapping[str, Any]:
        """What the processor makes of one prompt, as it comes.

        Raises:
            ValueError: the processor fails.
        """
        arguments = self._arguments([conversation], [self.text(conversation)])
        found: Mapping[str, Any] = self._process(arguments)
        return found

    def _process(self, arguments: dict[str, Any]) -> Any:
        """What the processor makes of prompts and their images.

        Its settings, and the template that wrote the prompt, come with the model: with odd ones it
        can fail anywhere, with any kind of error.

        Raises:
            ValueError: it fails.
        """
        try:
            return self.processor(**arguments)
        except (ValueError, OSError, ImportError, MemoryError):
            raise
        except Exception as error:
            raise ValueError(
                f"this model's processor fails: {error_line(error)}; are its files whole, and does "
                "its chat template write one placeholder for each image?"
            ) from error

    def _arguments(
        self, conversations: Sequence[Conversation], texts: Sequence[str]
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {"text": list(texts), "return_tensors": "pt"}
        if any(one.images for one in conversations):
            arguments["images"] = [one.images for one in conversations]
        if any(one.videos for one in conversations):
            arguments["videos"] = [video for one in conversations for video in one.videos]
        if len(texts) > 1:
            arguments |= {"padding": True, "padding_side": "left"}
        if not self.adds_special(texts[0]):
            arguments["add_special_tokens"] = False
        return arguments

    def adds_special(self, text: str) -> bool:
        """Whether the tokenizer is to put its own first token before a prompt that has none."""
        bos = self.tokenizer.bos_token
        return not (bos and text.startswith(bos))

    def offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of a whole prompt, and which of its characters each stands for.

        Raises:
            SourceError: the tokenizer cannot tell.
        """
        if not self.tokenizer.is_fast:
            raise SourceError(
                f"a text as the source needs to know which characters each token stands for, and "
                f"{type(self.tokenizer).__name__} cannot tell"
            )
        found = self.tokenizer(
            text, add_special_tokens=self.adds_special(text), return_offsets_mapping=True
        )
        return list(found["input_ids"]), [(int(a), int(b)) for a, b in found["offset_mapping"]]


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
