"""The engine inside vLLM keeps the contract of every engine."""

import pytest
from engines.contract import Contract


class TestVllm(Contract):
    close = 1e-4  # rounding differs with what else is in the batch

    @pytest.fixture
    def engine(self, inside):
        return inside
