"""The record: validation, and the way to Arrow and back."""

import copy
import json
import pickle
import threading
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import make_candidates

from lookback.conversations import Conversation
from lookback.signals import SIGNALS, Asked, Candidates, Signals, Top


def test_every_signal_has_one_value_a_token():
    with pytest.raises(ValueError, match="entropy has 1 values for 2 tokens"):
        Signals([1, 2], ["a", "b"], [-1, -1], [0, 0], [0, 0], [0])
    with pytest.raises(ValueError, match=r"lookback\[1\] = nan"):
        Signals([1, 2], ["a", "b"], [-1, -1], [0, np.nan], [0, 0], [0, 0])


def test_arrays_cannot_be_changed():
    signals = make_candidates()[0].signals
    with pytest.raises(ValueError, match="read-only"):
        signals.log_prob[0] = 0


def test_arrow_round_trip_through_parquet(tmp_path):
    cands = make_candidates(lengths=(3, 0, 2))
    pq.write_table(cands.to_arrow(), tmp_path / "c.parquet")
    back = Candidates.from_arrow(pq.read_table(tmp_path / "c.parquet"))
    assert (back.question, back.model, back.defaults) == ("what?", "m", cands.defaults)
    assert back.prompt_ids.tolist() == cands.prompt_ids.tolist()
    for a, b in zip(cands, back, strict=True):
        assert (a.index, a.text, a.finish, a.tokens) == (b.index, b.text, b.finish, b.tokens)
        for name in ("token_ids", *SIGNALS):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def with_layers(cands, layers=3):
    """The candidates with made-up signals by layer."""
    rng = np.random.default_rng(1)
    return replace(
        cands,
        items=[
            replace(c, signals=replace(c.signals, by_layer=rng.random((len(c.tokens), layers))))
            for c in cands
        ],
    )


def test_signals_by_layer_are_shares_of_each_token_and_layer():
    def signals(by_layer):
        return Signals([1, 2], ["a", "b"], [-1, -1], [0, 0], [0, 0], [0, 0], by_layer)

    assert signals(None).by_layer is None
    found = signals([[0, 1, 0.5], [0.25, 1, 0]]).by_layer
    assert (found.shape, found.dtype, found.flags.writeable) == ((2, 3), np.float32, False)
    for shape in ([0.5, 0.5], [[0.5, 0.5]], [[], []], [[[0.5]], [[0.5]]]):
        with pytest.raises(
            ValueError, match=r"by_layer has the shape .* for 2 tokens.*\(2, layers"
        ):
            signals(shape)
    for ragged in ([[0.5], [0.5, 0.5]], [["a"], ["b"]]):
        with pytest.raises(ValueError, match="by_layer is no table of numbers"):
            signals(ragged)
    for wrong in (np.nan, np.inf, -0.1, 1.1):
        with pytest.raises(ValueError, match=r"by_layer\[1, 0\] = .*: a share of attention"):
            signals([[0.5, 0.5], [wrong, 0.5]])


def test_signals_by_layer_go_through_arrow_json_and_pandas(tmp_path):
    cands = with_layers(make_candidates(lengths=(3, 0, 2)))
    pq.write_table(cands.to_arrow(), tmp_path / "c.parquet")
    for table in (cands.to_arrow(), pq.read_table(tmp_path / "c.parquet")):
        back = Candidates.from_arrow(table)
        for a, b in zip(cands, back, strict=True):
            np.testing.assert_array_equal(a.by_layer, b.by_layer)  # (0, 3) of the empty one too
    spoken = json.loads(json.dumps(cands.to_dict()))["candidates"]
    np.testing.assert_array_equal(np.float32(spoken[2]["by_layer"]), cands[2].by_layer)
    frame = cands.to_pandas()
    np.testing.assert_array_equal(np.stack(frame["by_layer"][2]), cands[2].by_layer)


def test_without_signals_by_layer_nothing_speaks_of_them():
    cands = make_candidates()
    assert "by_layer" not in cands.to_arrow().column_names
    assert all("by_layer" not in one for one in cands.to_dict()["candidates"])
    assert {c.by_layer for c in Candidates.from_arrow(cands.to_arrow())} == {None}


def test_some_candidates_may_have_no_signals_by_layer():
    cands = make_candidates(lengths=(3, 2))
    mixed = replace(cands, items=[cands[0], with_layers(cands)[1]])
    back = Candidates.from_arrow(mixed.to_arrow())
    assert back[0].by_layer is None
    np.testing.assert_array_equal(back[1].by_layer, mixed[1].by_layer)


def test_a_foreign_table_is_refused():
    table = make_candidates().to_arrow().replace_schema_metadata({})
    with pytest.raises(ValueError, match="to_arrow"):
        Candidates.from_arrow(table)


def test_pandas_and_json():
    cands = make_candidates()
    frame = cands.to_pandas()
    assert list(frame["text"]) == ["text 0", "text 1", "text 2"]
    assert len(frame["visual_lookback"][2]) == 5
    data = json.loads(json.dumps(cands.to_dict()))
    assert data["candidates"][2]["token_ids"] == cands[2].token_ids.tolist()


def test_a_slice_is_candidates_again():
    head = make_candidates()[:2]
    assert isinstance(head, Candidates)
    assert [c.index for c in head] == [0, 1]


COPIES = {
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
def test_candidates_are_pickled_and_copied_whole_and_read_only(way):
    """Whatever engine they are from: a lock stands for what cannot be pickled."""
    made = with_layers(make_candidates(lengths=(3, 0, 2)))
    top = Top([[1, 2]] * 3, [["a", "b"]] * 3, [[-1.0, -2.0]] * 3)
    first = replace(made[0], signals=replace(made[0].signals, top=top), score=0.5)
    asked = Asked(threading.Lock(), Conversation.of(None, "what?"))
    made = replace(made, items=(first, *made.items[1:]), sampling={"seed": 1}, asked=asked)
    found = COPIES[way](made)
    assert found.to_dict() == made.to_dict()
    assert found.to_arrow() == made.to_arrow()
    assert found[0].top.log_prob.tolist() == top.log_prob.tolist()
    assert found.asked is (None if way == "pickle" else asked)
    arrays = [found.prompt_ids, found[0].top.token_ids, found[0].by_layer, found[0].log_prob]
    assert not any(array.flags.writeable for array in arrays)


def test_what_needs_the_engine_says_that_a_pickle_has_none():
    asked = Asked(threading.Lock(), Conversation.of(None, "what?"))
    found = pickle.loads(pickle.dumps(replace(make_candidates(), asked=asked)))
    assert len(found.rank("lookback")) == 3
    with pytest.raises(ValueError, match=r"'vauq'.*engine"):
        found.rank("vauq")
