"""How many operations are dispatched per decoding step: exact, and the same on every machine.

What a GPU waits for at a small batch is the launch of kernels, so their number counts there. The
bare forward pass with a cache of the library, beside LookBack's: with the fused kernel of a CPU (an
operation like those of a GPU), without a look at any value, and in plain products.
"""

import argparse
from contextlib import contextmanager

import torch
from midsize import build, prefill, prompt
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from lookback.engines.common import logits
from lookback.engines.transformers.attention import partial
from lookback.engines.transformers.decoding import decoder
from lookback.engines.transformers.decoding.decoder import Decoder

N, STEPS = 4, 6


class Counting(TorchDispatchMode):
    """Counts what is dispatched, views not: they launch nothing."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.count += not function.is_view
        return out


def bare(model, inputs):
    """Operations per step of a plain loop over the model, for N rows."""
    rows = {k: v.expand(N, *v.shape[1:]) for k, v in inputs.items()}
    cache = DynamicCache(config=model.config.get_text_config())
    with torch.no_grad():
        out = model(**rows, past_key_values=cache, use_cache=True)
        with Counting() as counting:
            for _ in range(STEPS):
                token = out.logits[:, -1].argmax(-1)
                out = model(input_ids=token[:, None], past_key_values=cache, use_cache=True)
    return counting.count / STEPS


def ours(model, inputs, tap=True):
    """Operations per step of LookBack's loop: two draws of unequal length tell the step's own."""
    decoder = Decoder(model, tap=tap)
    prefix = prefill(decoder, inputs)
    counts = []
    for steps in (2, 2 + STEPS):
        with Counting() as counting:
            decoder.sample(
                prefix, N, temperature=1.2, top_p=0.9, top_k=None, max_new_tokens=steps, seed=0,
                end_tokens=[],
            )  # fmt: skip
        counts.append(counting.count)
    return (counts[1] - counts[0]) / STEPS


@contextmanager
def without_kernels():
    """Plain products, as on a device without a fused kernel that can be trusted."""
    kernels, partial.trusted = partial.trusted, lambda *args: ()
    try:
        yield
    finally:
        partial.trusted = kernels


@contextmanager
def unread():
    """No look at values, as on a device that would have to be waited for."""
    before = logits.cheap_to_read
    logits.cheap_to_read = decoder.cheap_to_read = lambda tensor: False
    try:
        yield
    finally:
        logits.cheap_to_read = decoder.cheap_to_read = before


def count(dtype):
    """Every way's operations per step."""
    model = build().to(dtype)
    inputs = prompt(model)
    inputs["pixel_values"] = inputs["pixel_values"].to(dtype)
    found = {"bare forward and argmax": bare(model, inputs)}
    found["LookBack, fused kernel"] = ours(model, inputs)
    found["  tap off"] = ours(model, inputs, tap=False)
    with unread():
        found["  values never looked at (GPU)"] = ours(model, inputs)
    with without_kernels():
        found["LookBack, plain products"] = ours(model, inputs)
    return found


def main():
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    found = {dtype: count(dtype) for dtype in (torch.float32, torch.bfloat16)}
    table = Table(title=f"dispatched operations per step, N = {N}, 12 layers, no views", box=None)
    table.add_column("")
    for dtype in found:
        table.add_column(str(dtype).removeprefix("torch."), justify="right")
        table.add_column("of bare", justify="right")
    for name in found[torch.float32]:
        cells = []
        for counts in found.values():
            bare_count = counts["bare forward and argmax"]
            cells += [f"{counts[name]:.0f}", f"{counts[name] / bare_count:.2f}x"]
        table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
