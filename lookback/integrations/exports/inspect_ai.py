"""The head of an Inspect log: what was evaluated, with what settings, and the numbers of it all."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import lookback
from lookback.conversations import Conversation
from lookback.integrations.exports.base import (
    Entry,
    Request,
    Row,
    Shown,
    Tally,
    Written,
    entries,
    need,
)
from lookback.io.json_values import facts, plain
from lookback.pages import image_uri
from lookback.runs import Run
from lookback.runs.layout import replacing

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress


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


LARGEST = 512
"""Pixels of the longer side of an image in a log, at most."""
STOPS = {"end": "stop", "length": "max_tokens", "stop": "stop"}
"""Why a candidate ended, as Inspect calls it."""
STATUS = {"finished": "success", "running": "cancelled", "failed": "error"}


def write(request: Request, progress: Progress) -> Written:
    """Write the log."""
    need("inspect_ai", "inspect-ai", "inspect")
    from inspect_ai.log import EvalError, EvalLog, EvalPlan, EvalPlanStep, write_eval_log

    run, tally = request.run, Tally.of(request)
    samples = _Samples(request)
    made = []
    for number, entry in enumerate(entries(request), start=1):
        made.append(samples.make(entry, tally.add(entry)))
        progress(number, len(run.items))
    first = request.scorers[0]
    step = {"n": request.size, "scorer": first} | plain(request.settings_of(first))
    log = EvalLog(
        status=STATUS[run.manifest.status],
        eval=make_spec(request),
        plan=EvalPlan(steps=[EvalPlanStep(solver="lookback/best_of", params=step)]),
        results=make_results(request, tally),
        stats=make_stats(run, samples.seconds.values()),
        error=EvalError(message="every item failed", traceback="", traceback_ansi="")
        if run.manifest.status == "failed"
        else None,
        samples=made,
    )
    request.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(request.out) as temporary:
        write_eval_log(log, str(temporary), format=request.out.suffix[1:])
    return tally.written(samples.images if request.images else None, samples.notes())


class _Samples:
    """Makes samples, and counts what they lack."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.shown = Shown(request.run) if request.images else None
        self.seconds = _seconds(request.run)
        self.images = 0
        self.lost: list[tuple[str, str]] = []

    def make(self, entry: Entry, outcomes: dict[str, float]) -> Any:
        """A sample of an item."""
        from inspect_ai.log import EvalError, EvalSample
        from inspect_ai.model import ChatMessageAssistant, ModelOutput

        row, error = entry.item, entry.item["error"]
        asked = self._messages(row)
        pick = entry.pick(self.request.scorers[0])
        said = [] if pick is None else [ChatMessageAssistant(content=pick["text"])]
        keep = ("item", "question", "source", "truth", "image", "messages")
        metadata = {name: row[name] for name in keep} | {"candidates": entry.candidates}
        return EvalSample(
            id=row["id"],
            epoch=1,
            input=asked,
            target=_target(row["truth"]),
            total_time=self.seconds.get(row["item"]),
            messages=[*asked, *said],
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
        """By scorer: the quality of its pick, and which that is."""
        from inspect_ai.scorer import Score

        found = {}
        for name, value in outcomes.items():
            pick = entry.pick(name)
            assert pick is not None
            about = {"index": pick["index"], "score": pick["scores"][name]}
            found[name] = Score(value=value, answer=pick["text"], metadata=about)
        return found

    def _messages(self, row: Row) -> list[Any]:
        """What was asked, as Inspect's messages."""
        if self.shown is None or row["error"] is not None:
            return _by_name(row)
        shown = self.shown.needed(row) if self.request.insist else self.shown.of(row)
        if isinstance(shown, str):
            self.lost.append((row["id"], shown))
            return _by_name(row)
        self.images += len(shown.images)
        return [_message(turn) for turn in with_uris(shown)]

    def notes(self) -> tuple[str, ...]:
        """Which images are missing."""
        if not self.lost:
            return ()
        name, why = self.lost[0]
        return (f"{len(self.lost)} items are without their images, e.g. {name}: {why}",)


def _seconds(run: Run) -> dict[int, float]:
    """What each item took, by its position in the split: to draw, and to be scored."""
    found: dict[int, float] = {}
    for row in run.timings():
        found[row["item"]] = found.get(row["item"], 0.0) + row["ms"] / 1000
    return found


def _target(truth: Any) -> str:
    """What would have been right, in words: the answer, if there is one, else all that is known."""
    known = [] if truth is None else facts(truth)
    return dict(known).get("answer", "; ".join(f"{name}: {text}" for name, text in known))


def with_uris(shown: Conversation) -> list[dict[str, Any]]:
    """Messages with images as data URIs, none larger than `LARGEST`."""
    uris = iter([image_uri(image, LARGEST) for image in shown.images])
    turns = shown.to_json()
    for turn in turns:
        for part in turn["content"]:
            if part["type"] == "image":
                part["image"] = next(uris)
    return turns


def _by_name(row: Row) -> list[Any]:
    """What was asked with images by their names; a failed item has its question alone."""
    plainly = {"role": "user", "content": [{"type": "text", "text": row["question"]}]}
    return [_message(turn) for turn in row["messages"] or [plainly]]


def _message(turn: dict[str, Any]) -> Any:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser}
    kind = kinds.get(turn["role"], ChatMessageAssistant)
    return kind(content=[_content(part) for part in turn["content"]])


def _content(part: dict[str, Any]) -> Any:
    """A text or an image; of what is not in the log, its name."""
    from inspect_ai.model import ContentImage, ContentText

    kind = part["type"]
    if kind == "text":
        return ContentText(text=part["text"])
    if kind == "image" and str(part["image"]).startswith("data:"):
        return ContentImage(image=part["image"])
    return ContentText(text=f"[{kind}: {part[kind]}]")
