"""Letters in a picture: the first font of this machine that has all of a text's characters."""

from __future__ import annotations

from functools import cache
from typing import Any

from PIL import ImageFont

NAMES = (
    *("DejaVuSans.ttf", "Arial.ttf", "arial.ttf", "Helvetica.ttc", "NotoSans-Regular.ttf"),
    *("NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "msyh.ttc", "PingFang.ttc"),
    *("Arial Unicode.ttf", "unifont.otf", "wqy-microhei.ttc", "NotoSansArabic-Regular.ttf"),
    *("NotoSansDevanagari-Regular.ttf", "NotoSansHebrew-Regular.ttf", "NotoEmoji-Regular.ttf"),
)
"""Where systems have them; Pillow finds their folders, and has one of its own for Latin letters."""
NOBODY = "\U000f1234"  # for private use: a font has no sign for it


def font_for(text: str, size: int) -> Any:
    """A font that has all characters of a text; one that lacks some, if there is no better."""
    found = fonts(size)
    needed = {character for character in text if not character.isspace()}
    return next((font for font in found if all(has(font, one) for one in needed)), found[0])


@cache
def fonts(size: int) -> tuple[Any, ...]:
    """Those that this machine has."""
    there = []
    for name in NAMES:
        try:
            there.append(ImageFont.truetype(name, size))
        except OSError:
            continue
    return (*there, ImageFont.load_default(size))


@cache
def has(font: Any, character: str) -> bool:
    """Whether a font draws another sign than for characters that it has not."""
    return bool(bytes(font.getmask(character)) != bytes(font.getmask(NOBODY)))
