"""The command `export`: a run as other tools read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from lookback.cli.app import app
from lookback.cli.options import AllowOutside, Json, complete_scorer, option
from lookback.cli.terminal import LONGEST, long_progress, print_json, say
from lookback.errors import one_line
from lookback.integrations.exports import FORMATS, get_format
from lookback.io.storage import to_path

_LISTED = "; ".join(f"{kind.name}: {kind.about}" for kind in FORMATS.values())


@dataclass(frozen=True, kw_only=True)
class ContentOptions:
    """What is written."""

    PANEL: ClassVar[str] = "What is written"
    scorers: list[str] | None = option(
        metavar="NAME,NAME",
        help="Whose scores and ranks candidates get; the first one's picks are the answers. By "
        "default lookback.",
        autocompletion=complete_scorer,
    )
    alpha: float | None = option(help="LookBack's α; by default the model family's.")
    lam: float | None = option(help="LookBack's λ; by default the model family's.")
    n: int | None = option(
        None, "-n", "--n", help="Use only the first N candidates of each item; by default all."
    )
    flat: bool = option(False, "--flat", help="jsonl, hf-dataset: a row per candidate.")
    signals: bool = option(False, "--signals", help="With tokens and what was recorded of each.")
    images: bool | None = option(
        None,
        "--images/--no-images",
        help="inspect, hf-dataset: with the images; by default in inspect's logs alone.",
    )


@app.command("export")
def export_run(
    run: Annotated[str, typer.Argument(help="The folder of a run; here or at s3://, gs://, ...")],
    to: Annotated[
        str,
        typer.Option(metavar="FORMAT", help=f"{_LISTED}.", show_default=False),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="The file or (hf-dataset) folder to make; what is there is not written over.",
            show_default=False,
        ),
    ],
    *,
    content: ContentOptions,
    allow_outside: AllowOutside = False,
    as_json: Json = False,
) -> None:
    """A run for other tools: JSON lines, a log of Inspect AI, or a dataset with a card."""
    from lookback.integrations.exports.base import Request, export, shared_params
    from lookback.runs import open_run

    get_format(to)
    names = tuple(name for names in content.scorers or ["lookback"] for name in names.split(","))
    params = shared_params(names, content.alpha, content.lam)
    opened = open_run(run)
    if opened.manifest.status == "running":
        say(f"{run} is not finished: this is a part of it (`lookback runs status`)")
    request = Request(opened, to_path(out), names, params, content.n)
    with long_progress(f"{to} to {out}", "items") as bar:
        written = export(
            to, request, bar, flat=content.flat, signals=content.signals, images=content.images
        )
    for note in written.notes:
        say(note)
    if as_json:
        head = {"format": to, "run": run, "id": opened.id, "out": str(request.out)}
        print_json(head | written.to_dict())
        return
    parts = [f"{written.items} items", f"{written.failed} failed"]
    parts.append(f"{written.candidates} candidates")
    parts += [] if written.images is None else [f"{written.images} images"]
    print(one_line(f"{out}: {', '.join(parts)}", LONGEST))
    for name, value in written.metrics.items():
        if value is not None:
            print(f"best of {request.size} by {name}: mean quality {value:.4f}")
