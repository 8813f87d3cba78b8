"""The `lookback` application: how commands are registered, and what comes before any of them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from copy import copy
from dataclasses import Field, fields, is_dataclass
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
        made = {name: _make_group(group, values) for name, group in groups.items()}
        return function(**values, **made)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _option_parameters(group: Any) -> list[inspect.Parameter]:
    """Return a parameter per option of a group; those without a help panel get the group's."""
    parameters: list[inspect.Parameter] = []
    for field, kind in _typed_fields(group):
        if is_dataclass(kind):
            parameters += _option_parameters(kind)
            continue
        option = field.metadata.get("option")
        if option is None:
            kind, option = get_args(kind)
        option = copy(option)
        option.rich_help_panel = option.rich_help_panel or getattr(group, "PANEL", None)
        parameter = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY)
        annotation = Annotated[kind, option]  # type: ignore[valid-type]
        parameters.append(parameter.replace(default=field.default, annotation=annotation))
    return parameters


def _make_group(group: Any, values: dict[str, Any]) -> Any:
    """Return a group with its values, which are taken out of `values`."""
    own = {
        field.name: _make_group(kind, values) if is_dataclass(kind) else values.pop(field.name)
        for field, kind in _typed_fields(group)
    }
    return group(**own)


def _typed_fields(group: Any) -> list[tuple[Field[Any], Any]]:
    hints = get_type_hints(group, include_extras=True)
    return [(field, hints[field.name]) for field in fields(group)]


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
