"""Export a run: requests, items with their candidates, JSON lines; written whole or not at all."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.benchmarks.base import Item
from lookback.conversations import Conversation
from lookback.integrations.exports import FORMATS, OPTIONS, get_format
from lookback.io.json_values import finite, plain
from lookback.io.storage import AnyPath
from lookback.runs import Run
from lookback.runs.items import ItemLookup
from lookback.runs.layout import HEAD_COLUMNS, TEMPORARY, TOKEN_COLUMNS, RunError, replacing
from lookback.runs.part import Complete, by_shard, items_with_quality
from lookback.scores.base import Scorer, best_first, get_scorer
from lookback.signals import BY_LAYER
from lookback.studies.common.selection import outcome_of

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress

Row = dict[str, Any]
HASHED = "sha256:"


@dataclass(frozen=True)
class Request:
    """What is asked of an export.

    Attributes:
        run: what to write.
        out: where.
        scorers: whose scores and ranks candidates get; the first one's picks are the answers.
        params: settings that some scorers are given, by the scorer's name.
        n: of each item the first n candidates; None for all.
        flat: a row per candidate, not per item.
        signals: with tokens and what was recorded of each.
        images: with the images.
        insist: an image that cannot be had is an error, as somebody asked for it.
    """

    run: Run
    out: AnyPath
    scorers: tuple[str, ...] = ("lookback",)
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    n: int | None = None
    flat: bool = False
    signals: bool = False
    images: bool = False
    insist: bool = False

    def __post_init__(self) -> None:
        run = self.run
        if not self.scorers or len(set(self.scorers)) < len(self.scorers):
            raise ValueError(f"--scorers {','.join(self.scorers)}: name each once, at least one")
        if self.n is not None and not 1 <= self.n <= run.n:
            raise RunError(f"N = {self.n}: {run.path} has {run.n} candidates per item")
        run.check_draw(self.n)
        for name in self.scorers:
            scorer = get_scorer(name)
            scorer.check(self.params.get(name, {}))
            if not scorer.from_signals and run.n:  # said before anything is written
                run.scores(name, self.n, **self.params.get(name, {}))

    @property
    def size(self) -> int:
        """The most candidates of an item."""
        return self.run.n if self.n is None else self.n

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return a scorer's settings: its own, the family's, those of this request."""
        scorer = get_scorer(name)
        if scorer.from_signals:
            return scorer.defaults | scorer.settings(self.run.defaults, self.params.get(name, {}))
        recording = self.run.recording(name, self.size)
        return {} if recording is None else self.run.recorded_settings(recording)


def shared_params(
    scorers: tuple[str, ...], alpha: float | None, lam: float | None
) -> dict[str, dict[str, float]]:
    """Return `--alpha` and `--lam` for the scorers that are computed from signals and have them.

    Raises:
        SettingError: no scorer has one of them.
    """
    params = {name: value for name, value in (("alpha", alpha), ("lam", lam)) if value is not None}
    computed = [scorer for scorer in map(get_scorer, scorers) if scorer.from_signals]
    for name, value in params.items():
        if not computed:
            raise ValueError(
                f"--{name} is LookBack's: the scores of {', '.join(scorers)} are recorded"
            )
        if not any(name in scorer.params for scorer in computed):
            computed[0].check({name: value})
    return {
        scorer.name: {name: value for name, value in params.items() if name in scorer.params}
        for scorer in computed
    }


@dataclass(frozen=True)
class Written:
    """What an export wrote.

    Attributes:
        items: how many, failed ones too.
        failed: how many of them failed.
        candidates: how many.
        images: how many; None if they were not asked for.
        metrics: by scorer, the mean quality of its picks; None where no quality is known.
        notes: what a reader should know.
    """

    items: int
    failed: int
    candidates: int
    images: int | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def need(module: str, package: str, form: str) -> Any:
    """Return the module of a library; raise ImportError that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = getattr(error, "name", None) or package
        why = "" if name.partition(".")[0] == module.partition(".")[0] else f" ({error})"
        raise ImportError(
            f"--to {form} needs {package}{why}: pip install 'lookback-vlm[export]'"
        ) from error


@contextmanager
def making_folder(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary folder to fill, which is renamed to the path on success.

    A killed process leaves it beside the path, with a name that begins with a dot.

    Raises:
        ValueError: the path is in an object store, where no folder can be renamed.
        OSError: it cannot be written, or the path exists by now.
    """
    if not isinstance(path, Path):
        raise ValueError(
            f"--out {str(path)!r}: a folder of several files cannot be made at once in an object "
            "store: write it here, then copy it there"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY}{path.name}.{os.getpid()}"
    temporary.mkdir()
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            if file.is_file():
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


class Tally:
    """Counts items and candidates, and keeps the outcomes of each scorer.

    Outcomes are of the items all of whose candidates, but for pruned ones, have a quality.

    Attributes:
        values: the outcomes, by scorer.
        items, failed, candidates: how many were added.
    """

    def __init__(self, request: Request) -> None:
        self._scorers = [get_scorer(name) for name in request.scorers]
        self.values: dict[str, list[float]] = {name: [] for name in request.scorers}
        self.items = self.failed = self.candidates = 0
        run, self._with_quality = request.run, set[int]()
        if run.n:
            judged = items_with_quality(Complete(run) if run.steered else run)
            self._with_quality = set(judged.places.tolist())

    def add(self, entry: Entry) -> dict[str, float]:
        """Count an item, and return the outcome of each scorer on it, if its quality is known."""
        self.items += 1
        self.failed += entry.item["error"] is not None
        self.candidates += len(entry.candidates)
        if entry.item["item"] not in self._with_quality:
            return {}
        outcomes = {scorer.name: entry.outcome(scorer) for scorer in self._scorers}
        for name, value in outcomes.items():
            self.values[name].append(value)
        return outcomes

    def means(self) -> dict[str, float | None]:
        """Return the mean of each scorer's outcomes; None if no quality is known."""
        return {name: float(np.mean(v)) if v else None for name, v in self.values.items()}

    def written(self, images: int | None = None, notes: tuple[str, ...] = ()) -> Written:
        return Written(self.items, self.failed, self.candidates, images, self.means(), notes)


class Shown:
    """The conversations of a run's items, read again from the benchmark."""

    def __init__(self, run: Run) -> None:
        self._again = ItemLookup(run)
        places, names = (run.items[column].to_pylist() for column in ("item", "id"))
        self._places: dict[str, int] = dict(zip(names, places, strict=True))

    def of(self, row: Row) -> Conversation | str:
        """Return what was asked of an item, with images; or why they cannot be had.

        In a control with random images they are those of another item.
        """
        if self._again.reason:
            return self._again.reason
        try:
            own = self._item(row["id"]).conversation
            if row["image"] is None:
                shown = own.with_images(None)
            elif row["image"] == row["id"]:
                shown = own
            else:
                shown = own.with_images(self._item(row["image"]).conversation.images)
            shown.images  # noqa: B018  (read now)
        except (OSError, ValueError, IndexError, KeyError) as error:
            return str(error)
        return _difference(shown, row["messages"]) or shown

    def needed(self, row: Row) -> Conversation:
        """Return the same; raise RunError if the images cannot be had."""
        shown = self.of(row)
        if isinstance(shown, str):
            raise RunError(f"no image of {row['id']!r}: {shown}; --no-images goes without")
        return shown

    def _item(self, name: str) -> Item:
        return self._again.item(self._places[name])


def _difference(shown: Conversation, recorded: Any) -> str | None:
    """Return why this is not what was recorded; None if it is, or if nothing was recorded."""
    if recorded is None:
        return None
    now, then = _parts(shown.to_json()), _parts(recorded)
    if [kind for kind, _ in now] != [kind for kind, _ in then]:
        return "the benchmark asks it otherwise than the run did"
    for (kind, value), (_, before) in zip(now, then, strict=True):
        if kind == "text" and value != before:
            return "the benchmark asks it with other words than the run did"
        if kind != "text" and str(before).startswith(HASHED) and value != before:
            return f"the benchmark has {kind} {value}, the run was shown {before}"
    return None


def _parts(messages: Any) -> list[tuple[str, Any]]:
    return [(part["type"], part[part["type"]]) for turn in messages for part in turn["content"]]


@dataclass(frozen=True)
class Entry:
    """An item with its candidates, as data that JSON can hold.

    Attributes:
        item: `item` (its position in the split), `id`, `question`, `messages`, `source`, `truth`,
            `image` (whose was shown), `error`.
        candidates: each with `index`, `text`, `finish`, `length`, `quality`, `scores` and `ranks`
            by scorer, and its tokens and signals if they were asked for. None of a failed item.
    """

    item: Row
    candidates: list[Row]

    def pick(self, scorer: str) -> Row | None:
        """Return the candidate with the highest score; None of a failed item."""
        return next((row for row in self.candidates if row["ranks"][scorer] == 1), None)

    def outcome(self, scorer: Scorer) -> float:
        """Return the quality of a scorer's pick, or its expectation where the scorer says so."""
        quality = _array([row["quality"] for row in self.candidates])
        if scorer.needs == "truth" and not scorer.own:  # the best, even if it is an empty response
            return float(np.nanmax(quality))
        if scorer.expected is not None:
            scores = _array([row["scores"][scorer.name] for row in self.candidates])
            return float(outcome_of(scorer, scores, quality)[0])
        pick = self.pick(scorer.name)
        assert pick is not None  # an item whose quality is known has candidates
        return float(np.nan if pick["quality"] is None else pick["quality"])


def _array(values: list[float | None]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return (1, N), with NaN for None."""
    return np.array([values], dtype=np.float64)


def entries(request: Request) -> Iterator[Entry]:
    """Yield all items of a run's complete shards, failed ones too, in the split's order."""
    for part in by_shard(request.run):
        yield from _entries_of(part, request)


def _entries_of(part: Run, request: Request) -> Iterator[Entry]:
    candidates: dict[int, list[Row]] = {}
    for row in _candidate_rows(part, request):
        candidates.setdefault(row.pop("item"), []).append(row)
    if candidates:
        _add_scores(part, request, candidates)
    for row in part.items.to_pylist():
        yield Entry(_item(row), candidates.get(row["item"], []))


def _candidate_rows(part: Run, request: Request) -> list[Row]:
    tokens = (*TOKEN_COLUMNS, *((BY_LAYER,) if part.has_layers else ()))
    names = (*HEAD_COLUMNS, *(tokens if request.signals else ()))
    rows: list[Row] = part.table("candidates", names).to_pylist()
    if request.n is not None:
        rows = [row for row in rows if row["index"] < request.n]
    for row in rows:
        row["quality"] = finite(row["quality"])
    return rows


def _add_scores(part: Run, request: Request, candidates: dict[int, list[Row]]) -> None:
    """Add each scorer's score of each candidate, and its rank among those of its item."""
    tables = {
        name: part.scores(name, request.n, **request.params.get(name, {}))
        for name in request.scorers
    }
    for number, place in enumerate(part.places.tolist()):
        rows = candidates[place]
        for row in rows:
            row["scores"], row["ranks"] = {}, {}
        for name, table in tables.items():
            scores = table[number, : len(rows)]
            for rank, index in enumerate(best_first(scores), start=1):
                rows[index]["scores"][name] = finite(float(scores[index]))
                rows[index]["ranks"][name] = rank


def _item(row: Row) -> Row:
    names = ("item", "id", "question", "messages", "source", "truth", "image", "error")
    item = {name: row[name] for name in names}
    for name in ("messages", "source", "truth"):
        if item[name] is not None:
            item[name] = plain(json.loads(item[name]))
    return item


def export(name: str, request: Request, progress: Progress, **options: bool | None) -> Written:
    """Write a run in a format, whole or not at all.

    Args:
        name: the format's.
        request: what is asked for.
        progress: called with (items done, total).
        options: those of `OPTIONS` that are given; None for the format's own.

    Raises:
        FileExistsError: there is something at the output already.
        ImportError: a library is missing; it says what to install.
        ValueError: the format does not take an option, or the output's name.
        RunError: the run has not what is asked for.
    """
    form = get_format(name)
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if value and option not in form.takes:
            takers = ", ".join(other.name for other in FORMATS.values() if option in other.takes)
            raise ValueError(f"--{option} means nothing to {name}: it is for {takers}")
    if form.suffixes and request.out.suffix not in form.suffixes:
        ends = " or ".join(form.suffixes)
        raise ValueError(f"--out {str(request.out)!r}: {name} writes a file that ends in {ends}")
    if request.out.exists():
        raise FileExistsError(
            f"{str(request.out)!r} is there already and stays as it is: name another --out, or "
            "move it away"
        )
    settings: dict[str, Any] = {"insist": given.get("images") is True}
    settings |= {key: form.defaults.get(key, False) for key in OPTIONS} | given
    write = getattr(importlib.import_module(form.module), form.function)
    written: Written = write(replace(request, **settings), progress)
    return written


def write_jsonl(request: Request, progress: Progress) -> Written:
    """Write a line of JSON per item with its candidates, or per candidate."""
    run, out, tally = request.run, request.out, Tally(request)
    about = {"run": run.id, "model": run.model, "benchmark": run.benchmark}
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        for number, entry in enumerate(entries(request), start=1):
            tally.add(entry)
            lines = [about | entry.item | {"candidates": entry.candidates}]
            if request.flat:
                item = {name: value for name, value in entry.item.items() if name != "error"}
                lines = [about | item | row for row in entry.candidates]
            file.writelines(_to_json(line) + "\n" for line in lines)
            progress(number, len(run.items))
    return tally.written()


def _to_json(data: Row) -> str:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError:  # a signal that is not finite
        return json.dumps(plain(data), ensure_ascii=False, allow_nan=False)
