"""tools/budget.py: what it counts, what it keeps, and the numbers of its table."""

import json

import numpy as np
import pytest
from made_runs import make_run

import lookback
from lookback.benchmarks.base import get_benchmark
from tools import budget
from tools.budget_table import result_of


@pytest.fixture(scope="module")
def lb():
    return lookback.load(quiet=True)


@pytest.fixture(scope="module")
def item():
    return get_benchmark("scenes-caption").items("test", 1)[0]


def test_one_beam_is_greedy_decoding_and_every_token_is_counted(lb, item):
    texts, tokens = budget._beam(lb, 1, item)
    (wanted,) = lb.generate(item.image, item.question, max_new_tokens=budget.TOKENS)
    assert set(texts.values()) == {wanted}
    greedy = lb.sample(item.image, item.question, 1, temperature=0, max_new_tokens=budget.TOKENS)
    assert greedy[0].text == wanted
    assert tokens == len(greedy[0].tokens) + 1  # its end token


def test_beams_decode_a_token_each_in_every_step(lb, item):
    _, tokens = budget._beam(lb, 3, item)
    assert tokens % 3 == 0
    assert 3 < tokens <= 3 * budget.TOKENS


def test_a_whole_draw_and_a_steered_one_count_alike(lb, item):
    settings = {"max_new_tokens": 30, "seed": 3}
    whole = lb.sample(item.image, item.question, 4, **settings)
    never = lb.sample(item.image, item.question, 4, **settings, prune=[(29, 4)])
    assert budget.tokens_of(whole) == budget.tokens_of(never)
    assert "tokens_drawn" not in whole.sampling


def test_lines_of_one_item_are_joined_and_those_of_other_code_left_out(tmp_path):
    file = tmp_path / "search.jsonl"
    assert budget.rows_of(file) == []
    row = {"task": "t", "id": "1", "code": budget.code(), "methods": {"a": 1}}
    lines = [row, row | {"methods": {"b": 2}}, row | {"id": "2", "code": "other"}]
    whole = "".join(json.dumps(line) + "\n" for line in lines)
    file.write_text(whole + '{"task": "t", "id": "3", "co')
    assert budget.rows_of(file) == [{"task": "t", "id": "1", "methods": {"a": 1, "b": 2}}]
    assert file.read_text() == whole  # the half line is cut off


def test_other_weights_measure_anew(monkeypatch):
    before = budget.code()
    monkeypatch.setattr(budget, "fingerprint", lambda folder: "others")
    assert budget.code() != before


def test_the_table_by_a_plain_loop(tmp_path):
    run = make_run(tmp_path / "scenes-caption", items=6, n=4)
    rng = np.random.default_rng(1)
    names = ("best of 25", "prune 16:12,32:6", "search lookback 5/16", "beam 5")
    rows = [
        {
            "task": "scenes-caption",
            "id": name,
            "methods": {
                method: {
                    "tokens": int(rng.integers(1, 40)),
                    "seconds": float(rng.uniform(1, 2)),
                    "quality": {"lookback": float(rng.random())},
                }
                for method in names
            },
        }
        for name in run.ids[4:0:-1]  # not all of the run's, in another order
    ]
    result = result_of(rows, tmp_path, "best of 25")
    assert [row["method"] for row in result.rows] == list(names)
    drawn = run.grid((run.lengths + 1).astype(float))[1:5]
    scores, quality = run.scores("lookback")[1:5], 100 * run.quality()[1:5]
    for row in result.rows:
        told = [one["methods"][row["method"]] for one in rows[::-1]]
        values = [100 * one["quality"]["lookback"] for one in told]
        tokens = np.mean([one["tokens"] for one in told])
        assert (row["items"], row["value"]) == (4, pytest.approx(np.mean(values)))
        assert row["tokens"] == pytest.approx(tokens)
        assert row["share"] == pytest.approx(tokens / drawn.sum(1).mean())
        costs = [drawn[:, :n].sum(1).mean() for n in range(1, 5)]
        same = next((n for n, cost in enumerate(costs, 1) if cost >= tokens), 4)
        assert row["same_tokens_n"] == same
        for key, n in (("over_all", 4), ("over_same", same)):
            other = [q[s[:n].argmax()] for q, s in zip(quality, scores, strict=True)]
            assert row[key] == pytest.approx(np.mean(np.array(values) - other))
            assert row[f"{key}_low"] <= row[key] <= row[f"{key}_high"]
        full = [one["methods"]["best of 25"]["seconds"] for one in rows[::-1]]
        ratios = [one["seconds"] / base for one, base in zip(told, full, strict=True)]
        assert row["time"] == pytest.approx(np.median(ratios))
    assert [line[0] for line in result.tables[0].rows][1:] == [
        "Pruned, 16:12,32:6",
        "Search by LookBack, every 16",
        "Beam search, 5 beams",
    ]
    assert result.figure is not None


def test_items_that_a_run_has_not_are_named(tmp_path):
    make_run(tmp_path / "scenes-caption", items=2, n=2)
    rows = [{"task": "scenes-caption", "id": "scenes-caption/test/9", "methods": {}}]
    with pytest.raises(ValueError, match="has not the item scenes-caption/test/9"):
        result_of(rows, tmp_path, "best of 25")
