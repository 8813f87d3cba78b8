"""A word, once, to whoever uses a model that the project's tests do not have."""

from __future__ import annotations

import logging

from transformers import PreTrainedModel

from lookback.families import TESTED

LOG = logging.getLogger("lookback")
_SAID: set[str] = set()  # model types that nothing more is to be said about


def suggest_check(model: PreTrainedModel, name: str) -> None:
    """Say that this machine can compare the model, unless tests have, or it was said before."""
    kind = str(model.config.model_type)
    if kind in TESTED or kind in _SAID:
        return
    _SAID.add(kind)
    LOG.warning(
        "LookBack's tests have no %s model: `lookback check %s` compares its numbers with the "
        "model's own, here",
        kind,
        name,
    )


def is_checked(model: PreTrainedModel) -> None:
    """It is being compared: there is no need to suggest it."""
    _SAID.add(str(model.config.model_type))
