"""Memory is counted: tensors while they are alive."""

import torch

from lookback.engines.transformers.check import PeakMemory


def test_tensors_count_while_they_are_alive():
    with PeakMemory() as memory:
        one = torch.zeros(1000)
        two = one + 1
        three = two * 2
        assert memory.peak == 12000
        del two
        four = torch.zeros(500)[10:]  # a view keeps all of it
        assert memory.peak == 12000
        torch.zeros(1000)
        assert memory.peak == 14000
        del one, three, four
        torch.zeros(3000).add_(1)
        assert memory.peak == 14000


def test_what_was_there_before_does_not_count():
    given = torch.zeros(1000)
    with PeakMemory() as memory:
        given.view(10, 100).add_(1)
        assert memory.peak == 0


def test_a_storage_counts_once():
    """However many tensors of it an operation returns."""
    memory, tensor = PeakMemory(), torch.empty(10)
    memory._count(tensor)
    memory._count(tensor.view(2, 5))
    assert memory.peak == 40
    del tensor
    memory._count(torch.empty(5))
    assert memory.peak == 40
