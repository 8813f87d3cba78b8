"""The head of an Inspect log: what was evaluated, with what settings, and the numbers of it all."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import lookback
from lookback.exports.outcomes import Tally
from lookback.exports.request import Request
from lookback.plain import plain
from lookback.runs import Run

SAMPLED = ("temperature", "top_p", "seed")
METRICS = ("mean", "stderr")
"""Inspect's names of what a scorer's outcomes are summed up by."""


def make_spec(request: Request) -> Any:
    """Model, task, dataset, sampling, versions, and all that the run's manifest says."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalSpec
    from inspect_ai.model import GenerateConfig

    run, manifest = request.run, request.run.manifest
    settings = run.settings
    sampling = settings.get("sampling") or {}
    drawn = {name: sampling[name] for name in SAMPLED if name in sampling}
    model = {k: settings.get(k) for k in ("engine", "revision", "dtype", "model_class")}
    return EvalSpec(
        eval_id=run.id,
        run_id=run.id,
        task_id=run.id,
        created=manifest.created or datetime.now(UTC).isoformat(timespec="seconds"),
        task=run.benchmark,
        task_args={"split": settings["split"], "image": run.image, "n": request.size},
        solver="lookback/best_of",
        dataset=EvalDataset(
            name=f"{manifest.title or run.benchmark} {settings['split']}",
            location=manifest.data,
            samples=len(run.items),
            sample_ids=run.items["id"].to_pylist(),
            shuffled=False,
        ),
        model=run.model,
        model_generate_config=GenerateConfig(
            **drawn,
            max_tokens=sampling.get("max_new_tokens"),
            num_choices=sampling.get("n"),
        ),
        model_args={name: value for name, value in model.items() if value is not None},
        config=EvalConfig(limit=settings.get("limit"), epochs=1),
        revision=_revision(run),
        packages={"lookback-vlm": lookback.__version__},
        metadata={
            "run": run.id,
            "format": manifest.format,
            "status": manifest.status,
            "made_with": dict(manifest.versions),
            "settings": plain(settings),
            "scorers": {name: plain(request.settings_of(name)) for name in request.scorers},
        },
        scorers=[_scorer(name, request) for name in request.scorers],
    )


def make_results(request: Request, tally: Tally) -> Any:
    """The mean of each scorer's outcomes and its standard error, as Inspect computes them."""
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    done = tally.items - tally.failed
    scores = []
    for name, mean in tally.means().items():
        if mean is None:
            continue
        values = dict(zip(METRICS, (mean, tally.stderr(name)), strict=True))
        count = len(tally.values[name])
        scores.append(
            EvalScore(
                name=name,
                scorer=name,
                scored_samples=count,
                unscored_samples=done - count,
                params=plain(request.settings_of(name)),
                metrics={key: EvalMetric(name=key, value=v) for key, v in values.items()},
            )
        )
    return EvalResults(total_samples=tally.items, completed_samples=done, scores=scores)


def make_stats(run: Run, seconds: Collection[float]) -> Any:
    """When it began, and as if item after item had followed: a run keeps no more of its times."""
    from inspect_ai.log import EvalStats

    if not (run.manifest.created and seconds):
        return EvalStats()
    began = datetime.fromisoformat(run.manifest.created)
    ended = began + timedelta(seconds=sum(seconds))
    return EvalStats(started_at=began.isoformat(), completed_at=ended.isoformat())


def _scorer(name: str, request: Request) -> Any:
    from inspect_ai.log._log import EvalMetricDefinition, EvalScorer

    metrics = [EvalMetricDefinition(name=f"inspect_ai/{metric}") for metric in METRICS]
    return EvalScorer(name=name, options=plain(request.settings_of(name)), metrics=metrics)


def _revision(run: Run) -> Any:
    """The commit of the code that made the run; a run from elsewhere has none."""
    from inspect_ai.log import EvalRevision

    commit = run.manifest.commit
    if not commit:
        return None
    return EvalRevision(
        type="git", origin="", commit=commit.rstrip("+"), dirty=commit.endswith("+")
    )
