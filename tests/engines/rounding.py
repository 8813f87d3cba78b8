"""Whether a row's numbers depend, on this machine, on the rows that are computed beside it.

Batches in whole eights make them independent with the CPU and libraries that this was tried with.
Where kernels round otherwise, what is the same to the last bit here is the same to rounding.
"""

from functools import cache

import numpy as np
import torch
from engines.reference import inputs_of, noise, prefill

import lookback
from lookback.engines.transformers.attention.tap import reading
from lookback.engines.transformers.decoding.prefix import SharedCache, SharedPrefix

ROUNDING = 1e-5
STEPS = 9


@cache
def rows_are_independent() -> bool:
    """Tried with the embedded model: rows of 32 beside fewer, on one thread and on two."""
    engine = lookback.load()
    decoder = engine.decoder
    prefix = prefill(decoder, inputs_of(engine, noise(), "what is it?"))
    ids = torch.randint(10, 200, (32, STEPS), generator=torch.Generator().manual_seed(0))

    def logits(rows):
        reader, cache = SharedPrefix(prefix), SharedCache(prefix, rows)
        with decoder.session(prefix), reading(reader):
            found = [decoder.forward(ids[:rows, t, None], cache, reader) for t in range(STEPS)]
        return torch.cat([torch.cat([one[:, 0], share[0]], 1) for one, share in found], 1)

    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            whole = logits(32)
            if not all(torch.equal(logits(rows), whole[:rows]) for rows in (8, 16, 24)):
                return False
    finally:
        torch.set_num_threads(before)
    return True


def assert_same_numbers(first, second) -> None:
    """To the last bit, where this machine allows it."""
    within = 0.0 if rows_are_independent() else ROUNDING
    np.testing.assert_allclose(first, second, atol=within, rtol=within)
