"""An item with its answers, how good they are, who picks which; the rule that picks the item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lookback.benchmarks.base import Benchmark, Item, Mentioning
from lookback.engines import Engine
from lookback.scores.base import get_scorer
from lookback.signals import Candidate, Candidates

N = 25
SPLIT = "test"
MAX_NEW_TOKENS = 120
SCORERS = {
    "lookback": "LookBack",
    "mean_log_prob": "mean log p",
    "self_certainty": "self-certainty",
    "random": "random",
}
"""Whose picks are shown, with the names that readers see."""
APART = 0.25
"""By how much the other pick is below the best at least, so that there is something to see."""
MOST = 100
"""Items that are asked about at most before the search is given up."""
FIRST = 120
"""Where the search begins: nobody had seen these items' answers when the rule was settled."""
RULE = (
    f"The first held-out item, from number {FIRST} on, where either LookBack or "
    f"self-certainty picks the best of the {N} answers, and the other picks one that is at least "
    f"{APART} lower in quality (1 is right, 0 is wrong). An example, not evidence."
)
MEASURES = {
    "f1": "F1 of the things named, against those in the picture",
    "accuracy": "1 if right, else 0",
    "correctness": "1 if right, else 0",
}
"""What the quality of an answer is, by the name of the task's own measure."""


class Verdict(NamedTuple):
    """What is said of an answer.

    Attributes:
        mark: one sign.
        words: the same in words.
        invented: things that it names and that are not there, where the task can tell.
    """

    mark: str
    words: str
    invented: tuple[str, ...]

    @property
    def kind(self) -> str:
        """right, wrong or partly: one word, for colours."""
        return self.words.split()[0]


@dataclass(frozen=True)
class Asked:
    """An item, its answers and the truth about them.

    Attributes:
        task: the benchmark's name.
        measure: what `quality` is, in words.
        item: what was asked.
        candidates: the answers.
        quality: of each answer, in [0, 1].
        decode_greedy: returns the one answer at temperature 0 and its quality; called on first
            use, as the search for an item does not need it.
        wrong: of each answer, (start, end) in its joined tokens of words for things not there.
        seed: of the draw, and of the random pick.
    """

    task: str
    measure: str
    item: Item
    candidates: Candidates
    quality: tuple[float, ...]
    decode_greedy: Callable[[], tuple[str, float]]
    wrong: tuple[tuple[tuple[int, int], ...], ...]
    seed: int

    @cached_property
    def picks(self) -> dict[str, Candidate]:
        """The answer that each of `SCORERS` picks."""
        return {name: self.best(name) for name in SCORERS}

    def best(self, scorer: str) -> Candidate:
        """A scorer's pick; the random one is fixed by the seed."""
        takes_seed = "seed" in get_scorer(scorer).params
        return self.candidates.best(scorer, **({"seed": self.seed} if takes_seed else {}))

    def verdict(self, index: int) -> Verdict:
        """What to say of the answer at a position."""
        text = "".join(self.candidates[index].tokens)
        invented = tuple(dict.fromkeys(text[start:end] for start, end in self.wrong[index]))
        return judge(self.quality[index], invented)

    @cached_property
    def _greedy(self) -> tuple[str, float]:
        return self.decode_greedy()

    @property
    def greedy(self) -> str:
        """The greedy answer."""
        return self._greedy[0]

    @property
    def greedy_verdict(self) -> Verdict:
        """What to say of the greedy answer."""
        return judge(self._greedy[1])

    @property
    def right(self) -> int:
        """How many of the answers are right without any mistake."""
        return sum(quality >= 1 for quality in self.quality)


def judge(quality: float, invented: tuple[str, ...] = ()) -> Verdict:
    """Put the quality of an answer into words."""
    if quality >= 1:
        return Verdict("✓", "right", invented)
    if quality <= 0:
        return Verdict("✗", "wrong", invented)
    return Verdict("~", f"partly right, {quality:.2f}", invented)


def ask(engine: Engine, benchmark: Benchmark, place: int, seed: int) -> Asked:
    """Draw the answers to one held-out item and compare them with the truth.

    Raises:
        ValueError: the split has no such item.
    """
    item = item_at(benchmark, place)
    image, question, longest = item.image, item.question, MAX_NEW_TOKENS
    cands = engine.sample(image, question, N, max_new_tokens=longest, seed=seed)

    def decode_greedy() -> tuple[str, float]:
        (greedy,) = engine.sample(image, question, 1, temperature=0.0, max_new_tokens=longest)
        return greedy.text, benchmark.score(item, greedy.text)

    quality = tuple(benchmark.scores(item, [c.text for c in cands]))
    wrong = tuple(_wrong(benchmark, item, "".join(c.tokens)) for c in cands)
    measure = MEASURES[benchmark.primary]
    return Asked(benchmark.name, measure, item, cands, quality, decode_greedy, wrong, seed)


def item_at(benchmark: Benchmark, place: int) -> Item:
    """Return a held-out item by its number.

    Raises:
        ValueError: the split has no such item.
    """
    items = benchmark.items(SPLIT)
    if not 0 <= place < len(items):
        raise ValueError(
            f"item {place} of {benchmark.name}: it has the items 0 to {len(items) - 1}"
        )
    return items[place]


def tells_apart(asked: Asked) -> bool:
    """Whether `RULE` takes an item; neither of the two scorers is preferred."""
    one, other = (asked.quality[asked.best(s).index] for s in ("lookback", "self_certainty"))
    return differ(one, other, max(asked.quality))


def differ(one: float, other: float, best: float) -> bool:
    """Whether one pick is the best there is and the other is not nearly so."""
    return max(one, other) >= best and abs(one - other) >= APART


def find(answers: Callable[[int], Asked]) -> tuple[Asked, int]:
    """The first item that `RULE` takes, and how many were asked for it.

    Args:
        answers: asks about the item at a position.

    Raises:
        ValueError: none of `MOST`.
    """
    for tried, place in enumerate(range(FIRST, FIRST + MOST), start=1):
        asked = answers(place)
        if tells_apart(asked):
            return asked, tried
    raise ValueError(
        f"on none of the items {FIRST} to {FIRST + MOST - 1} is one pick the best and the other "
        f"{APART} below: name one with --item"
    )


def merge(ranked: list[Candidate]) -> list[list[Candidate]]:
    """Answers of the same tokens together, each group at the place of its first."""
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in ranked:
        groups.setdefault(tuple(candidate.tokens), []).append(candidate)
    return list(groups.values())


def _wrong(benchmark: Benchmark, item: Item, text: str) -> tuple[tuple[int, int], ...]:
    if not isinstance(benchmark, Mentioning):
        return ()
    return tuple((start, end) for start, end, right in benchmark.mentions(item, text) if not right)
