"""The engine inside vLLM keeps the contract of every engine."""

import pytest
from engines.contract import Contract


class TestVllm(Contract):
    @pytest.fixture
    def engine(self, inside):
        return inside
