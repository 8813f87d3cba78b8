"""How many operations are dispatched per decoding step: exact, and the same on every machine.

What a GPU waits for at a small batch is the launch of kernels, so their number counts there. The
bare forward pass with a cache of the library, beside the path of a CPU (fused kernel) and the plain
one that other devices take.
"""

import argparse

import torch
from midsize import build, prefill, prompt
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from lookback.engines.transformers import attention
from lookback.engines.transformers.decoder import Decoder

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


def main():
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    torch.manual_seed(0)
    model = build()
    inputs = prompt(model)
    base = bare(model, inputs)
    found = {"bare forward and argmax": base, "LookBack, CPU path": ours(model, inputs)}
    found["LookBack, CPU path, tap off"] = ours(model, inputs, tap=False)
    kernels, attention.trusted = attention.trusted, lambda *args: ()
    try:
        found["LookBack, plain products"] = ours(model, inputs)
    finally:
        attention.trusted = kernels
    table = Table(title=f"dispatched operations per step, N = {N}, 12 layers, no views", box=None)
    table.add_column("")
    for name in ("operations", "of the bare forward"):
        table.add_column(name, justify="right")
    for name, count in found.items():
        table.add_row(name, f"{count:.0f}", f"{count / base:.2f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
