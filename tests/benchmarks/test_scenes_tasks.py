"""The four tasks' metrics, on cases worked out by hand, and what their items look like."""

from collections import Counter

import pytest

from lookback.benchmarks import GENERATED, Item, get_benchmark
from lookback.benchmarks.scenes import SHORT_HINT
from lookback.scenes.questions import KINDS

VQA, CAPTION, PAIRS, AMBER = (get_benchmark(name) for name in GENERATED)


def item(truth):
    return Item("x", "?", truth, lambda: None)


# vqa


def test_vqa_asks_five_kinds_equally_and_wants_short_answers():
    items = VQA.items()
    assert Counter(i.truth["kind"] for i in items) == dict.fromkeys(
        ("exists", "color", "count", "where", "what"), 200
    )
    assert all(i.question.endswith(SHORT_HINT) for i in items)
    answers = Counter(i.truth["answer"] for i in items)
    assert 80 <= answers["yes"] <= 120
    assert max(answers[c] for c in ("red", "white", "blue")) < 60


def test_vqa_accuracy_and_its_parts():
    items = VQA.items(limit=5)
    right = [i.truth["answer"] for i in items]
    assert VQA.aggregate(items, right)["accuracy"] == 100
    result = VQA.aggregate(items, [*right[:4], "nothing"])
    assert result == {
        "accuracy": 80,
        "accuracy_exists": 100,
        "accuracy_color": 100,
        "accuracy_count": 100,
        "accuracy_where": 100,
        "accuracy_what": 0,
    }


# caption


def test_caption_f1_by_hand():
    it = item({"categories": ["cup", "house", "key"]})
    assert CAPTION.score(it, "A cup, a house and a key.") == 1
    assert CAPTION.score(it, "Two mugs. The mug is red.") == pytest.approx(0.5)  # P 1, R 1/3
    # P = 2/4, R = 2/3
    assert CAPTION.score(it, "A cup, a key, a ball and a hat.") == pytest.approx(4 / 7)
    assert CAPTION.score(it, "There is a cup but no ball.") == pytest.approx(0.5)
    assert CAPTION.score(it, "A ball.") == 0
    assert CAPTION.score(it, "") == 0
    assert CAPTION.score(item({"categories": []}), "A ball.") == 0


def test_caption_chair_by_hand():
    items = [item({"categories": ["cup", "key"]}), item({"categories": ["hat"]})]
    texts = ["A cup and a ball. The ball is red. There is a cup.", "A hat."]
    assert CAPTION.aggregate(items, texts) == pytest.approx(
        {
            "f1": 100 * (0.5 + 1) / 2,
            "precision": 75,
            "recall": 75,
            "chair_i": 40,  # the ball twice among five mentions
            "chair_s": 50,
        }
    )
    nothing = CAPTION.aggregate(items, ["", ""])
    assert set(nothing.values()) == {0}


# amber

THINGS = {
    "things": [
        {"category": "cup", "color": "red", "size": "small", "place": "top left"},
        {"category": "key", "color": "blue", "size": "large", "place": "top right"},
    ]
}  # to be told: 2 objects, 2 colours, 2 sizes


@pytest.mark.parametrize(
    ("text", "precision", "recall"),
    [
        ("A small red cup and a large blue key.", 1, 1),
        ("A cup.", 1, 1 / 6),
        ("A red cup.", 1, 2 / 6),
        ("A blue cup.", 1 / 2, 1 / 6),
        ("A red cup at the top left.", 1, 2 / 6),
        ("A red cup at the center.", 2 / 3, 2 / 6),
        ("The cup is left of the key.", 1, 2 / 6),
        ("The cup is right of the key.", 2 / 3, 2 / 6),
        ("The cup is left of the key. The key is right of the cup.", 1, 2 / 6),
        ("The key is next to the cup.", 2 / 3, 2 / 6),
        ("A large red ball.", 0, 0),
        ("A red cup and a red ball.", 2 / 4, 2 / 6),
        ("A red cup. " * 9 + "A red ball.", 2 / 4, 2 / 6),  # sets: to repeat changes nothing
        ("There is a red cup but no ball.", 1, 2 / 6),
        ("", 0, 0),
    ],
)
def test_amber_by_hand(text, precision, recall):
    assert AMBER.precision_recall(item(THINGS), text) == pytest.approx((precision, recall))
    both = precision + recall
    expected = 2 * precision * recall / both if both else 0
    assert AMBER.score(item(THINGS), text) == pytest.approx(expected)


def test_amber_aggregate():
    result = AMBER.aggregate(
        [item(THINGS)] * 2, ["A small red cup and a large blue key.", "A hat."]
    )
    assert result == {"f1": 50, "precision": 50, "recall": 50, "hal": 50}


# pairs


def test_pairs_are_balanced_and_complete():
    items = list(PAIRS.items())
    assert Counter(i.truth["answer"] for i in items) == {"yes": 500, "no": 500}
    assert Counter(i.truth["edit"] for i in items) == pytest.approx(
        dict.fromkeys(("recolor", "remove", "swap", "move"), 250), abs=4
    )
    for key, members in (("figure", 2), ("question", 2)):
        groups = {}
        for i in items:
            groups.setdefault(i.truth[key], []).append(i)
        assert all(len(g) == members for g in groups.values())
        assert all({i.truth["answer"] for i in g} == {"yes", "no"} for g in groups.values())
        if key == "question":
            assert all(len({i.question for i in g}) == 1 for g in groups.values())
    assert {i.truth["kind"] for i in items} <= set(KINDS)


def test_pairs_show_the_scene_their_truth_speaks_of():
    """The edited picture is another one, and the two questions about a picture see the same one."""
    for first in range(0, 40, 4):
        a, b, c, d = PAIRS.items()[first : first + 4]
        assert a.image.tobytes() == c.image.tobytes() != b.image.tobytes() == d.image.tobytes()


def test_pairs_by_hand():
    items = PAIRS.items(limit=8)
    right = [i.truth["answer"].capitalize() + "." for i in items]
    assert set(PAIRS.aggregate(items, right).values()) == {100}
    always_yes = PAIRS.aggregate(items, ["Yes."] * 8)
    assert always_yes == {"correctness": 50, "aAcc": 50, "fAcc": 0, "qAcc": 0}
    # One answer of eight is unclear: 7/8 answers, 3/4 figures, 3/4 questions.
    unclear = PAIRS.aggregate(items, ["Perhaps.", *right[1:]])
    assert unclear == {"correctness": 87.5, "aAcc": 87.5, "fAcc": 75, "qAcc": 75}


# all


def test_no_two_tasks_share_a_picture():
    pictures = [{i.image.tobytes() for i in get_benchmark(n).items(limit=40)} for n in GENERATED]
    assert len(set().union(*pictures)) == sum(len(p) for p in pictures)
