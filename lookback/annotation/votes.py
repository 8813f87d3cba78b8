"""Votes: which answer is on which side, a SQLite file that keeps them, and files read again."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lookback.annotation.cases import Cases

RATER = re.compile(r"[a-z0-9._@-]{1,40}")
_BITS = 0xFFFFFFFF


def rater_code(text: str) -> str:
    """Return a rater's code as it is kept: stripped and in lower case.

    Raises:
        ValueError: it has characters other than ASCII letters, digits and `. _ @ -`, or too many.
    """
    code = text.strip().lower()
    if not RATER.fullmatch(code):
        raise ValueError(
            f"the code {text[:60]!r}: give 1 to 40 letters (a to z), digits or any of . _ @ -"
        )
    return code


def is_swapped(study: str, rater: str, set_: int, case: int) -> bool:
    """Whether a rater sees the second answer of a case as A.

    FNV-1a over the names, then the last steps of MurmurHash3: FNV's lowest bit alone is no more
    than the parity of the bytes. `templates/annotate/store.js` is the same.
    """
    state = 0x811C9DC5
    for byte in f"{study}\n{rater}\n{set_}\n{case}".encode():
        state = (state ^ byte) * 0x01000193 & _BITS
    state = (state ^ state >> 16) * 0x85EBCA6B & _BITS
    state = (state ^ state >> 13) * 0xC2B2AE35 & _BITS
    return bool((state ^ state >> 16) & 1)


FILE = "votes.sqlite"
MAGIC = b"SQLite format 3\0"
CHOICES = ("A", "B", "tie")
"""How a rater can vote on the answers as the page shows them."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS study (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS raters (rater TEXT PRIMARY KEY, "set" INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS votes (
  number INTEGER PRIMARY KEY AUTOINCREMENT, rater TEXT NOT NULL, "set" INTEGER NOT NULL,
  "case" INTEGER NOT NULL, choice TEXT NOT NULL, swapped INTEGER NOT NULL, at TEXT NOT NULL,
  UNIQUE (rater, "set", "case"));
"""
_ROWS = 'SELECT rater, "set", "case", choice, swapped, at FROM votes ORDER BY number'


@dataclass(frozen=True)
class Vote:
    """A rater's vote on a case; creating one checks it.

    Attributes:
        choice: "A", "B" or "tie", as the page showed the answers.
        swapped: whether the page showed the second answer as A.
        at: when, in UTC.
    """

    study: str
    rater: str
    set: int
    case: int
    choice: str
    swapped: bool
    at: str = ""

    def __post_init__(self) -> None:
        kinds = {"study": str, "rater": str, "set": int, "case": int, "choice": str, "at": str}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ValueError(f"{name} is {value!r:.40}")
        if self.choice not in CHOICES:
            raise ValueError(f"choice is {self.choice!r:.40}: must be one of {', '.join(CHOICES)}")
        if rater_code(self.rater) != self.rater:
            raise ValueError(f"rater is {self.rater!r:.40}: codes are kept in small letters")
        if self.swapped is not is_swapped(self.study, self.rater, self.set, self.case):
            raise ValueError(
                f"swapped is {self.swapped!r:.40} for rater {self.rater}, set {self.set}, case "
                f"{self.case}: the page shows it the other way, so the vote was changed afterwards"
            )

    @property
    def answer(self) -> int | None:
        """Which of the case's two answers was chosen, 0 or 1; None for a tie."""
        return None if self.choice == "tie" else (self.choice == "B") ^ self.swapped


class VoteFile:
    """The votes on one study's cases in a SQLite file; any number of threads and processes.

    Args:
        path: made if it is not there.
        cases: what is voted on.
        raters: who may; None for anybody. Sets are given to them in turn.

    Raises:
        ValueError: the file has the votes of other cases, or is no SQLite file.
    """

    def __init__(self, path: Path, cases: Cases, raters: Sequence[str] | None = None) -> None:
        self.path, self.cases = path, cases
        self.raters = None if raters is None else list(dict.fromkeys(map(rater_code, raters)))
        self._places = {case.place for case in cases.cases}
        with _open(path) as file:
            file.executescript(SCHEMA)
            file.execute("BEGIN IMMEDIATE")
            row = file.execute("SELECT id FROM study").fetchone()
            if row is None:
                file.execute("INSERT INTO study VALUES (?)", (cases.study,))
            file.execute("COMMIT")
        if row is not None and row[0] != cases.study:
            raise ValueError(
                f"{str(path)!r} has votes on other cases (study {row[0]}, here {cases.study}): "
                "move it away, or draw the cases into another folder"
            )

    def enter(self, code: str) -> tuple[str, int]:
        """Return a rater's code as it is kept, and the set: that of before, or the emptiest.

        Raises:
            PermissionError: the code is not among those that may vote.
            ValueError: it is no code.
        """
        rater = rater_code(code)
        self._check_listed(rater)
        with _open(self.path) as file:
            file.execute("BEGIN IMMEDIATE")
            row = file.execute('SELECT "set" FROM raters WHERE rater = ?', (rater,)).fetchone()
            if row is None:
                row = (self._next_set(file, rater),)
                file.execute("INSERT INTO raters VALUES (?, ?)", (rater, row[0]))
            file.execute("COMMIT")
        return rater, row[0]

    def _next_set(self, file: sqlite3.Connection, rater: str) -> int:
        sets = self.cases.sets
        if self.raters is not None:
            return set_of(rater, self.raters, sets)
        taken = [row[0] for row in file.execute('SELECT "set" FROM raters')]
        return min(sets, key=lambda number: (taken.count(number), number))

    def put(self, rater: str, set_: int, case: int, choice: str) -> Vote:
        """Keep a vote, in place of an earlier one on the case: on disk when this returns.

        Raises:
            PermissionError: the rater is not, or no longer, among those that may vote.
            ValueError: the rater never entered, or has another set, or there is no such case.
        """
        self._check(rater, set_, case)
        swapped = is_swapped(self.cases.study, rater, set_, case)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        vote = Vote(self.cases.study, rater, set_, case, choice, swapped, at)
        with _open(self.path) as file:  # one statement, which commits itself
            file.execute(
                'REPLACE INTO votes (rater, "set", "case", choice, swapped, at) '
                "VALUES (?, ?, ?, ?, ?, ?)",
                (rater, set_, case, choice, swapped, at),
            )
        return vote

    def undo(self, rater: str, set_: int, case: int) -> None:
        """Take a vote back; errors as for `put`."""
        self._check(rater, set_, case)
        with _open(self.path) as file:
            place = rater, set_, case
            file.execute('DELETE FROM votes WHERE rater = ? AND "set" = ? AND "case" = ?', place)

    def of(self, rater: str) -> list[Vote]:
        """Return a rater's votes, in the order in which they were made."""
        return [vote for vote in read_sqlite(self.path) if vote.rater == rater]

    def _check_listed(self, rater: str) -> None:
        if self.raters is not None and rater not in self.raters:
            raise PermissionError(f"nobody here has the code {rater!r}: look at your invitation")

    def _check(self, rater: str, set_: int, case: int) -> None:
        self._check_listed(rater)  # the list may be shorter than when the rater entered
        with _open(self.path) as file:
            row = file.execute('SELECT "set" FROM raters WHERE rater = ?', (rater,)).fetchone()
        if row is None:
            raise ValueError(f"rater {rater[:40]!r} has not entered")
        if row[0] != set_ or (set_, case) not in self._places:
            raise ValueError(f"rater {rater} has no case {case} of set {set_}")


def set_of(rater: str, raters: Sequence[str], sets: Sequence[int]) -> int:
    """Return the set of a listed rater: sets are given in turn, so that each has as many."""
    return sets[list(raters).index(rater) % len(sets)]


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection; what it commits is on disk, not on its way there."""
    try:
        file = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = FULL")
            yield file
        finally:
            file.close()
    except sqlite3.Error as error:
        raise ValueError(f"cannot keep votes in {str(path)!r}: {error}") from None


def read_sqlite(path: Path) -> list[Vote]:
    """Return the votes in a file of `lookback annotate`, in the order in which they were made.

    Raises:
        ValueError: it is another file.
    """
    try:
        file = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        try:
            (study,) = file.execute("SELECT id FROM study").fetchone()
            rows = file.execute(_ROWS).fetchall()
        finally:
            file.close()
        return [Vote(study, r, s, c, choice, bool(sw), at) for r, s, c, choice, sw, at in rows]
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise ValueError(f"{str(path)!r} has no votes of `lookback annotate`: {error}") from None


def read_jsonl(path: Path) -> list[Vote]:
    """Return the votes that the page saved.

    Raises:
        ValueError: a line is no vote.
    """
    votes = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is neither SQLite nor JSON lines: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            vote = json.loads(line)
            if not isinstance(vote, dict):
                raise TypeError(f"{vote!r:.40} is no object")
            votes.append(Vote(**vote))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{str(path)!r}, line {number} is no vote: {error}") from None
    return votes
