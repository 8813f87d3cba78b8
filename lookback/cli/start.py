"""One start of a command: its model, loaded when the first question can be asked, and once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from lookback.cli.errors import explain
from lookback.cli.terminal import console, printable, progress_lines, say
from lookback.embedded import PHOTOGRAPH, shows_photograph

if TYPE_CHECKING:
    from lookback.benchmarks.responses import Problem
    from lookback.cli.questions import Question
    from lookback.conversations import Conversation
    from lookback.engines import Engine
    from lookback.signals import Candidates

FAILED = 3
"""The exit status of a command that ended, but with parts that failed or were left out."""


class Start:
    """The model of a command.

    Args:
        model: its name; None for the embedded one.
        options: what `lookback.load` is given beside it.
        scorer: what will rank the answers: a model that cannot be asked for it is refused first.
    """

    def __init__(self, model: str | None, options: dict[str, Any], scorer: str) -> None:
        self._model = model
        self._options = options
        self._scorer = scorer
        self._loaded: Engine | None = None
        self._noted = False

    def __call__(self, conversation: Conversation) -> Engine:
        """The model, and a line, once, if it does not know what it is to be shown."""
        loaded = self.engine()
        if not self._noted and loaded.name == "embedded" and shows_photograph(conversation):
            self._noted = True
            say(PHOTOGRAPH)
        return loaded

    def engine(self) -> Engine:
        """The model."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> Engine:
        from lookback.engines import load, require
        from lookback.scores.base import get_scorer

        with unswept(), console(stderr=True).status("loading the model"):
            loaded: Engine = load(self._model, quiet=True, **self._options)
        require(loaded, get_scorer(self._scorer).uses, f"scorer {self._scorer!r}")
        return loaded


@contextmanager
def unswept() -> Iterator[None]:
    """A block whose objects are for good: the garbage collector does not go through them.

    It would many times while libraries are imported, and once more at the end of the process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def ask_each(
    questions: Sequence[Question],
    problems: Sequence[Problem],
    source: str | None,
    start: Start,
    draw: Callable[[Engine, Conversation, str], Candidates],
    show: Callable[..., None],
    as_json: bool,
) -> None:
    """Ask one question after another; one that fails is named, and the others go on.

    Args:
        questions: what to ask.
        problems: lines that are no questions.
        source: what A is measured on.
        start: gives the model; if that fails, all do.
        draw: answers of a model, with what to say before its progress.
        show: prints candidates; it is told the question's name.
        as_json: whether that needs no heading.

    Raises:
        Exit: something failed, with status 3.
    """
    for problem in problems:
        say(f"left out: {problem}")
    failed = len(problems)
    tell = progress_lines("asking", "questions")
    for number, one in enumerate(questions, start=1):
        place = f"{number}/{len(questions)}"
        try:
            conversation = one.read()
            conversation.source(source)
        except Exception as error:
            failed += 1
            say(f"failed: {one.where}: {explain(error)}")
            continue
        lb = start(conversation)
        try:
            found = draw(lb, conversation, f"{place}: ")
            if not as_json:
                _print_heading(f"[{place}] {one.name}: {one.text}", number)
            show(found, name=one.name)
        except (BrokenPipeError, MemoryError):
            raise
        except Exception as error:
            failed += 1
            say(f"failed: {one.where}: {explain(error)}")
        if not console(stderr=True).is_terminal:
            tell(number, len(questions))
    if failed:
        raise typer.Exit(FAILED)


def _print_heading(text: str, number: int) -> None:
    out = console()
    if number > 1:
        out.print()
    line = " ".join(printable(text).split())
    out.print(line, style="bold reverse", highlight=False, markup=False, overflow="fold")
