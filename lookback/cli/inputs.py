"""What commands read: stdin (called `-`), images, questions, and files of both."""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.benchmarks.base import Item
    from lookback.benchmarks.responses import Problem
    from lookback.conversations import Conversation
    from lookback.io.limits import Limit
    from lookback.io.storage import AnyPath

STDIN = "-"
ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".jp2"),
    *(".ppm", ".pgm", ".tga", ".qoi"),
)
"""Suffixes of the image files that a folder stands for."""


def is_stdin(name: object) -> bool:
    """Whether an argument means standard input."""
    return str(name) == STDIN


def check_stdin(arguments: Mapping[str, object]) -> None:
    """Raise ValueError if stdin is named twice, is a terminal (which would wait), or is closed.

    Args:
        arguments: values that may be stdin, or lists of values, by the names that users know.
    """
    users = []
    for name, value in arguments.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        users += [name for single in values if is_stdin(single)]
    if not users:
        return
    if len(users) > 1:
        raise ValueError(
            f"{' and '.join(users)} are both -: stdin can be read once, name a file for the other"
        )
    if sys.stdin is None or sys.stdin.closed:
        raise ValueError(f"{users[0]} is -, and there is no stdin: name a file")
    if sys.stdin.isatty():
        raise ValueError(
            f"{users[0]} is -, and stdin is a terminal: send a file there (< FILE), or name one"
        )


def refuse_stdin(option: str, value: object, why: str) -> None:
    """Raise ValueError if an option that cannot be stdin is."""
    if is_stdin(value):
        raise ValueError(
            f"{option} is -: it cannot be read from stdin, as {why}; save it to a file, and name "
            "that"
        )


def read_stdin(limit: Limit) -> bytes:
    """Return all of stdin; raise LimitError, without reading on, if it exceeds the limit."""
    from lookback.io.files import read_stream

    return read_stream(sys.stdin.buffer, limit, "stdin")


def read_argument(text: str) -> str:
    """Return a text of the command line; `-` is stdin."""
    return read_text(STDIN).strip() if is_stdin(text) else text


def read_text(file: Path | str) -> str:
    """Return the text of a file or of stdin; raise ValueError if it is not UTF-8."""
    from lookback.benchmarks import files
    from lookback.io.limits import DATA_MIB

    if not is_stdin(file):
        return files.read_text(Path(file))
    try:
        return read_stdin(DATA_MIB).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"stdin is not UTF-8: {error}") from None


@dataclass(frozen=True)
class Question:
    """A question whose images are not read yet.

    Attributes:
        name: its id, or its image.
        text: what is asked.
        read: reads the images and returns the conversation.
        where: its name in messages.
    """

    name: str
    text: str
    read: Callable[[], Conversation]
    where: str


def check_question(question: str) -> None:
    """Raise ValueError if a question is empty or too long."""
    from lookback.io.limits import TEXT_CHARACTERS

    if not question.strip():
        raise ValueError("the question is empty: say what to ask about the image")
    TEXT_CHARACTERS.check(len(question), "the question")


def find_images(name: str) -> list[str]:
    """Return the images that an argument means: itself, those in a folder, or of a pattern.

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
    images = sorted(match for match in glob.glob(name, recursive=True) if Path(match).is_file())
    if not images:
        raise ValueError(f"no image file {name!r}: neither a file nor a pattern of any")
    return images


def _images_in(folder: Path) -> list[str]:
    from lookback.io.videos import is_video

    files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    kinds = [file for file in files if file.suffix.lower() in ENDINGS or is_video(file)]
    images = [str(file) for file in kinds if file.is_file()]
    if not images:
        raise ValueError(f"no image in the folder {str(folder)!r}: of {len(files)} entries none is")
    return images


def questions_about(images: Sequence[str], question: str, more: Sequence[str]) -> list[Question]:
    """Return one question about each of some images; `more` are shown with each of them."""
    check_question(question)
    return [
        Question(name, question, partial(read_conversation, [name, *more], question), repr(name))
        for name in images
    ]


def questions_in(file: Path) -> tuple[list[Question], list[Problem]]:
    """Return the questions of a file (docs/own-data.md), and what is wrong with other lines.

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
    questions = []
    for number, item in items:
        where = f"line {number}" + ("" if item.id == str(number) else f" (id {item.id})")
        questions.append(Question(item.id, item.question, partial(_read_item, item), where))
    return questions, problems


def _read_item(item: Item) -> Conversation:
    conversation = item.conversation
    # What cannot be read fails here, before a model is loaded.
    _ = conversation.images, conversation.videos
    return conversation


def read_conversation(names: Sequence[str], question: str) -> Conversation:
    """Read images (and a video among them), and return them with the question.

    Raises:
        ValueError: one is no image, or there are two videos.
        FileNotFoundError: there is no such file.
    """
    from lookback.conversations import Conversation
    from lookback.io.videos import is_video, load_video

    videos = [name for name in names if is_video(name)]
    if len(videos) > 1:
        raise ValueError(f"one video at a time: {', '.join(videos)}")
    images = [_read_image(name) for name in names if name not in videos]
    video = load_video(videos[0]) if videos else None
    return Conversation.of(images or None, question, video=video)


def _read_image(name: str) -> Image:
    from lookback.io.images import load_image
    from lookback.io.limits import IMAGE_MIB

    if not is_stdin(name):
        return load_image(name)
    data = read_stdin(IMAGE_MIB)
    try:
        return load_image(data)
    except ValueError as error:
        raise ValueError(f"stdin: {error}") from error
