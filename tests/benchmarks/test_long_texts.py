"""Very long responses: work and memory that grow with the text, and results that stay the same."""

import json
import random
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import shared
from spacy.tokens import Doc
from timeouts import HANG_SECONDS

from lookback.benchmarks import english
from lookback.benchmarks.amber import Amber
from lookback.benchmarks.base import Item
from lookback.benchmarks.chair import Chair
from lookback.benchmarks.language_model_judge import parse_verdict
from lookback.scenes.parse import located, origins, plain
from lookback.scores import judges

WORDS = "a the man dogs sits seated on table red near bus two toilet seat it's isn't , . ' - 3.5"
TEXT = st.lists(st.sampled_from(WORDS.split()), max_size=80).map(" ".join)


@pytest.fixture
def tagged(monkeypatch):
    """How many words each document has that is given to the tagger, and how many go together."""
    nlp, sizes = english.model(), []
    pipe = nlp.pipe

    def counted(docs, batch_size):
        docs = list(docs)
        sizes.extend(map(len, docs))
        for start in range(0, len(docs), batch_size):
            assert sum(map(len, docs[start : start + batch_size])) <= english.TOGETHER
        return pipe(docs, batch_size=batch_size)

    monkeypatch.setattr(nlp, "pipe", counted)
    return sizes


def slow_words(text):
    """The words of a text that is tagged as one."""
    nlp = english.model()
    (doc,) = nlp.pipe([Doc(nlp.vocab, words=english.tokens(text))])
    return tuple(english.Word(t.text, t.tag_, english.lemma(t.text, t.tag_)) for t in doc)


def test_a_long_text_is_tagged_in_pieces_of_bounded_size(tagged):
    rng = random.Random(0)
    work = {}
    for size in (4000, 8000):
        del tagged[:]
        text = " ".join(rng.choices(WORDS.split()[:12], k=size))
        (found,) = english.words([text])
        assert len(found) == size
        assert max(tagged) <= english.PIECE + 2 * english.MARGIN
        work[size] = sum(tagged)
    assert 4000 <= work[4000] <= 1.04 * 4000
    assert 8000 <= work[8000] <= 1.04 * 8000


@pytest.mark.parametrize("unit", ["'", "a dog. ", "toilet seat ", "x y z , "])
def test_what_repeats_is_tagged_once(tagged, unit):
    work = []
    for times in (20_000, 40_000):
        del tagged[:]
        (found,) = english.words([unit * times])
        assert len(found) == len(english.tokens(unit)) * times
        work.append(sum(tagged))
    assert work[0] < 10_000
    assert work[1] < 1.5 * work[0]


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_pieces_have_the_tags_of_the_whole(texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(english, "PIECE", 20)
        assert list(english.words(texts)) == [slow_words(text) for text in texts]


def test_real_captions_in_a_row_are_tagged_alike():
    lines = (shared("chair") / "captions_llava-1.5_greedy.jsonl").read_text("utf-8").splitlines()
    text = " ".join(json.loads(line)["caption"] for line in lines[:60])
    assert len(english.tokens(text)) > 3 * english.PIECE
    assert list(english.words([text])) == [slow_words(text)]


@pytest.mark.parametrize("kind", [Chair, Amber])
def test_many_responses_to_one_item_are_read_together(kind, tmp_path, tagged, monkeypatch):
    calls = []
    monkeypatch.setattr(
        english, "words", lambda texts, real=english.words: calls.append(1) or real(texts)
    )
    monkeypatch.delenv("LOOKBACK_DATA", raising=False)
    (tmp_path / "relation.json").write_text('{"dog": [], "man": ["person"], "bus": []}')
    (tmp_path / "safe_words.txt").write_text("")
    truth = {"objects": ["dog"], "captions": ["A man."], "truth": ["dog", "man"], "hallu": ["bus"]}
    item = Item("1", "?", truth, None)
    rng = random.Random(1)
    responses = [" ".join(rng.choices(WORDS.split()[:12], k=9)) for _ in range(300)]
    together = kind(tmp_path).scores(item, responses)
    assert len(calls) <= 2  # the responses, and perhaps the captions
    one_by_one = kind(tmp_path)
    assert together == [one_by_one.score(item, response) for response in responses]
    assert 0 < sum(together) < 300


HOSTILE = """
from lookback.benchmarks import answers, english, metrics
from lookback.benchmarks.language_model_judge import parse_verdict
from lookback.scenes import parse
from lookback.scores import judges, texts
from lookback import pages

readers = [
    answers.normalise, lambda text: answers.parse(text, "How many?"), answers.yes_or_no,
    english.tokens, parse.parse, parse.origins, parse_verdict, judges.chosen_letter,
    lambda text: judges.usc_choice(text, 5), texts.normalised, pages.clean, pages._breakable,
    *(lambda text, name=name: metrics.METRICS.get(name)(text, ["B) blue"], "What?")
      for name in ("exact", "contains", "vqa", "token_f1", "choice")),
]
for text in ("response" + " " * 100_000, "the answer is" + " " * 100_000, "no" + " (" * 50_000,
             "'s " * 30_000, "1" * 100_000, "n't" * 30_000):
    for read in readers:
        read(text + "!")
parse.origins("'s " * 700_000)
parse_verdict("<think>" * 300_000)
"""


def test_no_reader_of_texts_is_quadratic():
    """In the square of these lengths one of them would take an hour, and not a blink.

    The limit is far from both, so that a busy machine does not matter.
    """
    subprocess.run([sys.executable, "-c", HOSTILE], check=True, timeout=HANG_SECONDS)


BLANKS = st.lists(
    st.sampled_from([*" \n(:[*#\"'ABCab1203.", "response", "Option", "answer", "is", "choice"])
).map("".join)
OLD = {
    judges._OPTION: r"\b(?:response|option|choice)\s*[:(\[*]*\s*\(?([A-Z])\b",
    judges._ANSWER: r"\b(?:answer|is)\s*[:(\[*\"']*\s*\(?([A-Z])\b(?!'[a-z])",
    judges._CHOICE: r"\bresponse\s*[#:(\[*]*\s*(\d+)",
}


@given(BLANKS)
def test_the_patterns_find_what_the_slow_ones_found(text):
    for pattern, slow in OLD.items():
        found = [(m.span(), m[1]) for m in pattern.finditer(text)]
        assert found == [(m.span(), m[1]) for m in re.finditer(slow, text, re.IGNORECASE)]


@given(st.lists(st.sampled_from(["a", "'s ", "’s ", "İ", " ", "S"])).map("".join))
def test_origins_are_those_of_the_slow_way(text):
    at = [i for i, char in enumerate(text) for _ in char.lower()]
    for match in reversed(list(re.finditer("'s ", text.lower().replace("’", "'")))):
        at.insert(match.start(), at[match.start()])
    assert origins(text) == at
    assert len(at) == len(plain(text))


@given(st.lists(st.sampled_from(["<think>", "</think>", "correct", "incorrect", " ", "\n"])))
def test_thoughts_are_cut_as_before(parts):
    reply = "".join(parts)
    assert parse_verdict(reply) == parse_verdict(re.sub(r"(?s)<think>.*?</think>", "", reply))


def test_numbers_of_thousands_of_digits():
    long = "1" * 5000
    assert judges.usc_choice(f"Response {long}", 3) is None
    assert judges.usc_choice(long, 3) is None
    assert judges.usc_choice(f"Response {long}, no: response 002", 3) == 2
    assert int(located(f"{long} dogs")[0][0].value) > 10**9
    assert [token.value for token, _ in located("007 and 0")[::2]] == ["7", "0"]
