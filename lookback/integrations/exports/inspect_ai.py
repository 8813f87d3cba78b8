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
SOLVER = "lookback/best_of"
SAMPLED = ("temperature", "top_p", "seed")
METRICS = ("mean", "stderr")
"""Inspect's names of what a scorer's outcomes are summed up by."""


def write_log(request: Request, progress: Progress) -> Written:
    """Write the log."""
    log = base.need("inspect_ai.log", "inspect-ai", "inspect")
    run, tally = request.run, Tally(request)
    maker, samples = _SampleMaker(request), []
    for number, entry in enumerate(base.entries(request), start=1):
        samples.append(log.EvalSample.model_validate(maker.make(entry, tally.add(entry))))
        progress(number, len(run.items))
    first = request.scorers[0]
    step = {"n": request.size, "scorer": first} | plain(request.settings_of(first))
    whole = log.EvalLog.model_validate(
        {
            "status": STATUS[run.manifest.status],
            "eval": _spec(request),
            "plan": {"steps": [{"solver": SOLVER, "params": step}]},
            "results": _results(request, tally),
            "stats": _stats(run, maker.seconds.values()),
            "error": _error("every item failed" if run.manifest.status == "failed" else None),
            "samples": samples,
        }
    )
    request.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(request.out) as temporary:
        log.write_eval_log(whole, str(temporary), format=request.out.suffix[1:])
    return tally.written(maker.images if request.images else None, maker.notes())


def _spec(request: Request) -> Row:
    """Return model, task, dataset, sampling, versions, and all that the run's manifest says."""
    run, manifest = request.run, request.run.manifest
    settings = run.settings
    sampling = settings.get("sampling") or {}
    drawn = {name: sampling[name] for name in SAMPLED if name in sampling}
    model = {k: settings.get(k) for k in ("engine", "revision", "dtype", "model_class")}
    return {
        "eval_id": run.id,
        "run_id": run.id,
        "task_id": run.id,
        "created": manifest.created or datetime.now(UTC).isoformat(timespec="seconds"),
        "task": run.benchmark,
        "task_args": {"split": settings["split"], "image": run.image, "n": request.size},
        "solver": SOLVER,
        "dataset": {
            "name": f"{manifest.title or run.benchmark} {settings['split']}",
            "location": manifest.data,
            "samples": len(run.items),
            "sample_ids": run.items["id"].to_pylist(),
            "shuffled": False,
        },
        "model": run.model,
        "model_generate_config": drawn
        | {"max_tokens": sampling.get("max_new_tokens"), "num_choices": sampling.get("n")},
        "model_args": {name: value for name, value in model.items() if value is not None},
        "config": {"limit": settings.get("limit"), "epochs": 1},
        "revision": _revision(run),
        "packages": {"lookback-vlm": lookback.__version__},
        "metadata": {
            "run": run.id,
            "format": manifest.format,
            "status": manifest.status,
            "made_with": dict(manifest.versions),
            "settings": plain(settings),
            "scorers": {name: plain(request.settings_of(name)) for name in request.scorers},
        },
        "scorers": [
            {
                "name": name,
                "options": plain(request.settings_of(name)),
                "metrics": [{"name": f"inspect_ai/{metric}"} for metric in METRICS],
            }
            for name in request.scorers
        ],
    }


def _results(request: Request, tally: Tally) -> Row:
    """Return the mean of each scorer's outcomes and its standard error, as Inspect does."""
    done, scores = tally.items - tally.failed, []
    for name, mean in tally.means().items():
        if mean is None:
            continue
        outcomes = tally.values[name]
        count = len(outcomes)
        stderr = float(np.std(outcomes, ddof=1) / np.sqrt(count)) if count > 1 else 0.0
        values = zip(METRICS, (mean, stderr), strict=True)
        scores.append(
            {
                "name": name,
                "scorer": name,
                "scored_samples": count,
                "unscored_samples": done - count,
                "params": plain(request.settings_of(name)),
                "metrics": {metric: {"name": metric, "value": value} for metric, value in values},
            }
        )
    return {"total_samples": tally.items, "completed_samples": done, "scores": scores}


def _stats(run: Run, seconds: Collection[float]) -> Row:
    """Return when it began and ended, as if items had followed each other: no more is known."""
    if not (run.manifest.created and seconds):
        return {}
    began = datetime.fromisoformat(run.manifest.created)
    ended = began + timedelta(seconds=sum(seconds))
    return {"started_at": began.isoformat(), "completed_at": ended.isoformat()}


def _revision(run: Run) -> Row | None:
    """Return the commit of the code that made the run; a run from elsewhere has none."""
    commit = run.manifest.commit
    if not commit:
        return None
    dirty = commit.endswith("+")
    return {"type": "git", "origin": "", "commit": commit.rstrip("+"), "dirty": dirty}


class _SampleMaker:
    """Makes samples, and counts images and those that are missing."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.shown = Shown(request.run) if request.images else None
        self.seconds = _seconds(request.run)
        self.images = 0
        self.missing: list[tuple[str, str]] = []

    def make(self, entry: Entry, outcomes: dict[str, float]) -> Row:
        row = entry.item
        messages = [_message(turn) for turn in self._turns(row)]
        pick = entry.pick(self.request.scorers[0])
        output, answer = {}, []
        if pick is not None:
            answer = [{"role": "assistant", "content": pick["text"]}]
            output = self._output(pick)
        keep = ("item", "question", "source", "truth", "image", "messages")
        return {
            "id": row["id"],
            "epoch": 1,
            "input": messages,
            "target": _target(row["truth"]),
            "total_time": self.seconds.get(row["item"]),
            "messages": messages + answer,
            "output": output,
            "scores": None if pick is None else _scores(entry, outcomes),
            "metadata": {name: row[name] for name in keep} | {"candidates": entry.candidates},
            "error": _error(row["error"]),
        }

    def _output(self, pick: Row) -> Any:
        output = base.need("inspect_ai.model", "inspect-ai", "inspect").ModelOutput
        stop = STOPS.get(pick["finish"], "unknown")
        return output.from_content(self.request.run.model, pick["text"], stop_reason=stop)

    def _turns(self, row: Row) -> list[Row]:
        """Return what was asked."""
        if self.shown is None or row["error"] is not None:
            return _by_name(row)
        shown = self.shown.needed(row) if self.request.insist else self.shown.of(row)
        if isinstance(shown, str):
            self.missing.append((row["id"], shown))
            return _by_name(row)
        self.images += len(shown.images)
        return with_uris(shown)

    def notes(self) -> tuple[str, ...]:
        if not self.missing:
            return ()
        name, why = self.missing[0]
        return (f"{len(self.missing)} items are without their images, e.g. {name}: {why}",)


def _scores(entry: Entry, outcomes: dict[str, float]) -> dict[str, Row]:
    """Return by scorer the quality of its pick, and which that is."""
    scores = {}
    for name, value in outcomes.items():
        pick = entry.pick(name)
        assert pick is not None
        about = {"index": pick["index"], "score": pick["scores"][name]}
        scores[name] = {"value": value, "answer": pick["text"], "metadata": about}
    return scores


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


def _by_name(row: Row) -> list[Row]:
    """Return what was asked with images by their names; a failed item has its question alone."""
    question = {"role": "user", "content": [{"type": "text", "text": row["question"]}]}
    return row["messages"] or [question]


def _message(turn: Row) -> Row:
    role = turn["role"] if turn["role"] in ("system", "user") else "assistant"
    return {"role": role, "content": [_content(part) for part in turn["content"]]}


def _content(part: Row) -> Row:
    """Return a text or an image; of what is not in the log, its name."""
    kind = part["type"]
    if kind == "text":
        return {"type": "text", "text": part["text"]}
    if kind == "image" and str(part["image"]).startswith("data:"):
        return {"type": "image", "image": part["image"]}
    return {"type": "text", "text": f"[{kind}: {part[kind]}]"}


def _error(message: str | None) -> Row | None:
    return {"message": message, "traceback": "", "traceback_ansi": ""} if message else None
