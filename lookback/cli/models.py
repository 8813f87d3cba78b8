"""The commands about models: `check`, `engines`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lookback.cli.app import app
from lookback.cli.options import EngineOptions, Json
from lookback.cli.terminal import console, long_progress, print_json, printable, show_table

if TYPE_CHECKING:
    from lookback.engines.common.check_report import CheckReport


@app.command("check")
def check_model(
    model: Annotated[
        str | None,
        typer.Argument(help="A hub id or a folder; by default the embedded one."),
    ] = None,
    *,
    engine: EngineOptions,
    as_json: Json = False,
) -> None:
    """Validate a model: compare its signals with reference eager decoding on this machine."""
    from lookback.engines import Engine, load, require

    settings = engine.load_settings()
    with console(stderr=True).status("loading the model"):
        loaded: Engine = load(model, quiet=True, **settings)
    require(loaded, ["check"], "lookback check")
    with long_progress("checking", "checks") as bar:
        report = loaded.check(progress=bar)
    if as_json:
        print_json(report.to_dict())
    else:
        show_check(report)
    if not report.ok:
        raise typer.Exit(1)


def show_check(report: CheckReport) -> None:
    """Print each comparison with its largest differences; then what was read, and how fast."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(box=None, pad_edge=False)
    table.add_column("largest difference in", ratio=1)
    for name in ("A", "log p", "SC", "H"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    marks = {True: ("ok", "green"), False: ("WRONG", "bold red"), None: ("-", "dim")}
    for check in report.checks:
        words, style = marks[check.ok]
        order = ("visual_lookback", "log_prob", "self_certainty", "entropy")
        numbers = [f"{check.differences[s]:.0e}" if s in check.differences else "" for s in order]
        table.add_row(Text(check.what), *numbers, Text(words, style=style))
    out.print(table)
    for check in report.checks:
        if check.note:
            note = f"{check.what}: {printable(check.note)}"
            out.print(note, style="dim", highlight=False, markup=False)
    a, others = report.tolerance
    speed = ", ".join(f"{value:.0f} {name}" for name, value in report.tokens_per_second.items())
    out.print(
        f"\n{report.model} ({report.model_class}, {report.dtype}, {report.device}): "
        f"{report.layers} attention layers, {report.heads} heads read; allowed {a:g} in A, "
        f"{others:g} in the others; tokens per second: {speed}",
        highlight=False,
        markup=False,
    )
    if report.peak_bytes is not None:
        out.print(f"peak memory beyond the model: {report.peak_bytes / 2**20:,.1f} MiB")
    verdict = "all numbers agree" if report.ok else "do not trust numbers of this model here"
    out.print(verdict, style="bold green" if report.ok else "bold red")


@app.command()
def engines(as_json: Json = False) -> None:
    """List the engines: what can run a model."""
    from lookback.engines import ENGINES

    known = ENGINES.all().values()
    if as_json:
        print_json([{"name": kind.name, "about": kind.about} for kind in known])
    else:
        show_table(("engine", "what it is"), [(kind.name, kind.about) for kind in known])
