"""Compressed blocks of a page: what it decodes when it shows something of them.

A block is base64 of zlib of: the length of a JSON text (4 bytes, little-endian), that text, and
numbers. The JSON, in ASCII, has

items      whatever the page shows, as plain data
numbers    [name, count] each, in the order in which they follow

Numbers are float32, little-endian, the very bits, so that a page ranks as Python does. All first
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
from numpy.typing import NDArray


def pack(items: list[dict[str, Any]], numbers: Mapping[str, NDArray[Any]]) -> str:
    """A block of items and of their numbers, by name."""
    counts = [[name, len(values)] for name, values in numbers.items()]
    text = json.dumps({"items": items, "numbers": counts}, allow_nan=False, separators=(",", ":"))
    head = text.encode("ascii")
    parts = [struct.pack("<I", len(head)), head, *map(shuffle, numbers.values())]
    return base64.b64encode(zlib.compress(b"".join(parts), 6)).decode("ascii")


def shuffle(values: NDArray[Any]) -> bytes:
    """Numbers as float32, which signals are and lose nothing by: byte by byte of all of them."""
    return values.astype("<f4").view(np.uint8).reshape(len(values), 4).T.tobytes()
