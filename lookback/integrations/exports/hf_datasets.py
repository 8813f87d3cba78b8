"""A run as a dataset for `datasets`: a folder with Parquet and a card."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.integrations.exports import base
from lookback.integrations.exports.base import Entry, Request, Row, Shown, Tally, Written
from lookback.pages import encoded
from lookback.runs import Run
from lookback.runs.layout import SHARD
from lookback.scores.base import get_scorer
from lookback.signals import BY_LAYER, SIGNALS

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress


CONFIG = "default"
TEXTS = ("id", "question", "messages", "source", "truth", "image_of")
JSON_TEXTS = ("messages", "source", "truth")
LICENSE = "# license: yours to choose; see below whose questions and pictures these are"


def make_card(request: Request, written: Written, split: str, features: Any) -> str:
    """Return the text of README.md: what it is, where it is from, how it was made, whose it is."""
    head = _front_matter(request, split, features)
    run = request.run
    parts = [
        f"# {run.model} on {_title(run)}",
        _about(request, written),
        f"```python\n{_example(request)}\n```",
        "## How it was made",
        _table(("setting", "value"), _settings(run)),
        "## Scores",
        _table(("scorer", "settings", "mean quality of its picks"), _scores(request, written)),
        "Higher is better. A rank of 1 is the scorer's pick; quality is the benchmark's own "
        "measure from 0 to 1, null where nothing tells.",
        "## Columns",
        _columns(request),
        "## Whose it is",
        _owners(request, written),
    ]
    return f"---\n{head}---\n\n" + "\n\n".join(parts) + "\n"


def _front_matter(request: Request, split: str, features: Any) -> str:
    """Return what the hub and `datasets` read; the license is left to whoever publishes it."""
    from datasets import DatasetInfo

    info: Any = DatasetInfo(features=features)
    data = {
        "pretty_name": f"{request.run.model} on {_title(request.run)}: candidates",
        "tags": ["lookback", "best-of-n", "vision-language-models"],
        "task_categories": ["image-text-to-text"],
        "configs": [
            {
                "config_name": CONFIG,
                "data_files": [{"split": split, "path": f"data/{split}-*.parquet"}],
            }
        ],
        "dataset_info": {"config_name": CONFIG} | info._to_yaml_dict(),
    }
    text: str = base.need("yaml", "pyyaml", "hf-dataset").safe_dump(
        data, sort_keys=False, allow_unicode=True
    )
    return f"{LICENSE}\n{text}"


def _about(request: Request, written: Written) -> str:
    kind = "A row per candidate" if request.flat else "A row per item with its candidates"
    image = {
        "none": " Candidates were scored without an image: this is a control.",
        "random": " Candidates were scored with another item's image: this is a control.",
    }.get(request.run.image, "")
    failed = f", {written.failed} of which failed" if written.failed else ""
    return (
        f"{written.candidates} responses of `{request.run.model}` to {written.items} items"
        f"{failed}, "
        f"up to {request.size} per item, scored by LookBack.{image} {kind}."
    )


def _example(request: Request) -> str:
    row = 'row["text"], row["scores"]' if request.flat else 'row["question"], row["candidates"][0]'
    return (
        "from datasets import load_dataset\n\n"
        'found = load_dataset("PATH")  # this folder, or its name on the hub\n'
        f"row = next(iter(found.values()))[0]\nprint({row})"
    )


def _settings(run: Run) -> list[tuple[str, str]]:
    """Return all that decided the results, as the run's manifest has it."""
    manifest = run.manifest
    rows = [("run", run.id), ("made", manifest.created or "unknown")]
    rows += [("with", f"lookback-vlm {manifest.versions.get('lookback-vlm', 'unknown')}")]
    rows += [("commit", manifest.commit or "unknown"), ("status", manifest.status)]
    settings = dict(run.settings)
    sampling = settings.pop("sampling", None) or {}
    flat = settings | {f"sampling: {name}": value for name, value in sampling.items()}
    return rows + [(name, _cell(value)) for name, value in flat.items() if value is not None]


def _scores(request: Request, written: Written) -> list[tuple[str, str, str]]:
    rows = []
    for name in request.scorers:
        mean, settings = written.metrics.get(name), request.settings_of(name).items()
        title = f"{get_scorer(name).title} (`{name}`)"
        shown = ", ".join(f"{key} = {_cell(value)}" for key, value in settings)
        rows.append((title, shown, "not known" if mean is None else f"{mean:.4f}"))
    return rows


def _columns(request: Request) -> str:
    lines = [
        "- `item`, `id`, `question`: its position in the split, its name, what was asked",
        "- `messages`, `source`, `truth`: JSON: the conversation with images by name or hash, what "
        "A was measured on (null for every vision token), what the benchmark judges by",
        "- `image_of`: the id of the item whose image was shown; null for none",
    ]
    if request.images:
        lines.append("- `images`: those that were shown, as PNG")
    lines.append(
        "- of each candidate: `index`, `text`, `finish`, `length` in tokens, `quality`, `scores` "
        "and `ranks` by scorer"
    )
    if request.signals:
        lines.append(
            "- of each of its tokens: `token_ids`, `tokens`, `log_prob`, `visual_lookback` (A, the "
            "share of attention on the image), `self_certainty`, `entropy`"
            + (", `by_layer` (A in each layer)" if request.run.has_layers else "")
        )
    return "\n".join(lines)


def _owners(request: Request, written: Written) -> str:
    source = _source(request.run)
    where = f" ({source})" if source else ""
    images = f"Its {written.images} images are" if written.images else "Its images are not"
    return (
        f"Questions, truths and images are those of {_title(request.run)}{where}, under its terms, "
        f"not under a license that this card could give. {images} included. Responses are the "
        "model's, under the terms of the model. No license is named above: choose one before you "
        "publish this.\n\n"
        f"Written by `lookback export` {lookback.__version__}."
    )


def _title(run: Run) -> str:
    return run.manifest.title or run.benchmark


def _source(run: Run) -> str:
    """Return where a benchmark's items come from, by itself; nothing if it cannot be loaded."""
    try:
        return get_benchmark(run.benchmark, run.manifest.data).source
    except (OSError, ValueError, ImportError):
        return ""


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _table(columns: tuple[str, ...], rows: list[Any]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


def write_dataset(request: Request, progress: Progress) -> Written:
    """Write the folder."""
    datasets = base.need("datasets", "datasets", "hf-dataset")
    import pyarrow as pa
    import pyarrow.parquet as pq

    run, split = request.run, split_name(str(request.run.settings["split"]))
    features, tally, rows = make_features(datasets, request), Tally(request), _Rows(request)
    schema = features.arrow_schema
    with base.making_folder(request.out) as folder:
        file = folder / "data" / f"{split}-00000-of-00001.parquet"
        file.parent.mkdir()
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            waiting: list[Row] = []
            for number, entry in enumerate(base.entries(request), start=1):
                tally.add(entry)
                waiting += rows.make(entry)
                if number % SHARD == 0 or number == len(run.items):
                    writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
                    waiting = []
                progress(number, len(run.items))
        written = tally.written(rows.images if request.images else None)
        card = make_card(request, written, split, features)
        (folder / "README.md").write_text(card, encoding="utf-8")
    return written


def split_name(split: str) -> str:
    """Return a split's name as `datasets` takes it, where "all" means all splits."""
    return {"all": "full"}.get(split, re.sub(r"\W+", "_", split)) or "full"


def make_features(datasets: Any, request: Request) -> Any:
    """Return the columns and their types."""
    value, listed = datasets.Value, datasets.List
    tokens = {}
    if request.signals:
        tokens = {"token_ids": listed(value("int32")), "tokens": listed(value("string"))}
        tokens |= {name: listed(value("float32")) for name in SIGNALS}
        if request.run.has_layers:
            tokens[BY_LAYER] = listed(listed(value("float32")))
    candidate = {
        "index": value("int32"),
        "text": value("string"),
        "finish": value("string"),
        "length": value("int32"),
        "quality": value("float64"),
        "scores": {name: value("float64") for name in request.scorers},
        "ranks": {name: value("int32") for name in request.scorers},
        **tokens,
    }
    item = {"item": value("int32")} | {name: value("string") for name in TEXTS}
    if request.images:
        item["images"] = listed(datasets.Image())
    if request.flat:
        return datasets.Features(item | candidate)
    more = {"error": value("string"), "candidates": listed(candidate)}
    return datasets.Features(item | more)


class _Rows:
    """Makes rows, and counts their images."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.shown = Shown(request.run) if request.images else None
        self.images = 0

    def make(self, entry: Entry) -> Iterator[Row]:
        """Yield the rows of an item: one, or one per candidate."""
        row = entry.item
        item = {name: row[name] for name in ("item", "id", "question")}
        for name in JSON_TEXTS:
            value = row[name]
            item[name] = None if value is None else json.dumps(value, ensure_ascii=False)
        item["image_of"] = row["image"]
        if self.shown is not None:
            # An item that failed has none: perhaps it failed for want of them.
            images = [] if row["error"] is not None else self.shown.needed(row).images
            self.images += len(images)
            item["images"] = [{"bytes": encoded(image), "path": None} for image in images]
        if self.request.flat:
            yield from (item | candidate for candidate in entry.candidates)
        else:
            yield item | {"error": row["error"], "candidates": entry.candidates}
