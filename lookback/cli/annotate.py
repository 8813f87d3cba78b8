"""The command `annotate`: cases before raters, served or as a file. Parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lookback.cli.app import app
from lookback.cli.terminal import say


@app.command()
def annotate(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Cases of `lookback study disagreements`: studies/disagreements-cases.",
            show_default=False,
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes one that is free.")] = 8017,
    host: Annotated[
        str, typer.Option(help="0.0.0.0 lets raters on other machines in.")
    ] = "127.0.0.1",
    raters: Annotated[
        str | None,
        typer.Option(
            metavar="CODE,CODE",
            help="Who may vote; sets are given to them in turn. By default anybody.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Do not serve: write the page as a file that needs no network.",
        ),
    ] = None,
    set_: Annotated[
        int | None,
        typer.Option("--only-set", help="--export: the only set that the page has."),
    ] = None,
) -> None:
    """Let people judge which of two answers is better; votes go to DIR/votes.sqlite.

    Nothing on the page says which scorer picked which answer. `lookback study human DIR` counts.
    """
    from lookback.annotation.cases import read_cases
    from lookback.annotation.server import Server, file_page
    from lookback.annotation.votes import FILE, VoteFile

    cases = read_cases(folder)
    codes = None if raters is None else [code for code in raters.split(",") if code.strip()]
    if codes == []:
        raise ValueError(f"--raters {raters!r:.40}: name at least one code")
    if export is not None:
        export.write_text(file_page(cases, set_, codes), encoding="utf-8")
        print(export)
        return
    if set_ is not None:
        raise typer.BadParameter("it goes with --export", param_hint="--only-set")
    votes = VoteFile(folder / FILE, cases, codes)
    with Server(votes, host, port) as server:
        sets = " + ".join(str(len(cases.of(number))) for number in cases.sets)
        say(f"{sets} cases; votes go to {votes.path}; Ctrl-C ends it")
        print(server.url, flush=True)
        server.serve_forever()
