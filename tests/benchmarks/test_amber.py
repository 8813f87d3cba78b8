"""AMBER: its items, its rules by hand, and its real files."""

import json
import pickle

import pytest
from shared_data import shared

from lookback.benchmarks import english, get_benchmark
from lookback.benchmarks.files import MissingFile

RELATION = {
    "forest": ["tree"],
    "tree": ["forest"],
    "person": ["man", "people"],
    "dog": [],
    "television": ["TV"],
    "sign": [],
    "cloud": [],
    "sea": ["water"],
    "boat": [],
}
QUERIES = [{"id": i, "image": f"AMBER_{i}.jpg", "query": "Describe this image."} for i in (1, 2)]
ANNOTATIONS = [
    {
        "id": 1,
        "type": "generative",
        "truth": ["person", "dog", "sign", "forest", "tree"],
        "hallu": ["cloud", "sea"],
    },
    {"id": 2, "type": "generative", "truth": ["television", "boat", "boat"], "hallu": ["dog"]},
    {"id": 1005, "type": "discriminative-relation", "truth": "yes"},
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "query_generative.json").write_text(json.dumps(QUERIES))
    (tmp_path / "annotations.json").write_text(json.dumps(ANNOTATIONS))
    (tmp_path / "relation.json").write_text(json.dumps(RELATION))
    (tmp_path / "safe_words.txt").write_text("sign\nlight")
    return tmp_path


@pytest.fixture
def amber(folder, monkeypatch):
    monkeypatch.setattr(english, "has_vectors", lambda: False)
    return get_benchmark("amber", folder)


def test_items(amber):
    items = amber.items()
    assert [item.id for item in items] == ["1", "2"]
    assert items[0].question == "Describe this image."
    assert items[1].truth == {"truth": ["television", "boat", "boat"], "hallu": ["dog"]}
    assert pickle.loads(pickle.dumps(items[0])) == items[0]
    with pytest.raises(MissingFile, match=r"image/AMBER_1\.jpg"):
        _ = items[0].image


def test_nouns_are_lemmas_that_the_relations_have(amber):
    text = "Men walk their dogs; people watch TV and trees tree. A cat clouds the view."
    assert amber.nouns(text)[:5] == ["man", "dog", "people", "tv", "tree"]
    assert "cat" not in amber.nouns(text)


@pytest.mark.parametrize(("text", "noun"), [("Dogs.", "dog"), ("Two men.", "man"), ("Men.", "man")])
def test_capitals_and_men_are_read(amber, text, noun):
    """The official script never lower-cases, and leaves "men" as it is: it drops all three."""
    assert amber.nouns(text) == [noun]


@pytest.mark.parametrize(
    ("response", "kept", "wrong", "made_up", "covered"),
    [
        ("A dog.", 1, 0, 0, {1}),
        ("A man and some people.", 2, 0, 0, {0}),  # associated with a truth
        ("A boat.", 1, 1, 0, set()),  # neither true nor expected
        ("A boat and a boat.", 2, 2, 0, set()),  # every mention counts
        ("A cloud over the water.", 2, 2, 2, set()),  # expected inventions, one by association
        ("A sign.", 1, 0, 0, set()),  # safe: kept, but no match
        ("A forest.", 1, 0, 0, {4}),  # associated nouns before own names: it means "tree"
        ("A tree.", 1, 0, 0, {3}),
        ("A giraffe.", 0, 0, 0, set()),  # not among the relations
        ("", 0, 0, 0, set()),
    ],
)
def test_judgements_by_hand(amber, response, kept, wrong, made_up, covered):
    judged = amber.judgement(amber.items()[0], response)
    assert (judged.kept, judged.wrong, judged.made_up) == (kept, wrong, made_up)
    assert judged.covered == covered


def test_of_equal_truths_the_first_is_covered(amber):
    assert amber.judgement(amber.items()[1], "Boats. A boat.").covered == {1}


def test_one_score_by_hand(amber):
    first = amber.items()[0]
    # Named: person, dog and, wrongly, a cloud: two of three; of the five things two.
    assert amber.score(first, "A man and a dog under a cloud.") == pytest.approx(0.5)
    # A man and people are one thing, which is there, and a sign is neither right nor wrong.
    text = "A man, some people and a dog under a cloud by a sign."
    assert amber.score(first, text) == pytest.approx(0.5)
    # Different nouns that are wrong are different things: two of four.
    assert amber.score(first, "A man, a dog, a cloud, a boat.") == pytest.approx(
        2 * (2 / 4) * (2 / 5) / (2 / 4 + 2 / 5)
    )
    # Two boats in the list are one thing of the image: it has two.
    assert amber.score(amber.items()[1], "A boat.") == pytest.approx(2 * 1 * (1 / 2) / (1 + 1 / 2))
    assert amber.score(first, "A sign.") == 0
    assert amber.score(first, "A giraffe.") == 0


def test_to_repeat_a_thing_changes_nothing(folder, monkeypatch):
    """ "Lake" nine times and "dog" is no better than "lake, dog": sets of things are compared."""
    entry = {"id": 1, "type": "generative", "truth": ["lake", "boat"], "hallu": []}
    (folder / "annotations.json").write_text(json.dumps([entry]))
    (folder / "query_generative.json").write_text(json.dumps(QUERIES[:1]))
    (folder / "relation.json").write_text(json.dumps({"lake": [], "boat": [], "dog": []}))
    monkeypatch.setattr(english, "has_vectors", lambda: False)
    amber = get_benchmark("amber", folder)
    (item,) = amber.items()
    lakes, once = "A lake. " * 9 + "A dog.", "A lake. A dog."
    assert amber.score(item, lakes) == amber.score(item, once) == pytest.approx(0.5)
    # AMBER's own numbers count mentions, as its script does: one wrong of ten, one of two.
    assert amber.aggregate([item], [lakes])["chair_i"] == pytest.approx(10)
    assert amber.aggregate([item], [once])["chair_i"] == pytest.approx(50)


def test_all_numbers_by_hand(amber):
    responses = ["A man and a dog under a cloud, a cloud and a sign.", "A TV and a boat."]
    result = amber.aggregate(amber.items(), responses)
    first = 2 * (2 / 3) * (2 / 5) / (2 / 3 + 2 / 5)  # a man, a dog and, wrongly, a cloud
    second = 1  # the television and the boat, which its list has twice
    assert result == pytest.approx(
        {
            "f1": 100 * (first + second) / 2,
            "chair_i": 100 * 2 / 7,  # two clouds of seven nouns
            "cover": 100 * 4 / 8,
            "hal": 50,
            "cog": 100 * 2 / 7,  # by nouns
            "cog_official": 100 * 1 / 3,  # by things: the cloud, of cloud, sea and dog
        }
    )


def test_without_vectors_the_note_says_so(amber):
    for _ in range(2):
        amber.aggregate(amber.items(), ["", ""])
    (note,) = amber.notes
    assert note.startswith("word-vector similarity is off: en_core_web")
    assert "python -m spacy download en_core_web_lg" in note


@pytest.fixture
def with_vectors(folder, monkeypatch):
    """AMBER with a model in which boats are like the sea, and the sea like boats and dogs."""
    close = [{"boat", "sea"}, {"television", "dog"}]
    monkeypatch.setattr(english, "has_vectors", lambda: True)
    monkeypatch.setattr(english, "similarity", lambda a, b: 0.9 if {a, b} in close else 0.8)
    return get_benchmark("amber", folder)


def test_with_vectors_a_close_noun_is_right(with_vectors):
    first = with_vectors.items()[0]
    judged = with_vectors.judgement(first, "A television.")
    assert (judged.wrong, judged.covered) == (0, {1})  # close to the dog
    judged = with_vectors.judgement(first, "A boat.")
    assert (judged.wrong, judged.made_up, judged.fooled) == (1, 1, {1})  # close to the sea
    judged = with_vectors.judgement(first, "A cloud.")
    assert (judged.wrong, judged.made_up, judged.fooled) == (1, 1, {0})
    with_vectors.aggregate([first], ["A dog."])
    assert with_vectors.notes[0].startswith("word-vector similarity is on, with the vectors of en_")


def close_by(close, monkeypatch):
    """Similarities of a made-up model: these pairs are close, a word is the same as itself."""
    monkeypatch.setattr(english, "has_vectors", lambda: True)
    monkeypatch.setattr(
        english, "similarity", lambda a, b: 1.0 if a == b else 0.9 if {a, b} in close else 0.1
    )


@pytest.mark.parametrize(
    ("response", "fooled"),
    [
        ("A sea.", {0, 1}),  # its own name, and the cloud that stands before it in the list
        ("A cloud.", {0}),  # the loop ends at its own name: the sea, as close, is never reached
        ("Water.", {1}),  # by association alone
        ("A boat.", {0}),  # close to the cloud alone
        ("A television.", set()),
    ],
)
def test_vectors_are_asked_after_a_literal_hit(folder, monkeypatch, response, fooled):
    """As in the official script; Cog by AMBER's paper counts the noun once all the same."""
    close_by([{"sea", "cloud"}, {"boat", "cloud"}], monkeypatch)
    amber = get_benchmark("amber", folder)
    item = amber.items()[0]  # made up: cloud, sea (or water)
    judged = amber.judgement(item, response)
    assert (judged.fooled, judged.made_up) == (fooled, bool(fooled))
    assert amber.aggregate([item], [response])["cog_official"] == pytest.approx(50 * len(fooled))


def test_generative_queries_are_picked_out_of_all(folder):
    (folder / "query_generative.json").unlink()
    (folder / "query").mkdir()
    every = [*QUERIES, {"id": 1005, "image": "AMBER_1.jpg", "query": "Is the dog on the sea?"}]
    (folder / "query" / "query_all.json").write_text(json.dumps(every))
    (folder / "query" / "query_discriminative.json").write_text(json.dumps(every[2:]))
    amber = get_benchmark("amber", folder)
    amber.check()
    assert [item.id for item in amber.items()] == ["1", "2"]


@pytest.mark.parametrize(
    "name", ["query_generative.json", "annotations.json", "relation.json", "safe_words.txt"]
)
def test_missing_files_are_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(MissingFile, match=f"no file {name} for amber .*junyangwang0410/AMBER"):
        get_benchmark("amber", folder).check()


def test_a_query_without_annotation_is_refused(folder):
    (folder / "annotations.json").write_text(json.dumps(ANNOTATIONS[1:]))
    with pytest.raises(ValueError, match=r"annotations\.json has no id 1"):
        get_benchmark("amber", folder).items()


def test_the_real_files(monkeypatch):
    """As docs/benchmarks.md has them."""
    monkeypatch.setattr(english, "has_vectors", lambda: False)
    amber = get_benchmark("amber", shared("amber"))
    amber.check()
    items = amber.items()
    assert [item.id for item in items] == [str(number) for number in range(1, 1005)]
    assert {item.question for item in items} == {"Describe this image."}
    # A response that lists the truth makes nothing up.
    result = amber.aggregate(items, [_listing(item.truth["truth"]) for item in items])
    assert result["hal"] < 5
    assert result["chair_i"] < 1
    assert (result["cover"], result["f1"]) == pytest.approx((93.2, 96.6), abs=0.05)
    # One that lists what models make up is wrong nearly everywhere.
    result = amber.aggregate(items, [_listing(item.truth["hallu"]) for item in items])
    assert result["hal"] > 95
    assert (result["cog"], result["f1"]) == pytest.approx((91.9, 2.7), abs=0.05)


@pytest.mark.parametrize(("times", "by_mentions"), [(1, 81.43), (3, 85.59)])
def test_sets_beside_mentions_on_the_real_files(monkeypatch, times, by_mentions):
    """As docs/benchmarks.md has them: all that is there, the first so often, and two inventions."""
    monkeypatch.setattr(english, "has_vectors", lambda: False)
    amber = get_benchmark("amber", shared("amber"))
    items = amber.items()
    first = [item.truth["truth"][:1] * times for item in items]
    responses = [
        _listing(own + item.truth["truth"][1:] + item.truth["hallu"][:2])
        for own, item in zip(first, items, strict=True)
    ]
    assert amber.aggregate(items, responses)["f1"] == pytest.approx(80.64, abs=0.01)
    # By mentions: precision 1 - chair_i and recall cover of each response.
    scores = []
    for item, response in zip(items, responses, strict=True):
        judged = amber.judgement(item, response)
        precision, recall = 1 - judged.wrong / judged.kept, len(judged.covered)
        recall /= len(item.truth["truth"])
        scores.append(2 * precision * recall / (precision + recall) if recall else 0)
    assert 100 * sum(scores) / len(scores) == pytest.approx(by_mentions, abs=0.01)


def _listing(things):
    return " ".join(f"There is a {thing}." for thing in things)


def test_an_image_stays_in_the_folder(folder):
    queries = [query | {"image": "../../secret.jpg"} for query in QUERIES]
    (folder / "query_generative.json").write_text(json.dumps(queries))
    item = get_benchmark("amber", folder).items("all")[0]
    with pytest.raises(ValueError, match=r"'\.\./\.\./secret\.jpg' is a path with '\.\.'"):
        _ = item.image
