"""What runs inside a vLLM worker: the tap, its sampler, and what they record until it is fetched.

`Extension` is what vLLM takes as `worker_extension_cls`. It is imported on use: that prepares the
worker and needs vLLM, which the other modules do not.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "Extension":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lookback.engines.vllm.worker.extension import Extension

    return Extension
