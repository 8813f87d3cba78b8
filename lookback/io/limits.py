"""What input may cost at most: each limit has a default, and an environment variable that sets it.

Files, URLs and archives come from anybody. What they cost is limited here by numbers that are known
before the memory is taken or the time is spent; an error names the limit and the variable.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

MIB = 2**20


class LimitError(ValueError):
    """Something is larger, or takes longer, than is allowed; the message says what to set."""


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        variable: the environment variable that sets another, as a whole number of units.
        default: without it.
        unit: what is counted, in words.
        size: how many bytes (pixels, frames, ...) a unit is.
    """

    variable: str
    default: int
    unit: str
    size: int = 1

    @property
    def units(self) -> int:
        """The limit in its units; raises ValueError if the variable is no whole number above 0."""
        value = os.environ.get(self.variable, "").strip()
        if not value:
            return self.default
        if not (value.isascii() and value.isdecimal() and len(value) < 16 and int(value)):
            raise ValueError(
                f"{self.variable} is {value!r:.40}: give a whole number of {self.unit} above 0, "
                f"or unset it for {self.default}"
            )
        return int(value)

    @property
    def most(self) -> int:
        """The limit in bytes (pixels, frames, ...)."""
        return self.units * self.size

    def check(self, amount: int, name: str) -> None:
        """Raise LimitError if what `name` names has more bytes (pixels, frames, ...)."""
        if amount > self.most:
            has = f"{amount:,}" if self.size == 1 else f"{amount / self.size:,.1f}"
            raise self.error(f"{name} is too large: {has} {self.unit}")

    def error(self, text: str) -> LimitError:
        """Return the error of a thing that is beyond the limit; `text` opens its line."""
        return LimitError(
            f"{text}, and the limit is {self.units:,} {self.unit}: "
            f"{self.variable}=NUMBER sets another"
        )


FETCH_SECONDS = Limit("LOOKBACK_MAX_FETCH_SECONDS", 30, "seconds")
"""Of one URL, from the first lookup to the last byte, redirects included."""
IMAGE_MIB = Limit("LOOKBACK_MAX_IMAGE_MIB", 100, "MiB", MIB)
"""Of one picture as it is stored: a file, a download, a data URI, bytes."""
IMAGE_PIXELS = Limit("LOOKBACK_MAX_IMAGE_PIXELS", 64_000_000, "pixels")
"""Width times height of one picture, known before it is decoded; four bytes of memory each."""
IMAGE_ASPECT = Limit("LOOKBACK_MAX_IMAGE_ASPECT", 200, "to 1")
"""The longer side of one picture to its shorter one: models squeeze it, or fail."""
VIDEO_MIB = Limit("LOOKBACK_MAX_VIDEO_MIB", 2048, "MiB", MIB)
"""Of one video file."""
VIDEO_FRAMES = Limit("LOOKBACK_MAX_VIDEO_FRAMES", 100_000, "frames")
"""That are decoded to find the even distances: an hour at 25 per second is 90,000."""
VIDEO_PIXELS = Limit("LOOKBACK_MAX_VIDEO_PIXELS", 16_000_000, "pixels")
"""Width times height of one frame of a file; eight frames are held at once."""
DATA_MIB = Limit("LOOKBACK_MAX_DATA_MIB", 2048, "MiB", MIB)
"""Of one file of data or responses, which is held in memory; of a packed one, unpacked."""
PACKED_RATIO = Limit("LOOKBACK_MAX_PACKED_RATIO", 200, "times its packed size")
"""What a packed file may grow to, once it is beyond 16 MiB; text packs ten to forty times."""
TEXT_CHARACTERS = Limit("LOOKBACK_MAX_TEXT_CHARACTERS", 1_000_000, "characters")
"""Of the texts of one conversation, one response, or the answers to one item: a tokenizer takes
tens of bytes for each."""

LIMITS = (
    FETCH_SECONDS,
    IMAGE_MIB,
    IMAGE_PIXELS,
    IMAGE_ASPECT,
    VIDEO_MIB,
    VIDEO_FRAMES,
    VIDEO_PIXELS,
    DATA_MIB,
    PACKED_RATIO,
    TEXT_CHARACTERS,
)
"""All of them, in the order of docs/limits.md."""
