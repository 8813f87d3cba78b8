"""The settings that vLLM is started with: the user's, and what the tap needs where he says none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from lookback.registry import SettingError


def engine_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for vLLM's engine.

    On a CPU, float32 and no compiler unless asked for; on a GPU, graphs that leave attention out of
    them, as the tap is called between them.

    Raises:
        SettingError: vLLM has no such setting, or the tap does not go together with it.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    known = {one.name for one in dataclasses.fields(AsyncEngineArgs)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise SettingError(f"engine 'vllm' has no setting {unknown[0]!r}: vLLM does not know it")
    for name, why in REFUSED.items():
        if given.get(name):
            raise SettingError(f"engine 'vllm' with {name} = {given[name]!r}: {why}")
    if str(given.get("kv_cache_dtype", "auto")).startswith(("fp8", "int", "nvfp4", "turbo")):
        raise SettingError(
            f"engine 'vllm' with kv_cache_dtype = {given['kv_cache_dtype']!r}: the indicator needs "
            "values that are not quantised; leave it out"
        )
    ours: dict[str, Any] = {"disable_log_stats": True, "enable_log_requests": False}
    if current_platform.is_cpu():
        # Candidates of one question share the whole blocks of its prompt: of vLLM's 128 tokens,
        # a small model's prompt fills none.
        ours |= {"dtype": "float32", "enforce_eager": True, "block_size": 32}
    elif not given.get("enforce_eager"):
        ours["compilation_config"] = {"cudagraph_mode": "PIECEWISE"}
    return {key: value for key, value in ours.items() if key in known} | dict(given)


REFUSED = {
    "worker_extension_cls": "LookBack's tap is one, and vLLM takes one",
    "speculative_config": "drafted tokens are drawn by vLLM, so streams of ours do not hold; "
    "leave it out",
}
"""Settings that the tap does not go together with, and why."""
