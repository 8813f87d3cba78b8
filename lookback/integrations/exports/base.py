"""Export a run: formats, requests, items with their candidates; written whole or not at all."""

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
from lookback.integrations.exports import FORMATS, get_format
from lookback.io.json_values import finite, plain
from lookback.io.storage import AnyPath
from lookback.runs import Run
from lookback.runs.items import ItemLookup
from lookback.runs.layout import HEAD_COLUMNS, TEMPORARY, TOKEN_COLUMNS, RunError
from lookback.runs.part import Complete, by_shard, items_with_quality
from lookback.scores.base import Scorer, best_first, get_scorer
from lookback.signals import BY_LAYER
from lookback.studies.common.selection import outcome_of

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress


OPTIONS = ("flat", "signals", "images")
"""What some formats take and others do not."""


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
        """How many candidates an item has at most."""
        return self.run.n if self.n is None else self.n

    def settings_of(self, scorer: str) -> dict[str, Any]:
        """What a scorer is used with: its own settings, the family's, those that were given."""
        found, given = get_scorer(scorer), self.params.get(scorer, {})
        if found.from_signals:
            return found.defaults | found.settings(self.run.defaults, given)
        name = self.run.recording(scorer, self.size)
        return {} if name is None else self.run.recorded_settings(name)


def shared_params(
    scorers: tuple[str, ...], alpha: float | None, lam: float | None
) -> dict[str, dict[str, float]]:
    """`--alpha` and `--lam` for the scorers that are computed from signals and have them.

    Raises:
        SettingError: none has one that was given.
    """
    given = {name: value for name, value in (("alpha", alpha), ("lam", lam)) if value is not None}
    kinds = [one for one in map(get_scorer, scorers) if one.from_signals]
    for name in given:
        if kinds and not any(name in one.params for one in kinds):
            kinds[0].check({name: given[name]})
        elif not kinds:
            raise ValueError(
                f"--{name} is LookBack's: the scores of {', '.join(scorers)} are recorded"
            )
    return {one.name: {k: v for k, v in given.items() if k in one.params} for one in kinds}


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
        """For JSON."""
        return asdict(self)


def need(module: str, package: str, form: str) -> Any:
    """The module of a library.

    Raises:
        ImportError: it is not installed; the message says what to do.
    """
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
    """`with making_folder(path) as temporary`: fill it; on success it takes the path's place.

    A kill leaves a folder beside it whose name begins with a dot and says what it is.

    Raises:
        ValueError: the path is in an object store, where no folder can be renamed.
        OSError: it cannot be written, or something has come to be there meanwhile.
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


@dataclass
class Tally:
    """How many items and candidates there were, and the outcomes of each scorer.

    Outcomes are of the items all of whose candidates have a quality.

    Attributes:
        scorers: those asked for, by name.
        known: the positions of these items.
        values: what was added, by scorer.
        items, failed, candidates: how many were added.
    """

    scorers: dict[str, Scorer]
    known: set[int]
    values: dict[str, list[float]] = field(default_factory=dict)
    items: int = 0
    failed: int = 0
    candidates: int = 0

    @classmethod
    def of(cls, request: Request) -> Tally:
        """Nothing counted yet."""
        scorers = {name: get_scorer(name) for name in request.scorers}
        return cls(scorers, places_with_quality(request.run), {name: [] for name in scorers})

    def add(self, entry: Entry) -> dict[str, float]:
        """Count an item; the outcome of each scorer on it, nothing where no quality is known."""
        self.items += 1
        self.failed += entry.item["error"] is not None
        self.candidates += len(entry.candidates)
        if entry.item["item"] not in self.known:
            return {}
        found = {name: outcome(scorer, entry) for name, scorer in self.scorers.items()}
        for name, value in found.items():
            self.values[name].append(value)
        return found

    def means(self) -> dict[str, float | None]:
        """The mean of each scorer's outcomes; None if no quality is known."""
        return {name: float(np.mean(v)) if v else None for name, v in self.values.items()}

    def written(self, images: int | None = None, notes: tuple[str, ...] = ()) -> Written:
        """What was written, if all that was added was."""
        return Written(self.items, self.failed, self.candidates, images, self.means(), notes)

    def stderr(self, scorer: str) -> float:
        """The standard error of its mean; 0 of one item, as Inspect has it."""
        values = self.values[scorer]
        return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def places_with_quality(run: Run) -> set[int]:
    """The positions of the items all of whose candidates, but for pruned ones, have a quality."""
    if not run.n:
        return set()
    return set(items_with_quality(Complete(run) if run.steered else run).places.tolist())


def outcome(scorer: Scorer, entry: Entry) -> float:
    """The quality of a scorer's pick, or its expectation where the scorer says so."""
    quality = _row([one["quality"] for one in entry.candidates])
    if scorer.needs == "truth" and not scorer.own:  # the best, even if it is an empty response
        return float(np.nanmax(quality))
    if scorer.expected is not None:
        scores = _row([one["scores"][scorer.name] for one in entry.candidates])
        return float(outcome_of(scorer, scores, quality)[0])
    pick = entry.pick(scorer.name)
    assert pick is not None  # an item whose quality is known has candidates
    return float(np.nan if pick["quality"] is None else pick["quality"])


def _row(values: list[float | None]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """(1, N), with NaN for what is not there."""
    return np.array([[np.nan if value is None else value for value in values]], dtype=np.float64)


HASHED = "sha256:"


class Shown:
    """The conversations of a run's items."""

    def __init__(self, run: Run) -> None:
        self._again = ItemLookup(run)
        places, names = (run.items[column].to_pylist() for column in ("item", "id"))
        self._places: dict[str, int] = dict(zip(names, places, strict=True))

    def of(self, row: Row) -> Conversation | str:
        """What was asked of an item, with images (those of another item in a control with random
        images); or why they cannot be had.
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
        """The same.

        Raises:
            RunError: the images cannot be had.
        """
        shown = self.of(row)
        if isinstance(shown, str):
            raise RunError(f"no image of {row['id']!r}: {shown}; --no-images goes without")
        return shown

    def _item(self, name: str) -> Item:
        return self._again.item(self._places[name])


def _difference(shown: Conversation, recorded: Any) -> str | None:
    """Why this is not what was recorded; None if it is. (Format 1 recorded nothing.)"""
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
    return [(one["type"], one[one["type"]]) for turn in messages for one in turn["content"]]


Row = dict[str, Any]


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
        """The candidate with the highest score; None of a failed item."""
        return next((one for one in self.candidates if one["ranks"][scorer] == 1), None)


def entries(request: Request) -> Iterator[Entry]:
    """All items of a run's complete shards, failed ones too, in the split's order."""
    for part in by_shard(request.run):
        yield from _entries_of(part, request)


def _entries_of(part: Run, request: Request) -> Iterator[Entry]:
    found: dict[int, list[Row]] = {}
    for row in _candidate_rows(part, request):
        found.setdefault(row.pop("item"), []).append(row)
    if found:
        _add_scores(part, request, found)
    for row in part.items.to_pylist():
        yield Entry(_item(row), found.get(row["item"], []))


def _candidate_rows(part: Run, request: Request) -> list[Row]:
    """The rows of a shard's candidates, in order."""
    tokens = (*TOKEN_COLUMNS, *((BY_LAYER,) if part.has_layers else ()))
    names = (*HEAD_COLUMNS, *(tokens if request.signals else ()))
    rows: list[Row] = part.table("candidates", names).to_pylist()
    if request.n is not None:
        rows = [row for row in rows if row["index"] < request.n]
    for row in rows:
        row["quality"] = finite(row["quality"])
    return rows


def _add_scores(part: Run, request: Request, found: dict[int, list[Row]]) -> None:
    """Each scorer's score of each candidate, and its rank among those of its item."""
    tables = {
        name: part.scores(name, request.n, **request.params.get(name, {}))
        for name in request.scorers
    }
    for number, place in enumerate(part.places.tolist()):
        rows = found[place]
        for row in rows:
            row["scores"], row["ranks"] = {}, {}
        for name, table in tables.items():
            scores = table[number, : len(rows)]
            for rank, index in enumerate(best_first(scores), start=1):
                rows[index]["scores"][name] = finite(float(scores[index]))
                rows[index]["ranks"][name] = rank


def _item(row: Row) -> Row:
    read = {name: _read(row[name]) for name in ("messages", "source", "truth")}
    return {
        "item": row["item"],
        "id": row["id"],
        "question": row["question"],
        **read,
        "image": row["image"],
        "error": row["error"],
    }


def _read(text: str | None) -> Any:
    """What JSON of a run says: numbers that are none are null, half characters U+FFFD."""
    return None if text is None else plain(json.loads(text))


def export(name: str, request: Request, progress: Progress, **options: bool | None) -> Written:
    """Write a run in a format, whole or not at all.

    Args:
        name: of the format.
        request: what is asked for.
        progress: is told how many items are done.
        options: those of `OPTIONS` that somebody gave; None is the format's own.

    Raises:
        FileExistsError: there is something at the output already.
        ImportError: a library is missing; it says what to install.
        ValueError: the format does not take an option, or the output's name.
        RunError: the run has not what is asked for.
    """
    form = get_format(name)
    given = {key: value for key, value in options.items() if value is not None}
    for option in given:
        if option not in form.takes and given[option]:
            takers = ", ".join(one.name for one in FORMATS.values() if option in one.takes)
            raise ValueError(f"--{option} means nothing to {name}: it is for {takers}")
    if form.suffixes and request.out.suffix not in form.suffixes:
        ends = " or ".join(form.suffixes)
        raise ValueError(f"--out {str(request.out)!r}: {name} writes a file that ends in {ends}")
    if request.out.exists():
        raise FileExistsError(
            f"{str(request.out)!r} is there already and stays as it is: name another --out, or "
            "move it away"
        )
    module: Any = importlib.import_module(form.module)
    settings: dict[str, Any] = {"insist": given.get("images") is True}
    settings |= {key: form.defaults.get(key, False) for key in OPTIONS} | given
    written: Written = module.write(replace(request, **settings), progress)
    return written
