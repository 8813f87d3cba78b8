"""Votes from files and folders, with the key of the study that they are of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lookback.annotation.cases import KEY, Key, read_key
from lookback.annotation.votes import FILE, MAGIC, Vote, read_jsonl, read_sqlite
from lookback.studies.shared.base import StudyError


def read_ballots(paths: Sequence[str]) -> tuple[Key, list[Vote]]:
    """All votes on one study's cases, each once, and the key.

    Args:
        paths: folders of cases (their votes.sqlite and *.jsonl), SQLite files and JSON lines. The
            key is looked for in the folders, and beside the files.

    Raises:
        StudyError: there is no vote or no key, or votes are of two studies or contradict each
            other.
        OSError, ValueError: a file cannot be read, or has something else in it.
    """
    files = [file for path in paths for file in _files(Path(path))]
    folders = {path if path.is_dir() else path.parent for path in map(Path, paths)}
    found = [read_key(folder) for folder in sorted(folders) if (folder / KEY).is_file()]
    keys = {key.study: key for key in found}
    votes = _merge({file: _read(file) for file in files})
    if not votes:
        raise StudyError(f"no votes in {', '.join(paths)}: `lookback annotate DIR` collects them")
    studies = sorted({vote.study for vote in votes})
    if len(studies) > 1:
        raise StudyError(f"these are votes of {len(studies)} studies: give those of one at a time")
    if studies[0] not in keys:
        raise StudyError(
            f"no key of study {studies[0]} beside these votes: give the folder of its cases, too "
            "(that of `lookback study disagreements`)"
        )
    key = keys[studies[0]]
    for vote in votes:
        if (vote.set, vote.case) not in key.cases:
            raise StudyError(f"rater {vote.rater}: there is no case {vote.case} of set {vote.set}")
    return key, votes


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.is_file():
            raise FileNotFoundError(f"no file or folder {str(path)!r}")
        return [path]
    kept = [path / FILE] if (path / FILE).is_file() else []
    return [*kept, *sorted(path.glob("*.jsonl"))]


def _read(path: Path) -> list[Vote]:
    with path.open("rb") as file:
        begin = file.read(len(MAGIC))
    return read_sqlite(path) if begin == MAGIC else read_jsonl(path)


def _merge(found: dict[Path, list[Vote]]) -> list[Vote]:
    """Each vote once: a file may be given twice, a saved page's again with more votes."""
    votes: dict[tuple[str, str, int, int], tuple[Path, Vote]] = {}
    for path, here in found.items():
        for vote in here:
            place = vote.study, vote.rater, vote.set, vote.case
            other, kept = votes.setdefault(place, (path, vote))
            if kept.choice != vote.choice:
                raise StudyError(
                    f"rater {vote.rater}, set {vote.set}, case {vote.case}: {kept.choice} in "
                    f"{other}, {vote.choice} in {path}: keep the file that holds, and give no other"
                )
    return [vote for _, vote in votes.values()]
