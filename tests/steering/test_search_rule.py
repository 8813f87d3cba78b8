"""What a search decides at a checkpoint, on made-up drafts."""

import numpy as np
import pytest

from lookback.steering import MERGED, PRUNED, Draft
from lookback.steering.search import Search, repeated


def draft(tokens, log_prob, running=True):
    found = np.full((4, len(tokens)), 0.5, np.float32)
    found[0] = log_prob
    return Draft(tokens, found, running)


def search(width=6, keep=2, every=4):
    return Search(width, keep, every, scorer="mean_log_prob").of({})


def test_the_best_go_on_and_share_the_free_places():
    drafts = {i: draft([i], value) for i, value in enumerate([-3, -1, -2, -5, -4, -6])}
    decision = search().decide(4, drafts)
    assert decision.ends == dict.fromkeys([0, 3, 4, 5], PRUNED)
    assert sorted(decision.forks) == [1, 1, 2, 2]
    odd = search(width=7, keep=2).decide(4, drafts)
    assert sorted(odd.forks) == [1, 1, 1, 2, 2]  # the better one has the odd place


def test_what_says_the_same_goes_on_once():
    drafts = {0: draft([7, 8], -1), 1: draft([7, 8], -1), 2: draft([7, 9], -2), 3: draft([5], -3)}
    decision = search(width=4, keep=2).decide(4, drafts)
    assert decision.ends == {1: MERGED, 3: PRUNED}
    assert sorted(decision.forks) == [0, 2]


def test_finished_candidates_are_never_ended_nor_forked():
    drafts = {0: draft([1], -9, running=False), 1: draft([2], -6, running=False)}
    drafts |= {2: draft([3], -3), 3: draft([4], -4), 4: draft([5], -5)}
    decision = search(width=6, keep=2).decide(4, drafts)
    assert decision.ends == {4: PRUNED}
    assert sorted(decision.forks) == [2, 2, 3, 3]  # those far behind take nobody's place


def test_a_finished_candidate_among_the_best_holds_its_share():
    drafts = {0: draft([1], -0.1, running=False), 1: draft([2], -3), 2: draft([3], -4)}
    decision = search(width=6, keep=2).decide(4, drafts)
    assert decision.ends == {2: PRUNED}
    assert list(decision.forks) == [1, 1]  # three rows go on, not six


def test_one_short_answer_drawn_often_holds_one_place():
    drafts = {i: draft([1], -0.1, running=False) for i in range(5)}
    drafts |= {5: draft([2], -3), 6: draft([3], -4)}
    decision = search(width=6, keep=2).decide(4, drafts)
    assert decision.ends == dict.fromkeys([1, 2, 3, 4], MERGED) | {6: PRUNED}


def test_nothing_is_forked_where_nothing_is_written():
    decision = search().decide(4, {0: draft([1], -1, running=False)})
    assert (dict(decision.ends), list(decision.forks)) == ({}, [])


def test_checkpoints_come_every_so_often():
    assert [t for t in range(1, 13) if search(every=4).due(t)] == [4, 8, 12]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width = 0"),
        ({"keep": 0}, "keep = 0"),
        ({"keep": 7}, "keep = 7: must be at most 6"),
        ({"every": 0}, "every = 0"),
        ({"every": 2.5}, "every = 2.5: must be a whole number"),
    ],
)
def test_numbers_out_of_range_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        search(**settings)


def test_repeated_names_all_but_the_first():
    assert repeated({3: [1, 2], 5: [1], 6: [1, 2], 9: [1, 2]}) == [6, 9]
