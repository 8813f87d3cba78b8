"""What users call a video, as frames: a path, or the frames themselves, each an image.

A file is decoded with PyAV (`pip install 'lookback-vlm[video]'`) and frames are taken at even
distances, the same ones each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookback.errors import one_line
from lookback.io.fetch import get_policy
from lookback.io.files import check_file
from lookback.io.images import load_images
from lookback.io.limits import VIDEO_FRAMES, VIDEO_MIB, VIDEO_PIXELS
from lookback.io.storage import is_remote, readable, to_path

if TYPE_CHECKING:
    from PIL.Image import Image

    from lookback.io.images import ImageLike

    VideoLike = str | os.PathLike[str] | Sequence[ImageLike]

ENDINGS = (".mp4", ".mov", ".m4v", ".webm", ".mkv", ".avi", ".mpg", ".mpeg")
FRAMES = 8
"""How many frames of a file a model is shown."""


def is_video(name: object) -> bool:
    """Return whether a path has the ending of a video."""
    return isinstance(name, (str, os.PathLike)) and str(name).lower().endswith(ENDINGS)


def load_video(video: VideoLike, frames: int = FRAMES) -> list[Image]:
    """Return the frames of a video as RGB Pillow images.

    Args:
        video: a file, of which `frames` are taken at even distances; or the frames, all of them.
        frames: how many of a file.

    Raises:
        FileNotFoundError: there is no such file.
        ImportError: a file is given, and PyAV is missing.
        ValueError: it cannot be decoded, has no frames, or is beyond a limit (`limits`).
    """
    if not isinstance(video, (str, os.PathLike)):
        pictures = load_images(list(video))
        if not pictures:
            raise ValueError("a video needs at least one frame")
        return pictures
    if is_remote(video) and get_policy(None) == "public":
        raise ValueError(f"{str(video)!r}: no store is asked where only public addresses are")
    path = to_path(video)
    try:
        check_file(path, VIDEO_MIB)
    except FileNotFoundError:
        raise FileNotFoundError(f"no video file {str(video)!r}") from None
    try:
        import av
    except ImportError as error:
        raise ImportError(
            f"reading {str(video)!r} needs PyAV: pip install 'lookback-vlm[video]', or give the "
            "frames as a list of images"
        ) from error
    try:
        source = readable(path)
        with av.open(str(source) if isinstance(source, Path) else source) as container:
            return _evenly(container, frames)
    except av.FFmpegError as error:
        raise ValueError(f"cannot read the video {str(video)!r}: {one_line(error)}") from error


def _evenly(container: Any, frames: int) -> list[Image]:
    """Return frames in the middle of `frames` equal parts; all of them if there are fewer.

    The file is read twice, since what it says of its length need not be true.
    """
    if not container.streams.video:
        raise ValueError(f"{container.name!r} has no video in it")
    total = sum(1 for _ in _decoded(container))
    if not total:
        raise ValueError(f"{container.name!r} has no frames")
    count = min(frames, total)
    wanted = {(2 * i + 1) * total // (2 * count) for i in range(count)}
    container.seek(0)
    decoded = enumerate(_decoded(container))
    return [frame.to_image().convert("RGB") for number, frame in decoded if number in wanted]


def _decoded(container: Any) -> Iterator[Any]:
    """Yield the frames of a video, within limits of their number and of the size of each.

    The size is checked before the first is decoded, and with each, as it may change on the way.
    """
    name, head = repr(container.name), container.streams.video[0].codec_context
    if head is None:
        raise ValueError(f"{name} is no video that can be decoded here: its codec is not known")
    VIDEO_PIXELS.check(head.width * head.height, f"{name} ({head.width} x {head.height})")
    for number, frame in enumerate(container.decode(video=0), start=1):
        VIDEO_FRAMES.check(number, name)
        VIDEO_PIXELS.check(frame.width * frame.height, f"{name} ({frame.width} x {frame.height})")
        yield frame
