"""Compare what two versions of LookBack compute, on one machine.

    python -m tools.compare_versions BASE             # with a commit, branch or tag
    python -m tools.compare_versions BASE --keep DIR

A git worktree of BASE and the present tree each produce, by public commands and names alone: runs
of the embedded model on the four Scenes tasks, every study's CSV on them, signals of ten tiny
model families by `sample`, `score` and `record`, `/openapi.json` and the help of every command.
Files that differ are listed: how many lines or values, and for numbers the largest difference.
Last bits depend on the processor, so nothing of this is stored: both sides are always computed
here and now. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TASKS = ("scenes-vqa", "scenes-caption", "scenes-pairs", "scenes-amber")
RUN = ("--limit", "12", "--n", "5", "--by-layer", "--look", "2", "--max-new-tokens", "96")
SCORERS = ("visual_gain", "vauq", "usc@5")
FAMILIES = (
    *("llava_gqa", "qwen2_5_vl", "internvl", "paligemma", "gemma3"),
    *("qwen3_vl", "smolvlm", "qwen3_5", "lfm2_vl", "qwen3_vl_moe"),
)
VOLATILE = {"created", "commit", "versions", "checksum"}
"""Fields of a manifest that differ from run to run."""
QUESTION = "what is in the picture?"
SHOWN = 12
"""Lines of a text difference to print."""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("base", help="Commit, branch or tag to compare with.")
    parser.add_argument("--keep", type=Path, help="Keep the files of both sides in this folder.")
    parser.add_argument("--collect", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.collect:
        collect(arguments.collect)
        return
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        git("worktree", "add", "--detach", str(tree), arguments.base)
        try:
            folder = arguments.keep or Path(scratch) / "outputs"
            for side, root in (("base", tree), ("head", ROOT)):
                print(f"collecting {side}: {root}", flush=True)
                run_collect(root, folder / side)
        finally:
            git("worktree", "remove", "--force", str(tree))
        differences = list(compare(folder / "base", folder / "head"))
    print("\n".join(differences) or "no differences")
    sys.exit(bool(differences))


def git(*arguments: str) -> None:
    """Run a git command in this checkout."""
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


def run_collect(root: Path, out: Path) -> None:
    """Collect the outputs of the package in `root`, in a process that imports that one.

    Tiny models are those of the present tree on both sides.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    path = os.pathsep.join(map(str, (root, ROOT / "tests")))
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    env["TRANSFORMERS_VERBOSITY"] = "error"
    command = [sys.executable, str(Path(__file__)), "-", "--collect", str(out)]
    subprocess.run(command, env=env, cwd=root, check=True)


def collect(out: Path) -> None:
    """Write everything that is compared into a folder."""
    import lookback

    package = Path(lookback.__file__).parents[1]
    assert package == Path.cwd(), f"lookback was imported from {package}, not from {Path.cwd()}"
    for task in TASKS:
        scorers = [part for scorer in SCORERS for part in ("--scorers", scorer)]
        lookback_command("run", "--benchmark", task, *RUN, *scorers, "--out", f"{out}/runs/{task}")
    lookback_command("study", "all", f"{out}/runs", "--out", f"{out}/studies")
    for file in (out / "studies").rglob("*"):
        if file.is_file() and file.suffix != ".csv":
            file.unlink()
    measured = out / "studies" / "overhead.csv"  # milliseconds: its columns alone are compared
    measured.write_text(measured.read_text(encoding="utf-8").splitlines()[0], encoding="utf-8")
    for folder in list((out / "runs").glob("*/timings")):
        shutil.rmtree(folder)
    (out / "families").mkdir()
    for name in FAMILIES:
        text = json.dumps(family_signals(name), indent=1)
        (out / "families" / f"{name}.json").write_text(text, encoding="utf-8")
    (out / "openapi.json").write_text(json.dumps(openapi(), indent=1, sort_keys=True))
    docs = ("-m", "typer", "lookback.cli", "utils", "docs", "--name", "lookback")
    (out / "help.md").write_text(call(*docs), encoding="utf-8")


def call(*arguments: str) -> str:
    """Run this Python and return what it prints."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def lookback_command(*arguments: str) -> None:
    """Run a `lookback` command."""
    call("-m", "lookback.cli", *arguments)


def family_signals(name: str) -> dict[str, Any]:
    """Return the signals of a tiny model by `sample`, `score` and `record`."""
    import numpy as np
    import torch
    import zoo
    from PIL import Image

    import lookback

    pixels = np.random.default_rng(0).integers(0, 256, (48, 40, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    tiny = zoo.build(name)
    engine = lookback.load(tiny.model, tiny.processor)
    inputs: dict[str, Any] = {}

    def keep_prompt(model: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Keep what the first pass is given: the processor's output, as `generate` takes it."""
        if not inputs:
            own = ("past_key_values", "use_cache", "logits_to_keep", "position_ids")
            inputs.update({key: value for key, value in kwargs.items() if key not in own})

    hook = tiny.model.register_forward_pre_hook(keep_prompt, with_kwargs=True)
    sampled = engine.sample(image, QUESTION, n=5, seed=3, max_new_tokens=12, by_layer=True)
    hook.remove()
    scored = engine.score(image, QUESTION, [list(one.token_ids) for one in sampled])
    torch.manual_seed(3)
    with lookback.record(tiny.model, tiny.processor) as recorder:
        out = tiny.model.generate(
            **inputs, do_sample=True, num_return_sequences=3, max_new_tokens=12
        )
    ways = {"sample": sampled, "score": scored, "record": recorder.candidates(out)}
    return {way: candidates.to_dict() for way, candidates in ways.items()}


def openapi() -> Any:
    """Return the API document of a real server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "lookback.cli", "serve", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while server.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json") as answer:
                    return json.load(answer)
            except urllib.error.URLError:
                time.sleep(0.2)
        sys.exit("`lookback serve` ended before it answered")
    finally:
        server.terminate()
        server.wait()


def compare(base: Path, head: Path) -> Iterator[str]:
    """Describe the files that differ between two folders, a line or a few each."""
    sides = [
        {str(file.relative_to(side)) for file in side.rglob("*") if file.is_file()}
        for side in (base, head)
    ]
    for name in sorted(sides[0] | sides[1]):
        if name not in sides[1]:
            yield f"{name}: only in base"
        elif name not in sides[0]:
            yield f"{name}: only in head"
        elif (base / name).read_bytes() != (head / name).read_bytes():
            yield from describe(name, base / name, head / name)


def describe(name: str, base: Path, head: Path) -> Iterator[str]:
    """Describe how two files of one name differ."""
    if base.suffix in (".parquet", ".json", ".csv"):
        yield from describe_values(name, dict(leaves(load(base))), dict(leaves(load(head))))
    else:
        before, after = (file.read_text(encoding="utf-8").splitlines() for file in (base, head))
        changed = [
            line
            for line in difflib.unified_diff(before, after, lineterm="", n=0)
            if not line.startswith(("---", "+++", "@@"))
        ]
        yield f"{name}: {len(changed)} lines differ"
        yield from (f"    {line}" for line in changed[:SHOWN])


def load(file: Path) -> Any:
    """Read a table or a JSON file, without what differs from run to run."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(file).to_pydict()
    if file.suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))
    data = json.loads(file.read_text(encoding="utf-8"))
    if file.name == "manifest.json":
        return {key: value for key, value in data.items() if key not in VOLATILE}
    return data


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """List the numbers and texts of nested data, each with its path."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from leaves(part, f"{path}[{index}]")
    else:
        yield path, value


def describe_values(name: str, base: dict[str, Any], head: dict[str, Any]) -> Iterator[str]:
    """Describe how the values of two files differ; nothing if only their layout does."""
    changed = {path for path in base.keys() & head.keys() if not same(base[path], head[path])}
    numbers = {path: distance(base[path], head[path]) for path in changed}
    largest = max((value for value in numbers.values() if value is not None), default=None)
    lines = [f"    - {path} = {base[path]!r:.80}" for path in sorted(base.keys() - head.keys())]
    lines += [f"    + {path} = {head[path]!r:.80}" for path in sorted(head.keys() - base.keys())]
    lines += [f"    {path}: {base[path]!r:.80} -> {head[path]!r:.80}" for path in sorted(changed)]
    if lines:
        about = "" if largest is None else f", largest difference of a number {largest:.3g}"
        yield f"{name}: {len(lines)} of {len(base.keys() | head.keys())} values differ{about}"
        yield from lines[:SHOWN]


def same(base: Any, head: Any) -> bool:
    """Whether two values are equal, NaN to NaN too."""
    return bool(base == head) or (base != base and head != head)


def distance(base: Any, head: Any) -> float | None:
    """Return the difference of two numbers, also those that a CSV spells; None for others."""
    try:
        apart = abs(float(base) - float(head))
    except (TypeError, ValueError):
        return None
    return math.inf if math.isnan(apart) else apart


if __name__ == "__main__":
    main()
