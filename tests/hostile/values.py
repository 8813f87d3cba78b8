"""Bad values that several kinds share."""

import json
import os

NUMBERS = (
    *("0", "-1", "-0", "1.5", "nan", "NaN", "inf", "-inf", "1e309", "1e-320", "1e400", "-1e-9"),
    *("", " ", "two", "٣", "0x10", "1_0", "1,5", "--", "-", "None", "true", "[]", "1e3", "+1"),
    *(str(2**31), str(2**63), str(2**64), str(-(2**63)), "9" * 5000, "0" * 400),
)
TEXTS = (
    *("", " ", "\n", "\t\t", "\x1b[31mred\x1b[0m", "\x07\x08\x7f", "\r\nx", "a\nb\nc"),
    *("\u202eabc", "e\u0301" * 50, "\U0001f469\u200d\U0001f467" * 20, "\udcff\udc80", "\ufeff"),
    *("x" * 50_000, "<image>" * 40, "</s><|im_end|>", "[/bold][red]", "{{ 7*7 }}", "%s%n%d"),
    *(
        "../../etc/passwd",
        "-",
        "--",
        "--json",
        "~",
        "$HOME",
        "nul\u0000".strip("\0"),
        "𝔘𝔫𝔦",
        "\u2028",
    ),
)
MINE = ("mine.txt", ".backup.2024")
"""What a full folder has."""
JSON_VALUES = (
    *(None, True, 0, -1, 1.5, 10**30, "", " ", "x", [], {}, [[]], [None], {"": None}, [{}]),
    *("\ud83d", "\x00", "a" * 3000, [1, "1", None], {"a": {"b": []}}),
)


def json_text(rng):
    """JSON, or what looks like it: numbers beyond all bounds, depth, halves of things."""
    return rng.choice(
        [
            *(json.dumps(value) for value in JSON_VALUES),
            *("NaN", "Infinity", "1e999", "9" * 5000, "[" * 100_000, '{"a":' * 100_000),
            *("{", '{"a": 1', "[1,]", "{'a': 1}", '{"a": 1}{"b": 2}', "\ufeff{}", '"\\ud83d"'),
            *('{"a": 1, "a": 2}', "// no", "nul", "\x00", " " * 1000),
        ]
    )


def odd_path(rng, folder):
    """A name in the folder that is no plain file, or of one that is but has nothing to say."""
    kind = rng.choice(PATHS)
    path = folder / f"odd-{len(os.listdir(folder))}"
    if kind == "folder":
        path.mkdir()
    elif kind == "full folder":
        path.mkdir()
        for name in MINE:
            (path / name).write_text("mine")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("gone")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "zeros":
        path.write_bytes(bytes(rng.randrange(1, 5000)))
    elif kind == "locked":
        path.write_text("mine")
        path.chmod(0)
    elif kind == "socket name":
        return "odd:name?*"
    elif kind == "long":
        return "n" * 300
    elif kind == "deep":
        return "d/" * 2100 + "x"
    elif kind == "below a file":
        path.write_text("mine")
        return f"{path.name}/below"
    elif kind != "missing":
        return kind
    return path.name


PATHS = (
    *("folder", "full folder", "pipe", "loop", "dangling", "empty", "zeros", "locked", "missing"),
    *("socket name", "long", "deep", "below a file"),
    *("/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem", "/proc/nope/x", "", ".", "~nobody"),
    *("\udcff.png", "a\nb", "\x1b[31m.png", "-", "file:///etc/passwd", "ftp://127.0.0.1/x.png"),
)


def write_picture(path, size=(24, 24)):
    """A sound picture."""
    from PIL import Image

    Image.new("RGB", size, (200, 30, 30)).save(path)
    return path.name


def damage(rng, data):
    """Bytes that were damaged on their way."""
    data = bytearray(data)
    way = rng.choice(("cut", "flip", "flips", "zeros", "insert", "head", "twice", "text"))
    if not data or way == "text":
        return way, b"this is text\n" * rng.randrange(1, 20)
    at = rng.randrange(len(data))
    if way == "cut":
        del data[at:]
    elif way == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif way == "flips":
        for _ in range(rng.randrange(2, 200)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif way == "zeros":
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    elif way == "insert":
        data[at:at] = rng.randbytes(rng.randrange(1, 100))
    elif way == "head":
        del data[: rng.randrange(1, min(len(data), 100) + 1)]
    else:
        data += bytes(data)
    return way, bytes(data)
