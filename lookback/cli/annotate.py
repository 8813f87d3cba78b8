"""The command `annotate`: cases before raters, served or as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lookback.cli.app import app
from lookback.cli.options import option
from lookback.cli.terminal import say


@dataclass(frozen=True, kw_only=True)
class AnnotateOptions:
    """Where cases are shown, to whom and which."""

    port: int = option(8017, min=0, max=65535, help="0 takes one that is free.")
    host: str = option("127.0.0.1", help="0.0.0.0 lets raters on other machines in.")
    raters: str | None = option(
        metavar="CODE,CODE",
        help="Who may vote; sets are given to them in turn. By default anybody.",
    )
    export: Path | None = option(
        metavar="FILE", help="Do not serve: write the page as a file that needs no network."
    )
    only_set: int | None = option(help="--export: the only set that the page has.")


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
    *,
    options: AnnotateOptions,
) -> None:
    """Let people judge which of two answers is better; votes go to DIR/votes.sqlite.

    Nothing on the page says which scorer picked which answer. `lookback study human DIR` counts.
    """
    from lookback.annotation.cases import read_cases
    from lookback.annotation.server import Server, file_page
    from lookback.annotation.votes import FILE, VoteFile

    cases = read_cases(folder)
    codes = None
    if options.raters is not None:
        codes = [code for code in options.raters.split(",") if code.strip()]
        if not codes:
            raise ValueError(f"--raters {options.raters!r:.40}: name at least one code")
    if options.export is not None:
        page = file_page(cases, options.only_set, codes)
        options.export.write_text(page, encoding="utf-8")
        print(options.export)
        return
    if options.only_set is not None:
        raise typer.BadParameter("it goes with --export", param_hint="--only-set")
    votes = VoteFile(folder / FILE, cases, codes)
    with Server(votes, options.host, options.port) as server:
        sets = " + ".join(str(len(cases.of(number))) for number in cases.sets)
        say(f"{sets} cases; votes go to {votes.path}; Ctrl-C ends it")
        print(server.url, flush=True)
        server.serve_forever()
