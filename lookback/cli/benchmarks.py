"""The commands about benchmarks: `benchmarks`, `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookback.cli.app import app
from lookback.cli.inputs import check_stdin, is_stdin, read_stdin, refuse_stdin
from lookback.cli.options import Data, DataOptions, Json, JudgeOptions, option
from lookback.cli.terminal import console, print_json, printable, progress, say, show_table

if TYPE_CHECKING:
    from lookback.benchmarks.evaluate import Evaluation, Listed
    from lookback.benchmarks.responses import Problem


@app.command()
def benchmarks(data: Data = None, as_json: Json = False) -> None:
    """List the benchmarks, where to get their files, and whether they are found."""
    from lookback.benchmarks.evaluate import list_benchmarks

    known = list_benchmarks(data)
    if as_json:
        print_json([asdict(b) for b in known])
        return
    show_benchmarks(known)


def show_benchmarks(known: Sequence[Listed]) -> None:
    """Print each benchmark's metric and files; below, where its items come from."""
    from lookback.benchmarks.base import GENERATED

    show_table(
        ("benchmark", "metric", "files"), [(b.name, b.primary, _files_cell(b)) for b in known]
    )
    print()
    sources = [
        (b.name, f"{b.source}; needed: {', '.join(b.files)}" if b.files else b.source)
        for b in known
        if b.name not in GENERATED
    ]
    show_table(("benchmark", "where its items come from"), sources)
    if not all(b.found for b in known):
        say(
            "files that are not found: name their folder with --data DIR or LOOKBACK_DATA; --json "
            "says what is missing there"
        )


def _files_cell(b: Listed) -> str:
    if not b.files:
        return "none needed" if b.name != "own" else "yours: --data FILE"
    return f"found in {b.where}" if b.found else "not found"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Which items count, and how strictly."""

    split: str | None = option(help="Score these items; `all` is all there are.")
    strict: bool | None = option(
        help="Bad lines and missing ids are an error, or never are; by default if fewer than half "
        "of the responses are to an item."
    )
    synonyms: Path | None = option(help="chair: a synonyms.txt to use.")


@dataclass(frozen=True, kw_only=True)
class EvaluateJudgeOptions(JudgeOptions):
    """The language model that judges, and how it is reached."""

    judge_url: str | None = option(
        help="Its OpenAI-compatible endpoint; by default OPENAI_BASE_URL."
    )
    judge_key: str | None = option(help="Its API key; by default OPENAI_API_KEY.")
    judge_cache: Path | None = option(help="The file that keeps its replies.")


@app.command()
def evaluate(
    benchmark: Annotated[str, typer.Argument(help="One of `lookback benchmarks`.")],
    responses: Annotated[
        Path,
        typer.Option(help='The responses: {"id": ..., "response": "..."} per line; - is stdin.'),
    ],
    *,
    data: DataOptions,
    options: EvaluateOptions,
    judge: EvaluateJudgeOptions,
    as_json: Json = False,
) -> None:
    """Score anybody's responses on a benchmark; no model needed."""
    from lookback.benchmarks import evaluate as evaluation
    from lookback.benchmarks.base import get_kind
    from lookback.io.limits import DATA_MIB

    check_stdin({"--responses": responses, "--synonyms": options.synonyms})
    refuse_stdin("--synonyms", options.synonyms, "it is read by its name")
    own = {"synonyms": options.synonyms, "metric": data.metric}
    settings: dict[str, Any] = {name: value for name, value in own.items() if value}
    content = read_stdin(DATA_MIB) if is_stdin(responses) else responses
    with progress("scoring") as bar:
        own_judge = judge.judge_prompt, judge.judge_url, judge.judge_key, judge.judge_cache
        if "judge" in get_kind(benchmark).settings or any(own_judge):
            from lookback.benchmarks.judge import get_judge

            settings["judge"] = get_judge(
                judge.judge_model,
                judge.judge_url,
                judge.judge_key,
                judge.judge_cache,
                bar,
                judge.judge_prompt,
            )
        try:
            result = evaluation.evaluate(
                benchmark, content, data.data, options.split, options.strict, **settings
            )
        except evaluation.BadResponses as error:
            warn(error.problems)
            raise
    warn(result.problems)
    if as_json:
        print_json(result.to_dict())
    else:
        show_evaluation(result)


def show_evaluation(result: Evaluation) -> None:
    """Print a benchmark's metrics as a table, and notes about them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(result.benchmark)
    table.add_column("value", justify="right")
    for name, value in result.metrics.items():
        style = "bold" if name == result.primary else ""
        table.add_row(name, f"{value:.2f}", style=style)
    out = console()
    if result.headline:
        out.print(f"{printable(result.headline)}\n", style="bold", highlight=False, markup=False)
    out.print(table)
    judged = f"; judge: {result.judge}" if result.judge else ""
    missing = f"; {result.missing} have no response" if result.missing else ""
    out.print(f"\n{result.items} items{missing}{judged}", highlight=False, markup=False)
    for note in result.notes:
        out.print(f"note: {note}", highlight=False, markup=False)


def warn(problems: list[Problem], most: int = 20) -> None:
    """Print the first problems with a file of responses on stderr."""
    for problem in problems[:most]:
        say(str(problem))
    if len(problems) > most:
        say(f"and {len(problems) - most} more problems")
