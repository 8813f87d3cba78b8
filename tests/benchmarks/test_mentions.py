"""Where a response names things, and whether they are there."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import json_lines, shared

from lookback.benchmarks import get_benchmark
from lookback.benchmarks.base import Item
from lookback.scenes.parse import located, origins, parse, plain

# The words in brackets are the mentions; those with ! are not there.
SCENES = {
    "A small red [cup] and two [!balls].": ["cup"],
    "There is no key, but a [tree].": ["tree", "key"],
    "The thing at the top left is a [MUG].": ["cup"],
    "There's a [sailing boat], and it's [!umbrella]-like.": ["boat"],
    "The [house]'s red. İt is left of a [!Beach  Ball].": ["house"],
    "A [key]’s here, it's a [key].": ["key"],
    "Left.": ["cup"],
    "": [],
}


def cut(text):
    """The text without marks, and its (start, end, right)."""
    spans, bare = [], ""
    for piece in re.split(r"(\[.*?\])", text):
        if piece.startswith("["):
            word = piece.strip("[]!")
            spans.append((len(bare), len(bare) + len(word), "!" not in piece))
            piece = word
        bare += piece
    return bare, spans


def item(truth):
    return Item("x", "?", truth, load=lambda: pytest.fail("no image is needed"))


@pytest.mark.parametrize("text", SCENES)
def test_mentions_of_scenes(text):
    bare, spans = cut(text)
    there = SCENES[text]
    things = [{"category": c, "color": "red", "size": "small", "place": "center"} for c in there]
    caption, amber = get_benchmark("scenes-caption"), get_benchmark("scenes-amber")
    assert caption.mentions(item({"categories": there}), bare) == spans
    assert amber.mentions(item({"things": things}), bare) == spans


@pytest.mark.parametrize("name", ["scenes-caption", "scenes-amber"])
def test_mentions_are_those_that_the_metric_counts(name):
    benchmark = get_benchmark(name)
    for one in benchmark.items("test", 5):
        text = "A cup, a red house and no moon. It's a BOAT, and there's a crescent above a mug."
        found = benchmark.mentions(one, text)
        assert [text[a:b] for a, b, _ in found] == ["cup", "house", "BOAT", "crescent", "mug"]
        categories = ["cup", "house", "boat", "moon", "cup"]
        assert [right for *_, right in found] == [c in benchmark.there(one) for c in categories]
        counted = benchmark.hallucinations([(one, text)])
        wrong = [not right for *_, right in found]
        if name == "scenes-caption":
            assert counted["chair_i"] == pytest.approx(100 * sum(wrong) / len(wrong))


@given(st.text(st.sampled_from("Aa cup's’ İß,ΣiI'.x\n"), max_size=30))
def test_every_character_of_the_plain_text_has_its_origin(text):
    at = origins(text)
    assert len(at) == len(plain(text))
    assert at == sorted(at)
    for i, char in zip(at, plain(text), strict=True):
        assert char in text[i].lower() or text[i] in "'’Σ"  # it's, it is; two small sigmas


def test_tokens_know_their_places():
    text = "The cup isn't red; a couple of top hats, 3 mugs."
    where = {token.value: plain(text)[a:b] for token, (a, b) in located(text)}
    assert where["2"] == "a couple of"
    assert where["hat"] == "top hats"
    assert where["isn't"] == where["is"] == "isn't"
    assert parse(text).mentions[1].at == (text.index("top hats"), text.index(", 3"))


@pytest.fixture
def without_files(monkeypatch):
    monkeypatch.delenv("LOOKBACK_DATA", raising=False)
    return get_benchmark("chair")


def test_chair_needs_no_files_to_read(without_files):
    text = "İn this room a Dining  Table, two [dogs], a man's hat, a toilet and its seat."
    truth = {"objects": ["dining table"], "captions": ["Some dogs bark."]}
    found = without_files.mentions(item(truth), text)
    assert [(text[a:b], right) for a, b, right in found] == [
        ("Dining  Table", True),
        ("dogs", True),  # a caption names them
        ("man", False),
        ("toilet", False),
    ]


def test_mentions_of_real_captions_are_those_of_chair_i():
    folder = shared("chair")
    benchmark = get_benchmark("chair", folder)
    items = {int(one.id): one for one in benchmark.items("all")}
    lines = json_lines(folder / "captions_llava-1.5_greedy.jsonl")[:40]
    pairs = [(items[int(line["image_id"])], line["caption"]) for line in lines]
    benchmark.prepare(*map(list, zip(*pairs, strict=True)))
    found = [benchmark.mentions(*pair) for pair in pairs]
    rights = [right for one in found for *_, right in one]
    numbers = benchmark.aggregate(*map(list, zip(*pairs, strict=True)))
    assert 100 * (1 - sum(rights) / len(rights)) == pytest.approx(numbers["chair_i"])
    for (_, text), spans in zip(pairs, found, strict=True):
        for start, end, _ in spans:
            assert text[start:end].strip() == text[start:end] != ""
            assert re.fullmatch(r"[\w-]+(\s[\w-]+)?", text[start:end])
