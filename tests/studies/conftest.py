"""For all tests of studies; beside this file are their made-up runs and slow readings."""

import pytest

import lookback
from lookback.scores.base import SCORERS
from lookback.studies import STUDIES


@pytest.fixture
def own_studies(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(STUDIES, "entries", dict(STUDIES.all()))
    return STUDIES


@pytest.fixture
def own_scorers(monkeypatch):
    """Three scorers of a user's own: on signals, with a model, and with the truth."""
    monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))

    @lookback.scorer("cautious", title="Cautious pick", color="#123456")
    def cautious(batch):
        return -batch.mean(batch.entropy)

    @lookback.scorer("gaze", needs="model", title="Gaze again")
    def gaze(candidates):
        raise AssertionError("no study asks a model")

    @lookback.scorer("worst", needs="truth", title="The worst")
    def worst(batch):
        return -batch.quality

    @lookback.scorer("doubt", title="Doubt", lower_is_better=True, same_as="cautious")
    def doubt(batch):
        return batch.mean(batch.entropy)
