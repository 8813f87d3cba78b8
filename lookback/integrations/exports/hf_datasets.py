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


def make_card(request: Request, written: Written, split: str, features: Any) -> str:
    """Return the text of README.md: what it is, where it is from, how it was made, whose it is."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    cards = Environment(
        loader=PackageLoader("lookback.integrations.exports", ""),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    cards.filters["cell"] = _cell
    scores = [
        (
            f"{get_scorer(name).title} (`{name}`)",
            ", ".join(f"{k} = {_text(v)}" for k, v in request.settings_of(name).items()),
            written.metrics.get(name),
        )
        for name in request.scorers
    ]
    return cards.get_template("card.md.jinja").render(
        head=_front_matter(request, split, features),
        run=request.run,
        title=_title(request.run),
        source=_source(request.run),
        settings=_settings(request.run),
        scores=scores,
        request=request,
        written=written,
        version=lookback.__version__,
    )


def _front_matter(request: Request, split: str, features: Any) -> str:
    """Return what the hub and `datasets` read; the license is left to whoever publishes it."""
    from datasets import DatasetInfo

    info: Any = DatasetInfo(features=features)
    files = [{"split": split, "path": f"data/{split}-*.parquet"}]
    data = {
        "pretty_name": f"{request.run.model} on {_title(request.run)}: candidates",
        "tags": ["lookback", "best-of-n", "vision-language-models"],
        "task_categories": ["image-text-to-text"],
        "configs": [{"config_name": CONFIG, "data_files": files}],
        "dataset_info": {"config_name": CONFIG} | info._to_yaml_dict(),
    }
    yaml = base.need("yaml", "pyyaml", "hf-dataset")
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text


def _settings(run: Run) -> dict[str, Any]:
    """Return all that decided the results, as the run's manifest has it."""
    manifest, settings = run.manifest, dict(run.settings)
    sampling = settings.pop("sampling", None) or {}
    settings |= {f"sampling: {name}": value for name, value in sampling.items()}
    return {
        "run": run.id,
        "made": manifest.created or "unknown",
        "with": f"lookback-vlm {manifest.versions.get('lookback-vlm', 'unknown')}",
        "commit": manifest.commit or "unknown",
        "status": manifest.status,
        **{name: value for name, value in settings.items() if value is not None},
    }


def _title(run: Run) -> str:
    return run.manifest.title or run.benchmark


def _source(run: Run) -> str:
    """Return where a benchmark's items come from, by itself; nothing if it cannot be loaded."""
    try:
        return get_benchmark(run.benchmark, run.manifest.data).source
    except (OSError, ValueError, ImportError):
        return ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _cell(value: Any) -> str:
    """Return a value for a table in Markdown."""
    return " ".join(_text(value).split()).replace("|", "\\|")


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
