"""The options of a run on a Ray cluster, and of how many questions are asked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from lookback.runs.ray_executor import Cluster

RAY = "--ray"
PANEL = "Several machines"

Ray = Annotated[
    str | None,
    typer.Option(
        RAY,
        metavar="[ADDRESS]",
        help="Run the workers on a Ray cluster: the one at HOST:PORT; without ADDRESS the one that "
        "RAY_ADDRESS names or that runs on this machine, else one that is started here; `local` "
        "always starts one.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
RayCpus = Annotated[
    int,
    typer.Option(min=1, help="--ray: cores and threads of each worker.", rich_help_panel=PANEL),
]
RayGpus = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="--ray: GPUs of each worker; by default 1 if the cluster has any.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
InFlight = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Questions in flight per worker; by default as many as its engine wants.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]


class RayCommand(TyperCommand):
    """A command whose `--ray` needs no value: Typer's options have one or none, never either."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, complete_ray(args))


def complete_ray(args: list[str]) -> list[str]:
    """Return the arguments with a value behind each `--ray` that has none, up to a `--`."""
    completed: list[str] = []
    for number, arg in enumerate(args):
        if arg == "--":
            return [*completed, *args[number:]]
        alone = number + 1 == len(args) or args[number + 1].startswith("-")
        completed += [arg, "auto"] if arg == RAY and alone else [arg]
    return completed


def parse_cluster(
    address: str | None, cpus: int, gpus: float | None, dry_run: bool
) -> Cluster | None:
    """Return the cluster that `--ray` and its options name; None without `--ray`."""
    if address is None:
        if cpus != 1 or gpus is not None:
            raise typer.BadParameter("it goes with --ray", param_hint="--ray-cpus, --ray-gpus")
        return None
    if dry_run:
        raise typer.BadParameter("it tries items in this process", param_hint="--dry-run")
    from lookback.runs.ray_executor import Cluster, import_ray

    import_ray()  # said before a folder is made or data are read
    return Cluster(address, cpus, gpus)
