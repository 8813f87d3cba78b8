"""The contract's own words: what is registered, what `load` passes on, what is refused."""

import inspect
import pydoc

import pytest
from toy_engine import ToyEngine

from lookback.engines import (
    ABILITIES,
    ENGINES,
    AbilityError,
    Engine,
    EngineKind,
    Identity,
    engine,
    load,
    optional_settings,
    refuse,
    require,
)
from lookback.engines.common.check_report import Check, CheckReport
from lookback.engines.transformers import TransformersEngine
from lookback.engines.vllm.engine import VllmEngine
from lookback.families import GENERIC


@pytest.fixture
def given(monkeypatch):
    """Two engines, one of which takes anything; and what they were given."""
    calls = []
    monkeypatch.setattr(ENGINES, "entries", dict(ENGINES.entries))

    @engine("strict")
    def strict(model=None, processor=None, *, depth=1):
        """Takes a depth.

        And has more to say of it.
        """
        calls.append((model, processor, depth))
        return ToyEngine()

    @engine("open")
    def takes_all(model=None, processor=None, *, quiet=False, **settings):
        calls.append((quiet, settings))
        return ToyEngine()

    return calls


def test_what_is_registered_is_described_by_its_first_line(given):
    kind = ENGINES.get("strict")
    assert (kind.name, kind.about, kind.settings) == ("strict", "Takes a depth.", ("depth",))
    assert isinstance(kind, EngineKind)
    assert kind.origin is kind.load


def test_load_passes_on_what_an_engine_takes(given):
    load("a", "b", engine="strict", depth=3, quiet=True)  # it cannot be quiet, and need not
    load("a", "b", engine="open", quiet=True, anything=5)
    load("a", "b", engine="open")
    assert given == [("a", "b", 3), (True, {"anything": 5}), (False, {})]


@pytest.mark.parametrize("settings", [{"width": 1}, {"depth": 1, "width": 1}])
def test_a_setting_that_is_not_there_is_named_with_those_that_are(given, settings):
    with pytest.raises(TypeError, match="'strict' has no setting 'width'; it has: depth"):
        load("a", engine="strict", **settings)
    assert given == []


@pytest.mark.parametrize("name", [name for name in vars(Engine) if callable(vars(Engine)[name])])
@pytest.mark.parametrize("kind", [TransformersEngine, VllmEngine])
def test_help_on_a_method_is_the_contracts_documentation(kind, name):
    if not name.startswith("_"):
        assert inspect.getdoc(getattr(kind, name)) == inspect.getdoc(getattr(Engine, name))


def test_help_on_sample_and_load_shows_the_arguments_and_the_result():
    told = pydoc.render_doc(TransformersEngine.sample, renderer=pydoc.plaintext)
    for name in inspect.signature(Engine.sample).parameters.keys() - {"self"}:
        assert f"{name}: " in told.partition("Args:")[2]
    assert inspect.signature(load).return_annotation == "Engine"
    told = pydoc.render_doc(load, renderer=pydoc.plaintext)
    for setting in ENGINES.get("transformers").settings:
        assert setting in told


def test_what_an_engine_cannot_do_is_said_with_what_it_can():
    able = ToyEngine()
    able.abilities = frozenset({"sample", "generate"})
    require(able, ["sample", "generate"], "somebody")
    with pytest.raises(
        AbilityError, match=r"^usc needs an engine that can score .* it can sample, generate$"
    ):
        require(able, ["sample", "score"], "usc")
    with pytest.raises(AbilityError, match=r"^check\(\) needs"):
        refuse(able, "check")
    with pytest.raises(AbilityError, match=r"cannot, it can generate$"):
        refuse(able, "sample")


def test_an_ability_without_its_method_is_named():
    class Empty(Engine):
        name, family, abilities = "empty", GENERIC, frozenset(ABILITIES)

        def identity(self):
            return Identity("empty", "empty", "Empty")

    empty = Empty()
    for ask, method in (
        (lambda: empty.sample(None, "?"), "_sample"),
        (lambda: empty.search(None, "?"), "_search"),
        (lambda: empty.score(None, "?", "a"), "_score"),
        (lambda: empty.knockout(None, "?", "a"), "_knockout"),
        (lambda: empty.look(None, "?", "a"), "_look"),
        (lambda: empty.generate(None, "?"), "_generate"),
        (empty.check, "_check"),
    ):
        with pytest.raises(NotImplementedError, match=rf"Empty .*does not define {method}\("):
            ask()
    assert empty.close() is None


def test_an_engine_must_derive_from_the_contract():
    with pytest.raises(TypeError, match="identity"):
        type("Nobody", (Engine,), {})()


def test_coroutines_take_what_the_methods_take():
    for name in ("sample", "score"):
        theirs = inspect.signature(getattr(Engine, name))
        assert inspect.signature(getattr(VllmEngine, f"a{name}")) == theirs


def test_settings_are_passed_on_if_they_are_wanted_and_refused_if_they_are_not_known():
    able = ToyEngine()
    able.abilities = frozenset({"sample", "top_log_probs", "by_layer"})
    wanted = {"top_log_probs": 0, "by_layer": True, "prune": None, "search": False}
    assert optional_settings(able, wanted) == {"top_log_probs": 0, "by_layer": True}
    with pytest.raises(AbilityError, match=r"^--prune needs"):
        optional_settings(able, {"prune": "half"})


@pytest.mark.parametrize(
    ("outcomes", "ok"), [([True, None], True), ([True, False], False), ([], True), ([None], True)]
)
def test_a_report_is_well_unless_something_is_wrong(outcomes, ok):
    checks = [Check("one", ok=outcome) for outcome in outcomes]
    report = CheckReport("m", "M", "float32", "cpu", 2, 8, (1e-4, 1e-3), checks, {})
    assert report.ok is ok
    assert report.to_dict()["ok"] is ok
    assert [one["ok"] for one in report.to_dict()["checks"]] == outcomes
