"""Made-up runs with some of their rows changed."""

from made_runs import write_shard

from lookback.runs import Run
from lookback.runs.layout import CANDIDATES


def change_rows(run, candidate=None, item=None):
    """The run with every row of its tables given to a function that changes it in place."""
    for table, change in (("candidates", candidate), ("items", item)):
        if change is None:
            continue
        rows = _rows(run, table)
        for row in rows:
            change(row)
        _write(run, table, rows)
    return Run(run.path)


def keep_rows(run, keep):
    """The run with only those candidates of which a function says so."""
    _write(run, "candidates", [row for row in _rows(run, "candidates") if keep(row)])
    return Run(run.path)


def _rows(run, table):
    layers = run.has_layers and table == "candidates"
    columns = (*CANDIDATES.names, "by_layer") if layers else None
    return Run(run.path).table(table, columns).to_pylist()


def _write(run, table, rows):
    layers = run.has_layers and table == "candidates"
    for shard in run.manifest.shards:
        here = [row for row in rows if row["item"] // 10 == shard]
        write_shard(run.path, table, shard, here, by_layer=layers)


def set_tokens(row, tokens, text=None, **signals):
    """Give a candidate other tokens; signals that are not given are of the same length."""
    row["tokens"], row["length"] = list(tokens), len(tokens)
    row["token_ids"] = list(range(len(tokens)))
    row["text"] = "".join(tokens).strip() if text is None else text
    for name in ("log_prob", "visual_lookback", "self_certainty", "entropy"):
        sign = -1 if name == "log_prob" else 1
        old = (row[name] or [sign * 0.5]) * len(tokens)
        row[name] = list(signals.get(name, old[: len(tokens)]))
