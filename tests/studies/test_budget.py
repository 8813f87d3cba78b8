"""The study `budget` against plain loops, and its simulation against the rule that engines ask."""

import numpy as np
import pytest
from changed_runs import change_rows, set_tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import make_run
from numpy.testing import assert_allclose

from lookback.runs import Run
from lookback.signals import SIGNALS
from lookback.steering.pruning import Pruning, check_schedule, pruned_at
from lookback.studies import Runs, StudyError, get_study
from lookback.studies.budget import (
    CHECKPOINTS,
    JUDGES,
    prefix_scores,
    prune,
    schedule_text,
    schedules,
    tokens_drawn,
    tokens_left,
)
from lookback.studies.common.selection import bootstrap_means, interval

N = 9


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Long and short, ended and cut off, and two empty ones."""
    folder = tmp_path_factory.mktemp("budget") / "run"
    made = make_run(folder, items=14, n=N, length=20, failed=(3,), empty=((4, 1), (5, 0)))

    def cut_off(row):
        if row["length"] > 30:
            row["finish"] = "length"

    change_rows(made, cut_off)
    return Run(folder)


@pytest.fixture(scope="module")
def result(run):
    return get_study("budget")([run], {"share": 0.7, "splits": 3, "seed": 5})


def slow(run, row, judge, schedule, n=N):
    """(index of LookBack's pick, tokens drawn) of one item, asking the rule as an engine does."""
    candidates = run.candidates(row)[:n]
    signals = [np.stack([getattr(c, name) for name in SIGNALS]) for c in candidates]
    drawn = [len(c.tokens) + (c.finish == "end") for c in candidates]
    rule = Pruning(schedule, scorer=judge).of(n, run.defaults)
    ends = pruned_at(rule, signals, drawn)
    tokens = sum(count if end is None else end for count, end in zip(drawn, ends, strict=True))
    best, most = 0, -np.inf
    for i, score in enumerate(candidates.scores("lookback", **run.defaults)):
        if ends[i] is None and score > most:
            best, most = i, score
    return best, tokens


def test_every_schedule_of_every_judge_by_a_plain_loop(run, result):
    assert run.finish.count("length") > 5
    rows = {(r["judge"], r["schedule"]): r for r in result.rows if r["method"] == "pruned"}
    assert len(rows) == len(JUDGES) * len(schedules(N))
    quality = run.quality()
    for judge in JUDGES:
        for schedule in schedules(N)[::3]:
            found = [slow(run, row, judge, schedule) for row in range(len(run.ids))]
            row = rows[judge, schedule_text(schedule)]
            picked = [100 * quality[i, best] for i, (best, _) in enumerate(found)]
            assert row["value"] == pytest.approx(np.mean(picked))
            assert row["tokens"] == pytest.approx(np.mean([tokens for _, tokens in found]))
            whole = [slow(run, i, judge, [(10_000, 1)])[0] for i in range(len(run.ids))]
            same = [best == other for (best, _), other in zip(found, whole, strict=True)]
            assert row["same_pick"] == pytest.approx(np.mean(same))


def test_best_of_n_by_a_plain_loop(run, result):
    rows = {r["N"]: r for r in result.rows if r["method"] == "best of N"}
    assert [*rows] == [*range(1, N + 1)]
    for n, row in rows.items():
        never = [(10_000, 1)]
        found = [slow(run, i, "lookback", never, n) for i in range(len(run.ids))]
        worth = [100 * run.quality()[i, best] for i, (best, _) in enumerate(found)]
        assert row["value"] == pytest.approx(np.mean(worth))
        assert row["tokens"] == pytest.approx(np.mean([tokens for _, tokens in found]))
        assert row["share"] == pytest.approx(row["tokens"] / rows[N]["tokens"])


def test_differences_are_paired_and_against_as_many_tokens(run, result):
    best = [r for r in result.rows if r["method"] == "best of N"]
    quality, scores = 100 * run.quality(), run.scores("lookback")
    for row in (r for r in result.rows if r["method"] == "pruned" and r["schedule"] == "8:4"):
        found = [slow(run, i, row["judge"], ((8, 4),))[0] for i in range(len(run.ids))]
        values = quality[np.arange(len(quality)), found]
        same = next(r["N"] for r in best if r["tokens"] >= row["tokens"] - 1e-9)
        assert row["same_tokens_n"] == same
        for name, n in (("over_all", N), ("over_same", same)):
            other = [
                quality[i, np.nanargmax(s[:n])] if np.isfinite(s[:n]).any() else quality[i, 0]
                for i, s in enumerate(scores)
            ]
            gain = values - other
            assert row[name] == pytest.approx(gain.mean())
            assert (row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx(
                interval(bootstrap_means(gain))
            )


def test_a_chosen_schedule_is_told_of_the_half_that_did_not_choose_it(run, result):
    """A plain loop over the same lots."""
    full = next(r["tokens"] for r in result.rows if r["share"] == 1 and r["N"] == N)
    for judge in JUDGES:
        cheap = [
            one
            for one in schedules(N)
            if np.mean([slow(run, i, judge, one)[1] for i in range(len(run.ids))]) <= 0.7 * full
        ]
        assert len(cheap) > 2
        found = [[slow(run, i, judge, one) for one in cheap] for i in range(len(run.ids))]
        values = [[100 * run.quality()[i, b] for b, _ in line] for i, line in enumerate(found)]
        tokens = np.array([[t for _, t in line] for line in found], dtype=float)
        values = np.array(values)
        rng = np.random.default_rng(5)
        worth, cost = np.zeros(len(values)), np.zeros(len(values))
        for _ in range(3):
            order = rng.permutation(len(values))
            first, second = order[: len(order) // 2], order[len(order) // 2 :]
            for tuned, tested in ((first, second), (second, first)):
                best = int(np.argmax(values[tuned].mean(axis=0).round(9)))
                worth[tested] += values[tested, best] / 3
                cost[tested] += tokens[tested, best] / 3
        row = next(r for r in result.rows if r["method"] == "chosen" and r["judge"] == judge)
        assert (row["value"], row["tokens"]) == pytest.approx((worth.mean(), cost.mean()))


def test_scores_of_what_was_said_until_then(run):
    found = prefix_scores(run, "lookback", CHECKPOINTS)
    for tokens in CHECKPOINTS:
        for row in range(0, len(run.ids), 5):
            for i, one in enumerate(run.candidates(row)):
                judge = Pruning([(1, 1)]).of(1, run.defaults)
                values = np.stack([getattr(one, name)[:tokens] for name in SIGNALS])
                wanted = judge._scores([values])[0]
                assert_allclose(found[tokens][row, i], wanted, rtol=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_rule_in_arrays_is_the_rule(data):
    """With ties, NaN, missing candidates and any schedule."""
    n, items = data.draw(st.integers(1, 6)), 2
    number = st.sampled_from([0.0, 1.0, 1.0, 2.0, float("nan")])
    drawn = np.array(
        data.draw(
            st.lists(
                st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=items, max_size=items
            )
        ),
        dtype=float,
    )
    marks = sorted(data.draw(st.sets(st.integers(1, 8), min_size=1, max_size=3)))
    keeps = sorted((data.draw(st.integers(1, n)) for _ in marks), reverse=True)
    schedule = tuple(zip(marks, keeps, strict=True))
    scores = {
        t: np.array([[data.draw(number) for _ in range(n)] for _ in range(items)]) for t in marks
    }
    found = prune(scores, drawn, schedule)
    for row in range(items):
        told = Told(schedule).of(n, {})
        object.__setattr__(told, "told", {t: values[row] for t, values in scores.items()})
        signals = [np.zeros((4, 9), np.float32)] * n
        wanted = pruned_at(told, signals, drawn[row].astype(int).tolist())
        assert wanted == [None if np.isnan(x) else int(x) for x in found[row]]


class Told(Pruning):
    """A rule that is told the scores."""

    def decide(self, tokens, drafts):
        object.__setattr__(self, "now", self.told[tokens])
        return super().decide(tokens, drafts)

    def ranking(self, drafts):
        order = sorted(drafts, key=lambda i: (np.isnan(self.now[i]), -self.now[i], i))
        return {i: self.now[i] for i in order}


def test_tokens_are_counted_until_the_end_or_the_pruning():
    drawn, pruned = np.array([[5.0, 9, np.nan]]), np.array([[np.nan, 4, np.nan]])
    assert tokens_left(drawn, pruned).tolist() == [9]


def test_an_ended_response_drew_one_token_more(run):
    drawn = tokens_drawn(run)
    for row in range(len(run.ids)):
        for i, one in enumerate(run.candidates(row)):
            assert drawn[row, i] == len(one.tokens) + (one.finish == "end")


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12, 25, 100])
def test_schedules_are_such_and_end_somebody(n):
    found = schedules(n)
    assert len(set(found)) == len(found)
    for one in found:
        assert check_schedule(one, n) == one
        assert one[0][1] < n
    assert (found[:1] == [check_schedule("half", n)]) == (n > 1)


def test_short_answers_have_nothing_to_prune(tmp_path):
    run = make_run(tmp_path / "short", items=6, n=5, length=3)
    found = get_study("budget")([run])
    assert not [row for row in found.rows if row["method"] == "chosen"]
    assert any("most answers end before there is anything to prune" in n for n in found.notes)
    one = get_study("budget")([make_run(tmp_path / "one", items=6, n=1)])
    assert any("of one candidate nothing can be pruned" in note for note in one.notes)


def test_what_it_cannot_be_asked(run, tmp_path):
    with pytest.raises(StudyError, match="share = 0"):
        get_study("budget")([run], {"share": 0})

    def end(row):
        if row["index"]:
            row["finish"] = "pruned"

    pruned = change_rows(make_run(tmp_path / "pruned", items=3, n=3), end)
    with pytest.raises(StudyError, match="without --prune"):
        get_study("budget")(Runs([pruned]))


@pytest.fixture
def even(tmp_path):
    """Eight candidates of 64 tokens each: every cost is exact in floating point."""
    made = make_run(tmp_path / "even", items=4, n=8)

    def lengthen(row):
        set_tokens(row, ["x"] * 64)
        row["finish"] = "length"

    change_rows(made, lengthen)
    return Run(tmp_path / "even")


def test_a_schedule_that_costs_exactly_the_share_may_be_chosen(even):
    rows = get_study("budget")([even], {"splits": 2}).rows
    cheapest = min(r["share"] for r in rows if r["method"] == "pruned")
    assert cheapest == round(512 * cheapest) / 512  # a whole number of tokens: no rounding
    rows = get_study("budget")([even], {"share": cheapest, "splits": 2}).rows
    assert {r["share"] for r in rows if r["method"] == "chosen"} == {cheapest}


def test_as_many_tokens_means_at_least_as_many(even):
    """16:4 costs 320 tokens, as do five whole candidates."""
    rows = get_study("budget")([even]).rows
    row = next(r for r in rows if r["method"] == "pruned" and r["schedule"] == "16:4")
    assert (row["tokens"], row["same_tokens_n"]) == (320, 5)
