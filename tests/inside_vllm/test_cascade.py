"""Shared blocks asked about once: groups, and two softmaxes joined by the block both have."""

import numpy as np
import pytest
import torch

from lookback.engines.vllm.worker.cascade import ANCHOR, Groups, join, marks


def outputs(logits, source, anchor):
    """What a kernel says of the three marks, of keys with these logits, (rows, heads, 3)."""
    weights = logits.softmax(-1)
    told = torch.stack([source & ~anchor, anchor, source & anchor], 1).to(weights)
    return weights @ told


@pytest.mark.parametrize("spread", [1.0, 5.0, 20.0])
def test_joined_it_is_the_softmax_over_all_keys(spread):
    torch.manual_seed(0)
    size, shared, whole = 32, 96, 170
    logits = spread * torch.randn(25, 8, whole)
    source, anchor = torch.rand(whole) < 0.5, torch.arange(whole) < size
    ours = torch.cat([torch.arange(size), torch.arange(shared, whole)])
    found = join(
        outputs(logits[..., :shared], source[:shared], anchor[:shared]),
        outputs(logits[..., ours], source[ours], anchor[ours]),
    )
    wanted = logits.double().softmax(-1)[..., source].sum(-1)
    torch.testing.assert_close(found.double(), wanted, atol=2e-6, rtol=2e-6)


def test_an_anchor_without_weight_is_no_number():
    shared, own = torch.zeros(1, 1, 3), torch.zeros(1, 1, 3)
    own[..., ANCHOR] = 1.0
    assert not join(shared, own).isfinite().any()


def test_groups_are_rows_that_begin_with_the_same_blocks():
    tables = np.array(
        [[3, 1, 7, 20, 0], [5, 9, 4, 21, 0], [3, 1, 7, 22, 0], [3, 1, 8, 23, 0], [6, 2, 1, 24, 0]]
    )
    groups = Groups.of(tables, np.array([3, 3, 3, 3, 1]))
    assert groups.rows.tolist() == [0, 2, 3]
    assert groups.sizes.tolist() == [3]
    assert groups.shared.tolist() == [2, 0, 2, 2, 0]  # the third block of one is another
    assert Groups.of(tables[1:3], np.array([3, 3])) is None
    assert Groups.of(tables[:1], np.array([3])) is None


def test_marks_of_tokens():
    found = marks(torch.tensor([True, False, True]), np.array([31, 31, 32]), 32)
    assert found.tolist() == [[False, True, True], [False, True, False], [True, False, False]]
