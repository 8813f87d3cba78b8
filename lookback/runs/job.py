"""A job's share of a run: `lookback run --shard 3/16`.

Counted from 0, as Kubernetes does (JOB_COMPLETION_INDEX): the jobs of 16 are 0/16 to 15/16.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from lookback.io.storage import AnyPath
from lookback.runs.layout import RunError

NAME = re.compile(r"job-(\d+)-of-(\d+)")
MOST = 100_000
"""Jobs of one run."""
One = TypeVar("One")


@dataclass(frozen=True)
class Job:
    """One of the jobs that make a run together.

    Attributes:
        index: which, from 0.
        of: how many there are.
        items, shards: how many of them the whole run has.
    """

    index: int
    of: int
    items: int = 0
    shards: int = 0

    def __post_init__(self) -> None:
        for value in (self.index, self.of, self.items, self.shards):
            if type(value) is not int or value < 0:
                raise RunError(f"a job's {value!r:.60} is no number from 0")
        if not 1 <= self.of <= MOST:
            raise RunError(f"--shard {self}: there are 1 to {MOST} jobs")
        if self.index >= self.of:
            raise RunError(
                f"--shard {self}: jobs are counted from 0, so those of {self.of} are 0/{self.of} "
                f"to {self.of - 1}/{self.of}"
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    @property
    def name(self) -> str:
        """Of its folder, in the folder of the run."""
        return f"job-{self.index:0{len(str(self.of - 1))}d}-of-{self.of}"

    def share(self, shards: Sequence[One]) -> list[One]:
        """Its part of all shards: every so-many-th, so that all jobs have about as many."""
        return list(shards[self.index :: self.of])

    def folder(self, out: AnyPath) -> AnyPath:
        """Where it writes."""
        return out / self.name

    @classmethod
    def parse(cls, text: str) -> Job:
        """What the command is given: "3/16".

        Raises:
            RunError: it is something else.
        """
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip(), re.ASCII)
        if found is None:
            raise RunError(
                f"--shard {text!r:.40}: write INDEX/COUNT, e.g. 0/16 for the first of 16 jobs"
            )
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of_folder(cls, name: str) -> Job | None:
        """The job whose folder is called so; None if it is no job's."""
        found = NAME.fullmatch(name)
        if found is None:
            return None
        try:
            job = cls(int(found[1]), int(found[2]))
        except RunError:
            return None
        return job if job.name == name else None
