"""Items in compressed blocks: what the page decodes when one of them is shown.

A block is base64 of zlib of: the length of a JSON text (4 bytes, little-endian), that text, and
numbers. The JSON, in ASCII, has

items      of each: truth [[name, text]], image (a position among the page's, or null), reason (why
           there is none), candidates [tokens, quality or null, finish] each, as drawn, and
  controls   by the image it was scored with ("random", "none"): image, reason, source (the id of
             the item whose image it was, or null), scored (of each candidate: whether its numbers
             are here), and missing (why they are not, where they are not)
numbers    [name, count] each, in the order in which they follow: a signal of all tokens of the
           block, "random.log_prob" for that of a control

Numbers are float32, little-endian, the very bits, so that the page ranks as Python does. All first
bytes come first, then all second ones: neighbours are alike then, and compress.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lookback.scores.formula import Array

ITEMS = 20
"""How many items a block has: few, so that it opens at once; many, so that it compresses."""


def pack(items: list[dict[str, Any]], numbers: Mapping[str, Array]) -> str:
    """A block of items and of the numbers of their tokens, by name."""
    counts = [[name, len(values)] for name, values in numbers.items()]
    text = json.dumps({"items": items, "numbers": counts}, allow_nan=False, separators=(",", ":"))
    head = text.encode("ascii")
    parts = [struct.pack("<I", len(head)), head, *map(shuffle, numbers.values())]
    return base64.b64encode(zlib.compress(b"".join(parts), 6)).decode("ascii")


def shuffle(values: Array) -> bytes:
    """Numbers as float32, which signals are and lose nothing by: byte by byte of all of them."""
    return values.astype("<f4").view(np.uint8).reshape(len(values), 4).T.tobytes()
