"""A conversation with text, images and videos: what is asked, and which part of it is the source.

Users give either an image and a question or `messages`, the chat format that transformers and
OpenAI share. Both become a `Conversation`, the one form that engines work on:

    [{"role": "system", "content": "Answer in one word."},
     {"role": "user", "content": [{"type": "image", "image": "photo.jpg"},
                                  {"type": "text", "text": "What is this?"}]}]

The *source* is what A_t measures attention to: every vision token, unless `source=` or parts marked
`"source": True` say otherwise (`Conversation.source`). Nothing here needs a model.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from lookback.io.images import list_images, load_image, load_images, to_pillow
from lookback.io.json_values import check_text
from lookback.io.limits import TEXT_CHARACTERS
from lookback.io.videos import load_video

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.io.images import ImageLike
    from lookback.io.videos import VideoLike

    Images = ImageLike | Sequence[ImageLike] | None
    Messages = Sequence[Mapping[str, Any]]
    SourceLike = str | Sequence[str] | None

ROLES = ("system", "user", "assistant")
NO_SOURCE = "none"
"""`source="none"`: there is nothing to look back at, and A_t is 0; for controls."""
NOTHING_THERE = (
    "this prompt has no source: no image, no video, no text marked as one. There is nothing to "
    "look back at, and A_t would be 0 for every token: give one, mark a text part with "
    '"source": True, or, for a control, say source="none"'
)
_WAYS = '"image:0", "video:0", "last-turn", "marked", "none", or a list of these'


class SourceError(ValueError):
    """A prompt has no source, or not the one that was asked for."""


@dataclass(frozen=True, eq=False)
class Part:
    """A piece of one turn.

    Attributes:
        media: of an image, what `load_image` takes; of a video, what `load_video` takes.
        source: whether it is marked as (part of) the source.
    """

    kind: Literal["text", "image", "video"]
    text: str = ""
    media: Any = None
    source: bool = False


@dataclass(frozen=True, eq=False)
class Turn:
    """What one side says at a time."""

    role: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Its texts, a line each."""
        return "\n".join(part.text for part in self.parts if part.kind == "text")


@dataclass(frozen=True)
class Source:
    """Which parts of a conversation the source is made of, by their numbers (from 0) of a kind."""

    images: frozenset[int] = frozenset()
    videos: frozenset[int] = frozenset()
    texts: frozenset[int] = frozenset()

    def __or__(self, other: Source) -> Source:
        return Source(
            self.images | other.images, self.videos | other.videos, self.texts | other.texts
        )

    def __bool__(self) -> bool:
        return bool(self.images or self.videos or self.texts)


@dataclass(frozen=True, eq=False)
class Conversation:
    """Turns, the last of which is the user's: what the model is to answer.

    Raises:
        LimitError: its texts are too long together.
    """

    turns: tuple[Turn, ...]

    def __post_init__(self) -> None:
        count = sum(len(part.text) for part in self.parts("text"))
        TEXT_CHARACTERS.check(count, "the text of the question or messages")

    @classmethod
    def of(
        cls,
        image: Images = None,
        question: str | None = None,
        messages: Messages | None = None,
        video: VideoLike | None = None,
    ) -> Conversation:
        """From images, a video and a question, or from messages: one of the two ways.

        Raises:
            TypeError: both ways at once, or neither.
            ValueError: the messages are not of the chat format; it says where.
        """
        if messages is not None:
            if image is not None or question is not None or video is not None:
                raise TypeError("give either an image and a question, or messages, not both")
            return cls.from_messages(messages)
        if not isinstance(question, str):
            raise TypeError(
                "nothing is asked: give an image and a question, or messages=[...]"
                if question is None
                else f"the question is no text but {question!r:.60}"
            )
        parts = [Part("image", media=one) for one in list_images(image)]
        parts += [] if video is None else [Part("video", media=_video("video", video))]
        return cls((Turn("user", (*parts, Part("text", check_text(question, "the question")))),))

    @classmethod
    def from_messages(cls, messages: Messages) -> Conversation:
        """Read a list of {"role", "content"}; content is a text or a list of parts."""
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
            raise ValueError(f"messages must be a list of turns, not {messages!r:.60}")
        turns = tuple(_turn(i, message) for i, message in enumerate(messages))
        if not turns or turns[-1].role != "user":
            last = f"the last is {turns[-1].role!r}" if turns else "there are none"
            raise ValueError(f"messages must end with a turn of the user's to answer; {last}")
        return cls(turns)

    def parts(self, kind: str) -> list[Part]:
        """Return all parts of a kind, in order."""
        return [part for turn in self.turns for part in turn.parts if part.kind == kind]

    @cached_property
    def images(self) -> list[Image]:
        """Its images, read now, as RGB."""
        return load_images([part.media for part in self.parts("image")])

    @cached_property
    def videos(self) -> list[list[Image]]:
        """The frames of its videos, read now, as RGB."""
        return [load_video(part.media) for part in self.parts("video")]

    @property
    def question(self) -> str:
        """What the user says last."""
        return self.turns[-1].text

    @property
    def transcript(self) -> str:
        """The question alone, or, after other turns, the whole conversation in words."""
        if len(self.turns) == 1:
            return self.question
        return "\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in self.turns)

    def messages(self) -> list[dict[str, Any]]:
        """Return messages, with images and videos in them as they were given."""
        return self._messages(lambda part: part.media)

    def to_json(self) -> list[dict[str, Any]]:
        """Return messages for JSON: files and URLs by name, other images by their hash."""
        return self._messages(_name)

    def _messages(self, media: Callable[[Part], Any]) -> list[dict[str, Any]]:
        def part_dict(part: Part) -> dict[str, Any]:
            value = part.text if part.kind == "text" else media(part)
            marked = {"source": True} if part.source else {}
            return {"type": part.kind, part.kind: value} | marked

        return [
            {"role": turn.role, "content": [part_dict(part) for part in turn.parts]}
            for turn in self.turns
        ]

    def with_images(self, images: Sequence[Any] | None) -> Conversation:
        """Return the same words about other images, taken in turn if there are fewer.

        None removes images and videos.
        """
        if images is not None and self.parts("video"):
            raise ValueError("a video cannot be replaced by another item's image")
        number = iter(range(10**9))

        def changed(parts: Iterable[Part]) -> Iterable[Part]:
            for part in parts:
                if part.kind == "text":
                    yield part
                elif images is not None:
                    yield replace(part, media=images[next(number) % len(images)])

        return Conversation(tuple(replace(t, parts=tuple(changed(t.parts))) for t in self.turns))

    def with_question(self, question: str) -> Conversation:
        """Return the conversation with other words in its last turn; images and videos stay."""
        last = self.turns[-1]
        shown = [part for part in last.parts if part.kind != "text"]
        turn = replace(last, parts=(*shown, Part("text", check_text(question, "the question"))))
        return replace(self, turns=(*self.turns[:-1], turn))

    def source(self, asked: SourceLike = None) -> Source:
        """Return which parts are the source.

        Args:
            asked: None for the marked parts, or for every image and video if none is marked;
                "image:1", "video:0" (counted from 0); "last-turn", the images and videos of the
                last turn; "marked"; "none" for no source at all; or a list of these.

        Raises:
            SourceError: there is no such part, or no source at all and "none" was not asked for.
        """
        if asked is None:
            source = self._marked() or Source(
                frozenset(range(len(self.parts("image")))),
                frozenset(range(len(self.parts("video")))),
            )
        elif asked == NO_SOURCE:
            return Source()
        else:
            source = Source()
            is_name = isinstance(asked, str) or not isinstance(asked, Iterable)
            for name in [asked] if is_name else asked:
                source |= self._named(name)
        if not source:
            raise SourceError(NOTHING_THERE)
        return source

    def _named(self, name: Any) -> Source:
        if name == "marked":
            source = self._marked()
            if not source:
                raise SourceError('source = "marked": no part of the messages has "source": True')
            return source
        if name == "last-turn":
            return self._last_turn()
        kind, colon, number = str(name).partition(":")
        if not colon or kind not in ("image", "video") or not number.isdecimal():
            raise SourceError(f"source = {name!r}: there is {_WAYS}")
        count = len(self.parts(kind))
        if int(number) >= count:
            there = ", ".join(f"{kind}:{i}" for i in range(count)) or "none"
            raise SourceError(f"source = {name!r}: of {kind}s the prompt has {there}")
        chosen = frozenset([int(number)])
        return Source(images=chosen) if kind == "image" else Source(videos=chosen)

    def _marked(self) -> Source:
        numbers = {
            kind: frozenset(i for i, part in enumerate(self.parts(kind)) if part.source)
            for kind in ("image", "video", "text")
        }
        return Source(numbers["image"], numbers["video"], numbers["text"])

    def _last_turn(self) -> Source:
        numbers = {}
        for kind in ("image", "video"):
            total = len(self.parts(kind))
            here = sum(part.kind == kind for part in self.turns[-1].parts)
            numbers[kind] = frozenset(range(total - here, total))
        source = Source(numbers["image"], numbers["video"])
        if not source:
            raise SourceError('source = "last-turn": the last turn has neither image nor video')
        return source


def _turn(i: int, message: Any) -> Turn:
    if not isinstance(message, Mapping):
        raise ValueError(f"messages[{i}] is no turn but {message!r:.60}")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise ValueError(f"messages[{i}]: the role is {role!r}, must be one of {', '.join(ROLES)}")
    if isinstance(content, str):
        return Turn(role, (Part("text", check_text(content, f"messages[{i}].content")),))
    if not isinstance(content, Sequence) or isinstance(content, bytes) or not content:
        raise ValueError(f"messages[{i}]: the content is {content!r:.60}, must be text or parts")
    return Turn(role, tuple(_part(f"messages[{i}].content[{k}]", p) for k, p in enumerate(content)))


def _part(where: str, part: Any) -> Part:
    if not isinstance(part, Mapping):
        raise ValueError(f"{where} is no part but {part!r:.60}")
    kind, marked = part.get("type"), part.get("source", False)
    if not isinstance(marked, bool):
        raise ValueError(f'{where}: "source" is {marked!r:.60}, must be true or false')
    if kind == "text":
        if not isinstance(part.get("text"), str):
            raise ValueError(f"{where}: the text is {part.get('text')!r:.60}")
        return Part("text", check_text(part["text"], f"{where}.text"), source=marked)
    if kind in ("image", "image_url"):
        return Part("image", media=_media(where, part, "image"), source=marked)
    if kind in ("video", "video_url"):
        return Part("video", media=_video(where, _media(where, part, "video")), source=marked)
    raise ValueError(f"{where}: the type is {kind!r}; there are text, image, image_url, video")


def _video(where: str, video: Any) -> Any:
    """Return a video as a file or as a list of its frames; an array of frames is one of images."""
    if isinstance(video, (str, os.PathLike)):
        return video
    frames = list(video) if len(getattr(video, "shape", ())) == 4 else video
    if isinstance(frames, (bytes, bytearray)) or not isinstance(frames, Sequence):
        raise ValueError(f"{where}: give the video as a file or as a list of its frames")
    return frames


def _media(where: str, part: Mapping[str, Any], kind: str) -> Any:
    """Return what a part shows, under any of the names that the format has for it."""
    for key in (kind, f"{kind}_url", "url", "path"):
        value = part.get(key)
        if isinstance(value, Mapping):  # {"image_url": {"url": ..., "detail": ...}}
            value = value.get("url")
        if value is not None:
            return value
    if part.get("base64") is not None:
        try:
            return base64.b64decode(part["base64"], validate=True)
        except (TypeError, ValueError):
            raise ValueError(f"{where}: the {kind} is no base64") from None
    raise ValueError(f"{where} has no {kind} in it")


def _name(part: Part) -> Any:
    """Return the path or URL of an image or video, or a hash of what it shows."""
    if part.kind == "video" and not isinstance(part.media, (str, os.PathLike)):
        return [_name(Part("image", media=frame)) for frame in part.media]
    media = part.media
    if isinstance(media, (str, os.PathLike)) and not os.fspath(media).startswith("data:"):
        return str(os.fspath(media))
    if isinstance(media, (str, bytes)):
        data = media.encode() if isinstance(media, str) else media
    else:
        image = to_pillow(media) or load_image(media)  # which says what is wrong with it
        data = json.dumps([image.mode, image.size]).encode() + image.tobytes()
    return f"sha256:{hashlib.sha256(data).hexdigest()[:16]}"
