"""The command `run`: candidates for every item of a benchmark, kept in a folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookback.cli.app import app
from lookback.cli.inputs import refuse_stdin
from lookback.cli.kept_runs import BreakLock
from lookback.cli.options import (
    DataOptions,
    DecodingOptions,
    EngineOptions,
    Json,
    JudgeOptions,
    PruneOptions,
    Source,
    complete_scorer,
    count_drawn,
    option,
)
from lookback.cli.ray import InFlight, Ray, RayCommand, RayCpus, RayGpus, parse_cluster
from lookback.cli.terminal import FAILED, console, duration, long_progress, print_json, say
from lookback.io.storage import to_path

if TYPE_CHECKING:
    from lookback.runs.manifest import Job
    from lookback.runs.plan import Plan
    from lookback.runs.start import Summary


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is: a `Plan`, its folder, and who does the work."""

    benchmark: str | None = option(help="One of `lookback benchmarks`.")
    model: str | None = option(help="A hub id or a folder; by default the embedded one.")
    out: str | None = option(
        metavar="PATH",
        help="The run's folder, here or at s3://, gs://, ...; by default runs/ and what it is.",
    )
    n: int = option(25, "-n", "--n", help="How many candidates per item.")
    seed: int = option(42, help="The same seed draws the same candidates.")
    limit: int | None = option(help="Use only the first N items.")
    split: str | None = option(help="Which items; by default what the paper uses.")
    data: DataOptions
    candidates: str | None = option(
        metavar="PATH", help="Do not draw: take these responses, a JSONL file or another run."
    )
    image: str = option(
        "own", help="own; or, for a control of a run: none, random (another item's)."
    )
    scorers: list[str] | None = option(
        metavar="NAME[@N]",
        help="Record a scorer that looks again, e.g. vauq, usc@5; may be repeated.",
        autocompletion=complete_scorer,
    )
    decoding: DecodingOptions
    pruning: PruneOptions
    workers: int = option(1, help="Processes that share the work, each with its own model.")
    shard: str | None = option(
        metavar="INDEX/COUNT",
        help="Make one part of the run, for array jobs: 0/16 to 15/16, to one --out.",
    )
    ray: Ray = None
    ray_cpus: RayCpus = 1
    ray_gpus: RayGpus = None
    in_flight: InFlight = None
    source: Source = None
    by_layer: bool = option(
        False, "--by-layer", help="Keep A in each layer too: for `study layers`."
    )
    look: int | None = option(
        min=1, help="Keep where the picks of the first N items looked: for the report."
    )
    engine: EngineOptions
    judge: JudgeOptions

    def plan(self) -> Plan:
        """Return the plan; options that were not given are those of a run of --candidates."""
        from lookback.runs.jobs import holds_run
        from lookback.runs.plan import Plan, settings_like
        from lookback.runs.run import Run

        n = self.n
        if self.candidates is None:
            n = count_drawn(n, self.decoding.temperature)
        if self.pruning.prune is None and self.pruning.prune_by is not None:
            raise typer.BadParameter("it goes with --prune", param_hint="--prune-by")
        settings: dict[str, Any] = {"benchmark": self.benchmark, "model": self.model}
        settings |= {"split": self.split, "limit": self.limit, "source": self.source}
        settings |= {"data": self.data.data, "metric": self.data.metric}
        settings |= {name: getattr(self.engine, name) for name in ("engine", "revision", "dtype")}
        if self.candidates is not None and holds_run(to_path(self.candidates)):
            same = settings_like(Run(self.candidates), self.model)
            settings = {key: same[key] if own is None else own for key, own in settings.items()}
        settings["engine"] = settings["engine"] or "transformers"
        if settings["benchmark"] is None:
            settings["benchmark"] = _own_data(settings["data"])
        judge = {"model": self.judge.judge_model, "prompt": self.judge.judge_prompt}
        return Plan(
            **settings,
            **asdict(self.decoding),
            candidates=self.candidates,
            judge={name: value for name, value in judge.items() if value},
            n=n,
            prune=self.pruning.pruning(n),
            seed=self.seed,
            image=self.image,
            by_layer=self.by_layer,
            look=self.look or 0,
            scorers=tuple(name for names in self.scorers or [] for name in names.split(",")),
            device=self.engine.device,
            device_map=self.engine.parse_device_map(),
            trust_remote_code=self.engine.trust_remote_code,
            engine_settings=self.engine.settings(),
            in_flight=self.in_flight,
        )


@app.command(cls=RayCommand)
def run(
    *,
    options: RunOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Try a few items, say how long all will take.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try items again that failed before.")
    ] = False,
    break_lock: BreakLock = False,
    as_json: Json = False,
) -> None:
    """Candidates for every item of a benchmark, with their signals, kept in a folder.

    With --data FILE and no --benchmark, of a file of your own: .jsonl, .csv or .parquet.
    Safe to interrupt: run the same command again to resume.
    """
    from lookback.runs.manifest import Job

    why = "each worker reads it, and so does a run that goes on"
    refuse_stdin("--candidates", options.candidates, why)
    job = None if options.shard is None else Job.parse(options.shard)
    workers = options.workers
    if workers < 1:
        raise ValueError(f"workers = {workers}: must be at least 1")
    plan = options.plan()
    cluster = parse_cluster(options.ray, options.ray_cpus, options.ray_gpus, dry_run)
    if dry_run:
        _estimate(plan, workers, job, as_json)
        return
    from lookback.runs.start import start

    folder = to_path(options.out) if options.out else _folder(plan)
    with long_progress(f"{plan.benchmark} to {folder}", "steps") as bar:
        summary = start(
            plan,
            folder,
            workers=workers,
            cluster=cluster,
            retry_failed=retry_failed,
            job=job,
            break_lock=break_lock,
            progress=bar,
            say=say,
        )
    if as_json:
        counts = {"items": summary.items, "failed": len(summary.failed), "worked": summary.worked}
        counts["left_out"] = summary.left_out
        print_json(
            {"run": str(summary.run.path), "manifest": asdict(summary.run.manifest)} | counts
        )
    else:
        show_summary(summary)
    if summary.failed or summary.left_out:
        raise typer.Exit(FAILED)


def show_summary(summary: Summary, most: int = 5) -> None:
    """Print how a run ended: results on stdout, what failed on stderr."""
    for name, error in summary.failed[:most]:
        say(f"failed: {name}: {error}")
    if len(summary.failed) > most:
        say(f"and {len(summary.failed) - most} more failures")
    run = summary.run
    print(f"{run.path}: {summary.items} items, {len(run.texts)} candidates, ", end="")
    lines = "1 line" if summary.left_out == 1 else f"{summary.left_out} lines"
    left_out = f", {lines} left out" if summary.left_out else ""
    print(f"{len(summary.failed)} failed{left_out}")


def _estimate(plan: Plan, workers: int, job: Job | None, as_json: bool) -> None:
    from lookback.runs.estimate import estimate

    with console(stderr=True).status("trying the first items"):
        result = estimate(plan, workers, job=job)
    if as_json:
        print_json(asdict(result))
        return
    print(
        f"{result.items} items in about {duration(result.seconds)} with {workers} worker(s), about "
        f"{result.megabytes:.1f} MB; from {result.tried} items, {result.failed} of which failed"
    )


def _own_data(data: str | None) -> str:
    """Return the benchmark's name for a file of the user's own."""
    from lookback.benchmarks.own import own_name

    if data is None or to_path(data).is_dir():
        raise ValueError(
            "name a --benchmark (`lookback benchmarks` lists them), or a file of your own: "
            "--data FILE"
        )
    return own_name(data)


def _folder(plan: Plan) -> Path:
    """Return runs/model_benchmark_seed; with "pruned", and the image of a control, if any."""
    model = Path(plan.model or "embedded").name
    kind = "given" if plan.candidates else str(plan.seed)
    image = "" if plan.image == "own" else f"_{plan.image}"
    benchmark = plan.benchmark.replace(":", "-")
    pruned = "" if plan.prune is None else "_pruned"
    return Path("runs") / f"{model}_{benchmark}_{kind}{pruned}{image}"
