"""Commands that once ended otherwise than promised: a traceback, a wrong number, a lost file.

Each is a name, and a function from a `Place` to its `Case`, which says with which status it must
end.
"""

import gzip
import io
import json
import os
import shutil
import zipfile

from hostile.benchmark_files import FILES, plain
from hostile.case import FAST, Case
from hostile.damaged_runs import MAKING
from hostile.models import MODEL
from hostile.pictures import chunk, giant_head
from hostile.values import write_picture

SHORT = ("-n", "2", "--max-new-tokens", "4")
RUN = ("run", "--benchmark", "scenes-vqa", "--limit", "2", "--out", "out")


def ask(*more, status=1, picture="p.png", files=None, environment=None, fast=True):
    """A question about a picture, with further arguments and files."""

    def make(place):
        write_picture(place.folder / "p.png")
        write_files(place.folder, files or {})
        argv = ("ask", picture.format(url=place.url), "What is it?", *SHORT, *more)
        argv += FAST if fast else ()
        return Case(argv, "", environment=environment or {}, status=status)

    return make


def start_run(*more, status=1, own=(), files=None):
    """A run of two items, with further arguments."""

    def make(place):
        write_files(place.folder, files or {})
        return Case((*RUN, *SHORT, *more, *FAST), "", own=own, status=status)

    return make


def damaged(damage, *argv, status=1, own=("out",)):
    """A study of a run that was damaged, or other arguments; its numbers are right, or none."""

    def make(place):
        shutil.copytree(place.run, place.folder / "run")
        damage(place.folder / "run")
        given = argv or ("study", "oracle", "run", "--out", "out")
        return Case(given, "", own, right=place.right(given), status=status)

    return make


def evaluate(kind, changes=None, response="Yes, a dog.", status=1, lines=1, more=()):
    """An evaluation on a benchmark's small files, some of them changed; None removes one."""

    def make(place):
        files = {name: plain(content) for name, content in FILES[kind].items()} | (changes or {})
        (place.folder / "data").mkdir()
        write_files(place.folder / "data", files)
        name = "0" if kind == "hallusionbench" else 1
        text = json.dumps({"id": name, "response": response}) + "\n"
        (place.folder / "r.jsonl").write_text(text * lines)
        argv = ("evaluate", kind.partition(",")[0], "--data", "data", "--responses", "r.jsonl")
        return Case((*argv, *more), "", own=(".cache",), status=status)

    return make


def own(line, status=1):
    """A run of one line of one's own data."""

    def make(place):
        text = line if isinstance(line, str) else json.dumps(line)
        write_files(place.folder, {"own.jsonl": text.encode()})
        argv = ("run", "--data", "own.jsonl", "--out", "out", *SHORT, *FAST)
        return Case(argv, "", own=("out",), status=status)

    return make


def model(damage, status=1):
    """A question to a damaged copy of the embedded model."""

    def make(place):
        write_picture(place.folder / "p.png")
        shutil.copytree(MODEL, place.folder / "model")
        damage(place.folder / "model")
        argv = ("ask", "p.png", "What is it?", *SHORT, "--model", "model")
        return Case(argv, "", status=status)

    return make


def write_files(folder, files):
    """Files by their contents; None for none of that name."""
    for name, data in files.items():
        if data is not None:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)


def zipped(name, data, flag=b"\x00\x00", method=None):
    """A zip of one member, its flags or its method changed in the directory at its end."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    made = bytearray(out.getvalue())
    at = made.find(b"PK\x01\x02")
    made[at + 8 : at + 10] = flag
    if method:
        made[at + 10 : at + 12] = method
    return bytes(made)


def pipe_as_picture(place):
    os.mkfifo(place.folder / "pipe.png")
    return Case(("ask", "pipe.png", "What?", *SHORT, *FAST), "", status=1)


def pipe_as_responses(place):
    write_files(place.folder, {"own.jsonl": b'{"question": "What?", "answers": "x"}'})
    os.mkfifo(place.folder / "r.jsonl")
    argv = ("evaluate", "own", "--data", "own.jsonl", "--responses", "r.jsonl")
    return Case(argv, "", status=1)


def cut_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def manifest(text):
    return lambda folder: (folder / "manifest.json").write_text(text)


def without_key(folder):
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    del data["settings"]
    path.write_text(json.dumps(data))


def killed(folder):
    """As a kill between two tables left it."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "running"}))
    (folder / "items" / "00001.parquet").unlink()


def swap(folder):
    first, second = (folder / "candidates" / f"0000{shard}.parquet" for shard in (0, 1))
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def flip(folder):
    path = folder / "candidates" / "00000.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def add_shard(folder):
    shutil.copy(folder / "candidates" / "00000.parquet", folder / "candidates" / "00007.parquet")


def remove_shard(folder):
    (folder / "candidates" / "00000.parquet").unlink()


DEEP = b"[" * 100_000
BIG = b"\x89PNG\r\n\x1a\n" + giant_head(12_000, 12_000) + chunk(b"IEND", b"")
LONG = "A dog sits beside a cat on a table with two cups, and " * 5200  # 280 kB
SHORT_TIME = {"LOOKBACK_MAX_FETCH_SECONDS": "1"}

KNOWN = {
    # Data
    "a folder of others": start_run(files={"out/.backup.2024": b"mine"}),
    "a shard is gone": damaged(remove_shard),
    "a shard is gone, the same run": damaged(remove_shard, *MAKING, status=0, own=("run",)),
    "shards are swapped": damaged(swap),
    "a bit is flipped": damaged(flip),
    "a shard too many": damaged(add_shard),
    "killed between two tables": damaged(killed),
    "no candidates": start_run("-n", "0"),
    "a nucleus of 2": start_run("--top-p", "2"),
    "a temperature below 0": start_run("--temperature", "-1"),
    "a temperature that is no number": start_run("--temperature", "nan"),
    "no items": start_run("--limit", "0"),
    # Errors instead of tracebacks
    "cuda": ask("--device", "cuda", fast=False),
    "no device": ask("--device", "nope", fast=False),
    "mps": ask("--device", "mps", fast=False),
    "meta": ask("--device", "meta", fast=False),
    "cut weights": model(cut_weights),
    "a broken template": model(lambda folder: (folder / "chat_template.jinja").write_text("{% x")),
    "a broken gz": evaluate(
        "chair, ready",
        {"ground_truth_objects.json": None, "instances_val2014.json.gz": b"\x1f\x8b"},
    ),
    "a broken zip": evaluate("vqav2", {"questions.json": None, "questions.zip": b"PK\x03\x04"}),
    "an encrypted zip": evaluate(
        "vqav2", {"questions.json": None, "questions.zip": zipped("q.json", b"{}", b"\x01\x00")}
    ),
    "an unknown packing": evaluate(
        "vqav2",
        {"questions.json": None, "questions.zip": zipped("q.json", b"{}", method=b"\x63\x00")},
    ),
    "a bad port": ask(picture="http://127.0.0.1:99999/"),
    "a blank in a host": ask(picture="http://a b/"),
    "a bad chunk": ask(picture="{url}/bad-chunk"),
    "a bad status line": ask(picture="{url}/no-status"),
    "no workers": start_run("--dry-run", "--workers", "0"),
    "a temperature of nearly 0": start_run("--temperature", "1e-320"),
    "a seed of 65 bits": start_run("--seed", str(2**64)),
    "a manifest that is a list": damaged(manifest("[]")),
    "a manifest that is null": damaged(manifest("null")),
    "a manifest without a key": damaged(without_key),
    "a manifest without end": damaged(manifest("[" * 100_000)),
    "a setting without end": ask("--set", "alpha=" + "[" * 100_000),
    "own data without end": own(DEEP.decode()),
    "objects without end": evaluate("chair, ready", {"ground_truth_objects.json": DEEP}),
    "chair's objects as a list": evaluate("chair, ready", {"ground_truth_objects.json": b"[]"}),
    "amber's files as one row": evaluate("amber", {"annotations.json": b"[{}]"}),
    "amber's questions as one row": evaluate("amber", {"query_generative.json": b"[{}]"}),
    "a plugin that raises": ask("--plugin", "mine.py", files={"mine.py": b"1 / 0"}),
    "no synonyms": evaluate("chair, ready", {"synonyms.txt": b""}),
    "no relations": evaluate("amber", {"relation.json": b"{}"}),
    # Bounded time and memory
    "ftp": ask(picture="ftp://127.0.0.1/x.png"),
    "a file by its URL": ask(picture="file:///etc/passwd"),
    "a drip": ask(picture="{url}/drip", environment=SHORT_TIME),
    "a loop of redirects": ask(picture="{url}/loop"),
    "a picture without end": ask(picture="{url}/endless"),
    "a pipe as a picture": pipe_as_picture,
    "a pipe as responses": pipe_as_responses,
    "a device as a picture": ask(picture="/dev/zero"),
    "a folder of pictures": ask(picture=".", status=0),
    "a folder as a further picture": ask("--image", "."),
    "a picture of 144 megapixels": ask(picture="big.png", files={"big.png": BIG}),
    "a zip bomb": evaluate(
        "vqav2", {"questions.json": None, "questions.zip": zipped("q.json", bytes(40 * 2**20))}
    ),
    "a gz bomb": evaluate(
        "vqav2", {"questions.json": None, "questions.json.gz": gzip.compress(bytes(40 * 2**20))}
    ),
    "a long response, chair": evaluate("chair, ready", response=LONG, status=0),
    "a long response, amber": evaluate("amber", response=LONG, status=0),
    "many responses to one id": evaluate("chair, ready", lines=100_000, status=0),
    # Text and names
    "half a character": evaluate("chair, ready", response="a \ud83d dog"),
    "a picture above its folder": own({"question": "What?", "image": "../p.png"}),
    "an absolute picture": own({"question": "What?", "image": "/etc/passwd"}),
}
