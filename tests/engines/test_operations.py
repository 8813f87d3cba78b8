"""What a step costs in operations: exact numbers, the same on every machine, as in `make bench`."""

import sys
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def counts():
    sys.path.insert(0, str(BENCH))
    try:
        import midsize
        import operations
    finally:
        sys.path.remove(str(BENCH))
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = midsize.build(64).to(dtype)
        inputs = midsize.prompt(model)
        inputs["pixel_values"] = inputs["pixel_values"].to(dtype)
        bare = operations.bare(model, inputs)
        found[dtype] = {"bare": bare, "ours": operations.ours(model, inputs)}
        found[dtype]["without the tap"] = operations.ours(model, inputs, tap=False)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_is_at_most_half_as_much_again(counts, dtype):
    assert counts[dtype]["ours"] <= 1.5 * counts[dtype]["bare"]


def test_the_tap_is_a_few_operations_per_layer(counts):
    one = counts[torch.float32]
    assert 0 < one["ours"] - one["without the tap"] <= 12 * 7
