"""The shorter import of the command: what it must not import, and that no number changes."""

import json
import subprocess
import sys

import pytest
import torch
from timeouts import HANG_SECONDS

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.embedded import LVLM
from lookback.engines.transformers.loading import _plain_name, load_embedded, load_model

UNUSED = (
    *("scipy", "sklearn", "sympy", "pandas", "pyarrow", "matplotlib", "torchvision"),
    *("torch._dynamo", "torch._inductor", "torch.distributed.tensor", "torch.distributed.fsdp"),
    *("torch.distributed.checkpoint", "torch._functorch.aot_autograd"),
)
"""Packages that an answer of the embedded model needs nothing of."""
MOST_MODULES = 2300
"""1,950 on Python 3.11 with torch 2.13 and transformers 5.22; 3,150 with plain imports."""
ASK = ("Describe the picture.", "-n", "3", "--max-new-tokens", "12", "--json")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    path = tmp_path_factory.mktemp("scene") / "scene.png"
    get_benchmark("scenes-caption").items("test", 1)[0].image.save(path)
    return str(path)


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done


COMMAND = """
import json, sys
{before}
from lookback.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
{after}
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("scorer", ["lookback", "usc"])
def test_the_command_says_the_same_with_fewer_modules(scene, scorer):
    arguments = ("ask", scene, *ASK, "--scorer", scorer)
    quick = run(COMMAND.format(before="", after=""), *arguments)
    plain = run(COMMAND.format(before="import transformers.modeling_utils", after=""), *arguments)
    assert quick.stdout == plain.stdout
    assert len(json.loads(quick.stdout)["candidates"]) == 3
    modules = json.loads(quick.stderr.splitlines()[-1])
    for name in UNUSED:
        assert not [one for one in modules if one == name or one.startswith(f"{name}.")], name
    assert len(modules) < MOST_MODULES < len(json.loads(plain.stderr.splitlines()[-1]))


def test_afterwards_every_module_is_the_real_one(scene):
    after = """
import torch, torch._dynamo, torch.distributed.tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.fx.experimental import symbolic_shapes
from transformers import masking_utils
from lookback.engines.common import compat
assert torch._dynamo.OptimizedModule.__module__ == "torch._dynamo.eval_frame"
compiled = torch.compile(torch.nn.Linear(2, 2), backend="eager")
assert isinstance(compiled, compat.OptimizedModule)  # a promise knows what it stands for
assert compat.OptimizedModule is not torch._dynamo.OptimizedModule
assert isinstance(masking_utils.TransformGetItemToIndex(), TransformGetItemToIndex)
assert symbolic_shapes.expect_true(True) is True
assert compiled(torch.ones(1, 2)).shape == (1, 2)
assert symbolic_shapes.ShapeEnv is not None
"""
    run(COMMAND.format(before="", after=after), "ask", scene, *ASK)


def test_a_package_that_is_not_there_has_no_stand_in():
    code = """
import importlib.util, sys
from importlib.machinery import PathFinder
from lookback.engines import deferring
deferring.DEFERRED += ("no_such_package",)
with deferring.deferring():
    assert importlib.util.find_spec("no_such_package") is None
    there = PathFinder.find_spec("scipy") is not None
    assert (importlib.util.find_spec("scipy") is not None) == there
assert not [one for one in sys.meta_path if isinstance(one, deferring._Finder)]
"""
    run(code)


def test_the_embedded_model_is_what_from_pretrained_gives():
    own, other = load_embedded(), load_model(str(LVLM), device="cpu").eval()
    state = other.state_dict()
    assert own.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in own.state_dict().items())
    for (name, buffer), (same, expected) in zip(
        own.named_buffers(), other.named_buffers(), strict=True
    ):
        assert name == same
        assert torch.equal(buffer, expected)
    assert own.config.to_dict() == other.config.to_dict()
    assert own.generation_config.to_dict() == other.generation_config.to_dict()
    assert (own.training, own.dtype, own.name_or_path) == (False, torch.float32, str(LVLM))
    assert own.lm_head.weight is own.get_input_embeddings().weight


def test_loading_draws_no_random_numbers():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    load_embedded()
    assert torch.equal(torch.rand(4), expected)


def test_identities_are_the_same():
    one, other = lookback.load().identity(), lookback.load(LVLM).identity()
    assert one.weights == other.weights
    assert one.dtype == other.dtype


def test_names_of_weights_are_compared_without_wrappers():
    assert _plain_name("model.language_model.layers.0.mlp.weight") == "layers.0.mlp.weight"
    assert _plain_name("vision_tower.vision_model.embeddings.x") == "vision_tower.embeddings.x"


@pytest.mark.parametrize(("release", "deferred"), [("2.13.0", True), ("2.14.1", False)])
def test_only_a_torch_that_it_was_tried_with_is_shortened(monkeypatch, release, deferred):
    from lookback.engines import deferring as module

    monkeypatch.setattr(module, "version", lambda name: release)
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    before = list(sys.meta_path)
    with module.deferring():
        assert (sys.meta_path != before) is deferred
    sys.meta_path[:] = before
