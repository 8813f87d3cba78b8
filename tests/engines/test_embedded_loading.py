"""The embedded model, as commands load it: what is imported, and that no number changes."""

import json
import subprocess
import sys

import pytest
import torch
from timeouts import HANG_SECONDS

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.embedded import LVLM
from lookback.engines.transformers.loading import load_embedded, load_model

UNUSED = ("pandas", "pyarrow", "matplotlib", "torchvision", "openai", "fastapi", "vllm")
"""Packages of LookBack's extras: an answer of the embedded model needs nothing of them."""
ASK = ("Describe the picture.", "-n", "3", "--max-new-tokens", "12", "--seed", "42", "--json")
COMMAND = """
import json, sys
from lookback.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("scorer", ["lookback", "usc"])
def test_the_command_says_what_the_api_says(tmp_path, scorer):
    image = get_benchmark("scenes-caption").items("test", 1)[0].image
    image.save(tmp_path / "scene.png")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            COMMAND,
            "ask",
            str(tmp_path / "scene.png"),
            *ASK,
            "--scorer",
            scorer,
        ],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    modules = {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    assert not modules & set(UNUSED)
    candidates = lookback.load().sample(image, ASK[0], n=3, max_new_tokens=12, seed=42)
    written = json.loads(done.stdout)
    expected = [(candidate.text, candidate.score) for candidate in candidates.rank(scorer)]
    assert [(row["text"], row["score"]) for row in written["candidates"]] == expected


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
