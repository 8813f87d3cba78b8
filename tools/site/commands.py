"""The reference of the command line, made from the commands' own help.

`make commands-page` writes it into docs/commands.md; a test fails while the two differ.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
BEGIN, END = "<!-- commands: made by `make commands-page` -->\n", "<!-- end of commands -->\n"


def reference() -> str:
    """Every command with its arguments and options, as typer writes its own help in Markdown."""
    command = ["-m", "typer", "lookback.cli", "utils", "docs", "--name", "lookback"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    text = done.stdout.replace("&#x27;", "'").replace("&quot;", '"')
    lines = ["#" + line if line.startswith("#") else line for line in text.splitlines()]
    return "\n".join(lines).strip() + "\n"


def replace_reference(page: str) -> str:
    """The page with the reference as the commands have it; the words around it stay."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(replace_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
