"""What a document of a task asks, as messages of `lookback.conversations`.

lmms-eval's chat tasks give messages, its older ones a text and what is shown before it. Nothing
here needs lmms-eval.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from PIL.Image import Image

from lookback.conversations import NO_SOURCE, Conversation

PLACEHOLDER = "<image>"
"""Where a task of the older kind wants its images to stand within the text."""
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
AUDIO = (".wav", ".mp3", ".flac", ".ogg", ".m4a", ".aac", ".opus")
CUTS = ("start_time", "end_time", "video_start", "video_end")
NO_AUDIO = "the document has audio: LookBack is for models that see; choose a task without"


def conversation_of(messages: Any) -> Conversation:
    """From the messages of a chat task.

    Raises:
        ValueError: they are of another shape, or hold audio or a part of a video.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise ValueError(f"doc_to_messages gave {messages!r:.60}, must give a list of turns")
    turns = [_turn(one) if isinstance(one, Mapping) else one for one in messages]
    return Conversation.from_messages(turns)


def simple_conversation(text: str, visuals: Any) -> Conversation:
    """From a text and what is shown before it; or within it, if it has a place for each.

    Raises:
        ValueError: there is something else than images and videos.
    """
    several = [] if visuals is None else visuals
    several = several if isinstance(several, (list, tuple)) else [several]
    shown = [_shown(one) for one in several]
    pieces = text.split(PLACEHOLDER)
    if shown and len(pieces) == len(shown) + 1:
        parts = [_words(pieces[0])]
        for one, piece in zip(shown, pieces[1:], strict=True):
            parts += [one, _words(piece)]
        content = [part for part in parts if part.get("text") != ""]
    else:
        content = [*shown, _words(text)]
    return Conversation.from_messages([{"role": "user", "content": content}])


def source_of(conversation: Conversation) -> str | None:
    """What A_t is measured on: all images and videos; nothing, if there are none."""
    return None if conversation.parts("image") or conversation.parts("video") else NO_SOURCE


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    content = turn.get("content")
    if isinstance(content, (list, tuple)):
        content = [_part(one) if isinstance(one, Mapping) else one for one in content]
    return {"role": turn.get("role"), "content": content}


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part as it is, if it is one that can be shown."""
    if part.get("type") in ("audio", "input_audio", "audio_url"):
        raise ValueError(NO_AUDIO)
    if part.get("type") == "video":
        inner = part.get("url")
        for where in (part, inner if isinstance(inner, Mapping) else {}):
            _check_whole_video(where)
    return part


def _check_whole_video(video: Mapping[str, Any]) -> None:
    cut = [name for name in CUTS if video.get(name) is not None]
    if cut:
        raise ValueError(f"a video with {cut[0]} = {video[cut[0]]}: only whole videos are read")


def _shown(visual: Any) -> dict[str, Any]:
    """One thing that `doc_to_visual` gave."""
    if isinstance(visual, Image):
        return {"type": "image", "image": visual}
    if isinstance(visual, (str, os.PathLike)):
        ending = os.path.splitext(os.fspath(visual))[1].lower()
        if ending in AUDIO:
            raise ValueError(NO_AUDIO)
        kind = "image" if ending in IMAGES else "video"
        return {"type": kind, kind: os.fspath(visual)}
    if isinstance(visual, Mapping):
        return _named(visual)
    if isinstance(visual, (list, tuple)) and all(isinstance(one, Image) for one in visual):
        return {"type": "video", "video": list(visual)}
    raise ValueError(f"doc_to_visual gave {visual!r:.60}: images, their files and videos are read")


def _named(visual: Mapping[str, Any]) -> dict[str, Any]:
    """One that is given as {"type": "video", "url": ...}, or audio as an array."""
    if "array" in visual or visual.get("type") == "audio":
        raise ValueError(NO_AUDIO)
    _check_whole_video(visual)
    kind = visual.get("type", "video")
    where = visual.get("url") or visual.get("path")
    if kind not in ("image", "video") or where is None:
        raise ValueError(f"doc_to_visual gave {dict(visual)!r:.60}: no image or video is in it")
    return {"type": kind, kind: where}


def _words(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
