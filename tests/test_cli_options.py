"""Groups of options: a dataclass as a command's parameter, and what their methods return."""

import inspect
from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from lookback.cli.app import App, expand_options
from lookback.cli.options import EngineOptions, SamplingOptions, option, parse_settings
from lookback.engines.base import Engine

Name = Annotated[str, typer.Option("--name", "-n", help="A name.")]


@dataclass(frozen=True, kw_only=True)
class Inner:
    PANEL: ClassVar[str] = "Inside"
    width: int = option(3, min=1, help="A width.")
    tags: list[str] | None = option(None, "--tag", help="A tag.")


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: Name = "nobody"
    inner: Inner
    loud: bool = option(False, "--loud", help="Loudly.")


def echo(first: str, *, outer: Outer, last: Annotated[int, typer.Option()] = 7) -> None:
    """Print what it was called with."""
    print(first, outer, last)


def run(*arguments):
    app = App()
    app.command()(echo)
    return CliRunner().invoke(app, arguments)


def test_a_command_is_called_with_groups_within_groups():
    assert run("x").output == f"x {Outer(inner=Inner())} 7\n"
    called = run("x", "-n", "me", "--width", "5", "--tag", "a", "--tag", "b", "--loud")
    expected = Outer(name="me", inner=Inner(width=5, tags=["a", "b"]), loud=True)
    assert called.output == f"x {expected} 7\n"


def test_options_keep_their_checks_their_order_and_their_panel():
    assert run("x", "--width", "0").exit_code == 2
    assert list(inspect.signature(expand_options(echo)).parameters) == (
        ["first", "name", "width", "tags", "loud", "last"]
    )
    shown = run("--help").output
    assert shown.index("Inside") < shown.index("--width") < shown.index("--tag")
    assert shown.index("--loud") < shown.index("Inside")


def test_a_command_without_groups_stays_what_it_is():
    def plain(number: int = 1) -> None: ...

    assert expand_options(plain) is plain


def test_sampling_options_are_arguments_of_sample_with_the_same_defaults():
    parameters = inspect.signature(Engine.sample).parameters
    defaults = {name: parameters[name].default for name in vars(SamplingOptions())}
    assert vars(SamplingOptions()) == defaults | {"seed": 42}


def test_engine_options_are_the_arguments_of_load_that_were_given():
    assert EngineOptions().load_settings() == {}
    options = EngineOptions(device="cpu", device_map='{"": 0}', engine_set=["depth=2", "attn=sdpa"])
    expected = {"device": "cpu", "device_map": {"": 0}, "depth": 2, "attn": "sdpa"}
    assert options.load_settings() == expected
    assert EngineOptions(trust_remote_code=True).load_settings() == {"trust_remote_code": True}


@pytest.mark.parametrize(
    ("text", "value"), [("a=1", 1), ("a=[1, 2]", [1, 2]), ("a=b=c", "b=c"), ("a=", "")]
)
def test_a_setting_is_json_or_a_word(text, value):
    assert parse_settings([text]) == {"a": value}
