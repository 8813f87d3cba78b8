"""The command `ask`: questions about images, each answered N times and ranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookback.cli.app import app
from lookback.cli.inputs import (
    Question,
    check_stdin,
    find_images,
    questions_about,
    questions_in,
    read_argument,
)
from lookback.cli.options import (
    ASKED,
    AllowOutside,
    EngineOptions,
    MediaOptions,
    Model,
    SamplingOptions,
    ScorerOptions,
    SignalOutputOptions,
    SteeringOptions,
)
from lookback.cli.ranking import show_candidates
from lookback.cli.start import Start
from lookback.cli.terminal import (
    FAILED,
    bar_columns,
    console,
    explain,
    printable,
    progress_lines,
    say,
)

if TYPE_CHECKING:
    from lookback.conversations import Conversation
    from lookback.engines import Engine
    from lookback.engines.common.options import Progress
    from lookback.signals import Candidates
    from lookback.steering import Decision, Watch
    from lookback.steering.pruning import Pruning
    from lookback.steering.search import Search

WIDEST = 25
"""Columns of the bar that shows how many answers are left."""


@app.command()
def ask(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE",
            help="An image or a video: a file, a URL, or - for stdin. Several files, a folder or a "
            "pattern ('photos/*.jpg'): the question is asked about each in turn.",
            show_default=False,
        ),
    ] = None,
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="QUESTION", help="What to ask about it; - is stdin.", show_default=False
        ),
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option(
            help='Instead of both: a file with {"image": ..., "question": ..., "id": ...} per '
            "line (.jsonl, .csv or .parquet); - is stdin.",
            rich_help_panel=ASKED,
        ),
    ] = None,
    *,
    media: MediaOptions,
    allow_outside: AllowOutside = False,
    sampling: SamplingOptions,
    steering: SteeringOptions,
    ranking: ScorerOptions,
    model: Model = None,
    engine: EngineOptions,
    output: SignalOutputOptions,
) -> None:
    """Ask a question about an image N times, rank the answers, print the best.

    Without --model the embedded model answers, which is small and knows drawn scenes only.

    Several images or questions share one start; --json prints a line for each once it is done.

    One of them that fails is named, the others go on, and the exit status is 3.
    """
    sampling.check()
    sampling = sampling if steering.search else sampling.without_repeats()
    params = ranking.params(sampling.n)
    rule = steering.rule(sampling.n, ranking.scorer, params)
    output.check()
    _check_usage(images, question, questions, media.more_images)
    inputs = {"IMAGE": images, "QUESTION": question, "--questions": questions}
    check_stdin(inputs | {"--image": media.more_images})
    start = Start(model, engine.load_settings(), ranking.scorer)
    settings = asdict(sampling) | {"source": media.source}
    command = _Ask(start, settings, rule, ranking.scorer, params, output)
    if questions is not None:
        asked, problems = questions_in(questions)
        for problem in problems:
            say(f"left out: {problem}")
        command.ask_each(asked, len(problems))
        return
    names = [found for name in images or [] for found in find_images(name)]
    asked = questions_about(names, read_argument(str(question)), media.more_images or [])
    if names != images or len(names) > 1:
        command.ask_each(asked)
        return
    conversation = command.read(asked[0])
    command.show(command.draw(conversation))


def _check_usage(
    images: list[str] | None, question: str | None, questions: Path | None, more: list[str] | None
) -> None:
    """Raise BadParameter unless there is either a file of questions, or images and a question."""
    example = 'lookback ask photo.jpg "What is this?"'
    if questions is not None:
        if images or question is not None or more:
            raise typer.BadParameter(
                "it has images and questions of its own: give either the file, or IMAGE and "
                "QUESTION",
                param_hint="--questions",
            )
    elif question is None or not images:
        missing = "QUESTION" if question is not None else "IMAGE and QUESTION"
        raise typer.BadParameter(
            f"missing {missing}: {example}; or name a file of both, --questions FILE",
            param_hint="IMAGE... QUESTION",
        )
    elif isfile(question):  # a shell expanded *.jpg, and the question is missing
        raise typer.BadParameter(
            f"missing QUESTION: the last argument is the file {question!r}; {example}",
            param_hint="IMAGE... QUESTION",
        )


@dataclass(frozen=True)
class _Ask:
    """One `ask`: how its questions are answered and shown."""

    start: Start
    settings: Mapping[str, Any]
    rule: Pruning | Search | None
    scorer: str
    params: dict[str, Any]
    output: SignalOutputOptions

    def read(self, question: Question) -> Conversation:
        """Read a question's images and check its source."""
        conversation = question.read()
        conversation.source(self.settings["source"])
        return conversation

    def draw(self, conversation: Conversation, title: str = "") -> Candidates:
        """Draw candidates; `title` stands before the progress bar."""
        engine = self.start(conversation)
        by_layer = self.output.by_layer
        return draw_answers(engine, conversation, title, self.rule, self.settings, by_layer)

    def show(self, candidates: Candidates, name: str | None = None) -> None:
        """Rank and print candidates."""
        show_candidates(candidates, self.scorer, self.params, self.output.as_json, name)

    def ask_each(self, questions: Sequence[Question], failed: int = 0) -> None:
        """Ask one question after another; one that fails is named, and the others go on.

        Raises:
            Exit: one failed, or `failed` did before; with status 3.
        """
        update = progress_lines("asking", "questions")
        for number, question in enumerate(questions, start=1):
            failed += not self._ask_one(question, number, len(questions))
            if not console(stderr=True).is_terminal:
                update(number, len(questions))
        if failed:
            raise typer.Exit(FAILED)

    def _ask_one(self, question: Question, number: int, count: int) -> bool:
        """Ask one of several questions; return whether that worked."""
        place = f"{number}/{count}"
        try:
            conversation = self.read(question)
        except Exception as error:
            say(f"failed: {question.where}: {explain(error)}")
            return False
        self.start(conversation)  # a model that cannot be loaded ends the command
        try:
            candidates = self.draw(conversation, f"{place}: ")
            if not self.output.as_json:
                _print_heading(f"[{place}] {question.name}: {question.text}", number)
            self.show(candidates, question.name)
        except (BrokenPipeError, MemoryError):
            raise
        except Exception as error:
            say(f"failed: {question.where}: {explain(error)}")
            return False
        return True


def _print_heading(text: str, number: int) -> None:
    out = console()
    if number > 1:
        out.print()
    line = " ".join(printable(text).split())
    out.print(line, style="bold reverse", highlight=False, markup=False, overflow="fold")


def draw_answers(
    engine: Engine,
    conversation: Conversation,
    title: str,
    rule: Pruning | Search | None,
    settings: Mapping[str, Any],
    by_layer: bool,
) -> Candidates:
    """Draw the candidates of one question, with progress on stderr.

    Raises:
        AbilityError: the engine lacks an ability that the options need.
    """
    from lookback.engines import optional_settings, require
    from lookback.steering.search import Search

    arguments = {"messages": conversation.messages(), **settings}
    arguments |= optional_settings(engine, {"by_layer": by_layer})
    n = arguments["n"]
    with _watch_checkpoints(f"{title}drawing {n} answers", n) as (bar, watch):
        if isinstance(rule, Search):
            require(engine, ["search"], "--search")
            del arguments["n"]
            search = asdict(rule)
            del search["watch"]
            return engine.search(**arguments, **search, watch=watch, progress=bar)
        prune = None if rule is None else replace(rule, watch=watch)
        arguments |= optional_settings(engine, {"prune": prune})
        return engine.sample(**arguments, progress=bar)


@contextmanager
def _watch_checkpoints(title: str, n: int) -> Iterator[tuple[Progress, Watch]]:
    """Show a bar on stderr, and below it a line per checkpoint, if stderr is a terminal."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress as Bars
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    errors = console(stderr=True)
    bars, checkpoints = Bars(*bar_columns(title), console=errors), Table.grid(padding=(0, 1))
    task = bars.add_task(title, total=None)

    def progress(done: int, total: int) -> None:
        bars.update(task, completed=done, total=total)

    def watch(tokens: int, scores: Mapping[int, float], decision: Decision) -> None:
        line, left = describe_checkpoint(tokens, scores, decision)
        checkpoints.add_row(line, ProgressBar(n, left, min(n, WIDEST)))

    if not errors.is_terminal:
        yield progress, watch
        return
    with Live(Group(bars, checkpoints), console=errors, transient=True):
        yield progress, watch


def describe_checkpoint(
    tokens: int, scores: Mapping[int, float], decision: Decision
) -> tuple[str, int]:
    """Return `16 tokens: 25 -> 12 left`, of a search also the forks; and the 12."""
    left = len(scores.keys() - decision.ends.keys())
    forked = f", forked to {left + len(decision.forks)}" if decision.forks else ""
    return f"{tokens} tokens: {len(scores)} -> {left} left{forked}", left
