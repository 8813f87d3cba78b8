"""The commands about models: `check`, `engines`."""

from __future__ import annotations

from typing import Annotated

import typer

from lookback.cli.app import (
    Device,
    DeviceMap,
    Dtype,
    EngineName,
    EngineSet,
    Json,
    Revision,
    TrustRemoteCode,
    app,
    load_settings,
)
from lookback.cli.terminal import console, long_progress, print_json, show_check, show_table


@app.command()
def check(
    model: Annotated[
        str | None,
        typer.Argument(help="A hub id or a folder; by default the embedded one."),
    ] = None,
    engine: EngineName = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    engine_set: EngineSet = None,
    as_json: Json = False,
) -> None:
    """Is all this true for a model, on this machine? Compares it with the model's own slow way."""
    from lookback.engines import Engine, load, require

    settings = load_settings(
        engine, device, dtype, revision, device_map, trust_remote_code, engine_set
    )
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


@app.command()
def engines(as_json: Json = False) -> None:
    """List the engines: what can run a model."""
    from lookback.engines import ENGINES

    known = ENGINES.all().values()
    if as_json:
        print_json([{"name": one.name, "about": one.about} for one in known])
    else:
        show_table(("engine", "what it is"), [(one.name, one.about) for one in known])
