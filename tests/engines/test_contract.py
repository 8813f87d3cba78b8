"""Every engine keeps the contract: transformers, and a toy one without torch."""

import pytest
from engines.contract import Contract
from toy_engine import ToyEngine
from zoo import build

import lookback


class TestTransformers(Contract):
    @pytest.fixture
    def engine(self):
        zoo = build("qwen2_5_vl")
        return lookback.load(zoo.model, zoo.processor)


class TestToy(Contract):
    @pytest.fixture
    def engine(self):
        return ToyEngine()


class TestToyThatCannotKnockOutOrGenerate(Contract):
    @pytest.fixture
    def engine(self):
        return ToyEngine(frozenset({"sample", "score"}))


def test_an_unknown_engine_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no engine named 'vllm9'; there are: transformers"):
        lookback.load(engine="vllm9")


def test_an_unknown_setting_lists_the_known_ones():
    with pytest.raises(TypeError, match=r"'transformers' has no setting 'dvice'; it has: device,"):
        lookback.load(dvice="cpu")
