"""A run as a log of Inspect AI: what was evaluated, a sample per item, and the numbers of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

import lookback
from lookback.conversations import Conversation
from lookback.integrations.exports import base
from lookback.integrations.exports.base import Entry, Request, Row, Shown, Tally, Written
from lookback.io.json_values import facts, plain
from lookback.pages import image_uri
from lookback.runs import Run
from lookback.runs.layout import replacing

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress


LARGEST = 512
"""Pixels of the longer side of an image in a log, at most."""
STOPS = {"end": "stop", "length": "max_tokens", "stop": "stop"}
"""Why a candidate ended, as Inspect calls it."""
STATUS = {"finished": "success", "running": "cancelled", "failed": "error"}
SAMPLED = ("temperature", "top_p", "seed")
METRICS = ("mean", "stderr")
"""Inspect's names of what a scorer's outcomes are summed up by."""


def make_spec(request: Request) -> Any:
    """Return model, task, dataset, sampling, versions, and all that the run's manifest says."""
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
    """Return the mean of each scorer's outcomes and its standard error, as Inspect does."""
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    done = tally.items - tally.failed
    scores = []
    for name, mean in tally.means().items():
        if mean is None:
            continue
        outcomes = tally.values[name]
        count = len(outcomes)
        stderr = float(np.std(outcomes, ddof=1) / np.sqrt(count)) if count > 1 else 0.0
        values = dict(zip(METRICS, (mean, stderr), strict=True))
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
    """Return when it began and ended, as if items had followed each other: no more is known."""
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
    """Return the commit of the code that made the run; a run from elsewhere has none."""
    from inspect_ai.log import EvalRevision

    commit = run.manifest.commit
    if not commit:
        return None
    return EvalRevision(
        type="git", origin="", commit=commit.rstrip("+"), dirty=commit.endswith("+")
    )


def write_log(request: Request, progress: Progress) -> Written:
    """Write the log."""
    base.need("inspect_ai", "inspect-ai", "inspect")
    from inspect_ai.log import EvalError, EvalLog, EvalPlan, EvalPlanStep, write_eval_log

    run, tally = request.run, Tally(request)
    maker, samples = _SampleMaker(request), []
    for number, entry in enumerate(base.entries(request), start=1):
        samples.append(maker.make(entry, tally.add(entry)))
        progress(number, len(run.items))
    first = request.scorers[0]
    step = {"n": request.size, "scorer": first} | plain(request.settings_of(first))
    log = EvalLog(
        status=STATUS[run.manifest.status],
        eval=make_spec(request),
        plan=EvalPlan(steps=[EvalPlanStep(solver="lookback/best_of", params=step)]),
        results=make_results(request, tally),
        stats=make_stats(run, maker.seconds.values()),
        error=EvalError(message="every item failed", traceback="", traceback_ansi="")
        if run.manifest.status == "failed"
        else None,
        samples=samples,
    )
    request.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(request.out) as temporary:
        write_eval_log(log, str(temporary), format=request.out.suffix[1:])
    return tally.written(maker.images if request.images else None, maker.notes())


class _SampleMaker:
    """Makes samples, and counts images and those that are missing."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.shown = Shown(request.run) if request.images else None
        self.seconds = _seconds(request.run)
        self.images = 0
        self.missing: list[tuple[str, str]] = []

    def make(self, entry: Entry, outcomes: dict[str, float]) -> Any:
        from inspect_ai.log import EvalError, EvalSample
        from inspect_ai.model import ChatMessageAssistant, ModelOutput

        row, error = entry.item, entry.item["error"]
        messages = self._messages(row)
        pick = entry.pick(self.request.scorers[0])
        answer = [] if pick is None else [ChatMessageAssistant(content=pick["text"])]
        keep = ("item", "question", "source", "truth", "image", "messages")
        metadata = {name: row[name] for name in keep} | {"candidates": entry.candidates}
        return EvalSample(
            id=row["id"],
            epoch=1,
            input=messages,
            target=_target(row["truth"]),
            total_time=self.seconds.get(row["item"]),
            messages=[*messages, *answer],
            output=ModelOutput() if pick is None else self._output(pick),
            scores=None if pick is None else self._scores(entry, outcomes),
            metadata=metadata,
            error=EvalError(message=error, traceback="", traceback_ansi="") if error else None,
        )

    def _output(self, pick: Row) -> Any:
        from inspect_ai.model import ModelOutput

        stop = STOPS.get(pick["finish"], "unknown")
        return ModelOutput.from_content(self.request.run.model, pick["text"], stop_reason=stop)

    def _scores(self, entry: Entry, outcomes: dict[str, float]) -> dict[str, Any]:
        """Return by scorer the quality of its pick, and which that is."""
        from inspect_ai.scorer import Score

        scores = {}
        for name, value in outcomes.items():
            pick = entry.pick(name)
            assert pick is not None
            about = {"index": pick["index"], "score": pick["scores"][name]}
            scores[name] = Score(value=value, answer=pick["text"], metadata=about)
        return scores

    def _messages(self, row: Row) -> list[Any]:
        """Return what was asked."""
        if self.shown is None or row["error"] is not None:
            return _by_name(row)
        shown = self.shown.needed(row) if self.request.insist else self.shown.of(row)
        if isinstance(shown, str):
            self.missing.append((row["id"], shown))
            return _by_name(row)
        self.images += len(shown.images)
        return [_message(turn) for turn in with_uris(shown)]

    def notes(self) -> tuple[str, ...]:
        if not self.missing:
            return ()
        name, why = self.missing[0]
        return (f"{len(self.missing)} items are without their images, e.g. {name}: {why}",)


def _seconds(run: Run) -> dict[int, float]:
    """Return what each item took, by its position in the split: to draw, and to be scored."""
    seconds: defaultdict[int, float] = defaultdict(float)
    for row in run.timings():
        seconds[row["item"]] += row["ms"] / 1000
    return seconds


def _target(truth: Any) -> str:
    """Return what would have been right: the answer, if there is one, else all that is known."""
    known = [] if truth is None else facts(truth)
    return dict(known).get("answer", "; ".join(f"{name}: {text}" for name, text in known))


def with_uris(shown: Conversation) -> list[dict[str, Any]]:
    """Return messages with images as data URIs, none larger than `LARGEST`."""
    uris = iter([image_uri(image, LARGEST) for image in shown.images])
    turns = shown.to_json()
    for turn in turns:
        for part in turn["content"]:
            if part["type"] == "image":
                part["image"] = next(uris)
    return turns


def _by_name(row: Row) -> list[Any]:
    """Return what was asked with images by their names; a failed item has its question alone."""
    plainly = {"role": "user", "content": [{"type": "text", "text": row["question"]}]}
    return [_message(turn) for turn in row["messages"] or [plainly]]


def _message(turn: dict[str, Any]) -> Any:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser}
    kind = kinds.get(turn["role"], ChatMessageAssistant)
    return kind(content=[_content(part) for part in turn["content"]])


def _content(part: dict[str, Any]) -> Any:
    """Return a text or an image; of what is not in the log, its name."""
    from inspect_ai.model import ContentImage, ContentText

    kind = part["type"]
    if kind == "text":
        return ContentText(text=part["text"])
    if kind == "image" and str(part["image"]).startswith("data:"):
        return ContentImage(image=part["image"])
    return ContentText(text=f"[{kind}: {part[kind]}]")
