"""Damaged runs: files gone, swapped, cut, flipped, of other shapes; and files of others."""

import json
import os
import shutil

from hostile.case import FAST, Case
from hostile.values import JSON_VALUES, damage, json_text

STUDIES = (
    *("main", "oracle", "scaling", "seeds", "judge", "ablation", "image-sensitivity", "pos"),
    *("decomposition", "tokens", "disagreements", "overhead", "layers", "random-image"),
)
MAKING = (
    *("run", "--benchmark", "scenes-vqa", "--limit", "12", "-n", "3", "--scorers", "usc@2"),
    *("--max-new-tokens", "4", *FAST, "--out", "run"),
)
"""What made the sound run, and makes it again."""
STRANGERS = ("notes.txt", ".backup.2024", "candidates/.backup.2024", ".lookback", "items/mine.csv")


def make(rng, place):
    """A copy of a sound run with one to three damages; then a study, a check, or the same run."""
    folder = place.folder / "run"
    shutil.copytree(place.run, folder)
    about = [rng.choice(DAMAGES)(rng, folder) for _ in range(rng.choice((1, 1, 2, 3)))]
    kept = []
    for name in rng.sample(STRANGERS, rng.choice((0, 1, 2))):
        if (folder / name).parent.is_dir() and not (folder / name).exists():
            (folder / name).write_text("mine")
            kept.append(f"run/{name}")
    argv, own = command(rng)
    # Timings are of one making on one machine: nothing tells whether they are as they were.
    right = None if "overhead" in argv else place.right(argv)
    return Case(argv, f"{argv[0]}: {'; '.join(about)}", own, tuple(kept), right=right)


def command(rng):
    chance = rng.random()
    if chance < 0.5:
        return ("study", rng.choice(STUDIES), "run", "--out", "out"), ("out",)
    if chance < 0.7:
        return ("runs", "verify", "run", *rng.choice(((), ("--json",)))), ()
    if chance < 0.9:
        return MAKING, ("run",)
    return ("run", "--candidates", "run", "--image", "none", "--out", "out", *FAST), ("out",)


def files(folder, *suffixes):
    """All files, in an order that does not depend on the disk."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in suffixes)


def remove(rng, folder):
    found = files(folder, ".parquet", ".json")
    if not found:
        return "nothing left"
    path = rng.choice(found)
    path.unlink()
    return f"{path.name} gone"


def spoil(rng, folder):
    found = files(folder, ".parquet", ".json")
    if not found:
        return "nothing left"
    path = rng.choice(found)
    way, data = damage(rng, path.read_bytes())
    path.write_bytes(data)
    return f"{way} of {path.relative_to(folder)}"


def swap(rng, folder):
    found = files(folder, rng.choice((".parquet", ".json")))
    if len(found) < 2:
        return "nothing to swap"
    first, second = rng.sample(found, 2)
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    return f"{first.relative_to(folder)} for {second.relative_to(folder)}"


def extra(rng, folder):
    found = files(folder, ".parquet", ".json")
    if not found:
        return "nothing left"
    path = rng.choice(found)
    name = rng.choice((f"00007{path.suffix}", f"copy{path.suffix}", f"000001{path.suffix}"))
    if not path.with_name(name).exists():
        shutil.copy(path, path.with_name(name))
    return f"{name} beside {path.relative_to(folder)}"


def reshape(rng, folder):
    """A manifest or a record that is good JSON of something else."""
    found = [path for path in files(folder, ".json") if "timings" not in path.parts]
    if not found:
        return "nothing left"
    path = rng.choice(found)
    try:
        data = json.loads(path.read_text())
    except (ValueError, RecursionError):
        return "no JSON already"
    if rng.random() < 0.3 or not isinstance(data, dict) or not data:
        path.write_text(json_text(rng), encoding="utf-8", errors="surrogatepass")
        return f"{path.name} other JSON"
    key = rng.choice(tuple(data))
    if rng.random() < 0.4:
        del data[key]
    else:
        data[key] = rng.choice(JSON_VALUES)
    path.write_text(json.dumps(data))
    return f"{path.name} with another {key}"


def turn(rng, folder):
    """A file that becomes something else under its name."""
    found = files(folder, ".parquet", ".json")
    if not found:
        return "nothing left"
    path = rng.choice(found)
    path.unlink()
    way = rng.choice(("folder", "pipe", "loop", "dangling", "locked"))
    if way == "folder":
        path.mkdir()
    elif way == "pipe":
        os.mkfifo(path)
    elif way == "locked":
        path.write_text("{}")
        path.chmod(0)
    else:
        path.symlink_to(path.name if way == "loop" else "gone")
    return f"{path.relative_to(folder)} a {way}"


DAMAGES = (remove, spoil, spoil, spoil, swap, extra, reshape, reshape, turn)
