"""A local dataset of drawn scenes, and tasks of lmms-eval about it: nothing is fetched."""

import io
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lookback.benchmarks import get_benchmark

TASKS = Path(__file__).parent / "tasks"
PICTURES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
COUNT = 3
BLIND = COUNT
"""The document without an image, after the others."""


def scenes():
    """The items that the documents are made of."""
    return get_benchmark("scenes-vqa").items(limit=COUNT)


def write(folder):
    """The dataset and the tasks in a folder, which `--include_path` takes."""
    folder.mkdir(parents=True, exist_ok=True)
    items = list(scenes())
    pictures = [_stored(item.conversation.images[0]) for item in items]
    columns = {
        "question": [item.question for item in items] + ["What colour is the cup?"],
        "image": pa.array([*pictures, None], PICTURES),
        "second": pa.array([*pictures[1:], *pictures[:1], None], PICTURES),
        "shown": [1] * COUNT + [0],
    }
    table = pa.table(columns)
    names = [(name, table.schema.field(name).type) for name in table.column_names]
    features = {name: _feature(name, kind) for name, kind in names}
    told = json.dumps({"info": {"features": features}})
    pq.write_table(table.replace_schema_metadata({"huggingface": told}), folder / "test.parquet")
    for file in TASKS.iterdir():
        if file.suffix == ".yaml":
            text = file.read_text().replace("DATA", str(folder / "test.parquet"))
            (folder / file.name).write_text(text)
        elif file.suffix == ".py":
            shutil.copy(file, folder / file.name)
    return folder


def _feature(name, kind):
    if kind == PICTURES:
        return {"_type": "Image"}
    return {"_type": "Value", "dtype": {"int64": "int64"}.get(str(kind), "string")}


def _stored(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}
