"""Fused kernels: tried before they are trusted, and those of CUDA under their stated contracts.

There is no GPU here. The operators of CUDA get a stand-in on CPU which insists on what their
documentation asks for; that they exist with these arguments is checked on tensors without data.
"""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_signals, inputs_of, noise, prefill
from engines.test_attention import slow, tensors
from zoo import build

import lookback
from lookback.engines.common import compat
from lookback.engines.transformers.attention import kernels, partial
from lookback.engines.transformers.attention.partial import attend, share_of_last_row
from lookback.engines.transformers.decoding.decoder import Decoder

FLASH, EFFICIENT = kernels.KERNELS[1:]
RESPONSES = [[30, 31, 32, 33, 34, 35, 36], [40], [50, 51, 52]]


def contract_of_flash(query, key, value, dropout=0.0, causal=False, debug=False, scale=None):
    assert query.dtype in (torch.float16, torch.bfloat16)
    assert query.shape[-1] % 8 == 0
    assert query.shape[1] % key.shape[1] == 0
    assert not causal or query.shape[2] == key.shape[2]
    out, lse = kernels.plain_attention(query, key, value, scale, None, causal)
    nothing = query.new_empty(0)
    return out.to(query.dtype), lse, nothing, nothing, 0, 0, nothing, nothing, nothing


def contract_of_efficient(query, key, value, bias, lse, dropout=0.0, causal=False, scale=None):
    assert lse
    assert query.shape[1] == key.shape[1]
    rows, keys = query.shape[2], key.shape[2]
    if bias is not None:
        assert bias.shape == (*query.shape[:3], keys)
        assert bias.dtype == query.dtype
        assert bias.stride(2) % 8 == 0 or rows == 1
    scores = kernels.scores_of(query, key, scale)
    if causal:
        hidden = torch.ones(rows, keys, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    if bias is not None:
        scores = scores + bias
    filled = query.new_full((*query.shape[:2], -(-rows // 32) * 32), torch.inf).float()
    filled[..., :rows] = scores.logsumexp(-1)
    out = (scores.softmax(-1) @ value.float()).to(query.dtype)
    return out, filled, query.new_empty(0), query.new_empty(0)


@pytest.fixture
def cuda_kernels(monkeypatch):
    """The kernels of CUDA, as if this CPU had them."""
    operators = torch.library.Library("aten", "IMPL", "CPU")
    operators.impl("_scaled_dot_product_flash_attention", contract_of_flash)
    operators.impl("_scaled_dot_product_efficient_attention", contract_of_efficient)
    found = tuple(dataclasses.replace(one, device="cpu") for one in (FLASH, EFFICIENT))
    monkeypatch.setattr(kernels, "KERNELS", found)
    kernels.trusted.cache_clear()
    yield found
    kernels.trusted.cache_clear()
    operators._destroy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_kernel_of_this_machine_is_trusted(dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [one.name for one in kernels.trusted("cpu", dtype, 64)] == [kernels.KERNELS[0].name]


def test_a_kernel_that_errs_is_left_out_with_a_warning(monkeypatch):
    def wrong(query, key, value, bias, causal, scale):
        out, lse = compat.flash_attention_on_cpu(query, key, value, bias, causal, scale)
        return out, lse + 1e-3

    def missing(*args):
        raise NotImplementedError("no such operator\nat all")

    for run, reason in ((wrong, r"0\.001 in their log-sum-exp"), (missing, "no such operator")):
        bad = dataclasses.replace(kernels.KERNELS[0], run=run)
        monkeypatch.setattr(kernels, "KERNELS", (bad,))
        kernels.trusted.cache_clear()
        with pytest.warns(RuntimeWarning, match=reason):
            assert kernels.trusted("cpu", torch.float32, 16) == ()
        query, key, value = tensors()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            part = attend(query, key, value, scale=0.3)
        torch.testing.assert_close(
            part.out.double(), slow(query, key, value, 0.3)[0], atol=1e-6, rtol=1e-5
        )
    monkeypatch.undo()
    kernels.trusted.cache_clear()


def test_the_try_leaves_the_random_numbers_alone():
    state = torch.random.get_rng_state()
    kernels.trusted.cache_clear()
    kernels.trusted("cpu", torch.float32, 32)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["plain", "masked", "causal"])
def test_the_kernels_of_cuda_give_what_products_give(cuda_kernels, dtype, case, monkeypatch):
    rows, causal = (11, True) if case == "causal" else (5, False)
    query, key, value = (x.to(dtype) for x in tensors(rows=rows))
    mask = torch.rand(2, 1, rows, 11, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[0, :, 2] = False  # a row that sees nothing
    mask = mask if case == "masked" else None
    used = []

    def noting(kernel):
        def run(*args):
            used.append(kernel.name)
            return kernel.run(*args)

        return dataclasses.replace(kernel, run=run)

    noted = [noting(one) for one in cuda_kernels if dtype in one.dtypes]
    found, expected = (
        attended(chosen, monkeypatch, query, key, value, scale=0.3, mask=mask, causal=causal)
        for chosen in (noted, ())
    )
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.out, expected.out, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(found.lse, expected.lse, atol=1e-5, rtol=1e-5)
    if dtype == torch.bfloat16:
        assert used == [(EFFICIENT if case == "masked" else FLASH).name]
    else:  # grouped heads in an order are for plain products
        assert used == ([] if case == "causal" else [EFFICIENT.name])


def attended(chosen, monkeypatch, *args, **settings):
    """What `attend` gives with these kernels to choose from."""
    monkeypatch.setattr(partial, "trusted", lambda *about: chosen)
    return attend(*args, **settings)


@pytest.mark.parametrize("name", ["llava_gqa", "gemma3"])
def test_the_whole_engine_on_the_kernels_of_cuda(cuda_kernels, name):
    """Grouped heads, and windows that need masks."""
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    inputs = inputs_of(lb, noise(), QUESTION)
    decoder = Decoder(zoo.model)
    for one, response in zip(
        decoder.score(prefill(decoder, inputs), RESPONSES), RESPONSES, strict=True
    ):
        expected = eager_signals(zoo.model, inputs, response)
        np.testing.assert_allclose(one.signals, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
def test_the_operators_of_cuda_take_these_arguments(masked):
    """Shapes and types alone: the operators' own descriptions, without a GPU."""
    query = torch.empty(2, 4, 5, 64, device="meta", dtype=torch.bfloat16)
    key = torch.empty(2, 4, 37, 64, device="meta", dtype=torch.bfloat16)
    bias = torch.empty(2, 1, 5, 37, device="meta") if masked else None
    for kernel in (FLASH, EFFICIENT):
        if masked and not kernel.masks:
            continue
        out, lse = kernel(query, key, key, 0.1, bias)
        assert out.shape == (2, 4, 5, 64)
        assert lse.shape == (2, 4, 5)
        assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)


class TestProducts:
    def test_scores_of_half_precision_are_not_rounded(self):
        query, key, _ = (x.bfloat16() for x in tensors(dim=64))
        groups = query.shape[1] // key.shape[1]
        exact = query.double() @ key.double().repeat_interleave(groups, 1).mT
        torch.testing.assert_close(
            kernels.scores_of(query, key, 1.0).double(), exact, atol=1e-4, rtol=1e-5
        )
        assert (exact.bfloat16().double() - exact).abs().max() > 1e-2  # what rounding would do

    def test_the_product_of_cuda_is_used_where_it_is_right(self, monkeypatch):
        asked = []

        def product(one, other):
            asked.append(one.shape)
            assert one.ndim == other.ndim == 3
            return one.float() @ other.float()

        monkeypatch.setattr(kernels, "has_wide_product", lambda device, dtype: True)
        monkeypatch.setattr(kernels, "wide_product_on_cuda", product)
        query, key, _ = (x.bfloat16() for x in tensors())
        found = kernels.scores_of(query, key, 0.3)
        assert asked == [(4, 10, 8)]
        monkeypatch.undo()
        torch.testing.assert_close(found, kernels.scores_of(query, key, 0.3))

    def test_many_scores_come_in_pieces(self, monkeypatch):
        """No more at a time than allowed, each with its own rows of the mask."""
        largest = []
        scores_of = kernels.scores_of

        def watched(*args):
            found = scores_of(*args)
            largest.append(found.numel())
            return found

        query, key, value = tensors()
        mask = torch.rand(2, 1, 5, 11, generator=torch.Generator().manual_seed(1)) < 0.7
        mask[..., 0] = True
        whole = kernels.plain_attention(query, key, value, 0.3, mask)
        monkeypatch.setattr(kernels, "scores_of", watched)
        monkeypatch.setattr(kernels, "MATH_SCORES", 2 * 2 * 4 * 11)
        pieces = kernels.plain_attention(query, key, value, 0.3, mask)
        for one, other in zip(whole, pieces, strict=True):
            torch.testing.assert_close(one, other)
        assert max(largest) == 2 * 2 * 4 * 11


class TestWideProduct:
    """The product of CUDA, on a CPU that pretends to have it."""

    @pytest.fixture
    def tried(self, monkeypatch):
        def tried(product, device="cuda"):
            monkeypatch.setattr(kernels, "wide_product_on_cuda", product)
            monkeypatch.setattr(torch, "device", lambda name: "cpu")
            return kernels.has_wide_product.__wrapped__(device, torch.bfloat16)

        return tried

    def test_one_that_is_right_is_taken(self, tried):
        asked = []

        def product(one, other):
            asked.append(one.dtype)
            return one.float() @ other.float()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert tried(product)
            assert not tried(product, "cpu")
        assert asked == [torch.bfloat16]  # on a CPU it is not tried

    @pytest.mark.parametrize("error", [0.01, torch.nan])
    def test_one_that_errs_is_said(self, tried, error):
        with pytest.warns(RuntimeWarning, match="products of torch.bfloat16 in float32 are off"):
            assert not tried(lambda one, other: one.float() @ other.float() + error)

    def test_one_that_is_not_there_is_done_without(self, tried):
        def missing(one, other):
            raise NotImplementedError

        assert not tried(missing)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_the_share_of_the_last_row(dtype, masked):
    query, key, value = (x.to(dtype) for x in tensors())
    source = torch.zeros(2, 11, dtype=torch.bool)
    source[0, 2:6] = source[1, :3] = True
    mask = torch.ones(2, 1, 1, 11, dtype=torch.bool)
    if masked:
        mask[0, ..., 4:7] = False
        mask[1, ..., :3] = False  # it sees nothing of its source
    bias = kernels.additive(mask[:, :, 0]) if masked else None
    found = share_of_last_row(query, key, source, scale=0.3, softcap=None, bias=bias)
    _, weights = slow(query[:, :, -1:], key, value, 0.3, mask)
    expected = (weights[:, :, 0] * source[:, None]).sum(-1)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-4
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_of_a_row_whose_scores_are_capped(dtype):
    """No fused kernel caps them."""
    query, key, _ = (x.to(dtype) for x in tensors())
    source = torch.arange(11)[None].expand(2, -1) < 4
    found = share_of_last_row(query, key, source, scale=0.9, softcap=0.5, bias=None)
    scores = query[:, :, -1:].double() @ key.double().repeat_interleave(2, 1).mT
    weights = (0.5 * torch.tanh(0.9 * scores[:, :, 0] / 0.5)).softmax(-1)
    expected = (weights * source[:, None]).sum(-1)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("device", "dim", "names"),
    [
        ("cuda", 256, ["flash attention", "memory-efficient attention"]),
        ("cuda", 264, ["memory-efficient attention"]),
        ("cuda", 252, []),
        ("cpu", 252, ["flash attention of CPUs"]),
    ],
)
def test_kernels_are_tried_at_the_sizes_that_they_take(device, dim, names, monkeypatch):
    monkeypatch.setattr(kernels, "_agrees", lambda *case: True)
    found = kernels.trusted.__wrapped__(device, torch.bfloat16, dim)
    assert [one.name for one in found] == names


@pytest.mark.parametrize(
    ("groups", "masked", "causal", "flash", "efficient"),
    [
        (2, False, False, True, True),
        (2, False, True, True, False),  # heads as further rows would have no order
        (1, False, True, True, True),
        (1, True, False, False, True),
        (2, True, False, False, True),
    ],
)
def test_what_each_kernel_takes(groups, masked, causal, flash, efficient):
    assert FLASH.takes(groups, masked, causal) is flash
    assert EFFICIENT.takes(groups, masked, causal) is efficient


@pytest.mark.parametrize("mistake", ["mask", "cause", "lse"])
def test_every_way_of_use_is_tried(mistake):
    """A kernel that errs in one of them is not trusted."""

    def wrong(query, key, value, bias, causal, scale):
        bias = None if mistake == "mask" else bias
        causal = causal and mistake != "cause"
        out, lse = compat.flash_attention_on_cpu(query, key, value, bias, causal, scale)
        return out, lse + (5e-5 if mistake == "lse" else 0.0)

    bad = dataclasses.replace(kernels.KERNELS[0], run=wrong)
    with pytest.warns(RuntimeWarning, match="is off by"):
        assert not kernels._agrees(bad, torch.float32, 16)


@pytest.mark.parametrize("rows", [1, 33, 40])
@pytest.mark.parametrize("error", [0.02, torch.nan])
def test_half_precision_excuses_no_wrong_log_sum_exp(rows, error):
    """Its rows are rounded, its sums are not: by 0.02 in them A_t would be off by two percent."""

    def wrong(query, key, value, bias, causal, scale):
        out, lse = compat.flash_attention_on_cpu(query, key, value, bias, causal, scale)
        return out, lse + (error if query.shape[2] == rows else 0.0)

    bad = dataclasses.replace(kernels.KERNELS[0], run=wrong)
    with pytest.warns(RuntimeWarning, match="in their log-sum-exp"):
        assert not kernels._agrees(bad, torch.bfloat16, 16)


@pytest.mark.parametrize("kind", [RuntimeError, NotImplementedError, TypeError])
def test_a_kernel_that_raises_is_not_trusted(kind):
    def broken(*args):
        raise kind("no such argument\nat all")

    bad = dataclasses.replace(kernels.KERNELS[0], run=broken)
    with pytest.warns(RuntimeWarning, match=r"fails \(no such argument\)"):
        assert not kernels._agrees(bad, torch.float32, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recording_copies_no_keys(dtype):
    """One token's row must not turn all keys before it into float32."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Copies(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if function.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_):
                self.largest = max(self.largest, out.numel())
            return out

    query, key, _ = (x.to(dtype) for x in tensors(rows=1, keys=500))
    source = torch.zeros(2, 500, dtype=torch.bool)
    source[:, :100] = True
    kernels.trusted("cpu", dtype, key.shape[-1])  # that they are tried is no part of a token
    with Copies() as copies:
        share_of_last_row(query, key, source, scale=0.3, softcap=None, bias=None)
    assert copies.largest <= source.numel()
    assert key.numel() > 4 * source.numel()
