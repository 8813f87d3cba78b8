"""What keeping prompts saves: questions about one image, asked with and without what is kept.

Run by `make bench`. Tokens are those that go through the model for the prompts (counted, so exact);
times are ratios of the two ways in turns, of the prompts' passes alone and of whole answers.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from midsize import IMAGE_TOKEN, build, prompt
from rich.console import Console
from rich.table import Table

import lookback
from lookback.benchmarks import get_benchmark
from lookback.conversations import Conversation
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.prefix_cache import PrefixCache

ROUNDS, TOKENS = 3, 16
QUESTIONS = ("how many things are there?", "what colour is the cup?", "is there a dog?")


def main() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    table = Table(title="questions about one image, with prompts kept: of the plain way")
    for name in ("model", "asked", "tokens", "the prompt", f"5 answers of {TOKENS} tokens"):
        table.add_column(name, justify="right")
    for model, (decoder, prompts, media) in {"embedded": embedded(), "midsize": midsize()}.items():
        for asked, same in (("another question", False), ("the same again", True)):
            row = measure(decoder, prompts[:1] if same else prompts, media, same)
            table.add_row(model, asked, *row)
    Console(width=100).print(table)


def embedded() -> tuple[Decoder, list[Any], int]:
    """The embedded model, and prompts about a scene."""
    lb = lookback.load()
    (image,) = get_benchmark("scenes-caption").items("test", 1)[0].conversation.images
    prompts = [lb.inputs(Conversation.of(image, question)) for question in QUESTIONS]
    return lb.decoder, prompts, lb.decoder.image_token


def midsize() -> tuple[Decoder, list[Any], int]:
    """A LLaVA of random weights with 576 vision tokens, and prompts that differ at their end."""
    model = build()
    base = prompt(model)
    prompts = []
    for i in range(len(QUESTIONS)):
        ids = base["input_ids"].clone()
        ids[0, -19:] = 100 + 20 * i + torch.arange(19)
        prompts.append((base | {"input_ids": ids}, ids[0] == IMAGE_TOKEN))
    return Decoder(model), prompts, IMAGE_TOKEN


def measure(decoder: Decoder, prompts: list[Any], media: int, same: bool) -> list[str]:
    """Tokens, time of the prompt and time of a whole answer, each in parts of the plain way's."""
    kept = PrefixCache(decoder, [media], 1)

    def ask(prefill: Callable[..., Any], answer: bool) -> None:
        for inputs, source in prompts:
            prefix = prefill(inputs, source)
            if answer:
                decoder.sample(
                    prefix, 5, temperature=1.2, top_p=0.9, top_k=None, max_new_tokens=TOKENS,
                    seed=0, end_tokens=[],
                )  # fmt: skip

    with counting(decoder.model) as seen:  # one hook for both: it is a change of the model
        ask(kept.prefill, False)  # the first is new, the second is the trial
        ask(kept.prefill, False)
        counts = []
        for way in (kept.prefill, decoder.prefill):
            seen.clear()
            ask(way, False)
            counts.append(sum(seen))
    assert (kept.same if same else kept.continued) >= len(prompts)
    found = ["{} of {}".format(*counts)]
    ask(kept.prefill, False)  # without the hook
    ask(kept.prefill, False)
    for answer in (False, True):
        ratios = []
        for _ in range(ROUNDS):
            ours, plain = (seconds(ask, way, answer) for way in (kept.prefill, decoder.prefill))
            ratios.append(ours / plain)
        found.append(f"{statistics.median(ratios):.2f}")
    return found


def seconds(work: Callable[..., None], *args: Any) -> float:
    """Of the processor, which others at work on the machine change less."""
    start = time.process_time()
    work(*args)
    return time.process_time() - start


@contextmanager
def counting(model: Any) -> Iterator[list[int]]:
    """How many tokens each pass of the model has."""
    seen: list[int] = []

    def count(module: Any, args: Any, kwargs: Any) -> None:
        seen.append(kwargs["input_ids"].shape[1])

    hook = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()


if __name__ == "__main__":
    main()
