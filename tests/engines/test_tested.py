"""Models that the tests do not have get a word about it, once."""

import logging
from dataclasses import replace

import pytest
from engines.reference import noise
from zoo import EXTRA_NAMES, MORE_NAMES, NAMES, build
from zoo.models import CONFIGS

import lookback
from lookback.engines import UnsupportedModelError
from lookback.engines.common.check_report import Check
from lookback.engines.transformers import TransformersEngine, support
from lookback.families import TESTED


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(support, "_SUGGESTED", set())


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
    monkeypatch.setattr(support, "TESTED", TESTED - {"llava"})
    for _ in range(2):
        lb.score(noise(), "what?", ["yes"])
        with lookback.record(lb):
            pass
    (line,) = said(caplog)
    assert "no llava model: `lookback check " in line
    assert "\n" not in line


def test_it_is_one_line_where_nobody_set_up_logging(lb, capsys, monkeypatch):
    monkeypatch.setattr(support, "TESTED", frozenset())
    for name in (None, "lookback"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
    lb.score(noise(), "what?", ["yes"])
    assert capsys.readouterr().err.count("\n") == 1


def test_nothing_is_said_of_tested_and_of_checked_models(lb, caplog, monkeypatch):
    lb.score(noise(), "what?", ["yes"])
    monkeypatch.setattr(support, "TESTED", frozenset())
    lb.check()
    lb.score(noise(), "what?", ["yes"])
    assert said(caplog) == []


def test_a_model_is_checked_at_load_under_a_newer_transformers(caplog, monkeypatch):
    zoo = build("llava")
    for release, lines in (("5.22.9", 0), ("5.23.0", 1), ("6.0.0.dev0", 1)):
        caplog.clear()
        monkeypatch.setattr(support.transformers, "__version__", release)
        lookback.load(zoo.model, zoo.processor)
        assert len(said(caplog)) == lines
        assert all(release in line for line in said(caplog))


def test_a_failed_check_is_an_error_with_the_way_out(monkeypatch):
    zoo = build("llava")
    monkeypatch.setattr(support.transformers, "__version__", "5.99.0")
    wrong = Check("score", {"log_prob": 1.0}, ok=False, note="log_prob is off by 1")
    report = replace(lookback.load(zoo.model, zoo.processor).check(), checks=[wrong])
    monkeypatch.setattr(TransformersEngine, "check", lambda self: report)
    with pytest.raises(UnsupportedModelError, match=r"5\.99\.0.*off by 1.*pip install"):
        lookback.load(zoo.model, zoo.processor)
