"""Scoring and sampling against the plain ways of doing the same: times of one run, as ratios.

Run by `make bench`. The ways take turns. Ways that differ much are compared by the best time of
each (what else runs on the machine can only make a time longer); the tap, which costs little, by
the median over the rounds of the ratio of two neighbouring times. Then a profile says what its cost
is made of.
"""

import statistics
import time
from collections.abc import Callable

import torch
from midsize import build, eager_scores, prefill, prompt, responses
from rich.console import Console
from rich.table import Table

from lookback.engines.transformers.decoding.decoder import Decoder

N, T, ROUNDS = 25, 60, 10


Times = dict[str, list[float]]


def alternate(rounds: int, **ways: Callable[[], object]) -> Times:
    """The times of each way in seconds, run in turns so that the machine's moods hit all."""
    for way in ways.values():
        way()
    times: Times = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
    return times


def extra(tap: Callable[[], object], bare: Callable[[], object]) -> list[tuple[str, float, float]]:
    """What the tap adds, operator by operator: name, calls, and its share of the bare time.

    Only operators that it calls: those that run as often without it differ by noise.
    """
    found = []
    for way in (tap, bare):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            way()
        found.append({e.key: (e.count, e.self_cpu_time_total) for e in profile.key_averages()})
    ours, theirs = found
    total = sum(spent for _, spent in theirs.values())
    rows = []
    for name, (count, spent) in ours.items():
        before, cost = theirs.get(name, (0, 0.0))
        if count > before:
            rows.append((name, count - before, (spent - cost) / total))
    return sorted(rows, key=lambda row: -row[2])


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

    def score(decoder: Decoder) -> None:
        decoder.score(prefill(decoder, inputs), given)

    scoring = alternate(ROUNDS, tap=lambda: score(tap), bare=lambda: score(bare))
    # Two of the N are timed: they take the same time each.
    scoring["eager"] = [N / 2 * one for one in alternate(3, eager=eager)["eager"]]
    sampling = alternate(ROUNDS, tap=lambda: sample(tap), bare=lambda: sample(bare))
    sampling |= alternate(3, generate=generate)

    table = Table(title=f"N = {N}, T = {T}, 576 vision tokens, 12 layers x 512, 2 threads")
    for name in ("", "seconds", "LookBack is", "target"):
        table.add_column(name, justify="left" if not name else "right")

    def row(name: str, seconds: list[float], ratio: str = "", target: str = "") -> None:
        table.add_row(name, f"{min(seconds):.2f}", ratio, target)

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
    console = Console()
    console.print(table)
    rest = Table(title="what the tap adds to scoring, by operator (one profiled run)")
    for name in ("operator", "more calls", "of the time without it"):
        rest.add_column(name, justify="left" if name == "operator" else "right")
    for name, calls, share in extra(lambda: score(tap), lambda: score(bare))[:8]:
        rest.add_row(name, f"{calls:+d}", f"{share:+.1%}")
    console.print(rest)


def over(times: Times, name: str) -> str:
    ratios = [one / other for one, other in zip(times["tap"], times[name], strict=True)]
    return f"{statistics.median(ratios):.3f}x the time"


def faster(times: Times, name: str) -> str:
    return f"{min(times[name]) / min(times['tap']):.1f}x faster"


if __name__ == "__main__":
    main()
