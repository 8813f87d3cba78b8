"""Files of one's own, and of responses: broken lines, wrong types, depth, repeats, odd bytes."""

import csv
import io
import json

from hostile.case import FAST, Case
from hostile.values import JSON_VALUES, TEXTS, damage, json_text, write_picture

KEYS = (
    "id",
    "image",
    "question",
    "answers",
    "metric",
    "messages",
    "response",
    "responses",
    "x",
    "",
)
MESSAGES = (
    [{"role": "user", "content": "What?"}],
    [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}],
    [{"role": "user", "content": [{"type": "image", "image": "../x.png"}]}],
    [{"role": "king", "content": 1}],
    [{"content": "What?"}],
    [{"role": "user", "content": [{"type": "video", "video": ["p.png", None]}]}],
)
SOUND = {"id": "1", "question": "What is it?", "image": "p.png", "answers": ["cup"]}
READY = {"id": "1", "response": "A cup."}


def make(rng, place):
    """A command that reads one or two files of lines, with bad ones among them."""
    write_picture(place.folder / "p.png")
    suffix = rng.choice((".jsonl", ".jsonl", ".jsonl", ".csv", ".parquet"))
    data = f"data{suffix}"
    about, content = WRITERS[suffix](rng, SOUND)
    (place.folder / data).write_bytes(content)
    said, responses = jsonl(rng, READY)
    (place.folder / "responses.jsonl").write_bytes(responses)
    metric = ["--metric", rng.choice(("exact", "nope", "vqa", ""))] if rng.random() < 0.2 else []
    if rng.random() < 0.5:
        argv = ["evaluate", "own", "--data", data, "--responses", "responses.jsonl", *metric]
        argv += rng.choice(([], ["--json"], ["--no-strict"], ["--strict"]))
        return Case(tuple(argv), f"{about}, {said}")
    argv = ["run", "--data", data, "--out", "out", "-n", "2", "--max-new-tokens", "4", *metric]
    if rng.random() < 0.3:
        argv += ["--candidates", "responses.jsonl"]
    return Case((*argv, *FAST), f"{about}, {said}", own=("out",))


def rows(rng, sound):
    """Sound rows with some that are not."""
    made = [sound | {"id": str(number)} for number in range(rng.randrange(0, 4))]
    for _ in range(rng.randrange(0, 4)):
        row = dict(sound)
        for _ in range(rng.randrange(1, 3)):
            row[rng.choice(KEYS)] = value(rng)
        if rng.random() < 0.3:
            row.pop(rng.choice(tuple(row)))
        made.append(row)
    rng.shuffle(made)
    return made


def value(rng):
    return rng.choice((*JSON_VALUES, *TEXTS, *MESSAGES, ["p.png", "p.png"], {"bytes": "x"}))


def jsonl(rng, sound):
    lines = [json.dumps(row) for row in rows(rng, sound)]
    for _ in range(rng.randrange(0, 3)):
        lines.insert(rng.randrange(len(lines) + 1), json_text(rng))
    end = rng.choice(("\n", "\n", "\r\n", "\r", "\n\n"))
    return dressed(rng, "jsonl", end.join(lines))


def table(rng, sound):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=rng.choice((",", ",", ";", "\t")))
    made = rows(rng, sound)
    writer.writerow(rng.choice((list(sound), list(sound) * 2, [], ["question", "question"])))
    for row in made:
        cells = [row.get(key, "") for key in sound]
        writer.writerow([c if isinstance(c, str) else json.dumps(c) for c in cells])
    text = out.getvalue() + rng.choice(("", '"never closed', "a,b,c,d,e,f,g\n", "\x00,\n", "\r"))
    return dressed(rng, "csv", text)


def dressed(rng, kind, text):
    """The text as bytes: with a mark, in another encoding, of no encoding, or as it is."""
    data = text.encode("utf-8", "surrogatepass")
    way = rng.choice(
        ("plain", "plain", "plain", "mark", "utf-16", "latin", "nul", "damage", "empty")
    )
    data = {
        "mark": b"\xef\xbb\xbf" + data,
        "utf-16": text.encode("utf-16", "surrogatepass"),
        "latin": data + b'\n{"id": "caf\xe9"}\n',
        "nul": data.replace(b"1", b"\x00"),
        "empty": b"",
    }.get(way, data)
    if way == "damage":
        way, data = damage(rng, data)
    return f"{way} {kind}", data


def parquet(rng, sound):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {key: rng.choice(COLUMNS) for key in rng.sample((*sound, "messages", "x"), 3)}
    if rng.random() < 0.8:
        columns["question"] = ["What?", "Where?"]
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    data = out.getvalue()
    way, data = damage(rng, data) if rng.random() < 0.5 else ("whole", data)
    return f"{way} parquet of {sorted(columns)}", data


COLUMNS = (
    *(["p.png", "p.png"], ["1", "1"], [1, 2], [1.5, float("nan")], [None, None], [True, False]),
    *(
        [b"\x89PNG", b""],
        [["a"], []],
        [{"bytes": b"x", "path": None}, {"bytes": None, "path": "p"}],
    ),
    *([[{"role": "user", "content": "x"}], None], ["[1, 2", "[]"], ["", " "], ["{}", "null"]),
)
WRITERS = {".jsonl": jsonl, ".csv": table, ".parquet": parquet}
