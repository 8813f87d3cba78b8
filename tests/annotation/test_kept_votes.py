"""Votes on disk: kept, taken back, read again, and no others' file."""

import json
import sqlite3
import threading

import pytest
from made_cases import make_cases, vote_of

from lookback.annotation import votes as module
from lookback.annotation.votes import Vote, VoteFile, is_swapped, read_jsonl, read_sqlite


@pytest.fixture
def cases():
    return make_cases((4, 4))


@pytest.fixture
def box(tmp_path, cases):
    return VoteFile(tmp_path / "votes.sqlite", cases)


def test_a_commit_waits_for_the_disk(box):
    with module._open(box.path) as file:
        assert file.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert file.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_votes_are_kept_replaced_and_taken_back(box, cases):
    assert box.enter(" Anna ") == ("anna", 1)
    for case, choice in ((1, "A"), (2, "tie"), (3, "B"), (1, "B")):
        box.put("anna", 1, case, choice)
    assert [(v.case, v.choice) for v in box.of("anna")] == [(2, "tie"), (3, "B"), (1, "B")]
    box.undo("anna", 1, 1)
    again = VoteFile(box.path, cases)
    assert again.enter("anna") == ("anna", 1)
    assert [(v.case, v.choice) for v in again.of("anna")] == [(2, "tie"), (3, "B")]
    for vote in read_sqlite(box.path):
        assert vote.swapped is is_swapped(cases.study, "anna", 1, vote.case)
        assert vote.at.endswith("+00:00")


def test_sets_fill_evenly_and_stay(box):
    sets = [box.enter(f"r{i}")[1] for i in range(6)]
    assert sets == [1, 2, 1, 2, 1, 2]
    assert [box.enter(f"r{i}")[1] for i in range(6)] == sets


def test_listed_raters_get_sets_in_turn_and_no_others_come_in(tmp_path, cases):
    box = VoteFile(tmp_path / "v", cases, ["A", "b", "a", "c"])
    assert [box.enter(code)[1] for code in ("c", "b", "a")] == [1, 2, 1]
    with pytest.raises(PermissionError, match="nobody here has the code 'd'"):
        box.enter("d")


def test_only_what_one_was_asked(box):
    box.enter("anna")
    for rater, place, choice in (
        ("nobody", (1, 1), "A"),
        ("anna", (2, 1), "A"),
        ("anna", (1, 5), "A"),
        ("anna", (1, 1), "a"),
    ):
        with pytest.raises(ValueError, match=r"entered|no case|must be one of"):
            box.put(rater, *place, choice)
    assert box.of("anna") == []


def test_many_raters_at_once(tmp_path):
    cases = make_cases((10, 10))
    box = VoteFile(tmp_path / "v", cases)

    def judge(rater):
        _, set_ = box.enter(rater)
        for case in range(1, 11):
            box.put(rater, set_, case, "A")

    threads = [threading.Thread(target=judge, args=(f"r{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = read_sqlite(box.path)
    assert len({(v.rater, v.case) for v in kept}) == len(kept) == 80
    assert [sum(v.set == s for v in kept) for s in (1, 2)] == [40, 40]


def test_which_answer_a_vote_is_for():
    found = set()
    for case in range(1, 20):
        swapped = is_swapped("s", "r", 1, case)
        answers = [Vote("s", "r", 1, case, choice, swapped).answer for choice in "AB"]
        assert answers == ([1, 0] if swapped else [0, 1])
        assert Vote("s", "r", 1, case, "tie", swapped).answer is None
        found.add(swapped)
    assert found == {True, False}


def test_other_files_are_refused(tmp_path, cases, box):
    with pytest.raises(ValueError, match="has votes on other cases"):
        VoteFile(box.path, make_cases((5, 5)))
    text = tmp_path / "text"
    text.write_text("no database " * 100)
    with pytest.raises(ValueError, match="file is not a database"):
        VoteFile(text, cases)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as file:
        file.execute("CREATE TABLE x (y)")
    with pytest.raises(ValueError, match="has no votes of `lookback annotate`"):
        read_sqlite(other)
    with pytest.raises(ValueError, match="cannot keep votes"):
        VoteFile(tmp_path / "no" / "folder", cases)


def test_json_lines(tmp_path, cases):
    made = [vote_of(cases.study, "r", (1, c), kind) for c, kind in ((1, "first"), (2, "tie"))]
    path = tmp_path / "votes.jsonl"
    path.write_text("\n\n".join(json.dumps(vars(v)) for v in made) + "\n")
    assert read_jsonl(path) == made
    good = vars(made[0])
    for bad in (
        "{",
        "3",
        json.dumps(good | {"choice": "C"}),
        json.dumps(good | {"case": "1"}),
        json.dumps(good | {"set": True}),
        json.dumps(good | {"rater": "R"}),
        json.dumps(good | {"more": 1}),
        json.dumps({k: v for k, v in good.items() if k != "study"}),
        json.dumps(good | {"swapped": not good["swapped"]}),
        json.dumps(good | {"swapped": 1}),
    ):
        path.write_text(f"{json.dumps(good)}\n{bad}\n")
        with pytest.raises(ValueError, match=r"votes.jsonl', line 2 is no vote"):
            read_jsonl(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="neither SQLite nor JSON lines"):
        read_jsonl(path)
