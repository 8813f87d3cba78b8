"""Scoring and sampling against the plain ways of doing the same: times of one run, as ratios.

Run by `make bench`. The ways take turns and the best time of each is compared: what else runs on
the machine can only make a time longer.
"""

import time
from collections.abc import Callable

import torch
from midsize import build, eager_scores, prefill, prompt, responses
from rich.console import Console
from rich.table import Table

from lookback.engines.transformers.decoder import Decoder

N, T, ROUNDS = 25, 60, 7


def alternate(rounds: int, **ways: Callable[[], object]) -> dict[str, float]:
    """The best time of each way in seconds, run in turns so that the machine's moods hit all."""
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in times.items()}


def main() -> None:
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    model = build()
    inputs, given = prompt(model), responses(N, T)
    tap, bare = Decoder(model), Decoder(model, tap=False)

    def eager(count: int = 2) -> None:
        model.set_attn_implementation("eager")
        for response in given[:count]:
            eager_scores(model, inputs, response)
        model.set_attn_implementation("sdpa")

    def sample(decoder: Decoder) -> None:
        decoder.sample(
            prefill(decoder, inputs),
            N,
            temperature=1.2,
            top_p=0.9,
            top_k=None,
            max_new_tokens=T,
            seed=42,
            end_tokens=[],
        )

    def generate() -> None:
        model.generate(
            **inputs,
            do_sample=True,
            temperature=1.2,
            top_p=0.9,
            num_return_sequences=N,
            max_new_tokens=T,
            min_new_tokens=T,
        )

    scoring = alternate(
        ROUNDS,
        tap=lambda: tap.score(prefill(tap, inputs), given),
        bare=lambda: bare.score(prefill(bare, inputs), given),
        eager=eager,
    )
    scoring["eager"] *= N / 2  # two of the N were timed: they take the same time each
    sampling = alternate(ROUNDS, tap=lambda: sample(tap), bare=lambda: sample(bare))
    sampling |= alternate(3, generate=generate)

    table = Table(title=f"N = {N}, T = {T}, 576 vision tokens, 12 layers x 512, 2 threads")
    for name in ("", "seconds", "LookBack is", "target"):
        table.add_column(name, justify="left" if not name else "right")

    def row(name: str, seconds: float, ratio: str = "", target: str = "") -> None:
        table.add_row(name, f"{seconds:.2f}", ratio, target)

    row("score: LookBack", scoring["tap"])
    row("  the same pass, tap off", scoring["bare"], over(scoring, "bare"), "<= 1.05x the time")
    row("  eager maps, one by one", scoring["eager"], faster(scoring, "eager"), ">= 8x faster")
    row("sample: LookBack", sampling["tap"])
    row("  the same loop, tap off", sampling["bare"], over(sampling, "bare"), "<= 1.05x the time")
    row(
        "  generate() with sdpa",
        sampling["generate"],
        faster(sampling, "generate"),
        ">= 5x faster",
    )
    Console().print(table)


def over(times: dict[str, float], name: str) -> str:
    return f"{times['tap'] / times[name]:.3f}x the time"


def faster(times: dict[str, float], name: str) -> str:
    return f"{times[name] / times['tap']:.1f}x faster"


if __name__ == "__main__":
    main()
