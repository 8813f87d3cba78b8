"""Continuations one by one and batched: which still go on, and what each takes home."""

import numpy as np
import pytest
import torch

from lookback.engines.common.continuations import (
    Continuation,
    Drawn,
    Likeliest,
    batches,
    padded,
    unpadded,
)


def signals(*shape):
    """Numbers that are all different, and could be signals: log p is negative."""
    found = torch.arange(1.0, 1.0 + int(np.prod(shape))).view(shape)
    found[0] *= -1
    return found


def test_each_response_gets_its_own_signals_back():
    responses, rows = [[5], [6, 7, 8], [9, 10]], signals(6, 3, 3)
    assert padded(responses).tolist() == [[5, 0, 0], [6, 7, 8], [9, 10, 0]]
    for i, (one, response) in enumerate(zip(unpadded(responses, rows), responses, strict=True)):
        assert one.token_ids == response
        assert one.finish == "given"
        np.testing.assert_array_equal(one.signals, rows[:4, i, : len(response)])
        np.testing.assert_array_equal(one.by_layer, rows[4:, i, : len(response)].T)


def test_without_layers_there_are_none():
    assert Continuation.of([5, 6], signals(4, 2).numpy()).by_layer is None


def test_its_signals_are_its_own():
    """A few tokens do not keep the whole batch in memory."""
    rows = signals(6, 100).numpy()
    one = Continuation.of([5, 6], rows)
    assert not np.shares_memory(one.signals, rows)
    assert not np.shares_memory(one.by_layer, rows)


def test_a_token_that_is_ruled_out_is_named():
    rows = signals(4, 2, 2)
    rows[0, 1, 1] = -torch.inf
    unpadded([[5, 6], [7]], rows)  # padding may be anything
    with pytest.raises(ValueError, match="token id 8: the model rules this token out"):
        unpadded([[5, 6], [7, 8]], rows)


@pytest.mark.parametrize(
    ("signal", "value"), [(0, 0.5), (0, torch.nan), (2, torch.inf), (3, torch.nan)]
)
def test_signals_of_broken_logits_are_refused(signal, value):
    rows = signals(4, 1, 2)
    rows[signal, 0, 1] = value
    with pytest.raises(FloatingPointError, match="not finite"):
        unpadded([[5, 6]], rows)


@pytest.mark.parametrize(
    ("finish", "left"), [("end", [5]), ("stop", [5, 6]), ("length", [5, 6]), ("given", [5, 6])]
)
def test_only_an_end_token_is_taken_away(finish, left):
    one = Continuation.of([5, 6], signals(6, 2).numpy(), finish).without_end()
    assert (one.token_ids, one.finish) == (left, finish)
    assert one.signals.shape == (4, len(left))
    assert one.by_layer.shape == (len(left), 2)


def test_those_that_end_leave_and_the_others_keep_their_numbers():
    drawn = Drawn(4, [0], lambda ids: ids[-2:] == [7, 7])
    drawn.take([[1], [0], [7], [2]])
    assert drawn.alive == [0, 2, 3]
    drawn.take([[3, 0, 9], [7, 9, 9], [4, 5, 6]])
    assert drawn.alive == [3]  # the third of those that went on
    drawn.take([[8]])
    assert drawn.alive == [3]
    assert drawn.ids == [[1, 3, 0], [0], [7, 7], [2, 4, 5, 6, 8]]
    assert drawn.finish == ["end", "end", "stop", "length"]


def test_what_is_cut_off_has_no_likeliest_tokens():
    one = Continuation.of([5, 6, 7], signals(6, 3).numpy())
    one.top = Likeliest(np.array([[5, 1], [6, 2], [7, 3]]), signals(3, 2).numpy())
    cut = one.cut(2)
    assert cut.top.token_ids.tolist() == [[5, 1], [6, 2]]
    np.testing.assert_array_equal(cut.top.log_prob, one.top.log_prob[:2])


def test_what_a_checkpoint_ended_is_not_judged_again_and_others_are_still_written():
    drawn = Drawn(4, [0], None)
    drawn.take([[1], [2], [3], [0]])
    drawn.end({0: "pruned", 1: "merged"})
    found = drawn.so_far(signals(4, 4, 1).numpy())
    assert [one.finish for one in found] == ["pruned", "merged", "writing", "end"]
    drafts = drawn.drafts(found)
    assert {i: draft.running for i, draft in drafts.items()} == {2: True, 3: False}


def test_batches_are_full_and_begin_with_the_longest():
    assert list(batches([4, 4, 4, 4], 12)) == [[0, 1, 2], [3]]
    assert list(batches([1, 6, 2, 6], 12)) == [[1, 3], [2, 0]]
    assert list(batches([5, 1, 1], 9)) == [[0], [1, 2]]
