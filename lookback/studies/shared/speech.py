"""Parts of speech: the words of responses, which of them show things, and their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lookback.benchmarks import english
from lookback.runs import Run
from lookback.scores.formula import Array
from lookback.studies.shared.base import StudyError
from lookback.studies.shared.words import Spans, token_ranges

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
    found = [(i, *word) for i, text in enumerate(texts) for word in read[text] if word[2] in TAGS]
    spans = np.array([word[:3] for word in found], dtype=np.int64).reshape(-1, 3)
    return spans, np.array([word[3] for word in found], dtype=str)


def z_scores(values: Array) -> Array:
    """How many standard deviations each value is above the mean.

    Raises:
        StudyError: they are all the same.
    """
    if values.min() == values.max():
        raise StudyError("a signal is the same for all tokens: it has no z-scores")
    return np.asarray((values - values.mean()) / values.std())
