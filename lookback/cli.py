"""The `lookback` command: parse, call, print. Results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

    from lookback.benchmarks.evaluate import Evaluation
    from lookback.benchmarks.responses import Problem
    from lookback.engines import Progress
    from lookback.engines.transformers import TransformersEngine
    from lookback.signals import Candidate, Candidates

app = typer.Typer(
    help="Which of N answers does the image support? Scores vision-language model responses.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Image = Annotated[
    list[str] | None, typer.Option("--image", "-i", help="A further image; may be repeated.")
]
Model = Annotated[
    str | None,
    typer.Option(help="A hub id or a folder.", show_default=False),
]
Scorer = Annotated[str, typer.Option(help="Rank by this; see `lookback scorers`.")]
Alpha = Annotated[
    float | None,
    typer.Option(help="LookBack's α; by default the model family's.", show_default=False),
]
Lam = Annotated[
    float | None,
    typer.Option(help="LookBack's λ; by default the model family's.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the scorer; may be repeated.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print all signals as JSON.")]
Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, ...; by default a GPU if there is one.", show_default=False),
]

Data = Annotated[
    Path | None,
    typer.Option(
        help="The folder of the benchmark's files, or of one folder a benchmark.",
        envvar="LOOKBACK_DATA",
    ),
]


@app.callback()
def _plugins(
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="A module or a .py file with scorers of your own; may be repeated."),
    ] = None,
) -> None:
    if plugin:
        from lookback.scores.registry import load_plugin

        for name in plugin:
            load_plugin(name)


@app.command()
def ask(
    image: Annotated[str, typer.Argument(help="A file or a URL.")],
    question: Annotated[str, typer.Argument(help="What to ask about it.")],
    n: Annotated[int, typer.Option("-n", help="How many answers to draw.")] = 25,
    model: Model = None,
    scorer: Scorer = "lookback",
    alpha: Alpha = None,
    lam: Lam = None,
    settings: Settings = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 1.2,
    top_p: Annotated[float, typer.Option(help="The nucleus to sample from.")] = 0.9,
    max_new_tokens: Annotated[int, typer.Option(help="The longest answer.")] = 256,
    seed: Annotated[int, typer.Option(help="The same seed draws the same answers.")] = 42,
    more_images: Image = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Ask a question about an image N times, rank the answers, print the best."""
    params = _params(scorer, alpha, lam, settings)
    images = _images([image, *(more_images or [])])
    lb = _load(model, device)
    with _progress(f"drawing {n} answers") as progress:
        cands = lb.sample(
            images,
            question,
            n,
            temperature=temperature,
            top_p=top_p,
            max_new_tokens=max_new_tokens,
            seed=seed,
            progress=progress,
        )
    _show(cands, scorer, params, as_json)


@app.command()
def score(
    image: Annotated[str, typer.Argument(help="A file or a URL.")],
    question: Annotated[str, typer.Argument(help="What was asked about it.")],
    responses: Annotated[
        list[str] | None,
        typer.Argument(help="The answers.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Read answers from here, one a line; - is stdin.", show_default=False),
    ] = None,
    model: Model = None,
    scorer: Scorer = "lookback",
    alpha: Alpha = None,
    lam: Lam = None,
    settings: Settings = None,
    more_images: Image = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Score answers that exist already, from any model or person, and rank them."""
    given = list(responses or [])
    if file is not None:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        given += [line for line in text.splitlines() if line.strip()]
    if not given:
        raise ValueError("no answers given: write them as arguments, or name a --file")
    params = _params(scorer, alpha, lam, settings)
    images = _images([image, *(more_images or [])])
    lb = _load(model, device)
    with _progress(f"scoring {len(given)} answers") as progress:
        cands = lb.score(images, question, given, progress=progress)
    _show(cands, scorer, params, as_json)


@app.command()
def scorers(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List the scorers and their settings."""
    from rich.table import Table

    from lookback.scores.registry import NEEDS
    from lookback.scores.registry import scorers as registered

    known = registered().values()
    if as_json:
        _print_json(
            [
                {
                    "name": s.name,
                    "needs": s.needs,
                    "image": s.image,
                    "settings": s.params,
                    "about": s.about,
                }
                for s in known
            ]
        )
        return
    table = Table("scorer", "needs", "settings", "what it is", box=None, pad_edge=False)
    for s in known:
        table.add_row(s.name, s.needs, ", ".join(s.params), s.about)
    _console().print(table)
    costs = "; ".join(f"{name}: {what}" for name, what in NEEDS.items())
    _console(stderr=True).print(f"\nneeds, from cheap to dear: {costs}", style="dim")


@app.command()
def benchmarks(
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the benchmarks, where to get their files, and whether they are found."""
    from dataclasses import asdict

    from lookback.benchmarks.evaluate import list_benchmarks

    known = list_benchmarks(data)
    if as_json:
        _print_json([asdict(b) for b in known])
        return
    console = _console()
    for b in known:
        console.print(f"[bold]{b.name}[/bold]  {b.primary}; {b.source}", highlight=False)
        if b.files:
            state = f"found in {b.where}" if b.found else f"not found: {b.where}"
            console.print(f"    {state}", markup=False, highlight=False)


@app.command()
def evaluate(
    benchmark: Annotated[str, typer.Argument(help="One of `lookback benchmarks`.")],
    responses: Annotated[
        Path, typer.Option(help='The responses: {"id": ..., "response": "..."} a line.')
    ],
    data: Data = None,
    split: Annotated[
        str | None,
        typer.Option(help="Score these items; `all` is all there are.", show_default=False),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Bad lines and missing ids are an error.")
    ] = False,
    synonyms: Annotated[
        Path | None, typer.Option(help="chair: a synonyms.txt to use.", show_default=False)
    ] = None,
    judge_model: Annotated[
        str | None,
        typer.Option(
            help="hallusionbench: the language model that judges; without, rules do.",
            envvar="LOOKBACK_JUDGE_MODEL",
        ),
    ] = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Score anybody's responses on a benchmark; no model needed."""
    from lookback.benchmarks import evaluate as evaluation

    settings: dict[str, Any] = {"synonyms": synonyms} if synonyms else {}
    with _progress("scoring") as progress:
        if benchmark == "hallusionbench" or judge_url or judge_key or judge_cache:
            from lookback.benchmarks.judge import get_judge

            settings["judge"] = get_judge(judge_model, judge_url, judge_key, judge_cache, progress)
        try:
            result = evaluation.evaluate(benchmark, responses, data, split, strict, **settings)
        except evaluation.BadResponses as error:
            _warn(error.problems)
            raise
    _warn(result.problems)
    if as_json:
        _print_json(result.to_dict())
    else:
        _show_evaluation(result)


def main() -> None:
    """Run the command; expected failures become one line on stderr and exit status 1."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # e.g. `lookback ask ... | head`
        sys.stderr.close()
        sys.exit(141)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"lookback: {error}", file=sys.stderr)
        sys.exit(1)


def _params(
    scorer: str, alpha: float | None, lam: float | None, settings: list[str] | None
) -> dict[str, Any]:
    """The scorer's settings, wrong ones named before a model is loaded, which can take minutes."""
    from lookback.scores.registry import get_scorer

    params: dict[str, Any] = {"alpha": alpha, "lam": lam}
    params = {name: value for name, value in params.items() if value is not None}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting}: write NAME=VALUE")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value  # a word
    get_scorer(scorer).check(params)
    return params


def _images(images: list[str]) -> list[PilImage]:
    from lookback.images import load_images

    return load_images(images)


def _load(model: str | None, device: str | None) -> TransformersEngine:
    with _console(stderr=True).status("loading the model"):
        import transformers

        from lookback.engines.transformers import load

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        engine = load(model, device=device)
    if model is None:
        print("lookback: the embedded model knows drawn scenes only; see --model", file=sys.stderr)
    return engine


@contextmanager
def _progress(title: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn(title), BarColumn(), TextColumn("{task.completed}"), TimeElapsedColumn()
    console = _console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(cands: Candidates, scorer: str, params: dict[str, Any], as_json: bool) -> None:
    with _console(stderr=True).status(f"ranking by {scorer}"):
        ranked = cands.rank(scorer, **params)
    if as_json:
        from lookback.signals import candidate_dict

        data = cands.to_dict() | {"scorer": scorer}
        data["candidates"] = [candidate_dict(c) for c in ranked]
        _print_json(data)
        return
    console = _console()
    console.print(_table(ranked, scorer))
    if ranked[0].score == ranked[0].score:  # not NaN: at least one answer is not empty
        console.print(f"\nbest by {scorer}:", style="bold")
        console.print(_printable(ranked[0].text.strip()), markup=False, highlight=False)
    else:
        raise ValueError("every answer is empty: there is no best one")


def _show_evaluation(result: Evaluation) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(result.benchmark)
    table.add_column("value", justify="right")
    for name, value in result.metrics.items():
        style = "bold" if name == result.primary else ""
        table.add_row(name, f"{value:.2f}", style=style)
    console = _console()
    console.print(table)
    judged = f"; judge: {result.judge}" if result.judge else ""
    missing = f"; {result.missing} have no response" if result.missing else ""
    console.print(f"\n{result.items} items{missing}{judged}", highlight=False, markup=False)
    for note in result.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def _warn(problems: list[Problem], most: int = 20) -> None:
    for problem in problems[:most]:
        print(f"lookback: {_printable(str(problem))}", file=sys.stderr)
    if len(problems) > most:
        print(f"lookback: and {len(problems) - most} more problems", file=sys.stderr)


def _table(ranked: list[Candidate], scorer: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("#", scorer, "log p", "A", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("answer", overflow="ellipsis", no_wrap=True)
    for c in ranked:
        empty = not len(c.signals)
        numbers = (
            ["-"] * 3
            if empty
            else [f"{value:.4f}" for value in (c.score, c.log_prob.mean(), c.lookback.mean())]
        )
        answer = Text(_printable(" ".join(c.text.split())) or "(empty)")
        table.add_row(str(c.index), *numbers, str(len(c.signals)), answer)
    return table


def _printable(text: str) -> str:
    """A model may write anything: nothing of it may command the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def _console(stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(stderr=stderr)


def _print_json(data: Any) -> None:
    print(json.dumps(data, ensure_ascii=False))


if __name__ == "__main__":
    main()
