"""Parts of speech, against one text at a time and one character at a time."""

import numpy as np
import pytest
from changed_runs import change_rows, set_tokens
from made_runs import make_run
from matplotlib.colors import to_hex

from lookback.benchmarks import english
from lookback.scores.base import get_scorer
from lookback.studies import StudyError, get_study
from lookback.studies.common.words import (
    TAGS,
    TEXTUAL,
    VISUAL,
    find_words,
    sample_responses,
    tag_words,
    word_means,
    z_scores,
)
from lookback.studies.pos import FEW


def test_z_scores():
    values = [1.0, 2.0, 4.0, 9.0]
    mean = sum(values) / 4
    spread = (sum((v - mean) ** 2 for v in values) / 4) ** 0.5
    assert z_scores(np.array(values)).tolist() == pytest.approx(
        [(v - mean) / spread for v in values]
    )
    with pytest.raises(StudyError, match="the same for all tokens"):
        z_scores(np.full(3, 0.1))


def test_words_and_their_tags():
    spans, tags = tag_words(["There is a cup.", "", "Two red dogs run!", "There is a cup."])
    assert spans.tolist()[:4] == [[0, 0, 5], [0, 6, 8], [0, 9, 10], [0, 11, 14]]
    assert tags.tolist()[:4] == ["PRON", "AUX", "DET", "NOUN"]  # and no full stop
    assert tags.tolist()[4:8] == ["NUM", "ADJ", "NOUN", "VERB"]
    assert spans[8:, 1:].tolist() == spans[:4, 1:].tolist()
    assert set(spans[:, 0].tolist()) == {0, 2, 3}
    assert not set(VISUAL) & set(TEXTUAL)
    assert not {"ADP", "PART"} & set(TEXTUAL)
    assert not {"PUNCT", "SPACE", "SYM", "X"} & set(TAGS)


def test_a_text_is_tagged_once(monkeypatch):
    seen = []
    nlp = english.model()
    pipe = type(nlp).pipe
    monkeypatch.setattr(
        type(nlp), "pipe", lambda self, texts, **k: pipe(self, seen.extend(texts) or texts, **k)
    )
    tag_words(["a cup", "a dog", "a cup"])
    assert seen == ["a cup", "a dog"]
    assert nlp.pipe_names == ["tok2vec", "tagger"]  # as it was


def slow(run, kept=None):
    """The z-scores of the words of each part of speech; a word's tokens by its characters."""
    everything = [c for row in range(len(run.ids)) for c in run.candidates(row)]
    everything = everything if kept is None else [everything[i] for i in kept]
    nlp = english.model()
    ruler = nlp.get_pipe("attribute_ruler")
    found = {}
    for name, signal in (("A", "visual_lookback"), ("SC", "self_certainty")):
        tokens = [float(v) for c in everything for v in getattr(c, signal)]
        mean = sum(tokens) / len(tokens)
        spread = (sum((v - mean) ** 2 for v in tokens) / len(tokens)) ** 0.5
        for c in everything:
            if not c.tokens:
                continue
            owner = [i for i, token in enumerate(c.tokens) for _ in token]
            written = "".join(c.tokens)
            lead = len(written) - len(written.lstrip())
            for word in ruler(nlp(c.text)):
                mine = sorted({owner[lead + k] for k in range(word.idx, word.idx + len(word))})
                z = [(float(getattr(c, signal)[i]) - mean) / spread for i in mine]
                found.setdefault((name, word.pos_), []).append(sum(z) / len(z))
    return found


@pytest.fixture
def run(tmp_path):
    def split(row):  # some words in two tokens, and a full stop that is joined to one
        tokens = [part for token in row["tokens"] for part in (token[:2], token[2:]) if part]
        values = {name: np.resize(row[name] or [0.5], len(tokens) + 1).tolist() for name in SIGNALS}
        values["self_certainty"] = np.linspace(1, 3 + row["index"], len(tokens) + 1).tolist()
        if tokens:
            set_tokens(row, [*tokens, "."], **values)

    run = make_run(tmp_path / "run", items=6, n=5, empty=((1, 1),), failed=(2,))
    return change_rows(run, split)


SIGNALS = ("log_prob", "visual_lookback", "self_certainty", "entropy")


@pytest.mark.parametrize("most", [2000, 7])
def test_rows(run, most):
    rows = {row["group"]: row for row in get_study("pos")([run], {"responses": most}).rows}
    wanted = slow(run, sample_responses(np.flatnonzero(run.lengths > 0), most))
    for tag in TAGS:
        assert rows[tag]["words"] == len(wanted.get(("A", tag), []))
    groups = {tag: (tag,) for tag in TAGS} | {"visual set": VISUAL, "textual set": TEXTUAL}
    for group, tags in groups.items():
        for name in ("A", "SC"):
            values = [v for tag in tags for v in wanted.get((name, tag), [])]
            if values:
                assert rows[group][name] == pytest.approx(sum(values) / len(values), abs=1e-6)
            else:
                assert np.isnan(rows[group][name])
    assert rows["NOUN"]["words"] > 5


def test_a_signal_on_nouns_is_seen_on_nouns(tmp_path):
    def nouns(row):
        words = [" The", " dog", " is", " a", " cup", "."]
        high = [0.1, 0.9, 0.1, 0.1, 0.9, 0.1]
        set_tokens(row, words, visual_lookback=high, self_certainty=[1 - v for v in high])

    result = get_study("pos")([change_rows(make_run(tmp_path / "run", n=3), nouns)])
    rows = {row["group"]: row for row in result.rows}
    assert rows["visual set"]["A"] == rows["NOUN"]["A"] == pytest.approx(2**0.5, rel=1e-5)
    assert rows["visual set"]["SC"] == pytest.approx(-(2**0.5), rel=1e-5)
    assert rows["textual set"]["A"] == pytest.approx(-(0.5**0.5), rel=1e-5)
    assert rows["DET"]["words"] == 2 * 36
    table = result.tables[0]
    assert [str(cell) for cell in table.rows[0]] == ["visual set", "+1.41", "-1.41", "72"]
    top, bottom = result.figure.axes
    heights = [patch.get_height() for patch in top.patches]  # A of both sets, SC of both sets
    assert heights == [rows[g][n] for n in ("A", "SC") for g in ("visual set", "textual set")]
    assert [label.get_text() for label in bottom.get_xticklabels()] == ["NOUN", "AUX", "DET"]


def test_as_many_responses_as_asked_for(run):
    result = get_study("pos")([run], {"responses": 4})
    assert "4 responses" in result.notes[-1]
    assert sum(r["words"] for r in result.rows if r["group"] in TAGS) <= 4 * 15
    whole = get_study("pos")([run])
    assert f"{int((run.lengths > 0).sum())} responses" in whole.notes[-1]


def test_intervals_are_of_samples_of_items(run):
    result = get_study("pos")([run])
    words = find_words(run, np.flatnonzero(run.lengths > 0))
    filled = np.flatnonzero(run.lengths > 0)
    rows = [run.places.tolist().index(place) for place in run.head["item"].to_pylist()]
    of_token = [rows[c] for c in filled for _ in range(run.lengths[c])]
    values = word_means(z_scores(run.signal("visual_lookback")[words.tokens]), words.ranges)
    by_item = {}
    for inside, value, (first, _) in zip(words.within(VISUAL), values, words.ranges, strict=True):
        if inside:
            by_item.setdefault(of_token[first], []).append(value)
    samples = np.random.default_rng(0).integers(0, len(run.sizes), (2000, len(run.sizes)))
    means = []
    for sample in samples.tolist():
        drawn = [value for item in sample for value in by_item.get(item, [])]
        if drawn:  # a sample may have none of the words
            means.append(sum(drawn) / len(drawn))
    row = next(row for row in result.rows if row["group"] == "visual set")
    expected = np.percentile(means, [2.5, 97.5]).tolist()
    assert [row["A_low"], row["A_high"]] == pytest.approx(expected)
    assert row["A_low"] <= row["A"] <= row["A_high"]
    drawn = result.figure.axes[0].containers[1].lines[2][0].get_segments()[0]
    assert drawn[:, 1].tolist() == pytest.approx(expected)


def test_groups_of_few_words_are_grey_with_their_number(run):
    result = get_study("pos")([run])
    bottom = result.figure.axes[1]
    rows = [row for row in result.rows if row["group"] in TAGS and row["words"]]
    numbers = [f"n={row['words']}" for row in rows if row["words"] < FEW]
    assert [text.get_text() for text in bottom.texts] == numbers
    colors = [to_hex(patch.get_facecolor()) for patch in bottom.patches]
    for row, color in zip(rows, colors, strict=False):  # those of A come first
        assert (color == get_scorer("visual_lookback").color) == (row["words"] >= FEW)
    few = get_study("pos")([run], {"responses": 2})
    assert few.figure.axes[1].texts  # or the test above shows nothing
    assert any(f"fewer than {FEW} words" in note for note in result.notes)
