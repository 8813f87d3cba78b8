"""The `lookback` command: the options that several commands share."""

from __future__ import annotations

import json
import os
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lookback import __version__
from lookback.cli.errors import plugin_failure
from lookback.cli.stdin import refuse_stdin
from lookback.io.files import OUTSIDE_VARIABLE
from lookback.registry import PLUGINS_VARIABLE, PluginError, is_interrupt, load_plugin, plugin_in
from lookback.scores import HOMES


class PluginGroup(TyperGroup):
    """Commands that know `--plugin` in any position: what a plugin adds must be there first."""

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
    """The arguments with each `--plugin X` and `--plugin=X` at the front, up to a `--`."""
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


app = typer.Typer(
    cls=PluginGroup,
    help="Which of N answers does the image support? Scores vision-language model responses.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _allow_outside(wanted: bool) -> bool:
    """Said in the environment, so that processes that a command starts know it, too."""
    if wanted:
        os.environ[OUTSIDE_VARIABLE] = "1"
    return wanted


ASKED = "What is asked"
DRAWN = "How answers are drawn"
RANKED = "How they are ranked"
MODEL = "The model"
OUTPUT = "Output"
"""The groups of options that --help shows, in this order."""


def complete_scorer(incomplete: str) -> list[str]:
    """Names of scorers for the shell: the package's own, and those of installed packages.

    A user's own are there if the environment names their file: only then anything is imported.
    """
    if os.environ.get(PLUGINS_VARIABLE):
        from lookback.scores.base import SCORERS

        names = SCORERS.names()
    else:
        names = [*HOMES, *(point.name for point in entry_points(group="lookback.scorers"))]
    return [name for name in names if name.startswith(incomplete)]


def _no_stdin(data: str | None) -> str | None:
    refuse_stdin("--data", data, "it is read more than once, by each worker and when a run goes on")
    return data


More = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        "-i",
        help="A further image of the same question; may be repeated.",
        show_default=False,
        rich_help_panel=ASKED,
    ),
]
Count = Annotated[
    int, typer.Option("-n", "--n", help="How many answers to draw.", rich_help_panel=DRAWN)
]
Seed = Annotated[
    int, typer.Option(help="The same seed draws the same answers.", rich_help_panel=DRAWN)
]
Model = Annotated[
    str | None,
    typer.Option(
        help="A hub id (llava-hf/llava-1.5-7b-hf) or a folder; by default the embedded model, "
        "which knows drawn scenes only.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
Scorer = Annotated[
    str,
    typer.Option(
        help=f"Rank by this: {', '.join(HOMES)}; or one of your own (--plugin). `lookback scorers` "
        "says what each is and needs.",
        autocompletion=complete_scorer,
        rich_help_panel=RANKED,
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option(
        help="LookBack's α; by default the model family's.",
        show_default=False,
        rich_help_panel=RANKED,
    ),
]
Lam = Annotated[
    float | None,
    typer.Option(
        help="LookBack's λ; by default the model family's.",
        show_default=False,
        rich_help_panel=RANKED,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the scorer; may be repeated.",
        show_default=False,
        rich_help_panel=RANKED,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print all signals as JSON.", rich_help_panel=OUTPUT)
]
ByLayer = Annotated[
    bool,
    typer.Option(
        "--by-layer",
        help="Keep A in each layer too; it is in what --json prints.",
        rich_help_panel=OUTPUT,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, ...; by default a GPU if there is one.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]

Dtype = Annotated[
    str | None,
    typer.Option(
        help="Of the weights, e.g. bfloat16; by default the checkpoint's own on a GPU.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
Revision = Annotated[
    str | None, typer.Option(help="Of the hub id.", show_default=False, rich_help_panel=MODEL)
]
DeviceMap = Annotated[
    str | None,
    typer.Option(
        help="Instead of a device: auto, or JSON that says which part goes where.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Run code that comes with the model.", rich_help_panel=MODEL
    ),
]

EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine", help="What runs the model; see `lookback engines`.", rich_help_panel=MODEL
    ),
]
EngineSet = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-set",
        metavar="NAME=VALUE",
        help="A setting of the engine's own, e.g. tensor_parallel_size=2; may be repeated.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        help="What A is measured on, e.g. image:1; by default every vision token.",
        show_default=False,
        rich_help_panel=ASKED,
    ),
]

Data = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="The folder of the benchmark's files, or of one folder per benchmark; or a file of "
        "your own; here or at s3://, gs://, ...",
        envvar="LOOKBACK_DATA",
        callback=_no_stdin,
    ),
]
RunFolders = Annotated[
    list[str],
    typer.Argument(
        help="Folders of runs, or folders that hold such folders; here or at s3://, gs://, ...",
    ),
]
AllowOutside = Annotated[
    bool,
    typer.Option(
        "--allow-outside",
        help="Files that the data name may lie outside the folder of the data.",
        callback=_allow_outside,
        rich_help_panel=ASKED,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Your own data: compares the answers of lines that name no metric.",
        show_default=False,
    ),
]

Temperature = Annotated[float, typer.Option(help="0 is greedy.", rich_help_panel=DRAWN)]
TopP = Annotated[float, typer.Option(help="The nucleus to sample from.", rich_help_panel=DRAWN)]
MaxNewTokens = Annotated[int, typer.Option(help="The longest answer.", rich_help_panel=DRAWN)]
JudgeModel = Annotated[
    str | None,
    typer.Option(
        help="hallusionbench: the language model that judges; without, rules do.",
        envvar="LOOKBACK_JUDGE_MODEL",
    ),
]
JudgePrompt = Annotated[
    str | None,
    typer.Option(
        help="What it is asked: official (HallusionBench's rules, the default) or brief.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


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


def load_settings(
    engine: str | None,
    device: str | None,
    dtype: str | None,
    revision: str | None,
    device_map: str | None,
    trust_remote_code: bool,
    engine_set: list[str] | None,
) -> dict[str, Any]:
    """What these options say to `lookback.load`: those that were given."""
    given = {
        "engine": engine,
        "device": device,
        "dtype": dtype,
        "revision": revision,
        "device_map": parse_device_map(device_map),
        "trust_remote_code": trust_remote_code or None,  # other engines need not know it
    }
    named = {name: value for name, value in given.items() if value is not None}
    return named | settings_of(engine_set, "--engine-set")


def parse_device_map(given: str | None) -> str | dict[str, Any] | None:
    """`--device-map`: a word, or a JSON object.

    Raises:
        ValueError: it begins as JSON, and is none.
    """
    if given is None or not given.lstrip().startswith("{"):
        return given
    try:
        found: dict[str, Any] = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--device-map {given:.60}: not JSON ({error})") from None
    return found


def settings_of(given: list[str] | None, option: str = "--set") -> dict[str, Any]:
    """`--set NAME=VALUE`, several times, as a dictionary; values are JSON, or words."""
    found: dict[str, Any] = {}
    for setting in given or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{option} {setting}: write NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value  # a word
        except RecursionError as error:
            raise ValueError(f"{option} {setting:.60}: not JSON ({error})") from None
    return found
