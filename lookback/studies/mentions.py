"""Which tokens of responses name objects, whether the objects are there, and what tells them apart.

For benchmarks with a method `mentions(item, response)` that gives (start, end, right) for each.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lookback.benchmarks.base import BENCHMARKS, Item, Mentioning, Preparing, get_benchmark
from lookback.runs import Run
from lookback.studies.distributions import auc
from lookback.studies.pairs import Pair
from lookback.studies.words import drawn, pieces, token_ranges, word_means

FACTORS = {"A": "visual_lookback", "log p": "log_prob"}


class Mentions(NamedTuple):
    """Mentions of objects in some candidates of a run.

    Attributes:
        ranges: (W, 2), the tokens of each, counted from the first token of the first candidate.
        right: (W,), whether the object is there.
        responses: how many responses were read.
    """

    ranges: NDArray[np.intp]
    right: NDArray[np.bool_]
    responses: int


def teller(run: Run) -> Any:
    """The run's benchmark if it can tell right mentions from wrong ones, else None."""
    known = run.benchmark in BENCHMARKS.names()
    benchmark = get_benchmark(run.benchmark, run.manifest.data) if known else None
    return benchmark if isinstance(benchmark, Mentioning) else None


def mentions(run: Run, benchmark: Any, candidates: NDArray[np.intp], most: int) -> Mentions:
    """The mentions in some candidates of a run.

    Args:
        run: it has the truth of its items, so that no files are needed for them.
        benchmark: as `teller` gives it.
        candidates: which of the run's candidates.
        most: of more candidates with tokens, so many are read, drawn by lot.
    """
    read = drawn(np.flatnonzero(run.lengths[candidates] > 0), most)
    items, places = _items(run), run.head["item"].to_numpy()
    asked = [(int(places[i]), run.texts[i]) for i in candidates[read]]
    distinct = list(dict.fromkeys(asked))
    if isinstance(benchmark, Preparing):  # reading many together is faster
        benchmark.prepare([items[place] for place, _ in distinct], [text for _, text in distinct])
    found = {(place, text): benchmark.mentions(items[place], text) for place, text in distinct}
    spans = [(i, a, b) for i, key in zip(read, asked, strict=True) for a, b, _ in found[key]]
    right = np.array([one for key in asked for *_, one in found[key]], dtype=bool)
    tokens = pieces(run).take(pa.array(candidates))
    texts = [run.texts[i] for i in candidates]
    ranges = token_ranges(tokens, texts, np.array(spans, dtype=np.int64).reshape(-1, 3))
    written = ranges[:, 1] > ranges[:, 0]
    return Mentions(ranges[written], right[written], len(read))


def aucs(pair: Pair, found: Mentions) -> dict[tuple[str, str], float]:
    """(factor, image): the probability that a right mention has more of the factor than a wrong."""
    return {
        (name, image): auc(word_means(values, found.ranges), found.right)
        for name, signal in FACTORS.items()
        for image, values in pair.signal(signal).items()
    }


def _items(run: Run) -> dict[int, Item]:
    """The run's items by their positions in the split; without images, which nobody asks for."""
    table = run.items.select(["item", "id", "question", "truth"]).to_pylist()
    return {
        row["item"]: Item(row["id"], row["question"], json.loads(row["truth"]), None)
        for row in table
    }
