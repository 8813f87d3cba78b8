"""Changes of a model, as far as they are cheap to see (more of them in test_prefixes.py)."""

import torch

from lookback.engines.transformers.changes import ChangeDetector


def test_changes_are_seen_in_weights_that_torch_does_not_count():
    """Made for inference, of several types, not in one piece, or not there at all."""
    with torch.inference_mode():
        layer = torch.nn.Linear(40, 40)
    layer.bits = torch.nn.Buffer(torch.zeros(3, dtype=torch.bool))
    layer.turned = torch.nn.Parameter(torch.randn(30, 40).T)
    layer.away = torch.nn.Parameter(torch.empty(3, device="meta"))
    layer.odd = torch.nn.Parameter(torch.full((2,), torch.nan))
    changes = ChangeDetector(layer)
    assert not changes.changed()
    for tensor in (layer.weight, layer.bias, layer.turned, layer.odd):
        tensor.data.zero_()
        assert changes.changed()
        assert not changes.changed()
    layer.bits.data.fill_(True)
    assert changes.changed()
    layer.register_parameter("more", None)
    assert not changes.changed()


def test_a_tensor_that_takes_the_place_of_another_is_seen():
    """Alike in everything, numbers too: what is compared is whether it is the same one."""
    layer = torch.nn.Linear(4, 4)
    changes = ChangeDetector(layer)
    layer.weight = torch.nn.Parameter(layer.weight.detach())
    assert changes.changed()
    assert not changes.changed()


def test_few_numbers_of_many_are_read_from_all_over_a_tensor():
    layer = torch.nn.Linear(300, 700, bias=False)
    changes = ChangeDetector(layer)
    for row in range(0, 700, 50):
        layer.weight.data[row : row + 50] += 1
        assert changes.changed()
