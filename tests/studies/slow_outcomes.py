"""What studies should find, read from the shards and worked out one candidate at a time.

And ways to change a run on disk: fewer candidates, other recorded scores, other defaults.
"""

import math

import pyarrow.parquet as pq
from made_runs import change_manifest, write_shard

from lookback.runs import Run
from lookback.runs.layout import SHARD
from lookback.scores.formula import lookback_score


def raw(run, table="candidates"):
    """All rows of a table."""
    files = sorted((run.path / table).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def by_item(run):
    """{position: its candidates in order}."""
    found = {}
    for row in raw(run):
        found.setdefault(row["item"], []).append(row)
    return found


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values)


def slow_score(run, method, candidate, **params):
    if not candidate["length"]:
        return math.nan
    if method == "lookback":
        settings = run.defaults | params
        return lookback_score(candidate["log_prob"], candidate["visual_lookback"], **settings)
    sign, name = {
        "mean_log_prob": (1, "log_prob"),
        "self_certainty": (1, "self_certainty"),
        "visual_lookback": (1, "visual_lookback"),
        "entropy": (-1, "entropy"),
    }[method]
    return sign * mean(candidate[name])


def slow_outcome(run, method, n, **params):
    """[the quality of the pick]: an item each."""
    recorded = {}
    for name in (method, f"{method}@{n}"):
        if (run.path / "scores" / name).is_dir():
            recorded = {row["item"]: row["scores"] for row in raw(run, f"scores/{name}")}
    found = []
    for item, candidates in by_item(run).items():
        first = candidates[:n]
        if method == "random":
            found.append(mean(c["quality"] for c in first))
        elif method == "oracle":
            found.append(max(c["quality"] for c in first))
        elif method == "usc":  # the mean over its three runs, of which a score is the share
            votes = [
                c["quality"]
                for c, share in zip(first, recorded[item], strict=False)
                for _ in range(round(3 * share))
            ]
            found.append(mean(votes))
        else:
            scores = recorded.get(item) or [slow_score(run, method, c, **params) for c in first]
            best = 0
            for i, score in enumerate(scores[: len(first)]):
                known = score is not None and not math.isnan(score)
                now = scores[best]
                if known and (now is None or math.isnan(now) or score > now):
                    best = i
            found.append(first[best]["quality"])
    return found


def slow_percent(run, method, n, **params):
    return 100 * mean(slow_outcome(run, method, n, **params))


def shorten(run, item, keep):
    """The run with only the first `keep` candidates of an item, and only their recorded scores."""
    shard = item // SHARD
    for table in ("candidates", *(f"scores/{name}" for name in run.recorded)):
        rows = pq.read_table(run.path / table / f"{shard:05d}.parquet").to_pylist()
        rows = [r for r in rows if r["item"] != item or r.get("index", 0) < keep]
        for row in rows:
            if row["item"] == item and "scores" in row:
                row["scores"] = row["scores"][:keep]
        write_shard(run.path, table, shard, rows)
    return Run(run.path)


def record(run, name, scores=None, replies=None):
    """The run with recorded scores: functions from an item's candidates to a list each."""
    count = int(name.partition("@")[2] or run.n)
    found = {}
    for item, candidates in by_item(run).items():
        first = candidates[:count]
        row = {"item": item, "error": None}
        row["scores"] = [c["quality"] for c in first] if scores is None else scores(first)
        row["replies"] = [] if replies is None else replies(first)
        found.setdefault(item // SHARD, []).append(row)
    for shard, rows in found.items():
        write_shard(run.path, f"scores/{name}", shard, rows)
    return change_manifest(run.path, scorers=dict(run.manifest.scorers) | {name: {}})


def change(run, **manifest):
    """The run with other entries of its manifest."""
    return change_manifest(run.path, **manifest)


def texts(table, row):
    """A row's cells without their marks."""
    return [cell if isinstance(cell, str) else cell.text for cell in table.rows[row]]


def cells(table):
    """{first cell: the others}."""
    return {texts(table, i)[0]: texts(table, i)[1:] for i in range(len(table.rows))}


def marks(table):
    """{first cell: the marks of the others}."""
    return {
        texts(table, i)[0]: ["" if isinstance(c, str) else c.mark for c in row[1:]]
        for i, row in enumerate(table.rows)
    }
