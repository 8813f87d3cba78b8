"""Shaded tokens: which items and candidates are shown, and how the text is set."""

import re
import shutil
from html import unescape
from itertools import pairwise

import numpy as np
import pytest
from changed_runs import change_rows, keep_rows, set_tokens
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run

from lookback.pages.tokens import color, shades
from lookback.runs import Run
from lookback.scores.formula import relevance, token_scores
from lookback.studies import StudyError, get_study
from lookback.studies.tokens import RULE, SIZE, break_lines, choose_cases, width

STUDY = get_study("tokens")


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "own", n=6, empty=((3, 2),), failed=(5,))


def outcomes(run):
    """(LookBack's, SC's, visual lookback's, the best) quality of each item."""
    found = []
    for row in range(len(run.ids)):
        quality = run.quality()[row]
        line = []
        for scorer in ("lookback", "self_certainty", "visual_lookback"):
            line.append(quality[run.candidates(row).rank(scorer)[0].index])
        found.append((*line, max(quality)))
    return found


def expected_cases(run):
    """By the rule, in plain loops: {case: row}."""
    found = {}
    table = outcomes(run)
    wins = [(a - b, -row) for row, (a, b, *_) in enumerate(table) if a == 1 and b < 1]
    losses = [(d - a, -row) for row, (a, *_, d) in enumerate(table) if a < d and 2 * a <= d]
    for name, rows in (("Success", wins), ("Failure", losses)):
        if rows:
            found[name] = -max(rows)[1]
    return found


def test_a_success_and_a_failure(run):
    result = STUDY([run])
    chosen = {row["case"]: run.ids.index(row["id"]) for row in result.rows}
    assert list(chosen) == ["Success", "Failure"]
    assert chosen == expected_cases(run)
    table, page = outcomes(run), unescape(result.files["page.html"])
    for name, row in chosen.items():
        ours, sc, _, best = table[row]
        told = f"(LookBack's pick {ours:.2f}, SC's {sc:.2f}, best {best:.2f})"
        assert f"<h2>{name} {told}: Scenes Caption, made-up</h2>" in page
        expected = f"Scenes Caption, made-up: {name.lower()} {run.ids[row]} {told}."
        assert expected in result.notes
    assert RULE in page
    assert RULE in result.notes


@pytest.mark.parametrize("seed", range(8))
def test_cases_of_other_runs(tmp_path, seed):
    run = make_run(tmp_path / "own", n=3, items=6, seed=seed)
    expected = expected_cases(run)
    assert choose_cases(run, 3) == expected
    few = expected_cases(shorten_to(run, 2, tmp_path / "two"))
    assert choose_cases(run, 2) == few  # of the first two candidates alone


def shorten_to(run, n, folder):
    shutil.copytree(run.path, folder)
    return keep_rows(Run(folder), lambda row: row["index"] < n)


def test_a_half_good_answer_is_no_success(tmp_path):
    """The best there is has 0.5: LookBack's pick is above SC's, but not a success."""
    run = make_run(tmp_path / "own", n=4)
    run = change_rows(run, lambda row: row.update(quality=row["quality"] / 2))
    result = STUDY([run])
    assert {row["case"] for row in result.rows} == {"Failure"}
    (said,) = [note for note in result.notes if "no success" in note]
    assert said == (
        "Scenes Caption, made-up: no success: there is no item of which LookBack's pick has full "
        "quality (1) and SC's has less."
    )


def test_a_pick_that_is_not_bad_is_no_failure(tmp_path):
    """LookBack's picks are below the best, but above half of it."""
    run = make_run(tmp_path / "own", n=4)
    lookback = {row: run.candidates(row).rank("lookback")[0].index for row in range(12)}
    sc = {row: run.candidates(row).rank("self_certainty")[0].index for row in range(12)}
    first = next(row for row in range(12) if lookback[row] != sc[row])

    def grade(row):
        picked = row["index"] == lookback[row["item"]]
        row["quality"] = 0.6 if picked else 1.0
        if row["item"] == first:
            row["quality"] = 1.0 if picked else 0.9

    result = STUDY([change_rows(run, grade)])
    assert {(row["case"], row["id"]) for row in result.rows} == {("Success", run.ids[first])}
    assert any("no failure: there is no item" in note for note in result.notes)


def test_the_picks_are_shown(run):
    rows = STUDY([run], {"item": 7}).rows
    place = run.places.tolist().index(7)
    shown = {}
    for row in rows:
        shown.setdefault(row["candidate"], row["picked_by"].split(", "))
    candidates = run.candidates(place)
    for name, scorer in (
        ("LookBack", "lookback"),
        ("SC", "self_certainty"),
        ("Visual lookback", "visual_lookback"),
    ):
        (index,) = [index for index, names in shown.items() if name in names]
        assert index == candidates.rank(scorer)[0].index
    (oracle,) = [index for index, names in shown.items() if "oracle" in names]
    quality = run.quality()[place]
    assert quality[oracle] == max(quality)
    assert len(shown) <= 4
    assert len({row["candidate"] for row in STUDY([run], {"item": 7, "shown": 1}).rows}) == 1


def test_a_row_a_token(run):
    rows = STUDY([run], {"item": run.ids[2]}).rows
    assert {row["id"] for row in rows} == {run.ids[2]}
    for index in {row["candidate"] for row in rows}:
        one = run.candidates(2)[index]
        here = [row for row in rows if row["candidate"] == index]
        assert [row["token"] for row in here] == list(one.tokens)
        assert [row["t"] for row in here] == list(range(len(one.tokens)))
        u, q = (
            token_scores(one.log_prob, one.visual_lookback, 0.5),
            relevance(one.visual_lookback, 1.25),
        )
        np.testing.assert_allclose([row["token_score"] for row in here], u)
        np.testing.assert_allclose([row["exp_token_score"] for row in here], np.exp(u))
        np.testing.assert_allclose([row["relevance"] for row in here], q)
        p, a = one.log_prob.astype(float), one.visual_lookback.astype(float)
        np.testing.assert_allclose([r["exp_token_score"] for r in here], np.exp(p) * a**0.5)
        assert len({tuple(row) for row in rows}) == 1  # the same keys


def test_an_item_that_is_not_there(run):
    for item in (5, "5", 99, "nobody"):  # the sixth failed
        with pytest.raises(StudyError, match="has an item"):
            STUDY([run], {"item": item})
    with pytest.raises(StudyError, match="at least one"):
        STUDY([run], {"shown": 0})


def test_nothing_to_show(tmp_path):
    same = change_rows(make_run(tmp_path / "own", n=3), lambda row: row.update(quality=1.0))
    with pytest.raises(StudyError, match="no success and no failure to show: name an item"):
        STUDY([same])


def test_ranks_and_quality_are_told(run):
    page = STUDY([run], {"item": 7}).files["page.html"]
    place = run.places.tolist().index(7)
    order = [c.index for c in run.candidates(place).rank("self_certainty")]
    first = run.candidates(place).rank("lookback")[0].index
    about = re.findall(r'class="muted">picked by (.*?)</p>', page)[0]
    assert "LookBack" in about.split(" · ")[0]
    assert f"quality {run.quality()[place][first]:.2f}" in about
    assert f"rank of 6: LookBack 1, SC {order.index(first) + 1}, " in about


@pytest.mark.filterwarnings("ignore:Glyph")
def test_the_page_says_what_the_tokens_say(tmp_path):
    def evil(row):
        set_tokens(row, [" <b", "> $x$", "\n", "dog&", " 猫"])

    run = change_rows(make_run(tmp_path / "own", n=3), evil)
    result = STUDY([run], {"item": 0})
    page = result.files["page.html"]
    lines = re.findall(r'<p class="tokens"><b>\w+</b> (.*?)</p>', page, re.DOTALL)
    assert len(lines) % 3 == 0
    for line in lines:
        assert unescape(re.sub(r"<.*?>", "", line)) == " <b> $x$\ndog& 猫"
    assert "base64" in page


def test_the_figure_stays_within_its_page(tmp_path):
    def long(row):
        set_tokens(row, [" word", "ing", ",", " $a_b$"] * 40)

    run = change_rows(make_run(tmp_path / "own", n=3), long)
    figure = STUDY([run], {"item": 0}).figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    (axis,) = figure.axes
    boxes = [text.get_window_extent(renderer) for text in axis.texts if text.get_text()]
    wide, high = figure.get_size_inches() * figure.dpi
    assert all(b.x0 >= 0 and b.x1 <= wide and b.y0 >= 0 and b.y1 <= high for b in boxes)
    words = [text.get_text() for text in axis.texts]
    shown = len({row["candidate"] for row in STUDY([run], {"item": 0}).rows})
    assert words.count("$a_b$") == 3 * 40 * shown  # once a signal
    assert not any(text.get_parse_math() for text in axis.texts)
    lines = {}
    for text, box in zip((t for t in axis.texts if t.get_text()), boxes, strict=True):
        lines.setdefault(text.get_position()[1], []).append((box.x0, box.x1))
    for line in lines.values():  # nothing is written over its neighbour; a pixel is rounding
        line.sort()
        assert all(a[1] <= b[0] + 1.5 for a, b in pairwise(line))


def test_shades():
    assert shades(np.array([3.0, 1.0, 2.0])).tolist() == [1, 0, 0.5]
    assert shades(np.array([2.0, 2.0])).tolist() == [0.5, 0.5]
    assert color("SC", 0) == "#ffffff"
    light, dark = (sum(int(color("A", s)[i : i + 2], 16) for i in (1, 3, 5)) for s in (0.3, 0.9))
    assert dark < light


def test_widths():
    assert width(" ") > 0
    assert width(" dog") == pytest.approx(width(" ") + width("dog"), abs=0.2)
    assert width("dogdog") == pytest.approx(2 * width("dog"), abs=0.2)
    assert 0.4 * SIZE < width("n") < 0.8 * SIZE


@given(
    st.lists(st.sampled_from([" ab", "c", " d", ",", "\n", ".\n\n", " longword", "x"]), max_size=20)
)
def test_lines(tokens):
    widths = [float(len(token)) for token in tokens]
    lines = break_lines(tokens, widths, 10.0)
    assert [i for line in lines for i in line] == list(range(len(tokens)))
    for line in lines:
        assert sum(widths[i] for i in line) <= 10
        assert all(tokens[i] != "\n" for i in line[1:])
        assert all(tokens[i] != ".\n\n" for i in line[:-1])
    for before, after in pairwise(lines):
        if tokens[after[0]] == "\n" or tokens[before[-1]] == ".\n\n":
            continue
        end = after[0] + 1
        while end < len(tokens) and not tokens[end][:1].isspace():
            end += 1
        word = sum(widths[after[0] : end])
        taken = sum(widths[i] for i in before)
        assert taken + min(word, widths[after[0]]) > 10 or taken + word > 10  # it did not fit
        if not tokens[after[0]][:1].isspace():  # broken inside a word: that is wider than a line
            start = after[0]
            while start > 0 and not tokens[start][:1].isspace():
                start -= 1
            assert sum(widths[start:end]) > 10
