"""Which candidates go on at a checkpoint: rules on made-up signals, against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookback.registry import SettingError
from lookback.scores.formula import lookback_score
from lookback.steering import PRUNED, Draft
from lookback.steering.pruning import Pruning, check_schedule, pruned_at, pruning_of

DEFAULTS = {"alpha": 0.5, "lam": 1.25}


def signals(length, seed):
    rng = np.random.default_rng(seed)
    rows = [-rng.exponential(size=length), rng.uniform(0.01, 0.9, length)]
    return np.stack([*rows, rng.exponential(size=length), rng.exponential(size=length)]).astype(
        np.float32
    )


def of_log_prob(*values, running=True):
    """A draft whose mean log p is that of the values."""
    found = np.zeros((4, len(values)), np.float32)
    found[0], found[1] = values, 0.5
    return Draft((), found, running)


def test_the_best_so_many_of_all_go_on():
    rule = Pruning([(2, 2)], scorer="mean_log_prob").of(4, DEFAULTS)
    drafts = {
        0: of_log_prob(-1, -1),
        1: of_log_prob(-3, -2),
        3: of_log_prob(-0.5, running=False),  # finished: it competes by its full score
        7: of_log_prob(-1, -0.5),
    }
    told = []
    watched = Pruning([(2, 2)], scorer="mean_log_prob", watch=lambda *args: told.append(args)).of(
        4, DEFAULTS
    )
    assert rule.decide(2, drafts).ends == watched.decide(2, drafts).ends == {0: PRUNED, 1: PRUNED}
    ((tokens, scores, decision),) = told
    assert (tokens, list(scores), decision.forks) == (2, [3, 7, 0, 1], ())
    np.testing.assert_allclose(list(scores.values()), [-0.5, -0.75, -1, -2.5])


def test_a_finished_candidate_is_never_ended_and_may_take_every_place():
    rule = Pruning([(2, 1)], scorer="mean_log_prob").of(3, DEFAULTS)
    drafts = {0: of_log_prob(-9, running=False), 1: of_log_prob(-1, running=False)}
    drafts |= {2: of_log_prob(-2, -2), 3: Draft((), np.zeros((4, 0), np.float32), False)}
    assert rule.decide(2, drafts).ends == {2: PRUNED}


def test_equal_scores_keep_their_order():
    rule = Pruning([(1, 2)], scorer="mean_log_prob").of(4, DEFAULTS)
    drafts = {i: of_log_prob(-1.0) for i in range(4)}
    assert rule.decide(1, drafts).ends == {2: PRUNED, 3: PRUNED}


def test_the_familys_settings_judge_unless_others_are_given():
    assert pruning_of("half", 25, DEFAULTS).settings == DEFAULTS
    own = pruning_of(Pruning("half", settings={"alpha": 2.0}), 25, DEFAULTS)
    assert own.settings == {"alpha": 2.0, "lam": 1.25}
    assert pruning_of(Pruning("half", scorer="mean_log_prob"), 25, DEFAULTS).settings == {}
    assert pruning_of(None, 25, DEFAULTS) is None


def test_half_is_half_and_a_quarter():
    assert check_schedule("half", 25) == ((16, 12), (32, 6))
    assert check_schedule("half", 5) == ((16, 2), (32, 1))
    assert check_schedule("half", 1) == ((16, 1), (32, 1))


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("third", "must be 'half' or pairs"),
        (7, "must be 'half' or pairs"),
        ([(1, 2, 3)], "must be 'half' or pairs"),
        ([], "no checkpoint"),
        ([(0, 3)], "0 must be a whole number"),
        ([(4, 0)], "0 must be a whole number"),
        ([(4, 2.5)], "2.5 must be a whole number"),
        ([(4, True)], "True must be a whole number"),
        ([("4", 2)], "'4' must be a whole number"),
        ([(8, 4), (8, 2)], "tokens must rise"),
        ([(8, 4), (16, 5)], "numbers must not"),
    ],
)
def test_what_is_no_schedule_is_named(schedule, message):
    with pytest.raises(ValueError, match=message):
        pruning_of(schedule, 25, DEFAULTS)


@pytest.mark.parametrize("scorer", ["majority", "oracle", "usc", "clipscore"])
def test_a_scorer_that_needs_more_than_signals_cannot_judge(scorer):
    with pytest.raises(ValueError, match=f"{scorer!r} cannot judge"):
        pruning_of(Pruning("half", scorer=scorer), 25, DEFAULTS)


def test_settings_and_scorers_that_are_not_there_are_named():
    with pytest.raises(ValueError, match="no scorer named 'best'"):
        pruning_of(Pruning("half", scorer="best"), 25, DEFAULTS)
    with pytest.raises(SettingError, match="no setting 'beta'"):
        pruning_of(Pruning("half", settings={"beta": 1}), 25, DEFAULTS)


def slow_pruned_at(schedule, all_signals, drawn):
    """The same by the bare formula, one candidate after another."""
    pruned = {}
    for tokens, keep in schedule:
        scores = {}
        for i, values in enumerate(all_signals):
            part = values[:, :tokens].astype(float)
            if i not in pruned:
                empty = part.shape[1] == 0
                scores[i] = -np.inf if empty else lookback_score(part[0], part[1], 0.5, 1.25)
        best = sorted(scores, key=lambda i: (-scores[i], i))[:keep]
        for i in scores:
            if i not in best and drawn[i] > tokens:
                pruned[i] = tokens
    return [pruned.get(i) for i in range(len(drawn))]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12),
    st.integers(0, 2**31),
    st.lists(st.integers(1, 30), min_size=1, max_size=3, unique=True),
    st.data(),
)
def test_what_a_finished_draw_would_have_been_equals_a_plain_loop(lengths, seed, after, data):
    kept = sorted(data.draw(st.lists(st.integers(1, 12), min_size=3, max_size=3)), reverse=True)
    schedule = list(zip(sorted(after), kept, strict=False))
    found = [signals(length, seed + i) for i, length in enumerate(lengths)]
    drawn = [length + data.draw(st.integers(0, 1)) for length in lengths]
    rule = pruning_of(schedule, len(lengths), DEFAULTS)
    assert pruned_at(rule, found, drawn) == slow_pruned_at(schedule, found, drawn)
