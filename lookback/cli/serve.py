"""The command `serve`: best-of-N behind OpenAI's API, and the explorer."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from lookback.cli.app import app
from lookback.cli.options import DRAWN, EngineOptions, Model, Prune, Scorer, option, parse_schedule
from lookback.cli.start import Start
from lookback.cli.terminal import say
from lookback.io.hosts import host_name, own_names
from lookback.io.json_values import check_text
from lookback.io.limits import IMAGE_MIB, IMAGE_PIXELS
from lookback.io.limits import LIMITS as INPUT_LIMITS
from lookback.server.settings import KEY_VARIABLE, Defaults, Limits, Settings

SHARED = 4
"""Requests that share an engine which works on one at a time."""


@dataclass(frozen=True, kw_only=True)
class AccessOptions:
    """Who may ask."""

    PANEL: ClassVar[str] = "Who may ask"
    host: str = option("127.0.0.1", help="0.0.0.0 lets other machines in.")
    port: int = option(8000, min=0, max=65535, help="0 takes one that is free.")
    api_key: str | None = option(
        help="What requests must bring: Authorization: Bearer KEY.",
        envvar=KEY_VARIABLE,
        show_default=False,
    )
    cors: list[str] | None = option(
        metavar="ORIGIN",
        help="Pages of this origin may ask, e.g. https://example.org; may be repeated.",
    )
    allow_host: list[str] | None = option(
        metavar="NAME",
        help="Answer to this name too, e.g. that of a proxy before it; may be repeated.",
    )
    allow_urls: bool = option(
        False, "--allow-urls", help="Images may be named by http(s) addresses, public ones only."
    )
    log_text: bool = option(False, "--log-text", help="Write questions to the log.")


@dataclass(frozen=True, kw_only=True)
class DefaultOptions:
    """What holds if a request does not say."""

    PANEL: ClassVar[str] = DRAWN
    best_of: int = option(25, min=1, help="Answers to draw, if a request does not say how many.")
    scorer: Scorer = "lookback"
    prune: Prune = None
    temperature: float = option(1.2, help="If a request does not say.")
    top_p: float = option(0.9, help="If a request does not say.")
    max_tokens: int = option(256, min=1, help="The longest answer, if a request does not say.")

    def defaults(self) -> Defaults:
        """Return the server's defaults; raise ValueError if one is out of range."""
        from lookback.engines.common.options import check_sampling
        from lookback.scores.base import get_scorer

        check_sampling(self.best_of, self.temperature, self.top_p, None, self.max_tokens, 0)
        if get_scorer(self.scorer).needs == "truth":
            raise ValueError(f"--scorer {self.scorer} needs the truth, which no request has")
        schedule = None if self.prune is None else parse_schedule(self.prune)
        return Defaults(
            self.best_of, self.scorer, schedule, self.temperature, self.top_p, self.max_tokens
        )


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """What a request may cost."""

    PANEL: ClassVar[str] = "What a request may cost"
    most_best_of: int = option(64, min=1, help="Answers that are drawn.")
    most_tokens: int = option(1024, min=1, help="Tokens of one answer.")
    most_images: int = option(8, min=0, help="Images.")
    most_characters: int = option(100_000, min=1, help="Characters of all that is said.")
    body_mib: int = option(32, min=1, help="MiB of the whole request.")
    bodies_mib: int | None = option(
        min=2,
        help="MiB of all requests that are held at once (429), half of them for one client; by "
        "default 8 times --body-mib.",
    )
    image_mib: int = option(20, min=1, help="MiB of one image.")
    image_pixels: int = option(16_000_000, min=1, help="Pixels of one image.")
    deadline: float = option(120.0, min=0.1, help="Seconds until it must be answered (504).")
    queue: int = option(
        64,
        min=0,
        help="Requests that may wait; beyond, the client with the most loses its last (429).",
    )
    in_flight: int | None = option(
        min=1, help="Requests that share the model at a time; by default 4, with vLLM 32."
    )
    grace: float = option(
        30.0, min=0, help="Seconds that requests have left when the server is to end."
    )

    def limits(self) -> Limits:
        """Return the server's limits; raise ValueError if two of them contradict each other."""
        if self.bodies_mib is not None and self.bodies_mib < 2 * self.body_mib:
            raise ValueError(
                f"--bodies-mib must be at least twice --body-mib, {2 * self.body_mib} "
                f"(got {self.bodies_mib})"
            )
        return Limits(
            body_mib=self.body_mib,
            bodies_mib=self.bodies_mib or 8 * self.body_mib,
            images=self.most_images,
            characters=self.most_characters,
            tokens=self.most_tokens,
            best_of=self.most_best_of,
            queue=self.queue,
            seconds=self.deadline,
            grace=self.grace,
        )


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """The prefix cache, the names of the model, and the log."""

    prefixes: int = option(
        8,
        min=0,
        help="Prompts that are kept, so that another question about an image goes on from it; "
        "vLLM has a cache of its own.",
        rich_help_panel=DRAWN,
    )
    served_model_name: list[str] | None = option(
        None,
        "--served-model-name",
        "--name",
        metavar="NAME",
        help="What requests call the model, by default --model; may be repeated, and answers have "
        "the first.",
    )
    any_model_name: bool = option(
        False, "--any-model-name", help="Requests may call the model anything."
    )
    quiet: bool = option(False, "--quiet", help="No line per request.")


@app.command()
def serve(
    *,
    access: AccessOptions,
    drawing: DefaultOptions,
    limit: LimitOptions,
    serving: ServingOptions,
    model: Model = None,
    engine: EngineOptions,
) -> None:
    """Serve best-of-N answers to any OpenAI client, and the explorer to any browser.

    Clients change one thing, the address: base_url="http://127.0.0.1:8000/v1". The explorer is at
    the address itself.

    Without --model the embedded model answers, which is small and knows drawn scenes only.
    """
    _need_extra()
    from lookback.server.process import address, listen, make_server, start_log

    defaults, limits = drawing.defaults(), limit.limits()
    if defaults.best_of > limits.best_of:
        raise ValueError(f"--best-of {defaults.best_of}: --most-best-of allows {limits.best_of}")
    for name in serving.served_model_name or []:
        if not check_text(name, "--served-model-name").strip():
            raise ValueError("--served-model-name is empty: give a name, or leave it out")
    _ = [known.units for known in INPUT_LIMITS]  # a variable that is no number is said at once
    # Before the model is loaded: a port that is taken is said at once.
    bound = listen(access.host, access.port)
    names = own_names(access.host, bound.getsockname()[0])
    settings = Settings(
        defaults,
        limits,
        names=tuple(serving.served_model_name or ()),
        any_name=serving.any_model_name,
        # Typer takes a variable that is set to nothing for none; the server does not.
        api_key=os.environ.get(KEY_VARIABLE) if access.api_key is None else access.api_key,
        allow_urls=access.allow_urls,
        origins=tuple(access.cors or ()),
        prefixes=serving.prefixes,
        log_text=access.log_text,
        hosts=names and (*names, *map(host_name, access.allow_host or ())),
    )
    lb = Start(model, engine.load_settings(), defaults.scorer).engine()
    at_once = limit.in_flight or (SHARED if lb.in_flight == 1 else lb.in_flight)
    settings = replace(settings, limits=replace(settings.limits, in_flight=at_once))
    from lookback.server.app import make_app

    start_log(serving.quiet)
    server = make_server(make_app(lb, settings), settings)
    shown = ", ".join(serving.served_model_name or [lb.name])
    say(f"serving {shown}; OpenAI clients: base_url={address(bound)}/v1; Ctrl-C ends it")
    print(address(bound), flush=True)
    # uvicorn ends well on SIGTERM and then sends it again: the engine is to end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with image_limits(limit.image_mib, limit.image_pixels):
            server.run([bound])
    finally:
        lb.close()  # vLLM has processes of its own


@contextmanager
def image_limits(mib: int, pixels: int) -> Iterator[None]:
    """Limit the size of images within the block, unless the environment does."""
    limits = {IMAGE_MIB.variable: mib, IMAGE_PIXELS.variable: pixels}
    own = {name: str(value) for name, value in limits.items() if name not in os.environ}
    os.environ |= own
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


def _need_extra() -> None:
    """Raise ImportError, with what to install, if a package is missing."""
    for package in ("fastapi", "fastapi_swagger", "uvicorn", "prometheus_client"):
        try:
            __import__(package)
        except ImportError as error:
            raise ImportError(
                f"lookback serve needs {package}: pip install 'lookback-vlm[serve]'"
            ) from error
