"""What `ask` asks: one image and question, one question about several images, or a file of both."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lookback.cli.stdin import is_stdin, read_stdin

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.benchmarks.responses import Problem
    from lookback.conversations import Conversation
    from lookback.io.storage import AnyPath

ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".jp2"),
    *(".ppm", ".pgm", ".tga", ".qoi"),
)
"""Of files that are asked about when a folder is named."""


@dataclass(frozen=True)
class Question:
    """A question that may still fail to be read.

    Attributes:
        name: which one it is: its id, or its image.
        text: what is asked.
        read: gives the conversation, its images read.
        where: what messages call it.
    """

    name: str
    text: str
    read: Callable[[], Conversation]
    where: str


def check_question(question: str) -> None:
    """Let pass a question that asks something.

    Raises:
        ValueError: it is empty, or too long.
    """
    from lookback.io.limits import TEXT_CHARACTERS

    if not question.strip():
        raise ValueError("the question is empty: say what to ask about the image")
    TEXT_CHARACTERS.check(len(question), "the question")


def find_images(name: str) -> list[str]:
    """The images that an argument means: itself, those in a folder, or those of a pattern.

    Raises:
        ValueError: a folder or a pattern has none.
    """
    from lookback.io.fetch import is_url

    if is_stdin(name) or is_url(name) or name.startswith("data:") or "\0" in name:
        return [name]
    path = Path(name)
    if path.is_dir():
        return _images_in(path)
    if path.exists() or not glob.has_magic(name):
        return [name]
    found = sorted(one for one in glob.glob(name, recursive=True) if Path(one).is_file())
    if not found:
        raise ValueError(f"no image file {name!r}: neither a file nor a pattern of any")
    return found


def _images_in(folder: Path) -> list[str]:
    from lookback.io.videos import is_video

    files = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    kinds = [one for one in files if one.suffix.lower() in ENDINGS or is_video(one)]
    found = [str(one) for one in kinds if one.is_file()]
    if not found:
        raise ValueError(f"no image in the folder {str(folder)!r}: of {len(files)} entries none is")
    return found


def questions_about(images: Sequence[str], question: str, more: Sequence[str]) -> list[Question]:
    """One question about each of some images; `more` are shown with each of them."""
    check_question(question)
    return [
        Question(name, question, partial(read_conversation, [name, *more], question), repr(name))
        for name in images
    ]


def questions_in(file: Path) -> tuple[list[Question], list[Problem]]:
    """The questions of a file of one's own (docs/own-data.md), and what is wrong with other lines.

    From stdin come the lines of a .jsonl file; images are then found from the current folder.

    Raises:
        ValueError: no line can be used, or the file cannot be read.
    """
    from lookback.benchmarks.own import OwnData, nothing_used
    from lookback.benchmarks.own_file import parse_jsonl, read_lines
    from lookback.io.limits import DATA_MIB

    folder: AnyPath
    if is_stdin(file):
        name, folder, lines = "stdin", Path(), parse_jsonl(read_stdin(DATA_MIB))
    else:
        path = OwnData(file).path
        name, folder, lines = repr(str(path)), path.parent, read_lines(path)
    items, problems, _ = OwnData().read_items(lines, folder)
    if not items:
        raise ValueError(nothing_used(name, problems))
    questions = [
        Question(item.id, item.question, partial(_conversation, item), _place(number, item.id))
        for number, item in items
    ]
    return questions, problems


def _place(number: int, name: str) -> str:
    return f"line {number}" if name == str(number) else f"line {number} (id {name})"


def _conversation(item: object) -> Conversation:
    from lookback.benchmarks.base import Item

    assert isinstance(item, Item)
    return _readable(item.conversation)


def read_conversation(names: Sequence[str], question: str) -> Conversation:
    """Images (and a video among them) and a question, with the images read.

    Raises:
        ValueError: one is no image, or there are two videos.
        FileNotFoundError: there is no such file.
    """
    from lookback.conversations import Conversation
    from lookback.io.videos import is_video, load_video

    videos = [name for name in names if is_video(name)]
    if len(videos) > 1:
        raise ValueError(f"one video at a time: {', '.join(videos)}")
    images = [_image(name) for name in names if name not in videos]
    video = load_video(videos[0]) if videos else None
    return Conversation.of(images or None, question, video=video)


def _image(name: str) -> Image:
    from lookback.io.images import load_image
    from lookback.io.limits import IMAGE_MIB

    if not is_stdin(name):
        return load_image(name)
    data = read_stdin(IMAGE_MIB)
    try:
        return load_image(data)
    except ValueError as error:
        raise ValueError(f"stdin: {error}") from error


def _readable(conversation: Conversation) -> Conversation:
    """The same, its images and videos tried: what cannot be read fails before a model is loaded."""
    _ = conversation.images, conversation.videos
    return conversation
