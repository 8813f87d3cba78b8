"""The `lookback` application: how commands are registered, and what comes before any of them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperGroup

from lookback import __version__
from lookback.cli.terminal import plugin_failure
from lookback.registry import PLUGINS_VARIABLE, PluginError, is_interrupt, load_plugin, plugin_in


class PluginGroup(TyperGroup):
    """A command group with `--plugin` in any position: plugins are loaded before the rest."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, with every `--plugin X` before the command; what follows `--` stays as it is."""
        return super().parse_args(ctx, plugins_first(args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; whatever a plugin raises, even to end the process, is its failure."""
        try:
            return super().invoke(ctx)
        except BaseException as error:
            plugin = plugin_in(error.__traceback__)
            if plugin is None or is_interrupt(error) or isinstance(error, BrokenPipeError):
                raise
            raise PluginError(plugin_failure(plugin, error)) from error


def plugins_first(args: list[str]) -> list[str]:
    """Return the arguments with each `--plugin X` and `--plugin=X` at the front, up to a `--`."""
    plugins: list[str] = []
    others: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            return [*plugins, *others, arg, *rest]
        if arg.startswith("--plugin="):
            plugins.append(arg)
        elif arg == "--plugin":
            value = next(rest, None)
            if value is None:
                raise typer.BadParameter("it needs a module or a .py file", param_hint="--plugin")
            plugins += [arg, value]
        else:
            others.append(arg)
    return [*plugins, *others]


class App(typer.Typer):
    """A Typer application whose commands may take dataclasses of options (`lookback.cli.options`).

    Typer takes each option as a parameter of its own, so that options which several commands share
    would be written out in each of them.
    """

    def command(self, *args: Any, **settings: Any) -> Callable[[Any], Any]:
        """Register a command; a parameter that is a dataclass becomes an option per field."""
        register = super().command(*args, **settings)
        return lambda function: register(expand_options(function))


def expand_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the fields of its dataclass parameters as parameters."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            parameters += _option_parameters(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
    if not groups:
        return function

    @functools.wraps(function)
    def call(**values: Any) -> Any:
        for name, group in groups.items():
            own = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**own)
        return function(**values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _option_parameters(group: Any) -> list[inspect.Parameter]:
    """Return a parameter for each field; options without a help panel get the group's."""
    parameters = []
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        kind, option = get_args(hints[field.name])
        option = copy(option)
        option.rich_help_panel = option.rich_help_panel or getattr(group, "PANEL", None)
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[kind, option],
            )
        )
    return parameters


app = App(
    cls=PluginGroup,
    help="Which of N answers does the image support? Scores vision-language model responses.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"lookback {__version__}")
        raise typer.Exit


@app.callback()
def _before_any_command(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            help="A module or a .py file with scorers, metrics, benchmarks, studies or engines of "
            "your own; anywhere on the line, may be repeated.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    if plugin:
        for name in plugin:
            load_plugin(name)
        before = os.environ.get(PLUGINS_VARIABLE)  # for processes that a command starts
        os.environ[PLUGINS_VARIABLE] = os.pathsep.join([*([before] if before else []), *plugin])
