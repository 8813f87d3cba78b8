"""Made-up runs with some of their rows changed."""

from made_runs import write_shard

from lookback.runs import Run


def change_rows(run, candidate=None, item=None):
    """The run with every row of its tables given to a function that changes it in place."""
    for table, change in (("candidates", candidate), ("items", item)):
        if change is None:
            continue
        rows = Run(run.path).table(table).to_pylist()
        for row in rows:
            change(row)
        for shard in run.manifest.shards:
            write_shard(run.path, table, shard, [row for row in rows if row["item"] // 10 == shard])
    return Run(run.path)


def keep_rows(run, keep):
    """The run with only those candidates of which a function says so."""
    rows = [row for row in Run(run.path).table("candidates").to_pylist() if keep(row)]
    for shard in run.manifest.shards:
        here = [row for row in rows if row["item"] // 10 == shard]
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
