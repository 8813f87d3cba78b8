"""Models: folders with damaged weights, settings of other shapes, templates that cannot be read."""

import json
import shutil
from pathlib import Path

import lookback
from hostile.case import Case, Limits
from hostile.values import JSON_VALUES, damage, json_text, write_picture

MODEL = Path(lookback.__file__).parent / "embedded" / "lvlm"
LARGE = Limits(memory=3 * 2**30)
"""How large a model is, its config says: without its sizes it is a library's default."""
TEMPLATES = (
    *("{{", "{% for %}", "{{ nope() }}", "{{ messages[9].x.y }}", "{% raw %}", "", "no images"),
    *(
        "{{ 1 / 0 }}",
        "{% for m in messages %}{{ m['nope']['x'] }}{% endfor %}",
        "\ud83d".strip("\ud83d"),
    ),
    *(
        "{{ raise_exception('a\nb') }}",
        "{% include 'x' %}",
        "<image>" * 3,
        "{{ messages | tojson }}",
    ),
)


def make(rng, place):
    """A question to a copy of the embedded model of which one or two files are spoiled."""
    folder = place.folder / "model"
    shutil.copytree(MODEL, folder)
    write_picture(place.folder / "p.png")
    names = sorted(path.name for path in folder.iterdir())
    about = [spoil(rng, folder / name) for name in rng.sample(names, rng.choice((1, 1, 2)))]
    argv = ["ask", "p.png", "What is it?", "-n", "2", "--max-new-tokens", "3", "--model", "model"]
    if rng.random() < 0.1:
        argv += ["--dtype", rng.choice(("float16", "bfloat16", "float64"))]
    return Case(tuple(argv), "; ".join(about), limits=LARGE)


def spoil(rng, path):
    way = rng.choice(("damage", "gone", "empty", "json", "key", "key", "key"))
    if path.suffix == ".jinja" and way in ("key", "json"):
        path.write_text(rng.choice(TEMPLATES))
        return f"{path.name} {way}"
    if way == "gone":
        path.unlink()
    elif way == "empty":
        path.write_bytes(b"")
    elif way == "json":
        path.write_text(json_text(rng), encoding="utf-8", errors="surrogatepass")
    elif way == "key" and path.suffix == ".json":
        way = change_key(rng, path)
    else:
        way, data = damage(rng, path.read_bytes())
        path.write_bytes(data)
    return f"{path.name} {way}"


def change_key(rng, path):
    """Another value somewhere in a JSON file, or none."""
    data = json.loads(path.read_text())
    here = data
    while True:
        key = rng.choice(tuple(here))
        if not (isinstance(here[key], dict) and here[key] and rng.random() < 0.7):
            break
        here = here[key]
    if rng.random() < 0.3:
        del here[key]
    else:
        here[key] = rng.choice(JSON_VALUES)
    path.write_text(json.dumps(data))
    return f"another {key}"
