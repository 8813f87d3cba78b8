"""CHAIR: its truths, its numbers by hand, and published ones on real captions."""

import gzip
import json
import pickle

import pytest
from shared_data import json_lines, shared

from lookback.benchmarks import get_benchmark
from lookback.benchmarks.files import MissingFile

OBJECTS = {"1": ["dog", "person"], "2": ["cup", "dining table", "fork"], "30": ["train"]}
RESPONSES = {
    "1": "A man walks two dogs. A dog runs past a car.",  # 3 right mentions, 1 wrong
    "2": "A cup on the table.",
    "30": "Nothing to be seen.",
}


@pytest.fixture
def ready(tmp_path):
    (tmp_path / "ground_truth_objects.json").write_text(json.dumps(OBJECTS))
    return tmp_path


@pytest.fixture
def coco(tmp_path):
    instances = {
        "images": [{"id": 7}, {"id": 5}],
        "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
        "annotations": [
            {"image_id": 7, "category_id": 18},
            {"image_id": 7, "category_id": 18},
            {"image_id": 7, "category_id": 1},
        ],
    }
    captions = {
        "annotations": [
            {"image_id": 7, "caption": "A man feeds a dog a Hot Dog."},
            {"image_id": 7, "caption": "Somebody on a toilet seat."},
            {"image_id": 5, "caption": "Two giraffes."},
        ]
    }
    (tmp_path / "instances_val2014.json").write_text(json.dumps(instances))
    (tmp_path / "captions_val2014.json").write_text(json.dumps(captions))
    return tmp_path


def test_items_of_a_ready_file(ready):
    items = get_benchmark("chair", ready).items()
    assert [item.id for item in items] == ["1", "2", "30"]
    assert {item.question for item in items} == {"Please describe this image in detail."}
    assert items[0].truth["objects"] == ["dog", "person"]
    assert pickle.loads(pickle.dumps(items[0])) == items[0]
    with pytest.raises(MissingFile, match=r"COCO_val2014_000000000001\.jpg"):
        _ = items[0].image


def test_a_response_by_hand(ready):
    chair = get_benchmark("chair", ready)
    first, second, third = chair.items()
    assert chair.read(RESPONSES["1"]).mentions == ["person", "dog", "dog", "car"]
    # Sets: {person, dog, car} against {person, dog}: precision 2/3, recall 1
    assert chair.score(first, RESPONSES["1"]) == pytest.approx(0.8)
    # {cup, dining table} against three: precision 1, recall 2/3
    assert chair.score(second, RESPONSES["2"]) == pytest.approx(0.8)
    assert chair.score(third, RESPONSES["30"]) == 0
    assert chair.score(third, "") == 0
    assert chair.score(third, "Two trains on a train track.") == 1


def test_all_numbers_by_hand(ready):
    chair = get_benchmark("chair", ready)
    result = chair.aggregate(chair.items(), list(RESPONSES.values()))
    assert result == pytest.approx(
        {
            "f1": 100 * (0.8 + 0.8 + 0) / 3,
            "chair_s": 100 / 3,  # one response of three
            "chair_i": 100 / 6,  # one mention of six
            "recall": 100 * 4 / 6,  # of all objects together
            "length": (11 + 5 + 4) / 3,  # words, without punctuation
        }
    )
    assert chair.notes == []


def test_empty_denominators_count_0(tmp_path):
    (tmp_path / "ground_truth_objects.json").write_text('{"4": []}')
    chair = get_benchmark("chair", tmp_path)
    for response in ("", "Hello."):
        result = chair.aggregate(chair.items(), [response])
        assert [result[key] for key in ("f1", "chair_s", "chair_i", "recall")] == [0, 0, 0, 0]


def test_truth_of_coco_is_instances_united_with_captions(coco):
    chair = get_benchmark("chair", coco)
    first, second = chair.items("all")
    assert (first.id, second.id) == ("5", "7")
    assert json.loads(json.dumps(second.truth)) == second.truth
    assert chair.objects(first) == {"giraffe"}
    assert chair.objects(second) == {"dog", "person", "hot dog", "toilet"}
    result = chair.aggregate([first, second], ["A giraffe.", "A dog on a chair."])
    assert result["chair_s"] == 50
    assert result["chair_i"] == pytest.approx(100 / 3)


def test_coco_files_are_found_in_their_folder_and_packed(coco, tmp_path_factory):
    other = tmp_path_factory.mktemp("chair")
    (other / "annotations").mkdir()
    for name in ("instances_val2014.json", "captions_val2014.json"):
        (other / "annotations" / name).write_bytes((coco / name).read_bytes())
    assert len(get_benchmark("chair", other).items("all")) == 2
    for path in list((other / "annotations").iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    chair = get_benchmark("chair", other)
    chair.check()
    assert len(chair.items("all")) == 2


def test_a_train_subset_has_images_of_train(coco):
    for kind in ("instances", "captions"):
        (coco / f"{kind}_val2014.json").rename(coco / f"{kind}_train2014.json")
    item = get_benchmark("chair", coco).items("all")[0]
    assert "train2014/COCO_train2014_000000000005.jpg" in item.load.candidates


def test_missing_files_are_named(coco):
    (coco / "captions_val2014.json").unlink()
    chair = get_benchmark("chair", coco)
    with pytest.raises(MissingFile, match=r"no file captions_val2014\.json .*cocodataset\.org"):
        chair.check()
    (coco / "instances_val2014.json").unlink()
    with pytest.raises(MissingFile, match=r"no file instances_val2014\.json .*cocodataset\.org"):
        chair.items()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"1": ["dog", "hat"]}', "image 1: 'hat' is not one of COCO's 80 categories"),
        ('{"one": ["dog"]}', "'one' is not COCO's number of an image"),
        ("[", "cannot read .* as JSON"),
    ],
)
def test_a_broken_ready_file_is_refused(tmp_path, content, message):
    (tmp_path / "ground_truth_objects.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        get_benchmark("chair", tmp_path).items()


def test_original_synonyms_are_used_if_given_or_there_and_said_so(ready, tmp_path_factory):
    path = tmp_path_factory.mktemp("elsewhere") / "words.txt"
    path.write_text("dog, wolf\nperson, man\n")
    chair = get_benchmark("chair", ready, synonyms=path)
    assert chair.read("A wolf and a puppy.").mentions == ["dog"]
    assert chair.notes == [f"objects by the words of {str(path)!r}"]
    (ready / "synonyms.txt").write_text("dog, fox\n")
    chair = get_benchmark("chair", ready)
    assert chair.read("A fox and a puppy.").mentions == ["dog"]
    assert "synonyms.txt" in chair.notes[0]


def test_the_paper_samples_1000_images(tmp_path):
    objects = {str(number): ["dog"] for number in range(1200)}
    (tmp_path / "ground_truth_objects.json").write_text(json.dumps(objects))
    chair = get_benchmark("chair", tmp_path)
    assert len(chair.items("test")) == 1000
    assert len(chair.items("all")) == 1200


PUBLISHED = [  # OPERA, Huang et al., CVPR 2024
    ("llava-1.5_greedy", {"chair_s": 45.0}),
    ("llava-1.5_beam5", {"chair_s": 48.8, "chair_i": 13.9}),
    ("minigpt4_greedy", {"chair_s": 31.8}),
]


@pytest.mark.parametrize(("name", "published"), PUBLISHED)
@pytest.mark.parametrize("original", [False, True])
def test_published_values_on_real_captions(tmp_path, name, published, original):
    folder = shared("chair")
    (tmp_path / "ground_truth_objects.json").write_bytes(
        (folder / "ground_truth_objects.json").read_bytes()
    )
    chair = get_benchmark("chair", tmp_path, synonyms=folder / "synonyms.txt" if original else None)
    captions = {
        str(row["image_id"]): row["caption"]
        for row in json_lines(folder / f"captions_{name}.jsonl")
    }
    items = chair.items("all")
    assert len(items) == len(captions) == 500
    result = chair.aggregate(items, [captions[item.id] for item in items])
    for key, value in published.items():
        assert result[key] == pytest.approx(value, abs=0.5)
