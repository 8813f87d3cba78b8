"""The commands about benchmarks: `benchmarks`, `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lookback.cli.app import AllowOutside, Data, Json, JudgeModel, JudgePrompt, Metric, app
from lookback.cli.stdin import check_stdin, is_stdin, read_stdin, refuse_stdin
from lookback.cli.terminal import print_json, progress, show_benchmarks, show_evaluation, warn


@app.command()
def benchmarks(
    data: Data = None,
    as_json: Json = False,
) -> None:
    """List the benchmarks, where to get their files, and whether they are found."""
    from dataclasses import asdict

    from lookback.benchmarks.evaluate import list_benchmarks

    known = list_benchmarks(data)
    if as_json:
        print_json([asdict(b) for b in known])
        return
    show_benchmarks(known)


@app.command()
def evaluate(
    benchmark: Annotated[str, typer.Argument(help="One of `lookback benchmarks`.")],
    responses: Annotated[
        Path,
        typer.Option(help='The responses: {"id": ..., "response": "..."} per line; - is stdin.'),
    ],
    data: Data = None,
    metric: Metric = None,
    allow_outside: AllowOutside = False,
    split: Annotated[
        str | None,
        typer.Option(help="Score these items; `all` is all there are.", show_default=False),
    ] = None,
    strict: Annotated[
        bool | None,
        typer.Option(
            help="Bad lines and missing ids are an error, or never are; by default if fewer than "
            "half of the responses are to an item.",
            show_default=False,
        ),
    ] = None,
    synonyms: Annotated[
        Path | None, typer.Option(help="chair: a synonyms.txt to use.", show_default=False)
    ] = None,
    judge_model: JudgeModel = None,
    judge_prompt: JudgePrompt = None,
    judge_url: Annotated[
        str | None,
        typer.Option(
            help="Its OpenAI-compatible endpoint; by default OPENAI_BASE_URL.", show_default=False
        ),
    ] = None,
    judge_key: Annotated[
        str | None,
        typer.Option(help="Its API key; by default OPENAI_API_KEY.", show_default=False),
    ] = None,
    judge_cache: Annotated[
        Path | None, typer.Option(help="The file that keeps its replies.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Score anybody's responses on a benchmark; no model needed."""
    from lookback.benchmarks import evaluate as evaluation
    from lookback.benchmarks.base import get_kind
    from lookback.io.limits import DATA_MIB

    check_stdin({"--responses": responses, "--synonyms": synonyms})
    refuse_stdin("--synonyms", synonyms, "it is read by its name")
    given = {"synonyms": synonyms, "metric": metric}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value}
    content = read_stdin(DATA_MIB) if is_stdin(responses) else responses
    with progress("scoring") as bar:
        asked = (judge_prompt, judge_url, judge_key, judge_cache)
        if "judge" in get_kind(benchmark).settings or any(asked):
            from lookback.benchmarks.judge import get_judge

            settings["judge"] = get_judge(
                judge_model, judge_url, judge_key, judge_cache, bar, judge_prompt
            )
        try:
            result = evaluation.evaluate(benchmark, content, data, split, strict, **settings)
        except evaluation.BadResponses as error:
            warn(error.problems)
            raise
    warn(result.problems)
    if as_json:
        print_json(result.to_dict())
    else:
        show_evaluation(result)
