"""The ladder of rooms: a module imports only from its own room and from rooms above it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LADDER = (
    "errors",
    "registry families",
    "io",
    "conversations",
    "signals",
    "looks",
    "scores",
    "steering",
    "scenes",
    "embedded",
    "engines.common",
    "engines.base",
    "engines",
    "engines.transformers engines.vllm engines.dual_encoder",
    "benchmarks",
    "pages",
    "runs",
    "annotation",
    "studies",
    "report server",
    "integrations",
    "ray",
    "cli",
)
"""Rooms from the first to the last; two in one line do not import each other."""
RUNG = {room: i for i, line in enumerate(LADDER) for room in line.split()}
EXCEPTIONS = {
    # What a result offers to its user, fetched when it is called; and the types of these.
    ("lookback/signals.py", "pages"): "_repr_html_",
    ("lookback/signals.py", "scores"): "batch, scores, rank, best",
    ("lookback/signals.py", "engines"): "the type of Asked.engine",
    ("lookback/looks/look.py", "pages"): "save",
    # CLIPScore asks the engine for its encoder.
    ("lookback/engines/base.py", "engines.dual_encoder"): "dual_encoder",
}


def room_of(module):
    """The room of a dotted name: the longest of the list that it begins with."""
    rooms = [room for room in RUNG if f"{module}.".startswith(f"lookback.{room}.")]
    return max(rooms, key=len, default=None)


def imports(path):
    """The modules of the package that a file imports, wherever in it, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno


FILES = {
    str(path.relative_to(ROOT)): path
    for path in sorted((ROOT / "lookback").rglob("*.py"))
    if path != ROOT / "lookback/__init__.py"  # the public names, each fetched when it is used
}


def dotted(name):
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_every_module_is_in_a_room():
    assert [name for name in FILES if room_of(dotted(name)) is None] == []


def test_imports_go_up_the_ladder():
    found = []
    for name, path in FILES.items():
        own = room_of(dotted(name))
        for module, line in imports(path):
            room = room_of(module)
            if room in (None, own) or (name, room) in EXCEPTIONS:
                continue
            if RUNG[room] >= RUNG[own]:
                found.append(f"{name}:{line}: {own} imports {module}")
    assert found == []


@pytest.mark.parametrize("exception", EXCEPTIONS, ids=str)
def test_exceptions_are_needed(exception):
    name, room = exception
    assert room in [room_of(module) for module, _ in imports(FILES[name])]
