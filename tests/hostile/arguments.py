"""Arguments: numbers out of range, odd text, paths that are none, names of nothing."""

import json
import os

from hostile.case import FAST, Case
from hostile.values import MINE, NUMBERS, TEXTS, json_text, odd_path, write_picture

OWN = ("out", "runs", "studies", ".cache")
NAMES = ("nope", "lookback", "LOOKBACK", "oracle", "judge", "usc", "usc@0", "vauq@-1", "clipscore")
DEVICES = ("cuda", "cuda:7", "mps", "meta", "nope", "cpu:9", "cpu", "", "xla", "auto", "0", "\n")
DTYPES = ("float32", "float17", "int8", "bool", "", "torch.float32", "complex64", "None")
SOURCES = (
    "image:0",
    "image:1",
    "image:9",
    "image:-1",
    "none",
    "marked",
    "last-turn",
    ":",
    "image:x",
)
SETTINGS = (
    *("alpha", "alpha=", "=1", "nope=1", "alpha=NaN", "alpha=x", "alpha=[1]", "lam=null", "a=b=c"),
    *("alpha=1e999", "lam=-1e308", "seed=-1", "seed=1.5", "quality=[1]", "quality=x", "k=nan"),
)
SPLITS = ("all", "test", "nope", "", "../x")


def number(rng, folder):
    return rng.choice(NUMBERS)


def text(rng, folder):
    return rng.choice(TEXTS)


def setting(rng, folder):
    return rng.choice(SETTINGS) if rng.random() < 0.7 else f"alpha={json_text(rng)}"[:100_000]


def device_map(rng, folder):
    return rng.choice(("auto", "nope", "{", '{"": "nope"}', '{"": "cuda"}', "{}", '{"a": []}', ""))


def one_of(*values):
    return lambda rng, folder: rng.choice(values)


LOADING = {
    "--model": odd_path,
    "--engine": one_of("nope", "", "transformers", "toy"),
    "--device": one_of(*DEVICES),
    "--dtype": one_of(*DTYPES),
    "--revision": text,
    "--device-map": device_map,
}
RANKING = {
    "--scorer": one_of(*NAMES, *TEXTS),
    "--alpha": number,
    "--lam": number,
    "--set": setting,
    "--source": one_of(*SOURCES, *TEXTS),
    "--image": odd_path,
}
DRAWING = dict.fromkeys(("-n", "--temperature", "--top-p", "--max-new-tokens", "--seed"), number)
PLACES = {"--data": odd_path, "--split": one_of(*SPLITS, *TEXTS), "--metric": text}
COMMANDS = {
    "ask": LOADING | RANKING | DRAWING,
    "score": LOADING | RANKING | {"--file": odd_path},
    "run": LOADING
    | DRAWING
    | PLACES
    | {
        "--benchmark": one_of(*NAMES, "own", "own:x", "chair", "vqav2", "amber", *TEXTS),
        "--out": odd_path,
        "--limit": number,
        "--candidates": odd_path,
        "--image": one_of("own", "none", "random", "nope", ""),
        "--scorers": one_of(*NAMES, ",", "usc@2,usc@2", "vauq,", *TEXTS),
        "--workers": one_of("0", "-1", "nan", "", "1", "1.0"),
        "--source": one_of(*SOURCES),
        "--judge-model": text,
        "--judge-prompt": one_of("official", "brief", *TEXTS),
    },
    "evaluate": PLACES
    | {
        "--responses": odd_path,
        "--synonyms": odd_path,
        "--judge-cache": odd_path,
        "--judge-url": one_of("nope", "http://127.0.0.1:1/v1", "ftp://x", ""),
    },
    "study": {
        "--out": odd_path,
        "--set": setting,
        "--items": number,
        "--n": one_of("1", "1,2", "2,2", "0", "-1", "99", "5,", ",", "", "1e3", "nan", *TEXTS),
    },
    "runs verify": {},
    "benchmarks": {"--data": odd_path},
    "check": LOADING,
    "scorers": {},
    "studies": {},
    "engines": {},
}
FLAGS = (
    "--json",
    "--by-layer",
    "--dry-run",
    "--retry-failed",
    "--strict",
    "--allow-outside",
    "--nope",
)


def make(rng, place):
    """A command with one to three bad options, words or flags."""
    folder = place.folder
    command = rng.choice(tuple(COMMANDS))
    words = positional(rng, place, command)
    options = {**given(command)}
    known = COMMANDS[command]
    bad = rng.sample(tuple(known), min(len(known), rng.choice((1, 1, 2, 3))))
    for name in bad:
        options[name] = known[name](rng, folder)
    if options.get("--out") in ("", "."):  # where all is the command's own
        options["--out"] = "out"
    argv = [*command.split(), *words]
    for name, value in options.items():
        argv += [name, value]
    if rng.random() < 0.3:
        argv.append(rng.choice(FLAGS))
    if rng.random() < 0.05:
        argv.insert(rng.randrange(len(argv) + 1), rng.choice(TEXTS))
    if command in ("ask", "score", "run", "check") and "--engine" not in bad and rng.random() < 0.8:
        argv += FAST
    if command == "check" and not bad:
        argv += ["--device", "nope"]
    out = options.get("--out", "out")
    kept = [f"{out}/{name}" for name in MINE if os.path.exists(folder / out / name)]
    return Case(tuple(argv), f"{command} {' '.join(bad)}", (*OWN, out), tuple(kept))


def given(command):
    """Options without which a command would take long, or say nothing."""
    short = {"-n": "2", "--max-new-tokens": "4"}
    return {
        "ask": short,
        "run": {"--benchmark": "scenes-vqa", "--limit": "2", "--out": "out"} | short,
        "evaluate": {"--data": "own.jsonl", "--responses": "responses.jsonl"},
        "study": {"--out": "out"},
    }.get(command, {})


def positional(rng, place, command):
    """What stands before the options; one time in four one of the words is bad, or missing."""
    folder = place.folder
    write_picture(folder / "p.png")
    (folder / "own.jsonl").write_text(json.dumps({"id": 1, "question": "Is it?", "answers": "yes"}))
    (folder / "responses.jsonl").write_text(json.dumps({"id": 1, "response": "Yes."}))
    words = {
        "ask": ["p.png", "What is this?"],
        "score": ["p.png", "What is this?", "A cup.", "Two cups."],
        "evaluate": ["own"],
        "study": [rng.choice(("oracle", "main", "nope", "all", "")), str(place.run)],
        "runs verify": [str(place.run)],
    }.get(command, [])
    if words and rng.random() < 0.25:
        at = rng.randrange(len(words))
        words[at] = rng.choice((text, odd_path))(rng, folder)
    if words and rng.random() < 0.05:
        words.pop()
    return words
