"""What pruning saves: time against tokens, whole draws and pruned ones in turns.

Run by `make bench`. Nothing ends by itself here, so that every saving is the schedule's. Rows that
leave the batch save the work of their tokens, not the steps: each still sends the model's weights
through the cores, which is why time falls less than tokens do.
"""

import statistics

import torch
from midsize import build, prefill, prompt
from rich.console import Console
from rich.table import Table
from speed import alternate

from lookback.engines.common.continuations import Continuation, tokens_drawn
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.steering.pruning import pruning_of

N, ROUNDS = 25, 1
SCHEDULES = {"16:12,32:6": [(16, 12), (32, 6)], "8:8": [(8, 8)]}


def main() -> None:
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    model = build()
    decoder = Decoder(model)
    prefix = prefill(decoder, prompt(model))

    def draw(tokens: int, schedule: object) -> list[Continuation]:
        rule = pruning_of(schedule, N, {"alpha": 0.25, "lam": 1.25})
        return decoder.sample(
            prefix, N, temperature=1.2, top_p=0.9, top_k=None, max_new_tokens=tokens, seed=42,
            end_tokens=[], steering=rule,
        )  # fmt: skip

    table = Table(title=f"N = {N}, 576 vision tokens, 12 layers x 512, 2 threads: of a whole draw")
    for name in ("T", "schedule", "tokens", "time (median)"):
        table.add_column(name, justify="right")
    for tokens in (60, 200):
        ways = {name: (lambda t=tokens, s=rule: draw(t, s)) for name, rule in SCHEDULES.items()}
        times = alternate(ROUNDS, whole=lambda t=tokens: draw(t, None), **ways)
        for name, rule in SCHEDULES.items():
            ratios = [a / b for a, b in zip(times[name], times["whole"], strict=True)]
            share = tokens_drawn(draw(tokens, rule)) / (N * tokens)
            table.add_row(str(tokens), name, f"{share:.2f}", f"{statistics.median(ratios):.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
