"""The list of files in docs/code.md, made from the modules' docstrings.

`make code-page` writes it; a test fails while the two differ.
"""

from __future__ import annotations

import ast
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "code.md"
BEGIN, END = "<!-- files: made by `make code-page` -->\n", "<!-- end of files -->\n"


def file_list() -> str:
    """Return one folded table per folder: each module and the first line of its docstring."""
    paths = sorted((ROOT / "lookback").rglob("*.py"), key=lambda path: (path.parent, path.name))
    sections = []
    for folder, files in groupby(paths, key=lambda path: path.parent):
        lines = [f"| `{path.name}` | {_about(path)} |" for path in files]
        name = folder.relative_to(ROOT).as_posix()
        summary = f"<summary><code>{name}/</code>: {len(lines)} files</summary>"
        head = ['<details markdown="1">', summary, "", "| file | |", "|---|---|"]
        sections.append("\n".join([*head, *lines, "", "</details>"]))
    return "\n\n".join(sections) + "\n"


def _about(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def replace_list(page: str) -> str:
    """Return the page with its list made again; the text around it stays."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{file_list()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(replace_list(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
