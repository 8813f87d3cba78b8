"""Two requests in a paged cache, and an adapter's attention on the source against a softmax.

Run as a script it takes vLLM's Triton kernel, which Triton's interpreter runs without a GPU.
"""

import os
import sys
from types import SimpleNamespace

import numpy as np
import torch

from lookback.engines.vllm.worker.backends import BACKENDS, Tail
from lookback.engines.vllm.worker.cascade import marks, plain_share
from lookback.engines.vllm.worker.self_test import attention

HEADS, KEY_HEADS, SIZE, BLOCK, BLOCKS = 4, 2, 32, 16, 12
LENGTHS = (50, 37)
TABLE = torch.tensor([[3, 1, 7, 2], [5, 9, 4, 0]], dtype=torch.int32)
MASKS = (
    {},
    {"sliding_window": (9, 0)},
    {"logits_soft_cap": 3.0},
    {"sinks": torch.linspace(-1, 1, HEADS)},
)


def make_layer(**settings):
    shape = {"num_heads": HEADS, "num_kv_heads": KEY_HEADS, "head_size": SIZE}
    rest = {"scale": SIZE**-0.5, "alibi_slopes": None, "use_alibi_sqrt": False, "sinks": None}
    masks = {"sliding_window": (-1, -1), "logits_soft_cap": 0, "vllm_flash_attn_version": 2}
    return SimpleNamespace(impl=SimpleNamespace(**(shape | rest | masks | settings)))


def marked(sources):
    positions = [np.arange(len(source)) for source in sources]
    return marks(torch.cat(sources), np.concatenate(positions), BLOCK)


def worst(backend, **settings):
    """The largest difference over three last rows of one request and one of another."""
    torch.manual_seed(0)
    layer = make_layer(**settings)
    cache = torch.randn(BLOCKS, KEY_HEADS, BLOCK, 2 * SIZE)
    sources = [torch.rand(length) < 0.4 for length in LENGTHS]
    places = [
        [(int(TABLE[r, t // BLOCK]), t % BLOCK) for t in range(length)]
        for r, length in enumerate(LENGTHS)
    ]
    slots = torch.tensor([block * BLOCK + at for one in places for block, at in one])
    metadata = SimpleNamespace(
        slot_mapping=slots,
        seq_lens=torch.tensor(LENGTHS, dtype=torch.int32),
        max_seq_len=max(LENGTHS),
        causal=True,
        block_table=TABLE,
    )
    query = torch.randn(4, HEADS, SIZE)
    tail = Tail(None, torch.tensor([0, 3, 4], dtype=torch.int32), 3)
    adapter = BACKENDS[backend]()
    adapter.write(layer, cache, metadata, torch.ones(len(slots), 3, dtype=torch.bool))
    adapter.write(layer, cache, metadata, marked(sources))  # blocks are used again
    found = plain_share(adapter.attend(layer, query, cache, metadata, tail))
    differences = []
    for rows, source, place in zip((slice(0, 3), slice(3, 4)), sources, places, strict=True):
        keys = torch.stack([cache[block, :, at, :SIZE] for block, at in place])
        weights = attention(query[rows], keys, layer.impl)
        wanted = weights[..., source].sum(-1).T
        differences.append(float((found[rows] - wanted).abs().max()))
    return max(differences)


def use_interpreter():
    """Let vLLM take Triton for a backend that is there; its interpreter stands for the device."""
    os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    import triton.backends

    there = SimpleNamespace(is_active=lambda: True)
    triton.backends.backends["cpu"] = SimpleNamespace(driver=there, compiler=None)


if __name__ == "__main__":
    use_interpreter()
    print([worst(sys.argv[1], **settings) for settings in MASKS])
