"""The `lookback` command: parse, call, print. Results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookback.terminal import (
    console,
    print_json,
    progress,
    show_benchmarks,
    show_candidates,
    show_evaluation,
    show_scorers,
    warn,
)

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

    from lookback.engines.transformers import TransformersEngine

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
    with progress(f"drawing {n} answers") as bar:
        cands = lb.sample(
            images,
            question,
            n,
            temperature=temperature,
            top_p=top_p,
            max_new_tokens=max_new_tokens,
            seed=seed,
            progress=bar,
        )
    show_candidates(cands, scorer, params, as_json)


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
    with progress(f"scoring {len(given)} answers") as bar:
        cands = lb.score(images, question, given, progress=bar)
    show_candidates(cands, scorer, params, as_json)


@app.command()
def scorers(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List the scorers and their settings."""
    from lookback.scores.registry import scorers as registered

    known = list(registered().values())
    if as_json:
        print_json(
            [
                {
                    "name": s.name,
                    "needs": s.needs,
                    "image": s.image,
                    "together": s.together,
                    "settings": s.params,
                    "about": s.about,
                }
                for s in known
            ]
        )
        return
    show_scorers(known)


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
        print_json([asdict(b) for b in known])
        return
    show_benchmarks(known)


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
    with progress("scoring") as bar:
        if benchmark == "hallusionbench" or judge_url or judge_key or judge_cache:
            from lookback.benchmarks.judge import get_judge

            settings["judge"] = get_judge(judge_model, judge_url, judge_key, judge_cache, bar)
        try:
            result = evaluation.evaluate(benchmark, responses, data, split, strict, **settings)
        except evaluation.BadResponses as error:
            warn(error.problems)
            raise
    warn(result.problems)
    if as_json:
        print_json(result.to_dict())
    else:
        show_evaluation(result)


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
    with console(stderr=True).status("loading the model"):
        import transformers

        from lookback.engines.transformers import load

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        engine = load(model, device=device)
    if model is None:
        print("lookback: the embedded model knows drawn scenes only; see --model", file=sys.stderr)
    return engine


if __name__ == "__main__":
    main()
