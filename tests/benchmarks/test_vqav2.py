"""VQAv2: hand-worked cases of the official rules, of parsing, and of finding files."""

import gzip
import json
import zipfile
from collections import Counter

import pytest
from PIL import Image
from shared_data import shared

from lookback.benchmarks import get_benchmark
from lookback.benchmarks.answers import APOSTROPHES, normalise, parse
from lookback.benchmarks.files import MissingFile
from lookback.benchmarks.vqav2 import VQAv2, agreement, leave_one_out, script_agreement


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("Red", "red"),
        ("  on   the table ", "on table"),
        ("a dog and an owl", "dog and owl"),
        ("two", "2"),
        ("None", "0"),
        ("zero", "0"),
        ("ten", "10"),
        ("eleven", "eleven"),  # number words end at ten
        ("twenty one", "twenty 1"),
        ("yes.", "yes"),
        ("3.5", "3.5"),  # a digit follows the stop
        ("u.s.", "us"),
        ("black-and-white", "black and white"),  # no blank beside the mark: a blank for it
        ("black - and-white", "black andwhite"),  # a blank beside one of them: all go
        ("x/-y-z", "x y z"),  # beside a blank in the answer as given, not as changed so far
        ("-x/y z/ ", "xy z"),  # and of each mark by itself
        ("yes, sir", "yes sir"),
        ("red,white", "red white"),
        ("1,000", "1000"),
        ("1,000-ish", "1000ish"),  # a number with a comma: every mark goes
        ("what?", "what"),
        ("3:30", "3:30"),  # a colon is not among the marks
        ("men's", "men's"),  # nor is an apostrophe
        ("dont know", "don't know"),
        ("couldnt've", "couldn't've"),
        ("couldn'tve", "couldn't've"),
        ("couldntve", "couldntve"),  # one apostrophe is given back, not two
        ("oclock", "o'clock"),
        ("twas", "'twas"),
        ("yall'd've", "y'all'd've"),
        ("shed", "shed"),  # words of their own
        ("its", "its"),
        ("well", "well"),
        ("somebody'd", "somebodyd"),  # the official table has it the wrong way round
    ],
)
def test_official_form(answer, form):
    assert normalise(answer) == form


def test_every_contraction_differs_by_one_apostrophe():
    assert len(APOSTROPHES) == 114
    for short, full in APOSTROPHES.items():
        assert short.replace("'", "") == full.replace("'", "")
        assert full.count("'") - short.count("'") == (-1 if short == "somebody'd" else 1)


@pytest.mark.parametrize(
    ("response", "question", "answer"),
    [
        ("red", "", "red"),
        ("The answer is two.", "How many?", "two"),
        ("Answer: a red car", "", "a red car"),
        ('I think the answer is "stop".', "", "stop"),
        ("It is red.", "What color is it?", "red"),
        ("It's a dog", "", "a dog"),
        ("They're skiing.", "", "skiing"),
        ("The color of the man's shirt is light blue.", "", "light blue"),
        ("This is a photo of a cat", "", "a photo of a cat"),
        ("The sign says stop.", "", "stop"),
        ("It appears to be raining.", "", "raining"),
        ("He is wearing a hat.", "What is he wearing?", "a hat"),
        ("He is sitting.", "Is he sitting or standing?", "sitting"),
        ("There are three dogs in the image.", "How many dogs are there?", "three"),
        ("There are 3 dogs and 2 cats.", "How many animals are there?", "3 dogs and 2 cats"),
        ("There are no people.", "How many people are there?", "0"),
        ("I can see 1,200 people", "How many people?", "1200"),
        ("two dogs", "How many dogs?", "two dogs"),  # no sentence: as it stands
        ("Yes, it is a dog.", "", "Yes"),
        ("No it is not.", "", "No"),
        ("no parking", "", "no parking"),
        ("no one", "", "no one"),
        ("The man is on a beach. He is tired.", "", "on a beach"),
        ("It is wet because it rained.", "", "wet"),
        ("The drink is Dr. Pepper.", "", "Dr. Pepper"),
        ("**two**", "", "two"),
        ("St. Louis", "", "St. Louis"),
        ("", "", ""),
        ("The answer is .", "", "The answer is ."),
    ],
)
def test_answers_are_read_out_of_sentences(response, question, answer):
    assert parse(response, question) == answer


def test_scores_are_thirds_and_official_ones_leave_one_out():
    answers = ["red"] * 2 + ["blue"] * 8
    red, blue, none = (agreement(r, "What color?", answers) for r in ("red", "Blue.", "green"))
    assert (sum(red), sum(blue), sum(none)) == (2, 8, 0)
    # Two of ten: for each of the two one other agrees (1/3), for the eight two do (2/3).
    assert leave_one_out(red) == pytest.approx((2 * 1 / 3 + 8 * 2 / 3) / 10)
    assert leave_one_out(blue) == 1
    assert leave_one_out(none) == 0
    # Three of ten: 2/3 for the three, 1 for the seven.
    assert leave_one_out([True] * 3 + [False] * 7) == pytest.approx(0.9)


def test_people_are_normalised_only_if_they_differ():
    assert sum(agreement("2", "", ["two"] * 9 + ["2"])) == 10
    assert sum(agreement("2", "", ["two"] * 10)) == 0
    assert sum(agreement("two", "", ["two"] * 10)) == 10  # as it stands
    assert sum(agreement("Two.", "", ["2"] * 10)) == 10  # the response is, in any case
    assert sum(agreement("The answer is two.", "", ["2"] * 10)) == 10


@pytest.mark.parametrize(
    ("response", "answers", "script", "ours"),
    [
        ("Yes.", ["yes"] * 10, 0, 10),  # all agree: raw text
        ("yes", ["yes"] * 10, 10, 10),
        (" yes\n", ["yes"] * 10, 10, 10),
        ("Yes.", ["yes"] * 9 + ["no"], 9, 9),  # they differ: all are normalised
        ("none", ["none"] * 4 + ["0"] * 6, 10, 10),  # people's in full: digits
        ("the dog", ["a dog"] * 4 + ["dog."] * 5 + ["cat"], 9, 9),  # articles, punctuation
        ("It is red.", ["red"] * 9 + ["blue"], 0, 9),  # nothing is read out of a sentence
    ],
)
def test_the_script_s_letter_beside_ours(response, answers, script, ours):
    assert sum(script_agreement(response, answers)) == script
    assert sum(agreement(response, "", answers)) == ours


def test_accuracy_script_by_hand(tmp_path):
    benchmark = VQAv2(write(tmp_path))
    items = sorted(benchmark.items(), key=lambda item: item.id)  # two red and eight blue; ten yes
    found = benchmark.aggregate(items, ["Red.", "Yes."])
    # Two of ten: (2 * 1/3 + 8 * 2/3) / 10 = 0.6. "Yes." is not the raw "yes" of all ten.
    assert found["accuracy_script"] == pytest.approx(100 * (0.6 + 0) / 2)
    assert found["accuracy_official"] == pytest.approx(100 * (0.6 + 1) / 2)


def test_a_response_that_somebody_gave_is_not_parsed():
    answers = ["it is cold"] * 4 + ["cold"] * 6
    assert sum(agreement("It is cold.", "", answers)) == 4
    assert sum(agreement("The answer is cold.", "", answers)) == 6


def question(number, image, text):
    return {"question_id": number, "image_id": image, "question": text}


def annotation(number, image, answers, kind="other"):
    people = [{"answer": a, "answer_id": i + 1} for i, a in enumerate(answers)]
    return {"question_id": number, "image_id": image, "answers": people, "answer_type": kind}


QUESTIONS = {
    "questions": [question(420, 42, "What color is the cup?"), question(421, 42, "Is it?")]
}
ANNOTATIONS = {
    "annotations": [
        annotation(421, 42, ["yes"] * 10, "yes/no"),
        annotation(420, 42, ["red"] * 2 + ["blue"] * 8),
    ]
}


OFFICIAL = ("v2_OpenEnded_mscoco_val2014_questions.json", "v2_mscoco_val2014_annotations.json")


def write(folder, questions=OFFICIAL[0], annotations=OFFICIAL[1]):
    for name, data in ((questions, QUESTIONS), (annotations, ANNOTATIONS)):
        text = json.dumps(data)
        if name.endswith(".gz"):
            (folder / name).write_bytes(gzip.compress(text.encode()))
        elif name.endswith(".zip"):
            with zipfile.ZipFile(folder / name, "w") as archive:
                archive.writestr("inside.json", text)
        else:
            (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("questions", "annotations"),
    [
        OFFICIAL,
        ("questions_sample.json.gz", "annotations_sample.json.gz"),
        ("v2_Questions_Val_mscoco.zip", "v2_Annotations_Val_mscoco.zip"),
    ],
)
def test_official_files_are_read_as_downloaded(tmp_path, questions, annotations):
    benchmark = VQAv2(write(tmp_path, questions, annotations))
    items = benchmark.items()
    assert [item.id for item in items] == ["420", "421"]
    assert items[0].question == (
        "What color is the cup?\nAnswer the question using a single word or phrase."
    )
    assert benchmark.score(items[0], "red") == pytest.approx(2 / 3)
    assert benchmark.score(items[0], "") == 0
    assert benchmark.aggregate(items, ["It is red.", "Yes"]) == pytest.approx(
        {
            "accuracy": 100 * (2 / 3 + 1) / 2,
            "accuracy_official": 100 * (0.6 + 1) / 2,
            "accuracy_script": 0,  # a sentence, and "Yes" where all ten say "yes"
            "accuracy_official_other": 60,
            "accuracy_official_yes/no": 100,
        }
    )


def test_of_several_sets_the_validation_set_is_read(tmp_path):
    write(tmp_path)
    for name in (
        "v2_mscoco_train2014_annotations.json",
        "v2_OpenEnded_mscoco_train2014_questions.json",
        "v2_OpenEnded_mscoco_test2015_questions.json",
        "v2_mscoco_val2014_annotations.json.gz",
    ):
        (tmp_path / name).write_text("not read")
    assert len(VQAv2(tmp_path).items("all")) == 2


def test_of_several_unnamed_files_none_is_guessed(tmp_path):
    write(tmp_path, "a_questions.json", "a_annotations.json")
    write(tmp_path, "b_questions.json", "b_annotations.json")
    with pytest.raises(ValueError, match=r"2 annotations files .*a_annotations.json, b_annota"):
        VQAv2(tmp_path).items()


def test_the_image_is_missed_only_when_it_is_loaded(tmp_path):
    item = VQAv2(write(tmp_path)).items()[0]
    with pytest.raises(MissingFile, match=r"COCO_val2014_000000000042.jpg .*MS-COCO"):
        _ = item.image
    for place in ("images", "val2014", "images/val2014", "."):
        (tmp_path / place).mkdir(exist_ok=True, parents=True)
        path = tmp_path / place / "COCO_val2014_000000000042.jpg"
        Image.new("RGB", (3, 2)).save(path)
        assert item.load.path == path
        assert item.image.size == (3, 2)
        path.unlink()


def test_missing_and_wrong_files_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("LOOKBACK_DATA", raising=False)
    with pytest.raises(MissingFile, match=r"--data DIR or LOOKBACK_DATA.*visualqa.org"):
        VQAv2().items()
    with pytest.raises(MissingFile, match=r"no folder '.*nowhere' for vqav2"):
        VQAv2(tmp_path / "nowhere").items()
    with pytest.raises(MissingFile) as missing:
        VQAv2(tmp_path).items()
    for part in ("*annotations*.json", str(tmp_path), "VQA v2.0, visualqa.org"):
        assert part in str(missing.value)
    write(tmp_path)
    path = tmp_path / "v2_mscoco_val2014_annotations.json"
    path.write_text('{"images": []}')
    with pytest.raises(ValueError, match=r"val2014_annotations.json' has no list 'annotations'"):
        VQAv2(tmp_path).items()
    path.write_text('{"annotations": [')
    with pytest.raises(ValueError, match=r"cannot read '.*annotations.json' as JSON"):
        VQAv2(tmp_path).items()
    path.write_text('{"annotations": []}')
    with pytest.raises(ValueError, match="no question of"):
        VQAv2(tmp_path).items()


def test_the_folder_is_given_named_by_the_environment_or_one_above(tmp_path, monkeypatch):
    own = tmp_path / "vqav2"
    own.mkdir()
    write(own)
    for given in (own, tmp_path, str(own)):
        assert len(get_benchmark("vqav2", given).items()) == 2
    monkeypatch.setenv("LOOKBACK_DATA", str(tmp_path))
    assert len(get_benchmark("vqav2").items()) == 2


def test_the_paper_s_sample_depends_on_the_seed_and_not_on_the_order(tmp_path):
    numbers = list(range(1500))

    def drawn(numbers, **options):
        rows = [question(n, n, "?") for n in numbers]
        (tmp_path / "questions.json").write_text(json.dumps({"questions": rows}))
        rows = [annotation(n, n, ["yes"] * 10) for n in numbers]
        (tmp_path / "annotations.json").write_text(json.dumps({"annotations": rows}))
        return [item.id for item in VQAv2(tmp_path).items(**options)]

    first = drawn(numbers)
    assert len(set(first)) == 1000
    assert drawn(numbers[::-1]) == first
    assert drawn(numbers, limit=10) == first[:10]
    assert set(drawn(numbers, seed=1)) != set(first)
    assert drawn(numbers, split="all") == [str(n) for n in numbers]
    assert drawn(numbers[:7]) == [str(n) for n in numbers[:7]]
    with pytest.raises(ValueError, match="no split named 'val'; there are: test, all"):
        drawn(numbers, split="val")
    with pytest.raises(ValueError, match="limit = -1"):
        drawn(numbers, limit=-1)


def test_real_answers_are_as_right_in_a_sentence_as_bare():
    benchmark = VQAv2(shared("vqav2"))
    items = benchmark.items("all")
    assert len(items) == 2962
    common = [Counter(item.truth["answers"]).most_common(1)[0][0] for item in items]
    bare = benchmark.aggregate(items, common)
    assert bare["accuracy"] == pytest.approx(97.70, abs=0.01)
    assert bare["accuracy_official"] == pytest.approx(96.73, abs=0.01)
    assert bare["accuracy_script"] == pytest.approx(bare["accuracy_official"])
    said = benchmark.aggregate(items, [f"The answer is {a}." for a in common])
    assert said == pytest.approx(bare | {"accuracy_script": 0}, abs=0.1)
    # All ten agree on 1,060 of these questions: there the script wants the very letters.
    stopped = benchmark.aggregate(items, [f"{a}." for a in common])
    assert stopped == pytest.approx(bare | {"accuracy_script": 60.95}, abs=0.01)
