"""Runs with made-up signals on disk, for tests that need no model.

Signals and quality follow from the seed; `quality` is drawn so that log p and A carry some of it.
"""

import json
from dataclasses import replace

import numpy as np

from lookback.runs import Run, records
from lookback.runs.layout import SHARD, write_table
from lookback.runs.manifest import Manifest
from lookback.runs.records import Record, TableRecord, read_record
from lookback.scores.base import get_scorer

WORDS = ("", "a", "the", "red", "blue", "dog", "cat", "tree", "is", "are", "two", "on", "and", "it")


def make_run(
    folder,
    benchmark="scenes-caption",
    items=12,
    n=25,
    seed=42,
    length=8,
    model="made-up",
    image="own",
    controls=None,
    failed=(),
    empty=(),
    recorded=(),
    layers=None,
):
    """A finished run.

    Args:
        failed: positions of items that failed.
        empty: (item, index) of responses without tokens.
        recorded: names like "vauq" or "usc@5" of scores to make up.
        controls: the run whose candidates (texts, tokens, quality) this one shares.
        layers: of how many layers it has signals; A is then their mean.
    """
    settings = {
        "model": model,
        "benchmark": benchmark,
        "split": "test",
        "limit": items,
        "sampling": None if controls else {"n": n, "seed": seed},
        "image": image,
        "candidates": {"run": controls.id} if controls else None,
        "revision": None,
        "dtype": "float32",
    }
    if layers:
        settings["by_layer"] = True
    folder.mkdir(parents=True, exist_ok=True)
    Manifest(
        settings,
        {"alpha": 0.5, "lam": 1.25},
        items,
        done=items,
        failed=len(failed),
        status="finished",
        shards=range_of_shards(items),
        scorers={name: get_scorer(name.partition("@")[0]).defaults for name in recorded},
        created="2026-01-01T00:00:00+00:00",
    ).write(folder)
    texts = np.random.default_rng(seed)  # the same for a run and its controls
    own = np.random.default_rng([seed, len(image), 1])
    for shard in range_of_shards(items):
        places = range(shard * SHARD, min(items, (shard + 1) * SHARD))
        rows, heads, scores = [], [], {name: [] for name in recorded}
        for place in places:
            error = "ValueError: broken image" if place in failed else None
            heads.append(_item(benchmark, place, error, image))
            for index in range(n):
                count = 0 if (place, index) in empty else int(texts.integers(1, 2 * length))
                row = _candidate(texts, own, place, index, count)
                if layers:
                    row |= _layers(place, index, count, layers)
                if error is None:
                    rows.append(row)
            for name in recorded:
                count = int(name.partition("@")[2] or n)
                values = own.uniform(size=count)
                if name.startswith("usc"):  # the shares of three runs
                    values = own.multinomial(3, np.full(count, 1 / count)) / 3
                values = values.tolist()
                replies = ["The most consistent response is Response 1", "what?"]
                entry = {"item": place, "scores": values, "replies": replies, "error": None}
                if error is None:
                    scores[name].append(entry)
        write_shard(folder, "candidates", shard, rows, by_layer=bool(layers))
        for name in recorded:
            write_shard(folder, f"scores/{name}", shard, scores[name])
        write_shard(folder, "items", shard, heads)
        for stage in ("sample", *recorded):
            timed = [place for place in places if stage == "sample" or place not in failed]
            row = {"stage": stage, "responses": n, "ms": 10.0 * len(stage)}
            write_timings(folder, shard, stage, [row | {"item": place} for place in timed])
    return Run(folder)


def range_of_shards(items):
    return list(range(-(-items // SHARD)))


def write_shard(folder, table, shard, rows, by_layer=False):
    """Write one table of a shard, and record it as if it had always been so."""
    written = TableRecord(len(rows), *write_table(folder, table, shard, rows, by_layer=by_layer))
    record = read_record(folder, shard)
    tables = dict.fromkeys(("items", "candidates"), written) | dict(record.tables if record else {})
    first, last = shard * SHARD, shard * SHARD + SHARD - 1
    Record(Manifest.read(folder).id, first, last, tables | {table: written}).write(folder, shard)


def write_timings(folder, shard, stage, rows):
    """Write what a stage of a shard took, and record it as if it had always been so."""
    records.write_timings(folder, shard, read_record(folder, shard), stage, rows)


def change_manifest(folder, **changes):
    """The run with another manifest: new settings get their id, its records too."""
    manifest = Manifest.read(folder)
    if "settings" in changes:
        changes["id"] = ""
    changed = replace(manifest, **changes)
    changed.write(folder)
    for shard in changed.shards:
        for place in (folder, folder / "timings"):
            replace(read_record(place, shard, needed=()), run=changed.id).write(place, shard)
    return Run(folder)


def _item(benchmark, place, error, image):
    return {
        "item": place,
        "id": f"{benchmark}/test/{place}",
        "question": "Describe the picture.",
        "messages": json.dumps(
            [{"role": "user", "content": [{"type": "text", "text": "Describe the picture."}]}]
        ),
        "source": None,
        "truth": json.dumps({"categories": ["dog"]}),
        "image": None if image == "none" else f"{benchmark}/test/{place}",
        "prompt_ids": [1, 2, 3],
        "error": error,
    }


def _layers(place, index, count, layers):
    shares = np.random.default_rng([place, index]).uniform(0.01, 1, (count, layers))
    shares = shares.astype(np.float32)
    return {"by_layer": list(shares), "visual_lookback": shares.mean(1).tolist()}


def _candidate(texts, own, place, index, count):
    words = [f" {WORDS[i]}" for i in texts.integers(1, len(WORDS), count)]
    quality = float(texts.integers(0, 4)) / 3
    return {
        "item": place,
        "index": index,
        "text": "".join(words).strip(),
        "finish": "end",
        "quality": quality,
        "length": count,
        "token_ids": texts.integers(0, 100, count).tolist(),
        "tokens": words,
        "log_prob": (-own.exponential(2 - quality, count)).astype(np.float32).tolist(),
        "visual_lookback": own.uniform(0.01, 0.5 + quality / 2, count).astype(np.float32).tolist(),
        "self_certainty": own.exponential(5, count).astype(np.float32).tolist(),
        "entropy": own.exponential(1, count).astype(np.float32).tolist(),
    }
