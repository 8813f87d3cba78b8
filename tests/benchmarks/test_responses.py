"""Files of responses: what matches, what is wrong with a line, what is missing."""

import json
import re

import pytest

from lookback.benchmarks import Item
from lookback.benchmarks.responses import Problem, read_responses

ITEMS = [
    Item("7", "?", {}, lambda: None),
    Item("VD_a_0", "?", {}, lambda: None, aliases=("0",)),
    Item("9", "?", {}, lambda: None),
]


@pytest.fixture
def read(tmp_path):
    def read(*lines):
        path = tmp_path / "responses.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return read_responses(path, ITEMS)

    return read


def entry(name, response="yes"):
    return {"id": name, "response": response}


def test_a_response_is_of_limited_length(read, monkeypatch):
    monkeypatch.setenv("LOOKBACK_MAX_TEXT_CHARACTERS", "100")
    matched = read(entry("7", "a" * 100), entry("9", "a" * 101))
    assert [item.id for item in matched.items] == ["7"]
    assert "101 characters" in matched.problems[0].message


def test_numbers_and_strings_match_in_the_items_order(read):
    matched = read(entry(9, "nine"), "", entry("7", "seven"), entry(0.0, "zero"))
    assert [item.id for item in matched.items] == ["7", "VD_a_0", "9"]
    assert matched.responses == ["seven", "zero", "nine"]
    assert (matched.missing, matched.problems) == (0, [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'id': 7}", "not JSON"),
        ('{"id": 7, "resp', "not JSON"),
        ("[7, 1]", "not an object"),
        ('"yes"', "not an object"),
        ({"response": "yes"}, 'no "id"'),
        ({"id": 9}, 'no "response"'),
        (entry(9, None), "the response is not a string but None"),
        (entry(9, ["yes"]), "the response is not a string but \\['yes'\\]"),
        (entry(None), "the id is neither a number nor a string but None"),
        (entry(True), "the id is neither"),
        (entry(9.5), "unknown id '9.5': not among the items"),
        (entry("09"), "unknown id '09'"),
        (entry("7", "no"), "duplicate id '7': line 1 has it already"),
    ],
)
def test_a_bad_line_is_a_problem_with_its_number(read, line, message):
    matched = read(entry(7), "", line, entry("VD_a_0"), entry(9))
    assert matched.responses == ["yes"] * 3
    [problem] = matched.problems
    assert problem.line == 3
    assert re.search(message, problem.message)
    assert str(problem).startswith("line 3: ")


@pytest.mark.parametrize(
    "line",
    [
        {"question_id": 9, "answer": "yes"},
        {"image_id": 9, "caption": "yes"},
        {"question_id": 9, "image_id": 7, "text": "yes", "model": "m"},
        {"id": 9, "image_id": 7, "response": "yes", "answer": "no"},
    ],
)
def test_the_benchmarks_own_result_files_are_read(read, line):
    matched = read(line, entry(7), entry(0))
    assert matched.responses == ["yes"] * 3
    assert matched.problems == []


def test_an_alias_of_an_answered_item_is_a_duplicate(read):
    matched = read(entry("VD_a_0", "first"), entry(0, "second"), entry(7), entry(9))
    assert matched.responses == ["yes", "first", "yes"]
    assert [p.line for p in matched.problems] == [2]


def test_missing_ids_are_one_problem_of_the_whole_file(read):
    matched = read(entry(9))
    assert (len(matched.items), matched.missing) == (1, 2)
    assert matched.problems == [
        Problem(None, "missing ids: 2 of 3 items have no response (7, VD_a_0)")
    ]


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": 7, "response": "caf\xc3\xa9"}\r\n')
    matched = read_responses(path, ITEMS[:1])
    assert (matched.responses, matched.problems) == (["café"], [])


def test_bytes_that_are_no_text_are_a_problem(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"id": 7, "response": "caf\xe9"}\n')
    [problem, _] = read_responses(path, ITEMS[:1]).problems
    assert (problem.line, problem.message[:8]) == (1, "not JSON")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file of responses '.*gone.jsonl'"):
        read_responses(tmp_path / "gone.jsonl", ITEMS)


def test_the_first_missing_ids_are_named_and_the_rest_counted(tmp_path):
    items = [Item(str(n), "?", {}, lambda: None, aliases=(f"also {n}",)) for n in range(10)]
    path = tmp_path / "responses.jsonl"
    path.write_text('{"id": 1, "response": "yes"}\n{"id": 3, "response": "yes"}\n')
    (problem,) = read_responses(path, items).problems
    assert problem.message == ("missing ids: 8 of 10 items have no response (0, 2, 4, 5, 6, ...)")
    (problem,) = read_responses(path, items[:7]).problems  # five: all of them are named
    assert problem.message == "missing ids: 5 of 7 items have no response (0, 2, 4, 5, 6)"


def test_lines_are_counted_and_those_to_an_item_too(read):
    matched = read(entry(7), "", entry(7, "again"), entry("who?"), "nonsense", entry(9))
    assert (matched.given, matched.known) == (5, 3)
    assert matched.lines == [1, 6]
