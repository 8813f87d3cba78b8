"""Blocks of a page, read by other means than the page's."""

import base64
import json
import struct
import zlib


def unpack(block):
    """A block's items, and the numbers by name."""
    raw = zlib.decompress(base64.b64decode(block, validate=True))
    (length,) = struct.unpack_from("<I", raw)
    head = json.loads(raw[4 : 4 + length])
    numbers, at = {}, 4 + length
    for name, count in head["numbers"]:
        columns = [raw[at + k * count : at + (k + 1) * count] for k in range(4)]
        plain = bytes(byte for four in zip(*columns, strict=True) for byte in four)
        numbers[name] = struct.unpack(f"<{count}f", plain)
        at += 4 * count
    assert at == len(raw)
    return head["items"], numbers


def items_of(browser, number):
    """What the browser of a page shows of a run: its items, with ids and questions."""
    run = browser.index["runs"][number]
    blocks = -(-len(run["items"]) // browser.index["block"])
    found = []
    for block in browser.blocks[run["first"] : run["first"] + blocks]:
        found += unpack(block)[0]
    return [
        item | {"id": name, "question": question, "picks": picks}
        for item, (name, question, picks) in zip(found, run["items"], strict=True)
    ]
