"""Attention in parts against attention in one piece: outputs and the shares of the parts."""

import pytest
import torch

from lookback.engines.transformers.attention import kernels, partial
from lookback.engines.transformers.attention.partial import attend, join


def tensors(batch=2, heads=4, kv_heads=2, rows=5, keys=11, dim=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, rows, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, dim)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def slow(query, key, value, scale, mask=None, softcap=None):
    """The textbook: repeated heads, all scores, softmax in float64."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1).double() for x in (key, value))
    scores = query.double() @ key.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    return weights @ value, weights


@pytest.fixture(params=["fused", "plain", "plain in pieces"])
def path(request, monkeypatch):
    if request.param != "fused":
        monkeypatch.setattr(partial, "trusted", lambda *args: ())
    if request.param == "plain in pieces":
        monkeypatch.setattr(kernels, "MATH_SCORES", 200)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("masked", [False, True])
def test_parts_join_to_the_whole_and_their_shares_are_the_attention(masked):
    query, key, value = tensors()
    mask = torch.rand(2, 1, 5, 11, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[..., -1] = True
    mask[0, :, 2, :4] = False  # a row that sees nothing of the first part
    mask[1, :, 3, :9] = False  # and one that sees nothing of the first two
    mask = mask if masked else None
    expected, weights = slow(query, key, value, 0.3, mask)
    parts = [
        attend(
            query,
            key[:, :, span],
            value[:, :, span],
            scale=0.3,
            mask=None if mask is None else mask[..., span],
        )
        for span in (slice(0, 4), slice(4, 9), slice(9, 11))
    ]
    head, first = join(parts[0], parts[1])
    whole, share = join(head, parts[2])
    torch.testing.assert_close(whole.out.double(), expected, atol=1e-6, rtol=1e-5)
    for found, span in ((first * share, slice(0, 4)), (share, slice(0, 9))):
        mass = weights[..., span].sum(-1)
        torch.testing.assert_close(found.double(), mass, atol=1e-6, rtol=1e-5)


@pytest.mark.usefixtures("path")
def test_causal():
    query, key, value = tensors(rows=7, keys=7)
    expected, _ = slow(query, key, value, 0.3, torch.ones(7, 7).tril().bool())
    part = attend(query, key, value, scale=0.3, causal=True)
    torch.testing.assert_close(part.out.double(), expected, atol=1e-6, rtol=1e-5)


def test_softcap_and_values_of_another_width():
    query, key, value = tensors()
    expected, _ = slow(query, key, value[..., :3], 1.5, softcap=2.0)
    part = attend(query, key, value[..., :3], scale=1.5, softcap=2.0)
    torch.testing.assert_close(part.out.double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.usefixtures("path")
def test_values_may_be_of_another_size_than_keys():
    query, key, value = tensors()
    expected, _ = slow(query, key, value[..., :3], 0.3)
    part = attend(query, key, value[..., :3], scale=0.3)
    torch.testing.assert_close(part.out.double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.usefixtures("path")
def test_scores_are_capped_where_a_kernel_would_not():
    query, key, value = tensors()
    scores = query.double() @ key.double().repeat_interleave(2, 1).mT * 1.5
    capped = 2.0 * torch.tanh(scores / 2.0)
    part = attend(query, key, value, scale=1.5, softcap=2.0)
    expected = capped.softmax(-1) @ value.double().repeat_interleave(2, 1)
    torch.testing.assert_close(part.out.double(), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(part.lse.double(), capped.logsumexp(-1), atol=1e-6, rtol=1e-5)


def test_bfloat16_keeps_its_sums_in_float32():
    query, key, value = (x.bfloat16() for x in tensors())
    expected, weights = slow(query, key, value, 0.3)
    parts = [
        attend(query, key[:, :, s], value[:, :, s], scale=0.3) for s in (slice(0, 4), slice(4, 11))
    ]
    whole, share = join(*parts)
    assert whole.out.dtype == share.dtype == torch.float32
    torch.testing.assert_close(whole.out.double(), expected, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(share.double(), weights[..., :4].sum(-1), atol=2e-3, rtol=2e-3)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("masked", [False, True])
def test_a_part_without_keys_has_no_share(masked):
    query, key, value = tensors()
    mask = torch.ones(2, 1, 5, 11, dtype=torch.bool) if masked else None
    cut = None if mask is None else mask[..., :0]
    empty = attend(query, key[:, :, :0], value[:, :, :0], scale=0.3, mask=cut)
    assert empty.out.shape == (2, 4, 5, 8)
    whole = attend(query, key, value, scale=0.3, mask=mask)
    for first, second, share in ((empty, whole, 0.0), (whole, empty, 1.0)):
        joined, found = join(first, second)
        torch.testing.assert_close(joined.out, whole.out)
        torch.testing.assert_close(joined.lse, whole.lse)
        assert (found == share).all()
    both, found = join(empty, empty)
    assert (both.out == 0).all()
    assert (found == 0).all()
