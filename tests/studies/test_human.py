"""The study of votes: the paper's own table out of votes that give it, and slow counts."""

import json

import numpy as np
import pytest
from made_cases import make_cases, make_folder, vote_of
from scipy.stats import binomtest

from lookback.annotation.cases import read_cases
from lookback.annotation.votes import VoteFile
from lookback.studies import StudyError
from lookback.studies.human import agreement, human

# Votes of six raters on a case, (LookBack, tie, SC), and how many cases have them: they give the
# paper's table.
PAPER = {(4, 1, 1): 22, (5, 1, 0): 2, (4, 2, 0): 3, (1, 1, 4): 14, (3, 0, 3): 9}
QUALITY = [(0.9, 0.1)] * 13 + [(0.5, 0.5)] * 24 + [(0.2, 0.3)] * 13
KINDS = ("first", "tie", "second")


def save(path, votes):
    path.write_text("".join(json.dumps(vars(vote)) + "\n" for vote in votes))
    return path


@pytest.fixture
def paper(tmp_path):
    """A folder of the paper's size, and its votes."""
    cases = make_cases((25, 25), image=False)
    counts = [count for count, times in PAPER.items() for _ in range(times)]
    counts = [counts[i] for i in np.random.default_rng(0).permutation(50)]
    places = [case.place for case in cases.cases]
    folder = make_folder(tmp_path / "cases", cases, dict(zip(places, QUALITY, strict=True)))
    votes = []
    for number, (place, count) in enumerate(zip(places, counts, strict=True)):
        kinds = [kind for kind, n in zip(KINDS, count, strict=True) for _ in range(n)]
        kinds = kinds[number % 6 :] + kinds[: number % 6]
        raters = [f"r{place[0]}{i}" for i in range(6)]
        votes += [vote_of(cases.study, r, place, k) for r, k in zip(raters, kinds, strict=True)]
    return folder, votes


def test_the_papers_table(paper):
    folder, votes = paper
    save(folder / "votes.jsonl", votes)
    result = human([str(folder)])
    table, agreed, raters = result.tables
    assert [name for _, name in table.columns] == ["Evaluation", "LookBack", "Tie", "SC"]
    assert [list(line) for line in table.rows] == [
        ["Automatic", "13 (26.0%)", "24 (48.0%)", "13 (26.0%)"],
        ["Human (per judgment)", "151 (50.3%)", "44 (14.7%)", "105 (35.0%)"],
        ["Human (per sample)", "27 (54.0%)", "9 (18.0%)", "14 (28.0%)"],
    ]
    p = binomtest(27, 41).pvalue
    assert result.notes[0].startswith(
        f"Sign test over samples: LookBack 27, SC 14 (9 ties apart), p = {p:.3g},"
    )
    assert [line[:4] for line in agreed.rows] == [
        ["Set 1", "25 of 25", "150", "25 x 6"],
        ["Set 2", "25 of 25", "150", "25 x 6"],
        ["All", "50 of 50", "300", "50 x 6"],
    ]
    assert len(raters.rows) == 12
    assert len(result.rows) == 50
    assert "few" not in " ".join(result.notes)
    latex = "".join(one.latex() for one in result.tables)
    assert r"$\kappa$" in latex
    assert latex.isascii()  # so that any LaTeX sets it


def test_rows_tables_and_raters_by_slow_counts(paper):
    folder, votes = paper
    result = human([str(save(folder / "v.jsonl", votes))])
    key = {(c["set"], c["case"]): c for c in json.loads((folder / "key.json").read_text())["cases"]}

    def preferred(vote):
        if vote.choice == "tie":
            return "tie"
        shown = key[vote.set, vote.case]["scorers"]
        shown = shown[::-1] if vote.swapped else shown
        return "first" if shown["AB".index(vote.choice)] == "lookback" else "second"

    for row in result.rows:
        here = [preferred(v) for v in votes if (v.set, v.case) == (row["set"], row["case"])]
        assert [row[kind] for kind in KINDS] == [here.count(kind) for kind in KINDS]
        one, _, other = (here.count(kind) for kind in KINDS)
        assert row["majority"] == ("first" if one > other else "second" if other > one else "tie")
        line = key[row["set"], row["case"]]
        quality = dict(zip(line["scorers"], line["quality"], strict=True))
        assert row["first_quality"] == quality["lookback"]
        assert row["second_quality"] == quality["self_certainty"]
    for line in result.tables[2].rows:
        mine = [v for v in votes if v.rater == line[0]]
        assert [int(cell) for cell in line[3:6]] == [
            sum(preferred(v) == kind for v in mine) for kind in KINDS
        ]
        same = 0
        for vote in mine:
            place = vote.set, vote.case
            others = [
                preferred(v) for v in votes if (v.set, v.case) == place and v.rater != vote.rater
            ]
            lead = others.count("first") - others.count("second")
            same += preferred(vote) == ("first" if lead > 0 else "second" if lead else "tie")
        assert line[6] == f"{same} of 25"
        sides = [v.choice for v in mine if v.choice != "tie"]
        assert line[7] == f"{sides.count('A')} of {len(sides)}"
    widths = [bar.get_width() for bar in result.figure.axes[0].patches]
    np.testing.assert_allclose(widths[1::3], [151 / 3, 44 / 3, 105 / 3])
    np.testing.assert_allclose(widths[2::3], [54, 18, 28])


def test_sqlite_and_json_lines_are_one(paper, tmp_path):
    folder, votes = paper
    names = [f"r{s}{i}" for i in range(6) for s in (1, 2)]
    box = VoteFile(folder / "votes.sqlite", read_cases(folder), names)
    for vote in votes:
        if vote.rater.endswith(("0", "1", "2")):
            box.enter(vote.rater)
            box.put(vote.rater, vote.set, vote.case, vote.choice)
    rest = [vote for vote in votes if not vote.rater.endswith(("0", "1"))]  # "2" is in both
    away = save(tmp_path / "sent.jsonl", rest)
    both = human([str(folder / "votes.sqlite"), str(away)])
    assert both.rows == human([str(folder), str(save(tmp_path / "all.jsonl", votes))]).rows


def test_missing_votes_and_few_raters(tmp_path):
    cases = make_cases((4, 3), image=False)
    folder = make_folder(tmp_path / "c", cases, {(1, 1): (None, 0.5)})
    votes = [vote_of(cases.study, "a", (1, c), "first") for c in (1, 2, 3)]
    votes += [vote_of(cases.study, "b", (1, c), k) for c, k in ((1, "first"), (2, "second"))]
    votes.append(vote_of(cases.study, "a", (2, 1), "tie"))
    result = human([str(save(folder / "v.jsonl", votes))])
    table, agreed, _ = result.tables
    assert [list(line)[1:] for line in table.rows] == [
        ["6 (100.0%)", "0 (0.0%)", "0 (0.0%)"],  # of the cases with a quality
        ["4 (66.7%)", "1 (16.7%)", "1 (16.7%)"],
        ["2 (50.0%)", "2 (50.0%)", "0 (0.0%)"],
    ]
    assert agreed.rows[1] == ["Set 2", "1 of 3", "1", "-", "-", "-"]
    assert agreed.rows[0][:4] == ["Set 1", "3 of 4", "5", "2 x 2"]
    told = " ".join(result.notes)
    for part in (
        "1 cases have no quality",
        "3 of 7 cases have no vote",
        "Set 1: 2 votes per case are few",
        "Set 2: no case has a second vote, so agreement is not known",
        "Set 1: cases have from 1 to 2 votes",
        "In more than one set: a;",
    ):
        assert part in told, part


def test_kappa_takes_the_number_of_votes_that_most_cases_have():
    found = agreement(
        np.array([[3, 0, 0], [0, 0, 3], [2, 0, 0], [0, 1, 0], [1, 1, 1]], dtype=float)
    )
    assert (found.size, found.even) == (3, 3)
    assert not np.isnan(found.alpha).any()
    assert agreement(np.array([[2.0, 0, 0], [0, 1, 2]])).size == 3  # of equals the larger
    assert np.isnan(agreement(np.eye(3)).alpha[0])


def test_what_cannot_be_counted(paper, tmp_path):
    folder, votes = paper
    with pytest.raises(StudyError, match="no votes in"):
        human([str(folder)])
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        human([str(folder / "nothing")])
    away = save(tmp_path / "away.jsonl", votes)
    with pytest.raises(StudyError, match="give the folder of its cases, too"):
        human([str(away)])
    other = make_cases((2,))
    more = save(tmp_path / "more.jsonl", [vote_of(other.study, "a", (1, 1), "tie")])
    with pytest.raises(StudyError, match="votes of 2 studies"):
        human([str(folder), str(away), str(more)])
    changed = vote_of(votes[0].study, votes[0].rater, (1, 1), "tie")
    assert changed.choice != votes[0].choice
    with pytest.raises(StudyError, match=r"set 1, case 1: .* keep the file that holds"):
        human([str(folder), str(away), str(save(tmp_path / "x.jsonl", [changed]))])
    with pytest.raises(StudyError, match="there is no case 99 of set 1"):
        human([str(folder), str(save(away, [vote_of(votes[0].study, "a", (1, 99), "tie")]))])


def test_the_command(command, paper, tmp_path):
    folder, votes = paper
    save(folder / "votes.jsonl", votes)
    code, out, err = command("study", "human", folder, "--out", tmp_path / "out")
    assert (code, "151 (50.3%)" in out, "κ over" in out) == (0, True, True)
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {f"human.{kind}" for kind in ("csv", "md", "tex", "pdf", "png", "svg")}
    code, out, _ = command("study", "human", folder, "--out", tmp_path / "out", "--json")
    assert len(json.loads(out)["rows"]) == 50
    code, _, err = command("study", "human", folder, "--n", "5")
    assert (code, "it has no --n" in err) == (1, True)
    code, _, err = command("study", "human", tmp_path / "no")
    assert (code, len(err.strip().splitlines())) == (1, 1)
    code, out, _ = command("studies", "--json")
    assert json.loads(out)[-1]["name"] == "human"


def test_the_majority_of_the_others_leaves_out_the_raters_own_vote(tmp_path):
    """Without their own vote the others are even, so no rater is with them."""
    cases = make_cases((1,), image=False)
    folder = make_folder(tmp_path / "c", cases)
    kinds = {"a": "first", "b": "first", "c": "second"}
    votes = [vote_of(cases.study, rater, (1, 1), kind) for rater, kind in kinds.items()]
    lines = human([str(save(folder / "v.jsonl", votes))]).tables[2].rows
    assert {line[0]: line[6] for line in lines} == {"a": "0 of 1", "b": "0 of 1", "c": "0 of 1"}
