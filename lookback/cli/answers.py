"""The commands about images and questions: `ask`, `score`, `scorers`."""

from __future__ import annotations

from functools import partial
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookback.cli.app import (
    ASKED,
    AllowOutside,
    Alpha,
    AsJson,
    ByLayer,
    Count,
    Device,
    DeviceMap,
    Dtype,
    EngineName,
    EngineSet,
    Json,
    Lam,
    MaxNewTokens,
    Model,
    More,
    Revision,
    Scorer,
    Seed,
    Settings,
    Source,
    Temperature,
    TopP,
    TrustRemoteCode,
    app,
    load_settings,
    settings_of,
)
from lookback.cli.questions import (
    check_question,
    find_images,
    questions_about,
    questions_in,
    read_conversation,
)
from lookback.cli.ranking import show_candidates
from lookback.cli.start import Start, ask_each
from lookback.cli.stdin import STDIN, check_stdin, is_stdin, read_stdin_text
from lookback.cli.steering import (
    Every,
    Keep,
    Prune,
    PruneBy,
    SearchToo,
    count_drawn,
    draw_answers,
    parse_steering,
)
from lookback.cli.terminal import print_json, progress, show_scorers
from lookback.io.json_values import check_text

if TYPE_CHECKING:
    from lookback.conversations import Conversation
    from lookback.engines import Engine
    from lookback.signals import Candidates


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
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None,
    more_images: More = None,
    source: Source = None,
    allow_outside: AllowOutside = False,
    n: Count = 25,
    temperature: Temperature = 1.2,
    top_p: TopP = 0.9,
    max_new_tokens: MaxNewTokens = 256,
    seed: Seed = 42,
    prune: Prune = None,
    prune_by: PruneBy = None,
    search: SearchToo = False,
    keep: Keep = 5,
    every: Every = 16,
    scorer: Scorer = "lookback",
    alpha: Alpha = None,
    lam: Lam = None,
    settings: Settings = None,
    model: Model = None,
    engine: EngineName = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    engine_set: EngineSet = None,
    by_layer: ByLayer = False,
    as_json: AsJson = False,
) -> None:
    """Ask a question about an image N times, rank the answers, print the best.

    Without --model the embedded model answers, which is small and knows drawn scenes only.

    Several images or questions share one start; --json prints a line for each once it is done.

    One of them that fails is named, the others go on, and the exit status is 3.
    """
    from lookback.engines.common.options import check_sampling

    check_sampling(n, temperature, top_p, None, max_new_tokens, seed)
    n = n if search else count_drawn(n, temperature)
    params = _params(scorer, alpha, lam, settings, n)
    rule = parse_steering(prune, search, prune_by, (n, keep, every), scorer, params)
    _check_shown(by_layer, as_json)
    _check_usage(images, question, questions, more_images)
    asked = {"IMAGE": images, "QUESTION": question, "--questions": questions}
    check_stdin(asked | {"--image": more_images})
    options = load_settings(
        engine, device, dtype, revision, device_map, trust_remote_code, engine_set
    )
    start = Start(model, options, scorer)
    drawing: dict[str, Any] = {"n": n, "temperature": temperature, "top_p": top_p, "seed": seed}
    drawing |= {"max_new_tokens": max_new_tokens, "source": source}

    def draw(lb: Engine, conversation: Conversation, title: str) -> Candidates:
        return draw_answers(lb, conversation, title, rule, drawing, by_layer)

    if questions is not None:
        found, problems = questions_in(questions)
        many = True
    else:
        names = [one for name in images or [] for one in find_images(name)]
        found, problems = questions_about(names, _given(str(question)), more_images or []), []
        many = names != images or len(names) > 1
    if many:
        show = partial(show_candidates, scorer=scorer, params=params, as_json=as_json)
        ask_each(found, problems, source, start, draw, show, as_json)
        return
    conversation = found[0].read()
    conversation.source(source)
    show_candidates(draw(start(conversation), conversation, ""), scorer, params, as_json)


def _check_usage(
    images: list[str] | None, question: str | None, questions: Path | None, more: list[str] | None
) -> None:
    """Either a file of questions, or images and a question.

    Raises:
        BadParameter: both, or not all of it.
    """
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
    elif isfile(
        question
    ):  # a shell that expands *.jpg leaves the last one where a question was due
        raise typer.BadParameter(
            f"missing QUESTION: the last argument is the file {question!r}; {example}",
            param_hint="IMAGE... QUESTION",
        )


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
            help="Read answers from here, one per line; - is stdin.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None,
    more_images: More = None,
    source: Source = None,
    scorer: Scorer = "lookback",
    alpha: Alpha = None,
    lam: Lam = None,
    settings: Settings = None,
    model: Model = None,
    engine: EngineName = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    engine_set: EngineSet = None,
    by_layer: ByLayer = False,
    as_json: AsJson = False,
) -> None:
    """Score answers that exist already, from any model or person, and rank them.

    Without --model the embedded model scores them, which is small and knows drawn scenes only.
    """
    from lookback.engines import optional_settings
    from lookback.io.limits import TEXT_CHARACTERS

    asked = {"IMAGE": image, "QUESTION": question, "RESPONSES": responses}
    check_stdin(asked | {"--image": more_images, "--file": file})
    question, given = _given(question), []
    for one in responses or []:
        given += _lines(STDIN) if is_stdin(one) else [one]
    if file is not None:
        given += _lines(file)
    if not given:
        raise ValueError("no answers given: write them as arguments, or name a --file")
    for number, one in enumerate(given):
        if not check_text(one, f"response {number}").strip():
            raise ValueError(f"response {number} is empty: there is nothing to score")
        TEXT_CHARACTERS.check(len(one), f"response {number}")
    check_question(question)
    params = _params(scorer, alpha, lam, settings, len(given))
    _check_shown(by_layer, as_json)
    conversation = read_conversation([image, *(more_images or [])], question)
    conversation.source(source)
    options = load_settings(
        engine, device, dtype, revision, device_map, trust_remote_code, engine_set
    )
    lb = Start(model, options, scorer)(conversation)
    layers = optional_settings(lb, {"by_layer": by_layer})
    with progress(f"scoring {len(given)} answers") as bar:
        cands = lb.score(
            messages=conversation.messages(),
            responses=given,
            source=source,
            progress=bar,
            **layers,
        )
    show_candidates(cands, scorer, params, as_json)


@app.command()
def scorers(as_json: Json = False) -> None:
    """List the scorers and their settings."""
    from lookback.scores.base import scorers as registered

    known = list(registered().values())
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
    show_scorers(known)


def _given(text: str) -> str:
    """A text of the command line; - is stdin."""
    return _read(STDIN).strip() if is_stdin(text) else text


def _lines(file: Path | str) -> list[str]:
    """The lines of a file that have something."""
    return [line for line in _read(file).splitlines() if line.strip()]


def _read(file: Path | str) -> str:
    """The text of a file; - is stdin."""
    from lookback.benchmarks.files import read_text
    from lookback.io.limits import DATA_MIB

    return read_stdin_text(DATA_MIB) if is_stdin(file) else read_text(Path(file))


def _params(
    scorer: str, alpha: float | None, lam: float | None, settings: list[str] | None, n: int
) -> dict[str, Any]:
    """The scorer's settings, wrong ones named before a model is loaded, which can take minutes."""
    from lookback.scores.base import get_scorer

    params: dict[str, Any] = {"alpha": alpha, "lam": lam}
    params = {name: value for name, value in params.items() if value is not None}
    params |= settings_of(settings)
    get_scorer(scorer).check(params, n)
    return params


def _check_shown(by_layer: bool, as_json: bool) -> None:
    """Refuse to keep what nobody would see."""
    if by_layer and not as_json:
        raise ValueError("--by-layer is shown by --json alone: add --json")
