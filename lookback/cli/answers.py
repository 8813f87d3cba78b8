"""The commands about one image and question: `ask`, `score`, `scorers`, `engines`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from lookback.cli.app import (
    Alpha,
    AsJson,
    ByLayer,
    Device,
    DeviceMap,
    Dtype,
    EngineName,
    Image,
    Json,
    Lam,
    MaxNewTokens,
    Model,
    Revision,
    Scorer,
    Settings,
    Source,
    Temperature,
    TopP,
    TrustRemoteCode,
    app,
    load_settings,
    settings_of,
)
from lookback.cli.ranking import show_candidates
from lookback.cli.terminal import (
    console,
    print_json,
    progress,
    say,
    show_scorers,
)

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

    from lookback.engines import Engine


@app.command()
def ask(
    image: Annotated[str, typer.Argument(help="An image or a video: a file or a URL.")],
    question: Annotated[str, typer.Argument(help="What to ask about it.")],
    n: Annotated[int, typer.Option("-n", help="How many answers to draw.")] = 25,
    model: Model = None,
    scorer: Scorer = "lookback",
    alpha: Alpha = None,
    lam: Lam = None,
    settings: Settings = None,
    temperature: Temperature = 1.2,
    top_p: TopP = 0.9,
    max_new_tokens: MaxNewTokens = 256,
    seed: Annotated[int, typer.Option(help="The same seed draws the same answers.")] = 42,
    more_images: Image = None,
    source: Source = None,
    engine: EngineName = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    by_layer: ByLayer = False,
    as_json: AsJson = False,
) -> None:
    """Ask a question about an image N times, rank the answers, print the best."""
    from lookback.engines.sampling import check_sampling

    check_sampling(n, temperature, top_p, None, max_new_tokens, seed)
    params = _params(scorer, alpha, lam, settings)
    _check_shown(by_layer, as_json)
    shown = _shown([image, *(more_images or [])])
    options = load_settings(engine, device, dtype, revision, device_map, trust_remote_code)
    lb = _load(model, options)
    layers = _layers(lb, by_layer)
    with progress(f"drawing {n} answers") as bar:
        cands = lb.sample(
            shown.images,
            question,
            n,
            video=shown.video,
            source=source,
            temperature=temperature,
            top_p=top_p,
            max_new_tokens=max_new_tokens,
            seed=seed,
            progress=bar,
            **layers,
        )
    show_candidates(cands, scorer, params, as_json)


@app.command()
def score(
    image: Annotated[str, typer.Argument(help="An image or a video: a file or a URL.")],
    question: Annotated[str, typer.Argument(help="What was asked about it.")],
    responses: Annotated[
        list[str] | None,
        typer.Argument(help="The answers.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Read answers from here, one per line; - is stdin.", show_default=False),
    ] = None,
    model: Model = None,
    scorer: Scorer = "lookback",
    alpha: Alpha = None,
    lam: Lam = None,
    settings: Settings = None,
    more_images: Image = None,
    source: Source = None,
    engine: EngineName = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    by_layer: ByLayer = False,
    as_json: AsJson = False,
) -> None:
    """Score answers that exist already, from any model or person, and rank them."""
    given = list(responses or [])
    if file is not None:
        given += [line for line in _read(file).splitlines() if line.strip()]
    if not given:
        raise ValueError("no answers given: write them as arguments, or name a --file")
    params = _params(scorer, alpha, lam, settings)
    _check_shown(by_layer, as_json)
    shown = _shown([image, *(more_images or [])])
    options = load_settings(engine, device, dtype, revision, device_map, trust_remote_code)
    lb = _load(model, options)
    layers = _layers(lb, by_layer)
    with progress(f"scoring {len(given)} answers") as bar:
        cands = lb.score(
            shown.images, question, given, video=shown.video, source=source, progress=bar, **layers
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


def _read(file: Path) -> str:
    """The text of a file; - is stdin."""
    if str(file) == "-":
        return sys.stdin.read()
    from lookback.benchmarks.files import read_text

    return read_text(file)


def _params(
    scorer: str, alpha: float | None, lam: float | None, settings: list[str] | None
) -> dict[str, Any]:
    """The scorer's settings, wrong ones named before a model is loaded, which can take minutes."""
    from lookback.scores.base import get_scorer

    params: dict[str, Any] = {"alpha": alpha, "lam": lam}
    params = {name: value for name, value in params.items() if value is not None}
    params |= settings_of(settings)
    get_scorer(scorer).check(params)
    return params


def _check_shown(by_layer: bool, as_json: bool) -> None:
    """Refuse to keep what nobody would see."""
    if by_layer and not as_json:
        raise ValueError("--by-layer is shown by --json alone: add --json")


def _layers(engine: Engine, by_layer: bool) -> dict[str, Any]:
    from lookback.engines import by_layer_setting

    return by_layer_setting(engine, by_layer, "--by-layer")


class _Shown(NamedTuple):
    """What is asked about, read before a model is loaded."""

    images: list[PilImage] | None
    video: list[PilImage] | None


def _shown(names: list[str]) -> _Shown:
    from lookback.images import load_images
    from lookback.videos import is_video, load_video

    videos = [name for name in names if is_video(name)]
    if len(videos) > 1:
        raise ValueError(f"one video at a time: {', '.join(videos)}")
    images = load_images([name for name in names if name not in videos])
    return _Shown(images or None, load_video(videos[0]) if videos else None)


def _load(model: str | None, options: dict[str, Any]) -> Engine:
    with console(stderr=True).status("loading the model"):
        from lookback.engines import load

        loaded: Engine = load(model, quiet=True, **options)
    if loaded.name == "embedded":
        say("the embedded model knows drawn scenes only; see --model")
    return loaded
