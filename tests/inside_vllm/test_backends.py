"""The adapters of kernels that need a GPU, without one.

vLLM's Triton kernel runs in Triton's interpreter. FlashAttention does not run here: its function is
replaced by what its documentation says it does, so that layouts and arguments are held to that.
"""

import json
import subprocess
import sys

import pytest
import torch
from inside_vllm import paged
from inside_vllm.paged import MASKS, worst

from lookback.engines.vllm.worker.self_test import attention


def test_tritons_own_kernel():
    command = [sys.executable, paged.__file__, "TRITON_ATTN"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(found) == len(MASKS)
    assert max(found) < 1e-6


def by_the_book(
    q,
    k,
    v,
    out,
    cu_seqlens_q,
    max_seqlen_q,
    seqused_k,
    max_seqlen_k,
    softmax_scale,
    causal,
    window_size,
    block_table,
    softcap,
    fa_version,
    s_aux,
    alibi_slopes=None,
):
    """`flash_attn_varlen_func` over paged keys and values (blocks, block size, heads, size)."""
    assert causal is True
    assert max_seqlen_q == int(cu_seqlens_q.diff().max())
    assert max_seqlen_k == int(seqused_k.max())
    layer = paged.make_layer(
        sliding_window=tuple(window_size), logits_soft_cap=softcap, sinks=s_aux, scale=softmax_scale
    )
    for i, length in enumerate(seqused_k.tolist()):
        rows = slice(int(cu_seqlens_q[i]), int(cu_seqlens_q[i + 1]))
        keys = k[block_table[i].long()].flatten(0, 1)[:length]
        values = v[block_table[i].long()].flatten(0, 1)[:length]
        weights = attention(q[rows], keys, layer.impl)
        wide = values.repeat_interleave(q.shape[1] // values.shape[1], dim=1)
        out[rows] = torch.einsum("hrt,thd->rhd", weights, wide)


@pytest.mark.parametrize("settings", MASKS, ids=lambda one: next(iter(one), "plain"))
def test_flash_attention_by_its_documentation(monkeypatch, settings):
    from vllm.v1.attention.backends import fa_utils

    monkeypatch.setattr(fa_utils, "flash_attn_varlen_func", by_the_book, raising=False)
    assert worst("FLASH_ATTN", **settings) < 1e-6
