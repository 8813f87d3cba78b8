"""What the tests do not have: models get a suggestion, releases of transformers a check."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import transformers
from packaging.version import Version
from transformers import PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.families import TESTED

if TYPE_CHECKING:
    from lookback.engines.transformers.engine import TransformersEngine

LOG = logging.getLogger("lookback")
NEWEST = "5.22"
"""The newest release of transformers that the tests run on."""
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


def check_release(engine: TransformersEngine) -> None:
    """Check a model's numbers here, if transformers is newer than the newest that is tested.

    Raises:
        UnsupportedModelError: they differ from the model's own.
    """
    installed = Version(transformers.__version__)
    if installed.release[:2] <= Version(NEWEST).release:
        return
    LOG.warning(
        "LookBack's tests know transformers up to %s, this is %s: %r is compared with its own slow "
        "decoding first",
        NEWEST,
        installed,
        engine.name,
    )
    failed = [check for check in engine.check().checks if check.ok is False]
    if failed:
        names = "; ".join(f"{check.what} ({check.note})" for check in failed)
        raise UnsupportedModelError(
            f"with transformers {installed}, LookBack's numbers for {engine.name!r} are not the "
            f"model's own: {names}. Install a release that is tested: pip install "
            f"'transformers=={NEWEST}.*'"
        )
