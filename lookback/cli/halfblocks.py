"""A picture in a terminal: two pixels per character, one above the other."""

from __future__ import annotations

import numpy as np
from PIL import Image
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

UPPER = "▀"
LARGEST = 40
"""Characters that a picture is wide at most: the scenes have 80 pixels."""
LEFT = 12
"""Lines of the terminal that are left for the text below a picture."""


def can_draw(console: Console) -> bool:
    """Whether somebody watches who sees colours and this character."""
    colours = console.color_system in ("truecolor", "256") and not console.no_color
    return console.is_terminal and colours and console.encoding.startswith("utf")


def fit(size: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """The pixels to draw: as many as fit, an even number of rows, the shape kept.

    Args:
        size: of the picture, in pixels.
        width: characters there are.
        height: lines there are.
    """
    share = min(min(width, LARGEST) / size[0], 2 * max(height, 2) / size[1], 1)
    return max(1, round(size[0] * share)), max(2, 2 * round(size[1] * share / 2))


def draw(picture: Image.Image, width: int, height: int) -> Text:
    """The picture as lines of half-blocks, each with a colour above and one below."""
    size = fit(picture.size, width, height)
    small = picture.convert("RGB").resize(size, Image.Resampling.BOX)
    rows = np.asarray(small).tolist()
    text = Text(no_wrap=True, overflow="crop")
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        for above, below in zip(upper, lower, strict=True):
            text.append(UPPER, Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below)))
        text.append("\n")
    text.rstrip()
    return text
