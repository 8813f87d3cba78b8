"""What a case is, and where it is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from timeouts import HANG_SECONDS

TOY = str(Path(__file__).parents[1] / "toy_engine.py")
FAST = ("--plugin", TOY, "--engine", "toy")
"""An engine that needs no torch: most cases are about what comes before a model."""


@dataclass(frozen=True)
class Limits:
    """What a case may take.

    Attributes:
        seconds: by the clock; they only end a hang, however slow the machine.
        cpu_seconds: of computing, which is what is promised to be bounded.
        memory: bytes of the whole process; with all that it imported it has 0.3 GiB.
    """

    seconds: int = HANG_SECONDS
    cpu_seconds: int = 20
    memory: int = 3 * 2**29


@dataclass(frozen=True)
class Place:
    """What a case can use.

    Attributes:
        folder: an empty folder, from which the command is run.
        url: a server that misbehaves (`server.py`).
        run: a sound run, to be copied.
        right: what `lookback` with some arguments prints on that run, where it is called "run".
    """

    folder: Path
    url: str
    run: Path
    right: Callable[[tuple[str, ...]], str]


@dataclass(frozen=True)
class Case:
    """One command.

    Attributes:
        argv: its arguments.
        about: what is bad about them, or about the files.
        own: names in the folder that the command may make or change, with all that is below.
        kept: names below these that are not the command's all the same.
        environment: variables that are set for it.
        right: if it ends with status 0 it must have printed this; None if anything will do.
        status: with which it must end; None if any of the four will do.
        limits: what it may take.
    """

    argv: tuple[str, ...]
    about: str
    own: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    right: str | None = None
    status: int | None = None
    limits: Limits = Limits()


Make = Callable[[Random, Place], Case]
