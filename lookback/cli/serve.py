"""The command `serve`: best-of-N behind OpenAI's API, and the explorer. Parse, call, print."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from lookback.cli.app import (
    DRAWN,
    Device,
    DeviceMap,
    Dtype,
    EngineName,
    EngineSet,
    Model,
    Revision,
    Scorer,
    TrustRemoteCode,
    app,
    load_settings,
)
from lookback.cli.start import Start
from lookback.cli.steering import Prune, parse_schedule
from lookback.cli.terminal import say
from lookback.io.hosts import host_name, own_names
from lookback.io.json_values import check_text
from lookback.io.limits import IMAGE_MIB, IMAGE_PIXELS
from lookback.io.limits import LIMITS as INPUT_LIMITS
from lookback.server.settings import KEY_VARIABLE, Defaults, Limits, Settings

WHO = "Who may ask"
LIMITS = "What a request may cost"
SHARED = 4
"""Requests that share an engine which works on one at a time."""


def _limit(words: str, **more: Any) -> Any:
    return typer.Option(help=words, rich_help_panel=LIMITS, **more)


@app.command()
def serve(
    host: Annotated[
        str, typer.Option(help="0.0.0.0 lets other machines in.", rich_help_panel=WHO)
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="0 takes one that is free.", rich_help_panel=WHO),
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            help="What requests must bring: Authorization: Bearer KEY.",
            envvar=KEY_VARIABLE,
            show_default=False,
            rich_help_panel=WHO,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Pages of this origin may ask, e.g. https://example.org; may be repeated.",
            show_default=False,
            rich_help_panel=WHO,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Answer to this name too, e.g. that of a proxy before it; may be repeated.",
            show_default=False,
            rich_help_panel=WHO,
        ),
    ] = None,
    allow_urls: Annotated[
        bool,
        typer.Option(
            "--allow-urls",
            help="Images may be named by http(s) addresses, public ones only.",
            rich_help_panel=WHO,
        ),
    ] = False,
    log_text: Annotated[
        bool,
        typer.Option("--log-text", help="Write questions to the log.", rich_help_panel=WHO),
    ] = False,
    best_of: Annotated[
        int,
        typer.Option(
            min=1,
            help="Answers to draw, if a request does not say how many.",
            rich_help_panel=DRAWN,
        ),
    ] = 25,
    scorer: Scorer = "lookback",
    prune: Prune = None,
    temperature: Annotated[
        float, typer.Option(help="If a request does not say.", rich_help_panel=DRAWN)
    ] = 1.2,
    top_p: Annotated[
        float, typer.Option(help="If a request does not say.", rich_help_panel=DRAWN)
    ] = 0.9,
    max_tokens: Annotated[
        int,
        typer.Option(
            min=1, help="The longest answer, if a request does not say.", rich_help_panel=DRAWN
        ),
    ] = 256,
    most_best_of: Annotated[int, _limit("Answers that are drawn.", min=1)] = 64,
    most_tokens: Annotated[int, _limit("Tokens of one answer.", min=1)] = 1024,
    most_images: Annotated[int, _limit("Images.", min=0)] = 8,
    most_characters: Annotated[int, _limit("Characters of all that is said.", min=1)] = 100_000,
    body_mib: Annotated[int, _limit("MiB of the whole request.", min=1)] = 32,
    bodies_mib: Annotated[
        int | None,
        _limit(
            "MiB of all requests that are held at once (429), half of them for one client; by "
            "default 8 times --body-mib.",
            min=2,
            show_default=False,
        ),
    ] = None,
    image_mib: Annotated[int, _limit("MiB of one image.", min=1)] = 20,
    image_pixels: Annotated[int, _limit("Pixels of one image.", min=1)] = 16_000_000,
    deadline: Annotated[float, _limit("Seconds until it must be answered (504).", min=0.1)] = 120.0,
    queue: Annotated[
        int,
        _limit(
            "Requests that may wait; beyond, the client with the most loses its last (429).", min=0
        ),
    ] = 64,
    in_flight: Annotated[
        int | None,
        _limit(
            "Requests that share the model at a time; by default 4, with vLLM 32.",
            min=1,
            show_default=False,
        ),
    ] = None,
    grace: Annotated[
        float, _limit("Seconds that requests have left when the server is to end.", min=0)
    ] = 30.0,
    prefixes: Annotated[
        int,
        typer.Option(
            min=0,
            help="Prompts that are kept, so that another question about an image goes on from it; "
            "vLLM has a cache of its own.",
            rich_help_panel=DRAWN,
        ),
    ] = 8,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            "--served-model-name",
            "--name",
            metavar="NAME",
            help="What requests call the model, by default --model; may be repeated, and answers "
            "have the first.",
            show_default=False,
        ),
    ] = None,
    any_model_name: Annotated[
        bool, typer.Option("--any-model-name", help="Requests may call the model anything.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No line per request.")] = False,
    model: Model = None,
    engine: EngineName = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    engine_set: EngineSet = None,
) -> None:
    """Serve best-of-N answers to any OpenAI client, and the explorer to any browser.

    Clients change one thing, the address: base_url="http://127.0.0.1:8000/v1". The explorer is at
    the address itself.

    Without --model the embedded model answers, which is small and knows drawn scenes only.
    """
    _need_extra()
    from lookback.engines.common.options import check_sampling
    from lookback.scores.base import get_scorer
    from lookback.server.process import address, listen, make_server, start_log

    check_sampling(best_of, temperature, top_p, None, max_tokens, 0)
    if get_scorer(scorer).needs == "truth":
        raise ValueError(f"--scorer {scorer} needs the truth, which no request has")
    if best_of > most_best_of:
        raise ValueError(f"--best-of {best_of}: --most-best-of allows {most_best_of}")
    if bodies_mib is not None and bodies_mib < 2 * body_mib:
        raise ValueError(
            f"--bodies-mib must be at least twice --body-mib, {2 * body_mib} (got {bodies_mib})"
        )
    for one in served_model_name or []:
        if not check_text(one, "--served-model-name").strip():
            raise ValueError("--served-model-name is empty: give a name, or leave it out")
    schedule = None if prune is None else parse_schedule(prune)
    _ = [limit.units for limit in INPUT_LIMITS]  # a variable that is no number is said at once
    if api_key is None:  # or there is a variable, set to nothing, which the parser passes over
        api_key = os.environ.get(KEY_VARIABLE)
    bound = listen(host, port)  # before the model is loaded: a port that is taken is said at once
    names = own_names(host, bound.getsockname()[0])
    settings = Settings(
        Defaults(best_of, scorer, schedule, temperature, top_p, max_tokens),
        Limits(
            body_mib=body_mib,
            bodies_mib=bodies_mib or 8 * body_mib,
            images=most_images,
            characters=most_characters,
            tokens=most_tokens,
            best_of=most_best_of,
            queue=queue,
            seconds=deadline,
            grace=grace,
        ),
        names=tuple(served_model_name or ()),
        any_name=any_model_name,
        api_key=api_key,
        allow_urls=allow_urls,
        origins=tuple(cors or ()),
        prefixes=prefixes,
        log_text=log_text,
        hosts=names and (*names, *map(host_name, allow_host or ())),
    )
    options = load_settings(
        engine, device, dtype, revision, device_map, trust_remote_code, engine_set
    )
    lb = Start(model, options, scorer).engine()
    at_once = in_flight or (SHARED if lb.in_flight == 1 else lb.in_flight)
    settings = replace(settings, limits=replace(settings.limits, in_flight=at_once))
    from lookback.server.app import make_app

    start_log(quiet)
    server = make_server(make_app(lb, settings), settings)
    shown = ", ".join(served_model_name or [lb.name])
    say(f"serving {shown}; OpenAI clients: base_url={address(bound)}/v1; Ctrl-C ends it")
    print(address(bound), flush=True)
    # uvicorn ends well on SIGTERM and then sends it again: the engine is to end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with image_limits(image_mib, image_pixels):
            server.run([bound])
    finally:
        lb.close()  # vLLM has processes of its own


@contextmanager
def image_limits(mib: int, pixels: int) -> Iterator[None]:
    """Images may have so much within the block, unless the environment says otherwise."""
    named = {IMAGE_MIB.variable: mib, IMAGE_PIXELS.variable: pixels}
    own = {name: str(value) for name, value in named.items() if name not in os.environ}
    os.environ |= own
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


def _need_extra() -> None:
    """Say what to install.

    Raises:
        ImportError: something is missing.
    """
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        try:
            __import__(package)
        except ImportError as error:
            raise ImportError(
                f"lookback serve needs {package}: pip install 'lookback-vlm[serve]'"
            ) from error
