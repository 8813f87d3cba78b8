"""What the comparison of two versions reports, on made-up outputs."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.compare_versions import compare


@pytest.fixture
def sides(tmp_path):
    """Two folders with the same outputs."""
    for side in ("base", "head"):
        folder = tmp_path / side
        folder.mkdir()
        pq.write_table(pa.table({"log_prob": [[-1.0, float("nan")]]}), folder / "c.parquet")
        (folder / "s.csv").write_text("scorer,mean\nlookback,0.5\n")
        (folder / "manifest.json").write_text(json.dumps({"created": side, "items": 3}))
        (folder / "help.md").write_text("one\ntwo\n")
    return tmp_path / "base", tmp_path / "head"


def test_equal_outputs_have_no_differences_whenever_they_were_made(sides):
    assert list(compare(*sides)) == []


def test_the_largest_difference_of_a_number_is_reported(sides):
    pq.write_table(pa.table({"log_prob": [[-1.25, float("nan")]]}), sides[1] / "c.parquet")
    (sides[1] / "s.csv").write_text("scorer,mean\nlookback,0.625\n")
    lines = list(compare(*sides))
    assert any("c.parquet" in line and "0.25" in line for line in lines)
    assert any("s.csv" in line and "0.125" in line for line in lines)


def test_missing_files_values_and_lines_are_reported(sides):
    (sides[1] / "s.csv").unlink()
    (sides[1] / "manifest.json").write_text(json.dumps({"created": "now", "items": 3, "new": 1}))
    (sides[1] / "help.md").write_text("one\n2\n")
    lines = "\n".join(compare(*sides))
    assert "s.csv: only in base" in lines
    assert "+ new = 1" in lines
    assert "-two" in lines
    assert "+2" in lines
