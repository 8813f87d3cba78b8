"""The registry, and the rules that every benchmark obeys."""

import json
import pickle

import pytest

from lookback.benchmarks import GENERATED, Item, Items, get_benchmark


@pytest.mark.parametrize("name", GENERATED)
def test_every_benchmark_keeps_the_contract(name):
    benchmark = get_benchmark(name)
    assert benchmark.name == name
    items = benchmark.items("tune", limit=12)
    assert len(items) == 12
    assert len({item.id for item in items}) == 12
    for item in items:
        assert json.loads(json.dumps(item.truth)) == item.truth
        assert item.image.mode == "RGB"
        assert 0 <= benchmark.score(item, "Yes, there is a red cup at the top left.") <= 1
        assert benchmark.score(item, "") == 0
    responses = ["There is a cup."] * 12
    result = benchmark.aggregate(items, responses)
    scores = [benchmark.score(i, r) for i, r in zip(items, responses, strict=True)]
    assert result[benchmark.primary] == pytest.approx(100 * sum(scores) / 12)
    assert all(0 <= value <= 100 for value in result.values())


@pytest.mark.parametrize("name", GENERATED)
def test_splits_have_their_sizes_and_limits(name):
    benchmark = get_benchmark(name)
    assert len(benchmark.items()) == 1000
    assert len(benchmark.items("tune")) >= 300
    assert len(benchmark.items("train")) == 1_000_000
    assert len(benchmark.items("test", limit=5000)) == 1000
    with pytest.raises(ValueError, match="no split named 'dev'; there are: train, tune, test"):
        benchmark.items("dev")
    with pytest.raises(ValueError, match="limit = -1"):
        benchmark.items(limit=-1)
    with pytest.raises(ValueError, match="no items"):
        benchmark.aggregate([], [])
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        benchmark.aggregate(benchmark.items(limit=2), ["one"])


def test_items_are_made_on_access_and_slice_lazily():
    made = []

    def make(index):
        made.append(index)
        return Item(str(index), "?", {}, lambda: None)

    items = Items(range(10**9), make)[5:100:10]
    assert (len(items), made) == (10, [])
    assert items[-1].id == "95"
    assert made == [95]
    with pytest.raises(IndexError):
        items[10]


def test_an_item_survives_pickling():
    item = get_benchmark("scenes-vqa").items("train")[999_999]
    again = pickle.loads(pickle.dumps(item))
    assert (again.id, again.question, again.truth) == (item.id, item.question, item.truth)
    assert again.image.tobytes() == item.image.tobytes()


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match=r"no benchmark named 'coco'; there are: vqav2, .*"):
        get_benchmark("coco")
