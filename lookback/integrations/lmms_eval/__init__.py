"""lmms-eval: any of its tasks with best-of-N, as the model `lookback`.

    lmms-eval --model lookback --model_args pretrained=...,n=25,scorer=lookback --tasks mme

Its entry-point group `lmms_eval.models` names `manifest`. The settings and what is done with those
of a task: docs/lmms-eval.md. Only `model` imports the library.
"""

from __future__ import annotations

from typing import Any

CLASSES = "lookback.integrations.lmms_eval.model"


def manifest() -> Any:
    """Return what lmms-eval's registry needs: the model's name and its two classes.

    Raises:
        ImportError: there is no lmms-eval, or one that has no manifests yet.
    """
    try:
        from lmms_eval.models.registry_v2 import ModelManifest
    except ModuleNotFoundError as error:
        raise missing(error) from error
    return ModelManifest(
        model_id="lookback",
        simple_class_path=f"{CLASSES}.LookBackSimple",
        chat_class_path=f"{CLASSES}.LookBack",
    )


def missing(error: ModuleNotFoundError) -> ImportError:
    """Return the error of a missing lmms-eval, or of one that lacks something itself."""
    if error.name == "lmms_eval":
        return ImportError("lmms-eval is not installed: pip install lmms-eval")
    return ImportError(f"lmms-eval cannot be used here, {error}: pip install --upgrade lmms-eval")
