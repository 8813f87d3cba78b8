"""Generated text: every statement is true of its scene, by the tasks' own parser."""

import re
from collections import Counter
from itertools import product

import pytest
from benchmarks.statements import holds, meant, relation_holds

from lookback.scenes.facts import matches, verdict
from lookback.scenes.parse import parse
from lookback.scenes.questions import KINDS, QUESTIONS, listed, reference
from lookback.scenes.world import CATEGORIES
from tools.training.answers import (
    ANSWERS,
    REASONED,
    SHORT_ANSWERS,
    SHORT_REASONED,
    true_answer,
)
from tools.training.describe import (
    BRIEF,
    DETAILED,
    MAX_SENTENCES,
    OPENINGS,
    describe,
)
from tools.training.texts import (
    KIND_WEIGHTS,
    SHORT_HINT,
    about_absent,
    reasoned_texts,
    training_rng,
    training_scene,
    training_texts,
)

YES_NO = {"is_color", "exists", "is_count", "is_at", "is_related"}


def assert_true(text, scene, unnamed=None):
    """All that the text says holds; what it leaves unnamed is of the category asked about."""
    parsed = parse(text)
    for mention in parsed.mentions:
        mention.category = mention.category or unnamed
        assert holds(mention, scene.things), (text, mention, scene.truth())
    for relation in parsed.relations:
        assert relation_holds(relation, scene.things), (text, relation, scene.truth())
    return parsed


@pytest.mark.parametrize("style", [BRIEF, DETAILED])
def test_descriptions_are_true_and_understood(style):
    relations = places = 0
    for i in range(800):
        scene = training_scene(i)
        text = describe(scene, training_rng(i), style)
        parsed = assert_true(text, scene)
        assert parsed.mentions
        assert 1 <= text.count(".") <= MAX_SENTENCES
        relations += len(parsed.relations)
        places += sum(bool(m.said.get("place")) for m in parsed.mentions)
    assert relations > 150
    assert places > 600


def test_the_check_itself_finds_lies():
    """Exchange one word of a true description: the parser must nearly always object."""
    caught = total = 0
    for i in range(300):
        scene = training_scene(i)
        text = describe(scene, training_rng(i), DETAILED)
        colors = re.findall("red|blue|green|yellow|white|brown|purple|orange", text)
        if not colors:
            continue
        wrong = {"red": "blue"}.get(colors[0], "red")
        lie = text.replace(colors[0], wrong, 1)
        total += 1
        caught += not all(holds(m, scene.things) for m in parse(lie).mentions)
    assert caught > 0.95 * total


def question_agrees(question, scene):
    """Whether the question, read as a statement or a description, has the stated answer."""
    truth, parsed = question.truth, parse(question.text)
    if question.kind in YES_NO:
        said = all(holds(m, scene.things) for m in parsed.mentions)
        said = said and all(relation_holds(r, scene.things) for r in parsed.relations)
        return said == (truth["answer"] == "yes")
    if question.kind == "count":
        return len(scene.of(truth["about"]["category"])) == int(truth["answer"])
    if question.kind == "what":
        (place,) = {p for m in parsed.mentions for p in m.said["place"]}
        (thing,) = [t for t in scene.things if t.place == place]
        return thing.category == truth["answer"]
    mention = next(m for m in parsed.mentions if m.category)
    if question.kind == "size":
        mention.said.pop("size", None)  # "small or large?"
    (thing,) = meant(mention, scene.things)
    attribute = {"where": "place"}.get(question.kind, question.kind)
    return getattr(thing, attribute) == truth["answer"]


@pytest.mark.parametrize("kind", KINDS)
def test_questions_and_all_forms_of_their_answers_are_true(kind):
    asked = Counter()
    for i in range(250):
        scene, rng = training_scene(i), training_rng(i)
        question = KINDS[kind](scene, rng)
        if question is None:
            continue
        answer = question.truth["answer"]
        asked[answer] += 1
        assert question_agrees(question, scene), (question, scene.truth())
        for short, reasoned in product((True, False), (True, False)):
            text = true_answer(question, rng, short, reasoned)
            about = question.truth.get("about") or question.truth.get("claim") or {}
            assert_true(text, scene, unnamed=about.get("category"))
            if kind in YES_NO:
                last = text.endswith(f", so {answer}.")
                assert last if reasoned else text.startswith(answer.capitalize())
                if kind != "is_related":
                    assert verdict(text, question.truth) is (answer == "yes"), (text, question)
            else:
                assert matches(text, question.truth), (text, question)
    assert sum(asked.values()) > 150
    if kind in YES_NO:
        assert asked["yes"] / sum(asked.values()) == pytest.approx(0.5, abs=0.12)


def test_tables_have_a_row_for_every_kind():
    answers = {k for k in KINDS if k not in YES_NO} | {
        f"{k} {a}" for k in YES_NO for a in ("yes", "no")
    }
    assert set(QUESTIONS) == set(KIND_WEIGHTS) == set(KINDS)
    assert set(ANSWERS) == set(SHORT_ANSWERS) == answers
    assert set(REASONED) == set(SHORT_REASONED) == set(YES_NO)
    assert len(OPENINGS) >= 10
    assert sum(KIND_WEIGHTS.values()) == pytest.approx(1)


def test_training_texts_mix_forms_and_stay_in_a_small_clean_vocabulary():
    words, answers, hints, where = Counter(), [], 0, 0
    for i in range(600):
        texts = training_texts(training_scene(i), training_rng(i))
        assert 3 <= len(texts) <= 7
        for question, answer in texts:
            assert question[0].isupper()
            assert answer[0].isupper()
            assert question[-1] in "?."
            assert answer[-1] == "."
            assert re.fullmatch(r"[A-Za-z ,.?]+", question + answer)
            words.update(re.findall("[a-z]+", f"{question} {answer}".lower()))
            hints += SHORT_HINT in question
            where += question.startswith(("Where", "What is at", "What is in the ", "Which thing"))
            answers.append(answer)
    assert 100 < len(words) < 180
    short = sum(len(a.split()) <= 3 for a in answers) / len(answers)
    assert 0.3 < short < 0.6
    assert 0.25 < hints / len(answers) < 0.45
    assert len(answers) > 6.5 * 600
    assert where / 600 > 1


def test_reasoned_texts_are_yes_no_questions_whose_answer_follows_from_itself():
    said = Counter()
    for i in range(40):
        texts = reasoned_texts(training_scene(i), training_rng(i), 8)
        assert 4 <= len(texts) <= 8
        assert len({question for question, _ in texts}) > 2
        said.update(answer.rsplit(", so ", 1)[1] for _, answer in texts)
    assert set(said) == {"yes.", "no."}
    assert said["yes."] / said.total() == pytest.approx(0.45, abs=0.12)


def test_questions_about_absent_things_say_so():
    for i in range(60):
        scene, rng = training_scene(i), training_rng(i)
        question, answer = about_absent(scene, rng, short=False)
        (category,) = [c for c in CATEGORIES if re.search(rf"\b{c}\b", question)]
        assert not scene.of(category)
        assert_true(answer, scene)
        assert category in answer
        assert about_absent(scene, rng, short=True)[1] in ("None.", "There is none.")


def test_other_epochs_tell_other_things():
    scene = training_scene(3)
    first, second = (training_texts(scene, training_rng(3, epoch)) for epoch in (0, 1))
    assert first != second
    assert first == training_texts(scene, training_rng(3, 0))


def test_references_are_unambiguous():
    for i in range(300):
        scene = training_scene(i)
        for thing in scene.things:
            words = reference(thing, scene)
            if words:
                (mention,) = parse(f"the {words}").mentions
                assert meant(mention, scene.things) == [thing]


def test_lists():
    assert listed(["a cup"]) == "a cup"
    assert listed(["a cup", "a key"]) == "a cup and a key"
    assert listed(["a cup", "a key", "a hat"]) == "a cup, a key and a hat"
