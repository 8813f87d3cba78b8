"""The command that makes runs: `run`. Parse, call, print."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from lookback.cli.app import (
    AllowOutside,
    Data,
    Device,
    DeviceMap,
    Dtype,
    EngineName,
    EngineSet,
    Json,
    JudgeModel,
    JudgePrompt,
    MaxNewTokens,
    Metric,
    Revision,
    Source,
    Temperature,
    TopP,
    TrustRemoteCode,
    app,
    complete_scorer,
    parse_device_map,
    settings_of,
)
from lookback.cli.kept_runs import BreakLock
from lookback.cli.ray import InFlight, Ray, RayCommand, RayCpus, RayGpus, parse_cluster
from lookback.cli.start import FAILED
from lookback.cli.stdin import refuse_stdin
from lookback.cli.steering import Prune, PruneBy, count_drawn, parse_pruning
from lookback.cli.terminal import (
    console,
    duration,
    long_progress,
    print_json,
    say,
    show_summary,
)
from lookback.io.storage import to_path


@app.command(cls=RayCommand)
def run(
    benchmark: Annotated[
        str | None,
        typer.Option(help="One of `lookback benchmarks`.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A hub id or a folder; by default the embedded one.", show_default=False),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The run's folder, here or at s3://, gs://, ...; by default runs/ and what it is.",
            show_default=False,
        ),
    ] = None,
    n: Annotated[int, typer.Option("-n", "--n", help="How many candidates per item.")] = 25,
    seed: Annotated[int, typer.Option(help="The same seed draws the same candidates.")] = 42,
    limit: Annotated[
        int | None, typer.Option(help="Only the first so many items.", show_default=False)
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Which items; by default what the paper uses.", show_default=False),
    ] = None,
    data: Data = None,
    metric: Metric = None,
    allow_outside: AllowOutside = False,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Do not draw: take these responses, a JSONL file or another run.",
            show_default=False,
        ),
    ] = None,
    image: Annotated[
        str,
        typer.Option(help="own; or, for a control of a run: none, random (another item's)."),
    ] = "own",
    scorers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[@N]",
            help="Record a scorer that looks again, e.g. vauq, usc@5; may be repeated.",
            show_default=False,
            autocompletion=complete_scorer,
        ),
    ] = None,
    temperature: Temperature = 1.2,
    top_p: TopP = 0.9,
    max_new_tokens: MaxNewTokens = 256,
    prune: Prune = None,
    prune_by: PruneBy = None,
    workers: Annotated[
        int, typer.Option(help="Processes that share the work, each with its own model.")
    ] = 1,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="INDEX/COUNT",
            help="Make one part of the run, for array jobs: 0/16 to 15/16, to one --out.",
            show_default=False,
        ),
    ] = None,
    ray: Ray = None,
    ray_cpus: RayCpus = 1,
    ray_gpus: RayGpus = None,
    in_flight: InFlight = None,
    source: Source = None,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Keep A in each layer too: for `study layers`.")
    ] = False,
    look: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Keep where the picks of the first so many items looked: for the report.",
            show_default=False,
        ),
    ] = None,
    engine: EngineName = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    engine_set: EngineSet = None,
    judge_model: JudgeModel = None,
    judge_prompt: JudgePrompt = None,
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
    Stopped at any point, the same command goes on where it was.
    """
    from lookback.runs.jobs import holds_run
    from lookback.runs.manifest import Job
    from lookback.runs.plan import Plan, settings_like
    from lookback.runs.run import Run

    refuse_stdin("--candidates", candidates, "each worker reads it, and so does a run that goes on")
    job = None if shard is None else Job.parse(shard)
    if workers < 1:
        raise ValueError(f"workers = {workers}: must be at least 1")
    n = count_drawn(n, temperature) if candidates is None else n
    if prune is None and prune_by is not None:
        raise typer.BadParameter("it goes with --prune", param_hint="--prune-by")
    settings: dict[str, Any] = {"benchmark": benchmark, "model": model, "data": data}
    settings |= {"split": split, "limit": limit, "revision": revision, "dtype": dtype}
    settings |= {"engine": engine, "source": source, "metric": metric}
    if candidates is not None and holds_run(to_path(candidates)):
        same = settings_like(Run(candidates), model)
        settings = {key: same[key] if given is None else given for key, given in settings.items()}
    settings["engine"] = settings["engine"] or "transformers"
    if settings["benchmark"] is None:
        settings["benchmark"] = _own_data(settings["data"])
    plan = Plan(
        **settings,
        candidates=candidates,
        judge={
            name: given
            for name, given in (("model", judge_model), ("prompt", judge_prompt))
            if given
        },
        n=n,
        temperature=temperature,
        top_p=top_p,
        max_new_tokens=max_new_tokens,
        prune=parse_pruning(prune, prune_by, n),
        seed=seed,
        image=image,
        by_layer=by_layer,
        look=look or 0,
        scorers=tuple(name for given in scorers or [] for name in given.split(",")),
        device=device,
        device_map=parse_device_map(device_map),
        trust_remote_code=trust_remote_code,
        engine_settings=settings_of(engine_set, "--engine-set"),
        in_flight=in_flight,
    )
    cluster = parse_cluster(ray, ray_cpus, ray_gpus, dry_run)
    if dry_run:
        _estimate(plan, workers, job, as_json)
        return
    from lookback.runs.start import start

    folder = to_path(out) if out else _folder(plan)
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


def _estimate(plan: Any, workers: int, job: Any, as_json: bool) -> None:
    from lookback.runs.estimate import estimate

    with console(stderr=True).status("trying the first items"):
        found = estimate(plan, workers, job=job)
    if as_json:
        print_json(asdict(found))
        return
    print(
        f"{found.items} items in about {duration(found.seconds)} with {workers} worker(s), "
        f"about {found.megabytes:.1f} MB; from {found.tried} items, {found.failed} of which failed"
    )


def _own_data(data: str | None) -> str:
    """The benchmark that a file of one's own is."""
    from lookback.benchmarks.own import own_name

    if data is None or to_path(data).is_dir():
        raise ValueError(
            "name a --benchmark (`lookback benchmarks` lists them), or a file of your own: "
            "--data FILE"
        )
    return own_name(data)


def _folder(plan: Any) -> Path:
    """runs/model_benchmark_seed; and that it is pruned, or the image for a control."""
    model = Path(plan.model or "embedded").name
    kind = "given" if plan.candidates else str(plan.seed)
    image = "" if plan.image == "own" else f"_{plan.image}"
    benchmark = plan.benchmark.replace(":", "-")
    pruned = "" if plan.prune is None else "_pruned"
    return Path("runs") / f"{model}_{benchmark}_{kind}{pruned}{image}"
