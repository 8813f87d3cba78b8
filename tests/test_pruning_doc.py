"""docs/pruning.md: its measured numbers are those of docs/reproduction.md."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_what_was_measured_stands_in_the_reproduction():
    page = (DOCS / "pruning.md").read_text(encoding="utf-8").split("## Measured")[1]
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 * 5
    measured = (DOCS / "reproduction.md").read_text(encoding="utf-8").splitlines()
    for line in lines:
        assert line in measured
