"""What a large run costs on paper: floating-point operations, bytes and hours, each line shown.

`python -m tools.scale` prints the table that docs/scale.md has; the options put in other numbers.
Nothing here was measured: peaks are the makers', efficiencies are stated guesses.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

from lookback.runs.estimate import BYTES_A_TOKEN
from lookback.runs.layout import SHARD


@dataclass(frozen=True)
class Numbers:
    """What goes in. The defaults: LLaVA-1.5-7B in bfloat16 on 8 x H100 SXM.

    Attributes:
        images, candidates, new_tokens: the work; every candidate is as long as it may be.
        text_tokens, vision_tokens: of a prompt.
        layers, hidden, inner, kv_width, vocabulary: of the decoder; kv_width is heads x head size
            of keys, which grouped-query attention makes smaller than hidden.
        tower_layers, tower_hidden, tower_inner, tower_tokens: of the vision encoder.
        bytes_per_number: of weights and keys.
        gpus, flops, bandwidth, memory: how many, and each one's peak FLOP/s, bytes/s and bytes.
        compute_share, bandwidth_share, memory_share: what of the peaks is reached or used.
        image_bytes: of a stored picture.
        image_ms: of one core, to decode and resize it.
    """

    images: int = 1_000_000
    candidates: int = 25
    new_tokens: int = 128
    text_tokens: int = 64
    vision_tokens: int = 576
    layers: int = 32
    hidden: int = 4096
    inner: int = 11_008
    kv_width: int = 4096
    vocabulary: int = 32_064
    tower_layers: int = 24
    tower_hidden: int = 1024
    tower_inner: int = 4096
    tower_tokens: int = 577
    bytes_per_number: int = 2
    gpus: int = 8
    flops: float = 989e12
    bandwidth: float = 3.35e12
    memory: float = 80e9
    compute_share: float = 0.5
    bandwidth_share: float = 0.6
    memory_share: float = 0.85
    image_bytes: int = 150_000
    image_ms: float = 10.0

    @property
    def weights(self) -> int:
        """Of the decoder: attention, gated feed-forward, and the output layer."""
        attention = 2 * self.hidden * (self.hidden + self.kv_width)
        return (
            self.layers * (attention + 3 * self.hidden * self.inner) + self.hidden * self.vocabulary
        )

    @property
    def prompt(self) -> int:
        """Tokens."""
        return self.vision_tokens + self.text_tokens

    @property
    def context(self) -> float:
        """Tokens that a new one attends to, on average."""
        return self.prompt + self.new_tokens / 2

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token."""
        return 2 * self.layers * self.kv_width * self.bytes_per_number

    @property
    def tower_flops(self) -> float:
        """Of the vision encoder, per image."""
        t, h = self.tower_tokens, self.tower_hidden
        weights = self.tower_layers * (4 * h * h + 2 * h * self.tower_inner)
        return 2 * weights * t + 4 * self.tower_layers * t * t * h

    @property
    def prefill_flops(self) -> float:
        """Per prompt: two per weight and token, and causal attention; one row of output."""
        t = self.prompt
        inside = self.weights - self.hidden * self.vocabulary
        output = 2 * self.hidden * self.vocabulary
        return 2 * inside * t + output + 2 * self.layers * t * t * self.hidden

    @property
    def decode_flops(self) -> float:
        """Per new token."""
        return 2 * self.weights + 4 * self.layers * self.context * self.hidden

    @property
    def questions(self) -> int:
        """In flight on a GPU: as many as its memory has keys for, the prompt's kept once."""
        room = self.memory * self.memory_share - self.weights * self.bytes_per_number
        each = self.kv_bytes * (self.prompt + self.candidates * self.new_tokens)
        return max(1, int(room / each))

    def step_bytes(self, shared: bool, questions: int) -> float:
        """Read from a GPU's memory in a decoding step of so many questions' candidates.

        Args:
            shared: a prompt's keys are read once for all its candidates, else for each.
            questions: in flight.
        """
        prompts = questions * (1 if shared else self.candidates)
        own = questions * self.candidates * self.new_tokens / 2
        read = prompts * self.prompt + own
        return self.weights * self.bytes_per_number + self.kv_bytes * read

    def step_seconds(self, shared: bool, questions: int) -> float:
        """A step takes as long as the slower of reading and computing."""
        read = self.step_bytes(shared, questions) / (self.bandwidth * self.bandwidth_share)
        flops = self.decode_flops * questions * self.candidates
        return max(read, flops / (self.flops * self.compute_share))

    def decode_hours(self, shared: bool, questions: int) -> float:
        """Of all GPUs together."""
        steps = self.images / self.gpus / questions * self.new_tokens
        return steps * self.step_seconds(shared, questions) / 3600

    def compute_hours(self, flops: float) -> float:
        """Of all GPUs together, for so many operations."""
        return flops / (self.gpus * self.flops * self.compute_share) / 3600


def rows(n: Numbers) -> list[tuple[str, str, str]]:
    """(what, how it is computed, what comes of it)."""
    tokens = n.images * n.candidates * n.new_tokens
    one = n.prefill_flops
    many = n.questions
    gb = 1e9
    shards = -(-n.images // SHARD)
    hours = n.decode_hours(True, many) + n.compute_hours(n.images * (one + n.tower_flops))
    return [
        ("vision encoder", f"{n.tower_flops / 1e12:.2f} TFLOP per image",
         f"{n.compute_hours(n.images * n.tower_flops):.2f} h"),
        ("prefill, once per image", f"{one / 1e12:.2f} TFLOP per prompt of {n.prompt} tokens",
         f"{n.compute_hours(n.images * one):.1f} h"),
        (f"prefill, {n.candidates} times", "the same for each candidate",
         f"{n.compute_hours(n.images * n.candidates * one):.1f} h"),
        ("new tokens", f"{n.images:,} x {n.candidates} x {n.new_tokens}", f"{tokens / 1e9:.1f} G"),
        ("keys and values", f"{n.kv_bytes / 1024:.0f} KiB per token; {n.prompt} + "
         f"{n.candidates} x {n.new_tokens} tokens per question", f"{many} questions per GPU"),
        ("decode: computing", f"{n.decode_flops / 1e9:.1f} GFLOP per token",
         f"{n.compute_hours(tokens * n.decode_flops):.1f} h"),
        ("decode, prompts' keys read once", f"{n.step_bytes(True, many) / gb:.0f} GB per step of "
         f"{many * n.candidates} tokens", f"{n.decode_hours(True, many):.1f} h"),
        ("decode, read for each candidate", f"{n.step_bytes(False, many) / gb:.0f} GB per step of "
         f"{many * n.candidates} tokens", f"{n.decode_hours(False, many):.1f} h"),
        ("decode, one question at a time", f"{n.step_bytes(True, 1) / gb:.0f} GB per step of "
         f"{n.candidates} tokens", f"{n.decode_hours(True, 1):.1f} h"),
        ("pictures, read", f"{n.image_bytes / 1000:.0f} kB each",
         f"{n.images * n.image_bytes / gb:.0f} GB"),
        ("pictures, on CPUs", f"{n.image_ms:.0f} ms of a core each, a core per GPU",
         f"{n.images * n.image_ms / 3.6e6 / n.gpus:.1f} h"),
        ("signals, written", f"{BYTES_A_TOKEN} bytes per token",
         f"{tokens * BYTES_A_TOKEN / gb:.0f} GB"),
        ("to the run's folder", "the signals over the hours of the best way",
         f"{tokens * BYTES_A_TOKEN / 1e6 / hours / 3600:.0f} MB/s"),
        ("shards", f"{SHARD} items; {n.candidates * n.new_tokens * SHARD * BYTES_A_TOKEN / 1e6:.1f}"
         " MB each, in 4 files", f"{shards:,}"),
    ]  # fmt: skip


def table(n: Numbers) -> str:
    """As Markdown."""
    lines = ["| | on paper | together |", "|---|---|---:|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows(n))])


def main() -> None:
    """Print the table; an option per number."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for one in fields(Numbers):
        kind = int if isinstance(one.default, int) else float
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=kind, default=one.default)
    print(table(Numbers(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
