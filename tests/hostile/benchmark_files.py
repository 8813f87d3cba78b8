"""Data files of the benchmarks: wrong shapes, nothing in them, damaged and packed oddly."""

import copy
import gzip
import io
import json
import zipfile

from hostile.case import Case
from hostile.values import JSON_VALUES, damage, json_text

ROW = dict.fromkeys(("category", "subcategory", "visual_input", "set_id", "figure_id"), "1")
ROW |= {"question_id": "0", "question": "Is it?", "gt_answer": "1", "filename": None}
FILES = {
    "vqav2": {
        "questions.json": {"questions": [{"question_id": 1, "image_id": 1, "question": "Is it?"}]},
        "annotations.json": {
            "annotations": [{"question_id": 1, "answers": [{"answer": "yes"}] * 10}]
        },
    },
    "chair": {
        "instances_val2014.json": {
            "images": [{"id": 1}],
            "categories": [{"id": 18, "name": "dog"}],
            "annotations": [{"image_id": 1, "category_id": 18}],
        },
        "captions_val2014.json": {"annotations": [{"image_id": 1, "caption": "A dog."}]},
        "synonyms.txt": "dog, puppy\ncat\n",
    },
    "chair, ready": {"ground_truth_objects.json": {"1": ["dog"]}, "synonyms.txt": "dog\n"},
    "amber": {
        "query_generative.json": [{"id": 1, "image": "1.jpg", "query": "Describe it."}],
        "annotations.json": [{"id": 1, "type": "generative", "truth": ["dog"], "hallu": ["cat"]}],
        "relation.json": {"dog": ["puppy"], "cat": []},
        "safe_words.txt": "picture\n",
    },
    "hallusionbench": {
        "HallusionBench.json": [ROW | {"category": "VD", "gt_answer_details": "It is."}],
    },
}
RESPONSES = ("Yes, a dog.", "", "A dog and a cat " * 200, "é\u0301\u200b", "no\x00no", "1", "\n")


def make(rng, place):
    """An evaluation whose folder of data has one or two bad files."""
    kind = rng.choice(tuple(FILES))
    folder = place.folder / "data"
    folder.mkdir()
    files = {name: plain(content) for name, content in FILES[kind].items()}
    about = []
    for name in rng.sample(tuple(files), min(len(files), rng.choice((1, 1, 2)))):
        about.append(spoil(rng, files, name, FILES[kind][name]))
    for name, data in files.items():
        (folder / name).write_bytes(data)
    response = json.dumps(
        {"id": "0" if kind == "hallusionbench" else 1, "response": rng.choice(RESPONSES)}
    )
    (place.folder / "responses.jsonl").write_text(response)
    argv = ["evaluate", kind.partition(",")[0], "--data", "data", "--responses", "responses.jsonl"]
    if rng.random() < 0.3:
        argv.append("--json")
    if rng.random() < 0.1:
        argv += ["--split", rng.choice(("test", "all", "nope"))]
    return Case(tuple(argv), f"{kind}: {'; '.join(about)}", own=(".cache",))


def plain(content):
    return (content if isinstance(content, str) else json.dumps(content)).encode()


def spoil(rng, files, name, content):
    """Change one of the files; what was done."""
    way = rng.choice(("shape", "shape", "shape", "json", "damage", "gone", "empty", "pack", "text"))
    if way == "shape" and not isinstance(content, str):
        files[name] = json.dumps(misshapen(rng, content)).encode()
    elif way == "json":
        files[name] = json_text(rng).encode("utf-8", "surrogatepass")
    elif way == "damage":
        way, files[name] = damage(rng, files[name])
    elif way == "gone":
        del files[name]
    elif way == "empty":
        files[name] = rng.choice((b"", b"\n", b"\xef\xbb\xbf", b" "))
    elif way == "pack":
        suffix, data = packed(rng, name, files.pop(name))
        files[name + suffix] = data
        way = f"packed as {suffix}"
    else:
        files[name] = rng.choice((b"caf\xe9\n", b"\x00" * 50, b", ,\n,", b"dog\tcat\n" * 10))
    return f"{name} {way}"


def misshapen(rng, content):
    """The same with a value somewhere in it replaced, dropped or repeated."""
    content = {"top": copy.deepcopy(content)}
    here, key = content, "top"
    while rng.random() < 0.7 and isinstance(here[key], (dict, list)) and here[key]:
        here = here[key]
        key = rng.choice(tuple(here) if isinstance(here, dict) else range(len(here)))
    if rng.random() < 0.2 and here is not content:
        del here[key]
    elif rng.random() < 0.2 and isinstance(here, list):
        here.append(here[key])
    else:
        here[key] = rng.choice(JSON_VALUES)
    return content.get("top")


def packed(rng, name, data):
    """As .gz or .zip: sound, damaged, of several members, with a password, or far too large."""
    if rng.random() < 0.15:
        data = bytes(40 * 2**20)
    if rng.random() < 0.5:
        made, suffix = gzip.compress(data, 1), ".gz"
    else:
        out = io.BytesIO()
        with zipfile.ZipFile(
            out, "w", rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
        ) as archive:
            for number in range(rng.choice((0, 1, 1, 1, 2))):
                archive.writestr(f"{number}/{name}", data)
        made, suffix = out.getvalue(), ".zip"
    if suffix == ".zip" and rng.random() < 0.3:  # the flag of a password, the number of a method
        at = made.find(b"PK\x01\x02") + rng.choice((8, 10))
        made = made[:at] + rng.choice((b"\x01\x00", b"\x63\x00")) + made[at + 2 :]
    return suffix, damage(rng, made)[1] if rng.random() < 0.4 else made
