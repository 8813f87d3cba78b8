"""How often VAUQ picks another candidate when it hides from the response's rows alone, or from all.

`python -m tools.vauq_rows`: candidates of the first items of each Scenes task, drawn and scored by
the embedded model, ranked by both readings.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import lookback
from lookback.benchmarks.base import GENERATED, get_benchmark
from lookback.engines import Engine
from lookback.scores.texts import normalised


class Count(NamedTuple):
    """Of so many items, of how many the two pick another candidate, and another text."""

    task: str
    items: int
    candidates: int
    texts: int


def compare(engine: Engine, task: str, items: int, n: int) -> Count:
    """Rank the candidates of a task's first test items by both."""
    candidates = texts = 0
    some = get_benchmark(task).items("test", items)
    for number, item in enumerate(some):
        drawn = engine.sample(
            messages=item.conversation.messages(), n=n, max_new_tokens=120, seed=42 + number
        )
        first, second = (drawn.best("vauq", rows=rows) for rows in ("response", "all"))
        candidates += first.index != second.index
        texts += normalised(first.text) != normalised(second.text)
    return Count(task, len(some), candidates, texts)


def lines(counts: list[Count]) -> Iterator[str]:
    """A line per task, and one for all."""
    total = Count("all", *(sum(column) for column in list(zip(*counts, strict=True))[1:]))
    for task, items, candidates, texts in (*counts, total):
        differ = f"another candidate for {candidates} of {items} items"
        yield f"{task}: {differ}, another text for {texts}"


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=10, help="of each task")
    parser.add_argument("-n", type=int, default=8, help="candidates per item")
    given = parser.parse_args()
    engine = lookback.load()
    counts = [compare(engine, task, given.items, given.n) for task in GENERATED]
    print("\n".join(lines(counts)))


if __name__ == "__main__":
    main()
