"""The tool that tells how often VAUQ's two readings pick differently."""

from toy_engine import ToyEngine

from lookback.benchmarks.base import get_benchmark
from tools.vauq_rows import Count, compare, lines


def test_it_counts_the_picks_that_differ():
    engine = ToyEngine()
    found = compare(engine, "scenes-vqa", 6, 5)
    candidates = texts = 0
    for number, item in enumerate(get_benchmark("scenes-vqa").items("test", 6)):
        drawn = engine.sample(
            messages=item.conversation.messages(), n=5, max_new_tokens=120, seed=42 + number
        )
        first, second = (drawn.rank("vauq", rows=rows)[0] for rows in ("response", "all"))
        candidates += first.index != second.index
        texts += first.text != second.text
    assert found == Count("scenes-vqa", 6, candidates, texts)
    assert 0 < found.candidates < 6  # it can tell one from the other


def test_what_is_said_of_all():
    counts = [Count("a", 10, 2, 1), Count("b", 10, 3, 3)]
    assert [*lines(counts)][-1] == ("all: another candidate for 5 of 20 items, another text for 4")
