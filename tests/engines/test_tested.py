"""Models that the tests do not have get a word about it, once."""

import logging

import pytest
from engines.reference import noise
from zoo import EXTRA_NAMES, MORE_NAMES, NAMES, build
from zoo.models import CONFIGS

import lookback
from lookback.engines.transformers import tested
from lookback.families import TESTED


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(tested, "_SAID", set())


@pytest.fixture
def lb():
    zoo = build("llava")
    return lookback.load(zoo.model, zoo.processor)


def said(caplog):
    return [one.getMessage() for one in caplog.records if one.name == "lookback"]


def test_the_list_is_the_zoo():
    zoo = {
        CONFIGS[name](lambda token: 0)["model_type"] for name in NAMES + EXTRA_NAMES + MORE_NAMES
    }
    assert zoo == TESTED


def test_an_unknown_model_is_named_once(lb, caplog, monkeypatch):
    monkeypatch.setattr(tested, "TESTED", TESTED - {"llava"})
    for _ in range(2):
        lb.score(noise(), "what?", ["yes"])
        with lookback.record(lb):
            pass
    (line,) = said(caplog)
    assert "no llava model: `lookback check " in line
    assert "\n" not in line


def test_it_is_one_line_where_nobody_set_up_logging(lb, capsys, monkeypatch):
    monkeypatch.setattr(tested, "TESTED", frozenset())
    for name in (None, "lookback"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
    lb.score(noise(), "what?", ["yes"])
    assert capsys.readouterr().err.count("\n") == 1


def test_nothing_is_said_of_tested_and_of_checked_models(lb, caplog, monkeypatch):
    lb.score(noise(), "what?", ["yes"])
    monkeypatch.setattr(tested, "TESTED", frozenset())
    lb.check()
    lb.score(noise(), "what?", ["yes"])
    assert said(caplog) == []
