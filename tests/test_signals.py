"""The record: validation, and the way to Arrow and back."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import make_candidates

from lookback.signals import SIGNALS, Candidates, Signals


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
