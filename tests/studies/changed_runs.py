"""Made-up runs with some of their rows changed."""

from lookback.runs import Run
from lookback.runs.layout import CANDIDATES, read_table, write_shard


def change_rows(run, candidate=None, item=None):
    """The run with every row of its tables given to a function that changes it in place."""
    for table, change in (("candidates", candidate), ("items", item)):
        if change is None:
            continue
        layers = run.has_layers and table == "candidates"
        columns = (*CANDIDATES.names, "by_layer") if layers else None
        rows = read_table(run.path, table, columns).to_pylist()
        for row in rows:
            change(row)
        for file in sorted((run.path / table).glob("*.parquet")):
            file.unlink()
        by_shard = {}
        for row in rows:
            by_shard.setdefault(row["item"] // 10, []).append(row)
        for shard, here in by_shard.items():
            write_shard(run.path, table, shard, here, by_layer=layers)
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
