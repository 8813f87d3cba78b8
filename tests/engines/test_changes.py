"""Changes of a model, as far as they are cheap to see (more of them in test_prefixes.py)."""

import pytest
import torch

from lookback.engines.transformers.decoding.model_changes import ChangeDetector


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


def test_the_last_numbers_of_a_tensor_are_read_too():
    layer = torch.nn.Linear(300, 700, bias=False)
    changes = ChangeDetector(layer)
    layer.weight.data[-1] += 1
    assert changes.changed()


def test_not_always_the_same_columns_are_read():
    """Of 61 rows of 20, runs of 16 that begin every 80 numbers would miss the last columns."""
    layer = torch.nn.Linear(20, 61, bias=False)
    changes = ChangeDetector(layer)
    layer.weight.data[:, 18] += 1
    assert changes.changed()


class Doubled(torch.nn.Linear):
    """The same weights, used in another way."""


CHANGES = {
    "a hook before a module": lambda layer: layer.register_forward_pre_hook(print),
    "a hook after a module": lambda layer: layer.register_forward_hook(print),
    "training mode of a part": lambda model: model.part.train(),
    "another class": lambda model: setattr(model, "__class__", Doubled),
    "a set": lambda model: model.chosen.add("two"),
    "a tuple": lambda model: setattr(model, "sizes", (1, 3)),
    "a name in a dict": lambda model: model.named.update(two=1),
    "a number in a list in a dict": lambda model: model.nested["one"].append(2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_module_holds_beside_weights_is_seen(change):
    model = torch.nn.Linear(4, 4)
    model.part = torch.nn.Dropout()
    model.eval()
    model.chosen, model.sizes, model.named, model.nested = {"one"}, (1, 2), {}, {"one": [1]}
    changes = ChangeDetector(model)
    assert not changes.changed()
    CHANGES[change](model)
    assert changes.changed()
    assert not changes.changed()
