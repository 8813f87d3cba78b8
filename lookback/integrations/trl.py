"""A reward for TRL's trainers: the score of each completion, given its prompt and images.

A prompt is a text or a list of messages. Images come inside the messages, as GRPOTrainer puts them
there, or beside them in a column of the dataset, for placeholders or before the first question.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.conversations import Conversation
from lookback.engines import require
from lookback.engines.common.options import check_ids
from lookback.io.images import list_images, to_pillow
from lookback.scores.base import NEEDS, get_scorer
from lookback.signals import SIGNALS, Candidates

if TYPE_CHECKING:
    from torch.nn import Module

    from lookback.conversations import SourceLike
    from lookback.engines import Engine


COLUMNS = ("images", "image")
"""The dataset's columns with images, the first that is there, as TRL has it."""
MEDIA = ("image", "image_url", "url", "path", "base64")


LOGGED = SIGNALS[:2]
"""What the trainer's log gets beside the reward: log p and A_t, by which hacking is noticed."""


def conversation_of(row: int, prompt: Any, columns: Mapping[str, Any]) -> Conversation:
    """Return what a row's prompt asks, with its images.

    Raises:
        ValueError: the prompt is neither text nor messages, or images and placeholders do not
            match; it names the row.
    """
    try:
        images = _images(row, columns)
        if isinstance(prompt, str):
            return Conversation.of(images or None, prompt)
        return Conversation.from_messages(_fill_placeholders(prompt, images))
    except (TypeError, ValueError) as error:
        raise ValueError(f"prompt {row}: {error}") from error


def text_of(row: int, completion: Any) -> str:
    """Return the text of a completion: a text, or the assistant's one message.

    Raises:
        ValueError: it is something else, or several turns (of tools).
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence) or not all(isinstance(m, Mapping) for m in completion):
        raise ValueError(f"completion {row} is neither text nor messages: {completion!r:.60}")
    if len(completion) != 1:
        raise ValueError(
            f"completion {row} has {len(completion)} messages: one of the assistant's can be "
            "scored, not the turns of tools"
        )
    content = completion[0].get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _images(row: int, columns: Mapping[str, Any]) -> list[Any]:
    """Return a row's images in its column."""
    for name in COLUMNS:
        if name in columns:
            images = list_images(columns[name][row])
            return [_image(image) for image in images if image is not None]
    return []


def _image(value: Any) -> Any:
    """Return what `lookback.io.images` takes; `datasets` has undecoded images as bytes and path.

    Raises:
        ValueError: it is no image.
    """
    image = value
    if isinstance(value, Mapping):
        image = value.get("path") if value.get("bytes") is None else value["bytes"]
    if not isinstance(image, (str, os.PathLike, bytes)) and to_pillow(image) is None:
        raise ValueError(
            f"{value!r:.60} is no image: give a PIL image, an array, a path, a URL, bytes, or "
            '{"bytes": ..., "path": ...}'
        )
    return image


def _fill_placeholders(prompt: Any, images: list[Any]) -> Any:
    """Return messages with the images of the column in their places, as TRL puts them.

    Each placeholder takes one; without placeholders they stand before the first of the user's
    texts; images that are there already are those of the column.
    """
    if not isinstance(prompt, Sequence) or not all(isinstance(m, Mapping) for m in prompt):
        return prompt  # which is refused with the rest of what is no conversation
    turns = [{**message, "content": _parts(message.get("content"))} for message in prompt]
    parts = [
        part
        for turn in turns
        if isinstance(turn["content"], list)
        for part in turn["content"]
        if isinstance(part, dict) and part.get("type") in ("image", "image_url")
    ]
    empty = [part for part in parts if not any(name in part for name in MEDIA)]
    if empty:
        if len(empty) != len(images):
            raise ValueError(
                f"{len(empty)} image placeholders and {len(images)} images in the column "
                f"{' or '.join(f'`{name}`' for name in COLUMNS)}"
            )
        for part, image in zip(empty, images, strict=True):
            part["image"] = image
    elif images and not parts:
        first = next((turn for turn in turns if turn.get("role") == "user"), None)
        if first is not None and isinstance(first["content"], list):
            first["content"][:0] = [{"type": "image", "image": image} for image in images]
    return turns


def _parts(content: Any) -> Any:
    """Return a copy of a turn's content as parts, which can be filled."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        return content
    return [_part(part) if isinstance(part, Mapping) else part for part in content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part without the empty fields that a table gives every part."""
    fields = {name: value for name, value in part.items() if value is not None}
    if "image" in fields:
        fields["image"] = _image(fields["image"])
    return fields


def reward(
    engine: Engine,
    scorer: str = "lookback",
    *,
    source: SourceLike = None,
    use_ids: bool = True,
    **params: Any,
) -> Reward:
    """Return a reward function: the score of each completion, given its prompt and images.

    Args:
        engine: scores. A model of its own (a frozen reference), or the policy itself:
            `lookback.load(policy, processor)` with the very model that the trainer gets.
        scorer: any scorer that needs no truth. One that compares candidates gets those of equal
            prompts together.
        source: what A_t is measured on, as for `Engine.score`.
        use_ids: score the tokens that were drawn. False scores the completions' texts, for an
            engine with another tokenizer than the policy's.
        params: the scorer's settings, e.g. alpha and lam; the family's by default.

    Raises:
        ValueError: there is no such scorer, it needs a truth, or a setting is out of range.
        SettingError: the scorer has no such setting.
        AbilityError: the engine cannot do what the scorer needs.
    """
    return Reward(engine, scorer, source, use_ids, params)


class Reward:
    """What `reward` returns.

    Attributes:
        engine, scorer, source, use_ids, params: as `reward` was given them.
    """

    def __init__(
        self,
        engine: Engine,
        scorer: str,
        source: SourceLike,
        use_ids: bool,
        params: Mapping[str, Any],
    ) -> None:
        found = get_scorer(scorer)
        if found.needs == "truth":
            raise ValueError(
                f"scorer {scorer!r} needs {NEEDS['truth']}: where that is known it is a reward by "
                "itself, a function of the completions and the dataset's columns"
            )
        found.check(params)
        require(engine, ("score", *found.uses), f"a reward by scorer {scorer!r}")
        self.engine, self.scorer, self.params = engine, scorer, dict(params)
        self.source, self.use_ids = source, use_ids
        self.__name__ = scorer  # as the trainer's log calls it
        self._ids_agree = False

    def __repr__(self) -> str:
        return f"reward({self.engine!r}, {self.scorer!r})"

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return a reward per completion; None, which TRL leaves out, for nothing to score.

        That is a completion without a token but its end, and a row whose image is empty.

        Args:
            prompts: one per completion: messages, or a text, which is then the whole question.
            completions: texts, or a list with the assistant's message each.
            completion_ids: their tokens, the end token included where one was drawn.
            columns: the dataset's, a value per completion: `images` or `image` (PIL images, arrays,
                paths, bytes, or {"bytes": ..., "path": ...}); and what else a trainer hands over.

        Raises:
            ValueError: a row cannot be scored; the message names it.
        """
        texts = [text_of(i, completion) for i, completion in enumerate(completions)]
        responses = self._responses(texts, completion_ids)
        rewards: list[float | None] = [None] * len(responses)
        signals: dict[str, list[Any]] = {name: [] for name in LOGGED}
        with _ready_to_score(self.engine):
            for rows, conversation in self._groups(prompts, responses, columns):
                candidates = self.engine.score(
                    messages=conversation.messages(),
                    responses=[responses[row] for row in rows],
                    source=self.source,
                )
                self._check_ids([texts[row] for row in rows], candidates)
                scores = candidates.scores(self.scorer, **self.params).tolist()
                for row, score in zip(rows, scores, strict=True):
                    rewards[row] = None if np.isnan(score) else score
                for name, values in signals.items():
                    values += [getattr(candidate, name) for candidate in candidates]
        self._log(signals, columns.get("log_metric"))
        return rewards

    def _responses(
        self, texts: Sequence[str], completion_ids: Sequence[Sequence[int]] | None
    ) -> list[Any]:
        """Return what is scored of each completion; empty if nothing is."""
        if not self.use_ids:
            return [text if text.strip() else "" for text in texts]
        if completion_ids is None:
            raise ValueError(
                "no completion_ids: give the tokens that were drawn, or score the texts, "
                "reward(..., use_ids=False)"
            )
        responses = [check_ids(f"completion {i}", ids) for i, ids in enumerate(completion_ids)]
        ends = self.engine.end_tokens
        return [ids[:-1] if ids and ids[-1] in ends else ids for ids in responses]

    def _groups(
        self, prompts: Sequence[Any], responses: Sequence[Any], columns: Mapping[str, Any]
    ) -> list[tuple[list[int], Conversation]]:
        """Return the rows of each prompt that have something to score, with what it asks."""
        groups: dict[str, tuple[list[int], Conversation]] = {}
        for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
            if not response:
                continue
            conversation = conversation_of(row, prompt, columns)
            has_images = any(name in columns for name in COLUMNS)
            if self.source is None and has_images and not _has_source(conversation):
                continue  # a row without an image in a dataset of images: not for this reward
            key = json.dumps(conversation.to_json(), default=str)  # images by path or by hash
            groups.setdefault(key, ([], conversation))[0].append(row)
        return list(groups.values())

    def _check_ids(self, texts: Sequence[str], candidates: Candidates) -> None:
        """Check once that the engine reads the tokens as the policy's tokenizer does.

        Raises:
            ValueError: it reads none of them so: it is a model with another tokenizer.
        """
        if not self.use_ids or self._ids_agree:
            return
        pairs = [
            ("".join(text.split()), "".join(candidate.text.split()))
            for text, candidate in zip(texts, candidates, strict=True)
            if text.strip()
        ]
        self._ids_agree = any(text in decoded for text, decoded in pairs)
        if pairs and not self._ids_agree:
            raise ValueError(
                f"completion_ids read {candidates[0].text!r:.60} here and {texts[0]!r:.60} there: "
                f"{self.engine.name!r} has another tokenizer than the policy; score the texts, "
                "reward(..., use_ids=False)"
            )

    def _log(
        self, signals: Mapping[str, list[Any]], log_metric: Callable[[str, float], None] | None
    ) -> None:
        for name, values in signals.items():
            if log_metric is not None and values:
                log_metric(f"{self.scorer}/{name}", float(np.concatenate(values).mean()))


def _has_source(conversation: Conversation) -> bool:
    marked = any(part.source for turn in conversation.turns for part in turn.parts)
    return marked or bool(conversation.parts("image") or conversation.parts("video"))


@contextmanager
def _evaluating(model: Module) -> Iterator[None]:
    """Switch dropout and the like off within the block."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _ready_to_score(engine: Engine) -> Any:
    """Return a block in which an engine's model, which may be in training, can score.

    Raises:
        ValueError: the engine keeps prompts' keys, which training makes wrong.
    """
    from lookback.engines.transformers import TransformersEngine

    if not isinstance(engine, TransformersEngine) or not engine.model.training:
        return nullcontext()
    if engine.prefixes is not None:
        raise ValueError(
            "this engine keeps prompts' keys (keep_prefixes) of a model that is being trained, "
            "which makes them wrong: engine.keep_prefixes(0) first"
        )
    return _evaluating(engine.model)
