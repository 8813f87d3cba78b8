"""Tables as Markdown and LaTeX: nothing breaks them, and marks stand where they should."""

import csv
import io
import os
import re

import numpy as np
import pytest

from lookback.runs.layout import TEMPORARY
from lookback.studies import Result
from lookback.studies.common.tables import Cell, Table, csv_of, mark_best, rows_of_columns, write

HEADS = [("", "Method"), ("A&B", "N=5"), ("A&B", "N=25"), ("C_d", "N=5"), ("", "all")]
ROWS = [
    ["Random", "1", "2", "3", "4"],
    ["100% | SC", Cell("5 ± 1", "best"), Cell("6", "second"), "-", Cell("7")],
]
TABLE = Table(HEADS, ROWS, "What α gives, in %.", "tab:x_y", [1])


def test_markdown():
    assert TABLE.markdown() == (
        "What α gives, in %.\n"
        "\n"
        "| Method | A&B N=5 | A&B N=25 | C_d N=5 | all |\n"
        "|---|---:|---:|---:|---:|\n"
        "| Random | 1 | 2 | 3 | 4 |\n"
        "| 100% \\| SC | **5 ± 1** | <u>6</u> | - | 7 |\n"
    )


def test_latex():
    assert TABLE.latex().splitlines() == [
        r"\begin{table}[t]",
        r"\centering",
        r"\caption{What $\alpha$ gives, in \%.}",
        r"\label{tab:x_y}",
        r"\begin{tabular}{lcccc}",
        r"\toprule",
        r" & \multicolumn{2}{c}{A\&B} & \multicolumn{1}{c}{C\_d} &  \\",
        r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}",
        r"Method & N=5 & N=25 & N=5 & all \\",
        r"\midrule",
        r"Random & 1 & 2 & 3 & 4 \\",
        r"\midrule",
        r"100\% | SC & \textbf{5 $\pm$ 1} & \underline{6} & - & 7 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_every_latex_row_fills_all_columns():
    for line in TABLE.latex().splitlines():
        if line.endswith(r"\\"):
            spans = [int(width) for width in re.findall(r"\\multicolumn\{(\d+)\}", line)]
            plain = len(re.findall(r"(?<!\\)&", line)) + 1 - len(spans)
            assert plain + sum(spans) == len(HEADS)


def test_neighbours_without_a_group_share_no_head():
    columns = [("", "a"), ("", "b"), ("g", "c"), ("h", "d"), ("g", "e")]
    head, rule = Table(columns, [["1"] * 5], "").latex().splitlines()[5:7]
    assert head == (
        r" &  & \multicolumn{1}{c}{g} & \multicolumn{1}{c}{h} & \multicolumn{1}{c}{g} \\"
    )
    assert rule == r"\cmidrule(lr){3-3}\cmidrule(lr){4-4}\cmidrule(lr){5-5}"


def test_without_groups_there_is_one_head_and_without_label_none():
    latex = Table([("", "a"), ("", "b")], [["1", "2"]], "c").latex()
    assert "multicolumn" not in latex
    assert "cmidrule" not in latex
    assert "label" not in latex


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50 % & more", r"50 \% \& more"),
        ("a_b #1 $x$ {y}", r"a\_b \#1 \$x\$ \{y\}"),
        ("~^", r"\textasciitilde{}\textasciicircum{}"),
        (r"\alpha", r"\textbackslash{}alpha"),  # no escape is escaped again
        ("α λ ± → ≥ −", r"$\alpha$ $\lambda$ $\pm$ $\rightarrow$ $\geq$ $-$"),
        ("two\nlines", "two lines"),
    ],
)
def test_latex_escapes(text, latex):
    table = Table([("", text)], [[text]], text).latex()
    assert rf"\caption{{{latex}}}" in table
    assert table.count(rf"{latex} \\") == 2  # the head and the cell


def test_markdown_rows_stay_rows():
    lines = Table([("", "a|b"), ("g\nh", "c")], [["x\ny", "p|q"]], "c").markdown().splitlines()
    assert lines[2:] == [r"| a\|b | g h c |", "|---|---:|", r"| x y | p\|q |"]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table([("", "a")], [["1", "2"]], "")


def test_ranked_marks_the_two_highest():
    cells = mark_best([1.0, 3.0, 2.0, np.nan])
    assert [cell.text for cell in cells] == ["1.00", "3.00", "2.00", "-"]
    assert [cell.mark for cell in cells] == ["", "best", "second", ""]


def test_what_prints_the_same_shares_a_mark():
    marks = [cell.mark for cell in mark_best([1.001, 0.999, 0.5, 0.504, 0.2])]
    assert marks == ["best", "best", "second", "second", ""]
    assert [cell.mark for cell in mark_best([1.001, 0.999], "{:.3f}")] == ["best", "second"]


def test_numbers_are_ranked_as_numbers():
    assert [cell.mark for cell in mark_best([9.5, 10.25, -11.0])] == ["second", "best", ""]
    assert [cell.mark for cell in mark_best([-1.0, -2.0, -3.0])] == ["best", "second", ""]


def test_ranked_alone_equal_and_nothing():
    assert mark_best([5.0]) == [Cell("5.00", "best")]
    assert [cell.mark for cell in mark_best([2.0, 2.0])] == ["best", "best"]
    assert mark_best([np.nan]) == [Cell("-")]
    assert mark_best([]) == []


def test_notes_follow_and_take_no_part():
    cells = mark_best([1.0, np.nan, 2.0], notes=[" [0, 9]", "", " [1, 3]"])
    assert cells == [Cell("1.00 [0, 9]", "second"), Cell("-"), Cell("2.00 [1, 3]", "best")]
    with pytest.raises(ValueError):
        mark_best([1.0, 2.0], notes=["only one"])


def test_rows_of_columns():
    assert rows_of_columns(["a", "b"], [["1", "2"], ["3", "4"]]) == [
        ["a", "1", "3"],
        ["b", "2", "4"],
    ]
    with pytest.raises(ValueError):
        rows_of_columns(["a"], [["1", "2"]])


@pytest.mark.parametrize(
    "text",
    [
        *('=HYPERLINK("http://x")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "-", "－1", "＝1"),
        *("\t=1", "\n=1", "\tplain", " =1", "-1_000", "+1 234", "-٣"),
        *("\0=1", "\ufeff=1", "\u200b=1"),  # which readers drop, or nobody sees
    ],
)
def test_texts_that_a_spreadsheet_would_run_are_texts_in_csv(text):
    cells = next(csv.reader(io.StringIO(csv_of([{text: text}]), newline="")))
    assert cells == [f"'{text}"]
    rows = list(csv.reader(io.StringIO(csv_of([{"a": text, "b": -0.5}]), newline="")))
    assert rows == [["a", "b"], [f"'{text}", "-0.5"]]


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        *((-0.5, "-0.5"), (-3, "-3"), (np.float64(-1e-9), "-1e-09"), (np.int64(-2), "-2")),
        *((float("-inf"), "-inf"), ("-0.5", "-0.5"), ("+1e-3", "+1e-3"), ("-.5", "-.5")),
        *((True, "True"), ("a = b", "a = b"), ("a-b", "a-b"), ("'quoted'", "'quoted'")),
    ],
)
def test_numbers_and_other_texts_are_as_they_are_in_csv(cell, written):
    assert csv_of([{"a": cell}]) == f"a\n{written}\n"


def test_no_cell_breaks_its_row_in_csv():
    rows = list(csv.reader(io.StringIO(csv_of([{"a": "\r=1", "b": "x\r\n=1\r=2"}]), newline="")))
    assert rows == [["a", "b"], ["'\n=1", "x\n=1\n=2"]]


def test_halves_of_files_that_a_killed_study_left_are_removed_after_a_day(tmp_path):
    left = tmp_path / f"{TEMPORARY}main.csv.x"
    left.write_text("half")
    write("other", Result([{"a": 1}]), tmp_path)
    assert left.exists()  # another process may be writing it
    os.utime(left, (1e9, 1e9))
    write("other", Result([{"a": 1}]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["other.csv"]
