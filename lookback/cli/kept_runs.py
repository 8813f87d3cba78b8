"""The commands about existing runs: `runs list`, `verify`, `status` and `merge`."""

from __future__ import annotations

from typing import Annotated

import typer

from lookback.cli.app import app
from lookback.cli.options import Json, RunFolders
from lookback.cli.terminal import (
    FAILED,
    long_progress,
    print_json,
    say,
    show_runs,
    show_status,
    show_verification,
)

BreakLock = Annotated[
    bool,
    typer.Option(
        "--break-lock", help="In an object store: remove the lock that a killed process left."
    ),
]
runs_app = typer.Typer(help="List, verify and merge existing runs.", no_args_is_help=True)
app.add_typer(runs_app, name="runs")


@runs_app.command("list")
def list_runs(
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER",
            help="Folders to search, here or at s3://, gs://, ...; by default runs.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the runs below folders: benchmark, model, items, N, status and size.

    The exit status is 3 if a manifest cannot be read. (`runs verify` checks all other files.)
    """
    from dataclasses import asdict

    from lookback.runs.status import list_runs as find

    runs = find(folders or ["runs"])
    if as_json:
        print_json([asdict(run) for run in runs])
    else:
        show_runs(runs)
    if any(run.problem for run in runs):
        raise typer.Exit(FAILED)


@runs_app.command("verify")
def verify_runs(runs: RunFolders, as_json: Json = False) -> None:
    """Compare every byte of runs with what was recorded when they were written."""
    from lookback.runs.run import find_runs
    from lookback.runs.verify import verify

    results = {str(folder): verify(folder) for folder in find_runs(runs)}
    if as_json:
        print_json([{"run": name} | result.to_dict() for name, result in results.items()])
    else:
        for name, result in results.items():
            show_verification(name, result)
    if not all(result.ok for result in results.values()):
        raise typer.Exit(1)


@runs_app.command("status")
def show_runs_status(runs: RunFolders, as_json: Json = False) -> None:
    """Show how many items were tried, failed and are missing, and which jobs of --shard to run.

    The exit status is 3 unless every item of all runs was tried and none failed.
    """
    from lookback.runs.run import find_runs
    from lookback.runs.status import read_status

    states = {str(folder): read_status(folder) for folder in find_runs(runs)}
    if as_json:
        print_json([{"run": name} | status.to_dict() for name, status in states.items()])
    else:
        for name, status in states.items():
            show_status(name, status)
    if not all(status.complete for status in states.values()):
        raise typer.Exit(FAILED)


@runs_app.command("merge")
def merge_runs(
    run: Annotated[str, typer.Argument(help="The --out of jobs that were run with --shard.")],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Folder of the new run; by default RUN-merged.",
            show_default=False,
        ),
    ] = None,
    break_lock: BreakLock = False,
    as_json: Json = False,
) -> None:
    """Make one plain run of all jobs, with the bytes that one process would have written.

    The jobs' folders stay as they are. (A run need not be merged to be read.)
    """
    from lookback.io.storage import to_path
    from lookback.runs.merge import merge

    folder = to_path(run)
    target = to_path(out) if out else folder.with_name(f"{folder.name}-merged")
    with long_progress(f"merging to {target}", "shards") as bar:
        merged = merge(folder, target, break_lock=break_lock, progress=bar, say=say)
    manifest = merged.manifest
    counts = {"items": manifest.items, "failed": manifest.failed, "shards": len(manifest.shards)}
    if as_json:
        print_json({"run": str(target), "id": merged.id, "status": manifest.status} | counts)
    else:
        words = ", ".join(
            (f"{counts['items']} items", f"{counts['shards']} shards", f"{counts['failed']} failed")
        )
        print(f"{target}: {words}")
