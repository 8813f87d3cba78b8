"""The rule and the worker: what is not as promised is seen."""

import pytest

from hostile.case import Case, Limits, Place
from hostile.judging import Ending, judge
from hostile.kinds import KINDS, make_case
from hostile.misbehaving import MISBEHAVING
from hostile.worker import snapshot

ASK = Case(("ask", "p.png", "What?"), "")
USAGE = "Usage: lookback ask\nTry 'lookback ask -h' for help.\n╭─ Error ───╮\n│ No. │\n╰───╯\n"
NOTE = "lookback: the embedded model knows drawn scenes only, see --model\n"


@pytest.mark.parametrize(
    "ending",
    [
        Ending(0, "a table\n", ""),
        Ending(0, "a table\n", NOTE),
        Ending(1, "", "lookback: no image file 'x'\n"),
        Ending(1, "", NOTE + "lookback: every answer is empty\n"),
        Ending(2, "", USAGE),
        Ending(0, "", "lookback: warning: Corrupt EXIF data.\n"),
        Ending(1, "", "lookback: no\n", memory=Limits().memory),
    ],
)
def test_what_is_promised(ending):
    assert judge(ASK, ending) == []


@pytest.mark.parametrize(
    ("ending", "wrong"),
    [
        (Ending(None, "", ""), f"takes more than {Limits().seconds} s"),
        (Ending(-9, "", ""), "status -9"),
        (Ending(4, "", ""), "status 4"),
        (Ending(130, "", ""), "status 130"),
        (Ending(1, "", ""), "status 1 without a word"),
        (Ending(1, "", "lookback: this is a bug: x\n"), "says 'this is a bug'"),
        (Ending(1, "", "lookback: out of memory: x\n"), "says 'out of memory'"),
        (Ending(1, "", "lookback: a\nlookback: b\n"), "2 lines that are no notes"),
        (Ending(1, "", "lookback: a\n" + NOTE), "1 lines that are no notes"),
        (Ending(1, "", "error\n"), "a line that is not ours"),
        (Ending(0, "", "UserWarning: x\n"), "1 lines that are no notes"),
        (Ending(3, "", "lookback: x\n"), "1 lines that are no notes"),
        (Ending(2, "", "lookback: x\n"), "no usage with one error"),
        (Ending(2, "", USAGE + USAGE), "no usage with one error"),
        (Ending(1, "", "lookback: \x1b[31m\n"), "err has control characters"),
        (Ending(0, "\x07", ""), "out has control characters"),
        (Ending(0, "", "", memory=Limits().memory + 1), "takes 1536 MiB"),
        (Ending(0, "", "", changed=("mine",)), "changed mine"),
    ],
)
def test_what_is_not(ending, wrong):
    assert judge(ASK, ending) == [wrong]


@pytest.mark.parametrize(
    ("argv", "note"),
    [
        ("run", "lookback: failed: 1: ValueError: no image\n"),
        ("evaluate", "lookback: line 3: not JSON: x\n"),
        ("runs verify", "lookback: run: items/00000.parquet is missing: make it again\n"),
        ("study main", "out/main.csv\n"),
        ("study all", "lookback: layers: no run has layers\n"),
    ],
)
def test_a_note_belongs_to_its_command(argv, note):
    assert judge(Case(tuple(argv.split()), ""), Ending(0, "", note)) == []
    assert judge(ASK, Ending(0, "", note)) == ["1 lines that are no notes"]


def test_a_traceback_is_seen():
    text = 'Traceback (most recent call last):\n  File "x"\nKeyError: 1\n'
    assert "says 'Traceback (most recent call last)'" in judge(ASK, Ending(1, "", text))


def test_a_result_is_the_right_one_or_none():
    case = Case(("study",), "", right="58.3\n")
    assert judge(case, Ending(0, "58.3\n", "")) == []
    assert judge(case, Ending(1, "", "lookback: damaged\n")) == []
    assert judge(case, Ending(0, "100.0\n", "")) == [
        "prints other results than those of the sound run"
    ]


def test_a_status_that_is_known():
    case = Case(("ask",), "", status=1)
    assert judge(case, Ending(0, "", "")) == ["status 0, not 1"]


@pytest.mark.parametrize("name", MISBEHAVING)
def test_what_a_command_does_is_seen(worker, name):
    wrong = MISBEHAVING[name].wrong
    found = worker.try_case(f"misbehaving:{name}")["wrong"]
    assert [one[: len(wrong)] for one in found] == [wrong]


def test_a_case_is_the_same_each_time(tmp_path):
    for kind in KINDS:
        made = []
        for number in range(2):
            folder = tmp_path / kind / str(number)
            (folder / "case").mkdir(parents=True)
            (folder / "sound").mkdir()
            place = Place(folder / "case", "http://x", folder / "sound", lambda argv: "right")
            case = make_case(f"{kind}:1:7", place)
            argv = [word.replace(str(folder), "") for word in case.argv]
            made.append((argv, case.about, sorted(snapshot(folder / "case", case).items())))
        assert made[0] == made[1]
