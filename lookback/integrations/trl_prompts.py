"""Prompts, completions and images as TRL's trainers hand them to reward functions.

A prompt is a text or a list of messages. Images come inside the messages, as GRPOTrainer puts them
there, or beside them in a column of the dataset, for placeholders or before the first question.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lookback.conversations import Conversation
from lookback.images import list_images, to_pillow

COLUMNS = ("images", "image")
"""The dataset's columns with images, the first that is there, as TRL has it."""
MEDIA = ("image", "image_url", "url", "path", "base64")


def has_column(columns: Mapping[str, Any]) -> bool:
    """Whether the dataset has a column of images."""
    return any(name in columns for name in COLUMNS)


def asked_of(row: int, prompt: Any, columns: Mapping[str, Any]) -> Conversation:
    """What a row's prompt asks, with its images.

    Raises:
        ValueError: the prompt is neither text nor messages, or images and placeholders do not
            match; it names the row.
    """
    try:
        images = _images(row, columns)
        if isinstance(prompt, str):
            return Conversation.of(images or None, prompt)
        return Conversation.from_messages(_filled(prompt, images))
    except (TypeError, ValueError) as error:
        raise ValueError(f"prompt {row}: {error}") from error


def text_of(row: int, completion: Any) -> str:
    """The text of a completion: a text, or the assistant's one message.

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
    """A row's images in its column."""
    for name in COLUMNS:
        if name in columns:
            return [_image(one) for one in list_images(columns[name][row]) if one is not None]
    return []


def _image(given: Any) -> Any:
    """What `lookback.images` takes: `datasets` keeps an undecoded image as its bytes and path.

    Raises:
        ValueError: it is no image.
    """
    found = given
    if isinstance(given, Mapping):
        stored = given.get("bytes")
        found = given.get("path") if stored is None else stored
    if not isinstance(found, (str, os.PathLike, bytes)) and to_pillow(found) is None:
        raise ValueError(
            f"{given!r:.60} is no image: give a PIL image, an array, a path, a URL, bytes, or "
            '{"bytes": ..., "path": ...}'
        )
    return found


def _filled(prompt: Any, images: list[Any]) -> Any:
    """Messages with the images of the column in their places, as TRL puts them.

    Each placeholder takes one; without placeholders they stand before the first of the user's
    texts; images that are there already are those of the column.
    """
    if not isinstance(prompt, Sequence) or not all(isinstance(m, Mapping) for m in prompt):
        return prompt  # which is refused with the rest of what is no conversation
    turns = [{**message, "content": _parts(message.get("content"))} for message in prompt]
    parts = [p for t in turns if isinstance(t["content"], list) for p in t["content"] if _shows(p)]
    empty = [part for part in parts if _is_placeholder(part)]
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
            first["content"][:0] = [{"type": "image", "image": one} for one in images]
    return turns


def _parts(content: Any) -> Any:
    """A turn's content as parts of its own, which can be filled."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        return content
    return [_part(one) if isinstance(one, Mapping) else one for one in content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part without the empty fields that a table gives every part."""
    found = {name: value for name, value in part.items() if value is not None}
    if "image" in found:
        found["image"] = _image(found["image"])
    return found


def _shows(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("image", "image_url")


def _is_placeholder(part: Mapping[str, Any]) -> bool:
    return not any(name in part for name in MEDIA)
