"""A step on a GPU: no answer is waited for, and indices lie where they point.

On tensors without data, of a device that only pretends to be one: to read one of them, or to mix
those of two devices, is an error. Run by test_no_waiting.py, in a process of its own.
"""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from transformers import LlamaConfig, LlamaForCausalLM

from lookback.engines.common import logits
from lookback.engines.common.compat import DynamicLayer
from lookback.engines.common.continuations import stack_signals
from lookback.engines.transformers.attention import kernels, partial
from lookback.engines.transformers.attention.source_weights import Importance
from lookback.engines.transformers.attention.tap import Call, LastRow, reading, tapped
from lookback.engines.transformers.decoding.prefix import Prefix, SharedCache, SharedPrefix

_setup_privateuseone_for_python_backend("pretend")

LENGTH, SOURCE, N = 9, 4, 3
CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    pad_token_id=0,
)


@pytest.fixture
def kernels_of_cuda(monkeypatch):
    chosen = [one for one in kernels.KERNELS if one.device == "cuda"]
    monkeypatch.setattr(partial, "trusted", lambda device, *args: chosen)


def layer(device):
    made = DynamicLayer()
    keys = torch.empty(1, 2, LENGTH, 8, device=device, dtype=torch.bfloat16)
    made.keys = made.values = keys
    made.dtype, made.device, made.is_initialized = keys.dtype, keys.device, True
    return made


def prompt(devices):
    return Prefix(
        layers=[layer(device) for device in devices],
        order=torch.empty(LENGTH, device=devices[0], dtype=torch.long),
        source=SOURCE,
        last=1,
        logits=torch.empty(1, CONFIG.vocab_size, device=devices[0], dtype=torch.bfloat16),
        lookback=torch.empty(1, 1, 1, device=devices[0]),
    )


def moved(model):
    """`model.to` cannot do it to tensors without data."""
    for module in model.modules():
        for name, one in module.named_parameters(recurse=False):
            there = one.to("pretend:0", torch.bfloat16)
            setattr(module, name, torch.nn.Parameter(there, requires_grad=False))
        for name, one in module.named_buffers(recurse=False):
            setattr(module, name, one.to("pretend:0"))
    return model


@pytest.mark.usefixtures("kernels_of_cuda")
@pytest.mark.parametrize("sampling", [(1.2, 0.9, None), (1.0, 1.0, 5), (0.0, 1.0, None)])
def test_a_step_waits_for_nothing(sampling):
    with FakeTensorMode(), torch.no_grad():
        model = moved(LlamaForCausalLM(CONFIG).eval())
        prefix = prompt(["pretend:0", "pretend:0"])
        cache, reader = SharedCache(prefix, N), SharedPrefix(prefix)
        found, lookback = prefix.logits.expand(N, -1), prefix.lookback[:, 0].expand(-1, N)
        uniform = torch.empty(N, device="pretend:0")
        with tapped([model.config]), reading(reader):
            for _ in range(2):
                probs = logits.next_token_probs(found, *sampling)
                token = logits.draw(probs, uniform)
                stack_signals(logits.token_stats(found, token), lookback)
                out = model(input_ids=token[:, None], past_key_values=cache, use_cache=True)
                found, lookback = out.logits[:, -1], reader.lookback(2)[..., 0]
                assert lookback.shape == (1, N)
        with pytest.raises(Exception, match=r"item|scalar"):  # that is how waiting would show
            bool(lookback.any())


class SameDevice(TorchDispatchMode):
    """Indices must lie where they point: tensors without data let that pass."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put_):
            places = {one.device for one in args[1] if one is not None and one.device.type != "cpu"}
            assert places <= {args[0].device}, f"an index at {places} into {args[0].device}"
        return function(*args, **(kwargs or {}))


def call(device, rows=1, keys=2, mask=None, prefix=None):
    query = torch.empty(N, 4, rows, 8, device=device, dtype=torch.bfloat16)
    key = torch.empty(N, 2, keys, 8, device=device, dtype=torch.bfloat16)
    if prefix is not None:
        key.lookback_prefix = prefix
    return Call(lambda *args, **kwargs: (query, None), torch.nn.Module(), query, key, key, mask, {})


@pytest.mark.usefixtures("kernels_of_cuda")
class TestSeveralDevices:
    """A model spread over two: layers at "pretend:1", the prompt's tokens at "pretend:0"."""

    def test_continuations(self):
        with FakeTensorMode():
            prefix = prompt(["pretend:0", "pretend:1"])
            hidden = torch.empty(N, SOURCE, device="pretend:0", dtype=torch.bool)
            for reader in (SharedPrefix(prefix), SharedPrefix(prefix, hidden=hidden)):
                for one, device in zip(prefix.layers, ("pretend:0", "pretend:1"), strict=True):
                    for masked in (False, True):
                        shape = N, 1, 1, LENGTH + 2
                        mask = torch.empty(shape, device=device, dtype=torch.bool)
                        out, _ = reader.attend(
                            call(device, mask=mask if masked else None, prefix=one)
                        )
                        assert out.device == torch.device(device)
                assert reader.lookback(4).device == torch.device("pretend:0")

    def test_what_has_ended_leaves_every_device(self):
        with FakeTensorMode(), SameDevice():
            cache = SharedCache(prompt(["pretend:0", "pretend:1"]), N)
            for i, device in enumerate(("pretend:0", "pretend:1")):
                new = torch.empty(N, 2, 1, 8, device=device, dtype=torch.bfloat16)
                cache.update(new, new, i)
            cache.reorder_cache(torch.empty(2, device="pretend:0", dtype=torch.long))
            assert [one.keys.shape[0] for one in cache.layers] == [2, 2]

    @pytest.mark.parametrize("masked", [False, True])
    def test_the_last_row(self, masked):
        with FakeTensorMode():
            reader = LastRow(torch.empty(N, LENGTH, device="pretend:0", dtype=torch.bool))
            for device in ("pretend:0", "pretend:1"):
                mask = torch.empty(N, 1, 1, LENGTH, device=device, dtype=torch.bool)
                reader.attend(call(device, keys=LENGTH, mask=mask if masked else None))
            assert reader.lookback(2).device == torch.device("pretend:0")

    def test_importance(self):
        with FakeTensorMode():
            prefix = prompt(["pretend:0", "pretend:1"])
            reader = Importance(prefix, N, (0, 2))
            reader.valid = torch.empty(N, 1, device="pretend:0", dtype=torch.bool)
            for one, device in zip(prefix.layers, ("pretend:0", "pretend:1"), strict=True):
                reader.attend(call(device, prefix=one))
