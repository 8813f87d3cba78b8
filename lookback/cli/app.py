"""The `lookback` command: the options that several commands share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Which of N answers does the image support? Scores vision-language model responses.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Image = Annotated[
    list[str] | None, typer.Option("--image", "-i", help="A further image; may be repeated.")
]
Model = Annotated[
    str | None,
    typer.Option(help="A hub id or a folder.", show_default=False),
]
Scorer = Annotated[str, typer.Option(help="Rank by this; see `lookback scorers`.")]
Alpha = Annotated[
    float | None,
    typer.Option(help="LookBack's α; by default the model family's.", show_default=False),
]
Lam = Annotated[
    float | None,
    typer.Option(help="LookBack's λ; by default the model family's.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the scorer; may be repeated.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print all signals as JSON.")]
Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, ...; by default a GPU if there is one.", show_default=False),
]

EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="What runs the model; see `lookback engines`."),
]
Source = Annotated[
    str | None,
    typer.Option(
        help="What A is measured on, e.g. image:1; by default every vision token.",
        show_default=False,
    ),
]

Data = Annotated[
    Path | None,
    typer.Option(
        help="The folder of the benchmark's files, or of one folder per benchmark; or a file of "
        "your own.",
        envvar="LOOKBACK_DATA",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Your own data: compares the answers of lines that name no metric.",
        show_default=False,
    ),
]

Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
TopP = Annotated[float, typer.Option(help="The nucleus to sample from.")]
MaxNewTokens = Annotated[int, typer.Option(help="The longest answer.")]
JudgeModel = Annotated[
    str | None,
    typer.Option(
        help="hallusionbench: the language model that judges; without, rules do.",
        envvar="LOOKBACK_JUDGE_MODEL",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.callback()
def _plugins(
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="A module or a .py file with scorers of your own; may be repeated."),
    ] = None,
) -> None:
    if plugin:
        from lookback.registry import load_plugin

        for name in plugin:
            load_plugin(name)
        before = os.environ.get("LOOKBACK_PLUGINS")  # for processes that a command starts
        os.environ["LOOKBACK_PLUGINS"] = os.pathsep.join([*([before] if before else []), *plugin])


def settings_of(given: list[str] | None) -> dict[str, Any]:
    """`--set NAME=VALUE`, several times, as a dictionary; values are JSON, or words."""
    found: dict[str, Any] = {}
    for setting in given or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting}: write NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value  # a word
    return found
