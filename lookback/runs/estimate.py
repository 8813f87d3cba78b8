"""Estimate what a run will take, from its first items."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lookback.runs.layout import RunError
from lookback.runs.manifest import Job
from lookback.runs.plan import Plan
from lookback.runs.start import check_workers
from lookback.runs.work import Worker
from lookback.signals import BY_LAYER

BYTES_PER_SHARE = 4  # of each layer, with --by-layer
BYTES_A_TOKEN = 21  # measured on sampled runs: 4 signals of 4 bytes, ids and words


@dataclass(frozen=True)
class Estimate:
    """What a run will take, from its first items."""

    items: int
    tried: int
    seconds: float  # for the whole run
    megabytes: float
    failed: int  # of those tried


def estimate(plan: Plan, workers: int = 1, tries: int = 3, job: Job | None = None) -> Estimate:
    """Try the first items without keeping anything; the very first only warms up."""
    check_workers(workers)
    worker = Worker(plan, Path())
    worker.load()
    places = worker.places_in(worker.shards if job is None else job.share(worker.shards))
    looked = len({*worker.places[: plan.look]}.intersection(places))
    total, in_flight = len(places), worker.in_flight
    if total < 2:
        raise RunError(f"there is nothing to estimate for {total} items: run it")
    first, *others = places[: max(tries, in_flight) + 1]
    trials = _try(worker, [first])
    began = time.perf_counter()
    for i in range(0, len(others), in_flight):
        trials += _try(worker, others[i : i + in_flight])
    looking = sum(trial.looking for trial in trials[1:])
    per_item = (time.perf_counter() - began - looking) / len(others)
    seconds = (per_item * total + looking / len(others) * looked) / workers
    bytes_per_token = BYTES_A_TOKEN + BYTES_PER_SHARE * max(trial.layers for trial in trials)
    tokens = sum(trial.tokens for trial in trials) / len(trials)
    failed = sum(trial.failed for trial in trials)
    return Estimate(total, len(trials), seconds, tokens * total * bytes_per_token / 1e6, failed)


class _Trial(NamedTuple):
    """The cost of an item: tokens, layers that are kept, seconds to look; and whether it failed."""

    tokens: int
    layers: int
    looking: float
    failed: bool


def _try(worker: Worker, places: Sequence[int]) -> list[_Trial]:
    """Do all that a run does with some items, and keep nothing."""
    trials = []
    for answer in worker.sample(places):
        place, candidates, looking = answer.head["item"], answer.candidates, 0.0
        rows = worker.rows(place, candidates)
        if candidates:
            for name in worker.plan.scorers:
                worker.score(name, place, candidates)
        if candidates and worker.plan.look:
            before = time.perf_counter()
            worker.look(place, candidates)
            looking = time.perf_counter() - before
        depths = (len(row[BY_LAYER][0]) for row in rows if row.get(BY_LAYER))
        tokens = sum(row["length"] for row in rows)
        trials.append(_Trial(tokens, next(depths, 0), looking, answer.head["error"] is not None))
    return trials
