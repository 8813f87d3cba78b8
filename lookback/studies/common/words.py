"""Parts of speech: the words of responses, which of them show things, and their tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lookback.benchmarks import english
from lookback.benchmarks.base import BENCHMARKS, Item, Mentioning, Preparing, get_benchmark
from lookback.runs import Run
from lookback.scores.formula import Array
from lookback.studies.common.base import StudyError
from lookback.studies.common.controls import Pair, auc
from lookback.studies.common.selection import bootstrap_means, interval

VISUAL = ("NOUN", "PROPN", "ADJ", "NUM")
TEXTUAL = ("AUX", "DET", "PRON", "CCONJ", "SCONJ")
TAGS = (*VISUAL, "VERB", "ADV", "INTJ", "ADP", "PART", *TEXTUAL)
"""All that count as words; PUNCT, SPACE, SYM and X do not."""
SETS = {"visual set": VISUAL, "textual set": TEXTUAL}
NOTES = [
    "Each signal is z-scored over all tokens analysed; a word has the mean of its sub-tokens.",
    f"Visual set: {', '.join(VISUAL)}. Textual set: {', '.join(TEXTUAL)}. The other parts of "
    "speech, ADP and PART too, are in neither. Left out: PUNCT, SPACE, SYM and X.",
]


class Words(NamedTuple):
    """The words of some responses of a run.

    Attributes:
        tags: (W,), their parts of speech.
        ranges: (W, 2), the tokens of each, counted from the first token of the first response.
        tokens: of all tokens of the run, which are of these responses.
    """

    tags: NDArray[np.str_]
    ranges: NDArray[np.intp]
    tokens: NDArray[np.bool_]

    def within(self, tags: Sequence[str]) -> NDArray[np.bool_]:
        """(W,): the words of some parts of speech that are in what the model wrote."""
        return np.isin(self.tags, tags) & (self.ranges[:, 1] > self.ranges[:, 0])


def find_words(run: Run, chosen: NDArray[np.intp]) -> Words:
    """The words of some of a run's candidates."""
    texts = [run.texts[i] for i in chosen]
    spans, tags = tag_words(texts)
    ranges = token_ranges(run.tokens().take(pa.array(chosen)), texts, spans)
    tokens = np.repeat(np.isin(np.arange(len(run.lengths)), chosen), run.lengths)
    return Words(tags, ranges, tokens)


def tag_words(texts: Sequence[str]) -> tuple[Spans, NDArray[np.str_]]:
    """The words of some texts and their parts of speech; texts that are the same are read once."""
    nlp = english.model()
    ruler: Any = nlp.get_pipe("attribute_ruler")  # from the tagger's tags to parts of speech
    distinct = list(dict.fromkeys(texts))
    read = {
        text: [(word.idx, word.idx + len(word), word.pos_) for word in ruler(doc)]
        for text, doc in zip(distinct, nlp.pipe(distinct, batch_size=english.BATCH), strict=True)
    }
    words = [(i, *word) for i, text in enumerate(texts) for word in read[text] if word[2] in TAGS]
    spans = np.array([word[:3] for word in words], dtype=np.int64).reshape(-1, 3)
    return spans, np.array([word[3] for word in words], dtype=str)


def z_scores(values: Array) -> Array:
    """How many standard deviations each value is above the mean.

    Raises:
        StudyError: they are all the same.
    """
    if values.min() == values.max():
        raise StudyError("a signal is the same for all tokens: it has no z-scores")
    return np.asarray((values - values.mean()) / values.std())


Spans = NDArray[np.int64]
"""(W, 3): a word each: the response it stands in, its first character there, and the one behind."""
FACTORS = {"A": "visual_lookback", "log p": "log_prob"}


def token_ranges(tokens: pa.ListArray, texts: Sequence[str], spans: Spans) -> NDArray[np.intp]:
    """(W, 2): the tokens of each word, of all responses' tokens in a row: from the first, up to the
    second. The two are the same for a word that is not in what the model wrote.

    Args:
        tokens: the tokens of each response. An empty one (part of a character that the last of its
            tokens shows) goes with the token behind it.
        texts: the responses.
        spans: the words, in characters of their texts.
    """
    written: list[str] = pc.binary_join(tokens, "").to_pylist()
    spans, known = _in_written(written, texts, np.asarray(spans, dtype=np.int64).reshape(-1, 3))
    # All responses in a row, each followed by a position of its own that belongs to no word.
    sizes = np.array([len(text) + 1 for text in written], dtype=np.int64)
    behind = np.cumsum(sizes)
    lengths = pc.utf8_length(tokens.flatten()).to_numpy(zero_copy_only=False).astype(np.int64)
    owner = np.repeat(np.arange(len(written)), pc.list_value_length(tokens).to_numpy())
    if not len(lengths):
        return np.zeros((len(spans), 2), dtype=np.intp)
    ends = np.cumsum(lengths) + owner
    ends = np.where(lengths > 0, ends, behind[-1])
    ends = np.minimum(np.minimum.accumulate(ends[::-1])[::-1], behind[owner])
    base = (behind - sizes)[spans[:, 0]]
    first = np.searchsorted(ends, base + spans[:, 1], side="right")
    last = np.searchsorted(ends, base + np.maximum(spans[:, 2] - 1, spans[:, 1]), side="right")
    stop = np.searchsorted(ends, ends[np.minimum(last, len(ends) - 1)], side="right")
    return np.stack([first, np.where(known, stop, first)], axis=1)


def word_means(values: Array, ranges: NDArray[np.intp]) -> Array:
    """(W,): the mean of a per-token array over each word's tokens; NaN for a word without any."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    counts = ranges[:, 1] - ranges[:, 0]
    total = sums[ranges[:, 1]] - sums[ranges[:, 0]]
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)


def item_of_tokens(run: Run, candidates: NDArray[np.intp]) -> NDArray[np.intp]:
    """The row of the item of each token of some candidates, all tokens in a row."""
    items = np.repeat(np.arange(len(run.sizes)), run.sizes)[candidates]
    return np.repeat(items, run.lengths[candidates])


def words_interval(values: Array, items: NDArray[np.intp], count: int) -> tuple[float, float]:
    """The 95 % interval of the mean over some words; NaN without any.

    It is of bootstrap samples of items, of which those without any of the words are left out.

    Args:
        values: a number per word.
        items: of which item each word is.
        count: how many items there are.
    """
    if not len(values):
        return np.nan, np.nan
    sums, sizes = (np.bincount(items, weights, count) for weights in (values, None))
    total, words = bootstrap_means(np.column_stack([sums, sizes])).T
    return interval(total[words > 0] / words[words > 0])


def sample_responses(which: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """All of some responses or, of more, `most` by lot; always the same ones, in order.

    Raises:
        StudyError: there are none.
    """
    if not len(which) or most < 1:
        raise StudyError(f"no responses to analyse: there are {len(which)}, at most {most} wanted")
    if len(which) > most:
        which = np.random.default_rng(0).choice(which, most, replace=False)
    return np.sort(which)


def _in_written(
    written: Sequence[str], texts: Sequence[str], spans: Spans
) -> tuple[Spans, NDArray[np.bool_]]:
    """The spans in characters of what was written, and which of them are there."""
    shifts = np.zeros(len(texts), dtype=np.int64)
    for i in np.unique(spans[:, 0]).tolist():
        shifts[i] = written[i].find(texts[i])
    moved = spans.copy()
    moved[:, 1:] += shifts[spans[:, 0], None]
    known = spans[:, 2] > spans[:, 1]
    by_text = np.argsort(spans[:, 0], kind="stable")
    for i in np.flatnonzero(shifts < 0).tolist():
        positions = _positions(texts[i], written[i])
        low, high = np.searchsorted(spans[by_text, 0], [i, i + 1])
        for word in by_text[low:high]:
            kept = positions[spans[word, 1] : spans[word, 2]]
            kept = kept[kept >= 0]
            known[word] = len(kept) > 0
            moved[word, 1:] = (kept[0], kept[-1] + 1) if len(kept) else (0, 0)
    return moved, known


def _positions(text: str, written: str) -> Spans:
    """For each character of a text its position in what was written; -1 where it is not."""
    positions = np.full(len(text), -1, dtype=np.int64)
    for block in SequenceMatcher(None, text, written, autojunk=False).get_matching_blocks():
        positions[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size)
    return positions


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


def mentioning_benchmark(run: Run) -> Any:
    """The run's benchmark if it can tell right mentions from wrong ones, else None."""
    known = run.benchmark.partition(":")[0] in BENCHMARKS.names()
    benchmark = get_benchmark(run.benchmark, run.manifest.data) if known else None
    return benchmark if isinstance(benchmark, Mentioning) else None


def find_mentions(run: Run, benchmark: Any, candidates: NDArray[np.intp], most: int) -> Mentions:
    """The mentions in some candidates of a run.

    Args:
        run: it has the truth of its items, so that no files are needed for them.
        benchmark: as `mentioning_benchmark` gives it.
        candidates: which of the run's candidates.
        most: of more candidates with tokens, so many are read, drawn by lot.
    """
    read = sample_responses(np.flatnonzero(run.lengths[candidates] > 0), most)
    items, positions = _items(run), run.head["item"].to_numpy()
    pairs = [(int(positions[i]), run.texts[i]) for i in candidates[read]]
    distinct = list(dict.fromkeys(pairs))
    if isinstance(benchmark, Preparing):  # reading many together is faster
        benchmark.prepare([items[at] for at, _ in distinct], [text for _, text in distinct])
    mentions = {(at, text): benchmark.mentions(items[at], text) for at, text in distinct}
    spans = [(i, a, b) for i, key in zip(read, pairs, strict=True) for a, b, _ in mentions[key]]
    right = np.array([is_right for key in pairs for *_, is_right in mentions[key]], dtype=bool)
    tokens = run.tokens().take(pa.array(candidates))
    texts = [run.texts[i] for i in candidates]
    ranges = token_ranges(tokens, texts, np.array(spans, dtype=np.int64).reshape(-1, 3))
    written = ranges[:, 1] > ranges[:, 0]
    return Mentions(ranges[written], right[written], len(read))


def mention_aucs(pair: Pair, mentions: Mentions) -> dict[tuple[str, str], float]:
    """(factor, image): the probability that a right mention has more of the factor than a wrong."""
    return {
        (name, image): auc(word_means(values, mentions.ranges), mentions.right)
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
