"""The commands `score` and `scorers`: answers that exist already, and what can rank them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lookback.cli.app import app
from lookback.cli.inputs import (
    check_question,
    check_stdin,
    is_stdin,
    read_argument,
    read_text,
)
from lookback.cli.options import (
    ASKED,
    EngineOptions,
    Json,
    MediaOptions,
    Model,
    ScorerOptions,
    SignalOutputOptions,
)
from lookback.cli.ranking import show_candidates
from lookback.cli.start import Start
from lookback.cli.terminal import console, print_json, progress, show_table
from lookback.io.json_values import check_text


@app.command()
def score(
    image: Annotated[
        str, typer.Argument(help="An image or a video: a file, a URL, or - for stdin.")
    ],
    question: Annotated[str, typer.Argument(help="What was asked about it; - is stdin.")],
    responses: Annotated[
        list[str] | None,
        typer.Argument(help="The answers; - is stdin, one per line.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Read answers from here, one per line; - is stdin.", rich_help_panel=ASKED
        ),
    ] = None,
    *,
    media: MediaOptions,
    ranking: ScorerOptions,
    model: Model = None,
    engine: EngineOptions,
    output: SignalOutputOptions,
) -> None:
    """Score answers that exist already, from any model or person, and rank them.

    Without --model the embedded model scores them, which is small and knows drawn scenes only.
    """
    from lookback.engines import optional_settings

    inputs = {"IMAGE": image, "QUESTION": question, "RESPONSES": responses}
    check_stdin(inputs | {"--image": media.more_images, "--file": file})
    question = read_argument(question)
    answers = _read_answers(responses or [], file)
    check_question(question)
    params = ranking.params(len(answers))
    output.check()
    conversation = media.read(image, question)
    lb = Start(model, engine.load_settings(), ranking.scorer)(conversation)
    layers = optional_settings(lb, {"by_layer": output.by_layer})
    with progress(f"scoring {len(answers)} answers") as bar:
        candidates = lb.score(
            messages=conversation.messages(),
            responses=answers,
            source=media.source,
            progress=bar,
            **layers,
        )
    show_candidates(candidates, ranking.scorer, params, output.as_json)


def _read_answers(responses: list[str], file: Path | None) -> list[str]:
    """Return the answers of the command line, stdin and a file.

    Raises:
        ValueError: there are none, or one is empty or too long.
    """
    from lookback.io.limits import TEXT_CHARACTERS

    answers: list[str] = []
    for response in responses:
        answers += _read_lines(response) if is_stdin(response) else [response]
    if file is not None:
        answers += _read_lines(file)
    if not answers:
        raise ValueError("no answers given: write them as arguments, or name a --file")
    for number, answer in enumerate(answers):
        if not check_text(answer, f"response {number}").strip():
            raise ValueError(f"response {number} is empty: there is nothing to score")
        TEXT_CHARACTERS.check(len(answer), f"response {number}")
    return answers


def _read_lines(file: Path | str) -> list[str]:
    return [line for line in read_text(file).splitlines() if line.strip()]


@app.command()
def scorers(as_json: Json = False) -> None:
    """List the scorers and their settings."""
    from lookback.scores import base

    known = list(base.scorers().values())
    if as_json:
        print_json(
            [
                {
                    "name": s.name,
                    "title": s.title,
                    "needs": s.needs,
                    "uses": s.uses,
                    "joint": s.joint,
                    "lower_is_better": s.lower_is_better,
                    "settings": s.params,
                    "about": s.about,
                }
                for s in known
            ]
        )
        return
    columns = ("scorer", "needs", "settings", "what it is")
    show_table(columns, [(s.name, s.needs, ", ".join(s.params), s.about) for s in known])
    costs = "; ".join(f"{name}: {what}" for name, what in base.NEEDS.items())
    console(stderr=True).print(f"\nneeds, from cheap to dear: {costs}", style="dim")
