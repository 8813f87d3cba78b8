"""Made-up runs with some of their rows changed."""

from lookback.runs import Run
from lookback.runs.layout import read_table, write_shard


def change_rows(run, candidate=None, item=None):
    """The run with every row of its tables given to a function that changes it in place."""
    for table, change in (("candidates", candidate), ("items", item)):
        if change is None:
            continue
        rows = read_table(run.path, table).to_pylist()
        for row in rows:
            change(row)
        for file in sorted((run.path / table).glob("*.parquet")):
            file.unlink()
        by_shard = {}
        for row in rows:
            by_shard.setdefault(row["item"] // 10, []).append(row)
        for shard, here in by_shard.items():
            write_shard(run.path, table, shard, here)
    return Run(run.path)


def keep_rows(run, keep):
    """The run with only those candidates of which a function says so."""
    rows = [row for row in read_table(run.path, "candidates").to_pylist() if keep(row)]
    by_shard = {}
    for row in rows:
        by_shard.setdefault(row["item"] // 10, []).append(row)
    for shard, here in by_shard.items():
        write_shard(run.path, "candidates", shard, here)
    return Run(run.path)


def set_tokens(row, tokens, text=None, **signals):
    """Give a candidate other tokens; signals that are not given are of the same length."""
    row["tokens"], row["length"] = list(tokens), len(tokens)
    row["token_ids"] = list(range(len(tokens)))
    row["text"] = "".join(tokens).strip() if text is None else text
    for name in ("log_prob", "visual_lookback", "self_certainty", "entropy"):
        sign = -1 if name == "log_prob" else 1
        old = (row[name] or [sign * 0.5]) * len(tokens)
        row[name] = list(signals.get(name, old[: len(tokens)]))
