"""Memory of scoring: what is kept for the signals, and the peak, against eager attention maps.

Run by `make bench`. Peaks are those of a process of its own, above what it needs to hold the model.
"""

import gc
import resource
import subprocess
import sys

import torch
from midsize import build, eager_scores, prefill, prompt, responses
from rich.console import Console
from rich.table import Table

from lookback.engines.transformers.decoding.decoder import Decoder

SIDE, T = 49, 512  # 2,401 vision tokens and 99 of text: a context of 2,500
MIB = 2**20


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def live_tensor_bytes() -> int:
    gc.collect()
    tensors = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()
    )


def child(way: str) -> None:
    """Score one response of T tokens one way; print the peak above the model in MiB."""
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    model = build(SIDE * SIDE)
    small = build(16)
    for warm in (small,):  # kernels and buffers that any pass needs
        decoder = Decoder(warm)
        decoder.score(prefill(decoder, prompt(warm)), responses(1, 8))
    inputs, given = prompt(model, 99), responses(1, T)
    before = peak_mib()
    if way == "eager":
        model.set_attn_implementation("eager")
        eager_scores(model, inputs, given[0])
    else:
        decoder = Decoder(model)
        decoder.score(prefill(decoder, inputs), given)
    print(peak_mib() - before)


def run(way: str) -> float:
    out = subprocess.run(
        [sys.executable, __file__, way], capture_output=True, text=True, check=True
    )
    return float(out.stdout.split()[-1])


def kept() -> Table:
    """What stays alive after scoring, as the context grows and T does not."""
    table = Table(title="kept after scoring one response of 60 tokens")
    for name in ("context", "LookBack keeps", "of it tensors", "eager maps would be"):
        table.add_column(name, justify="right")
    torch.set_grad_enabled(False)
    for side in (8, 16, 32):
        model = build(side * side)
        inputs, given = prompt(model), responses(1, 60)
        decoder = Decoder(model)
        before = live_tensor_bytes()
        found = decoder.score(prefill(decoder, inputs), given)
        tensors = live_tensor_bytes() - before
        bytes_kept = found[0].signals.nbytes
        length = inputs["input_ids"].shape[1] + 60
        text = model.config.text_config
        maps = 4 * text.num_hidden_layers * text.num_attention_heads * length**2
        table.add_row(
            f"{length:,}", f"{bytes_kept:,} B", f"{tensors:,} B", f"{maps / MIB:,.0f} MiB"
        )
    return table


def main() -> None:
    console = Console()
    console.print(kept())
    ours, eager = run("lookback"), run("eager")
    table = Table(title=f"peak memory above the model, T = {T}, context 2,500")
    for name in ("", "MiB", "target"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("LookBack", f"{ours:,.0f}", "")
    table.add_row("eager maps", f"{eager:,.0f}", "")
    table.add_row("share", f"{ours / eager:.3f}", "< 0.1")
    console.print(table)


if __name__ == "__main__":
    child(sys.argv[1]) if len(sys.argv) > 1 else main()
