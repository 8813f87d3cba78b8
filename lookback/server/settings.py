"""Settings of a server: defaults of requests, their limits, and who may ask."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lookback.io.hosts import LOCAL

MIB = 2**20
KEY_VARIABLE = "LOOKBACK_API_KEY"


@dataclass(frozen=True)
class Defaults:
    """What holds for a request that does not say otherwise; as in the paper, where it says.

    Attributes:
        best_of: how many candidates are drawn.
        scorer: ranks them.
        prune: as for `Engine.sample`.
        max_tokens: the longest response.
    """

    best_of: int = 25
    scorer: str = "lookback"
    prune: Any = None
    temperature: float = 1.2
    top_p: float = 0.9
    max_tokens: int = 256


@dataclass(frozen=True)
class Limits:
    """What a request may cost at most.

    Pictures have the limits of `lookback.io.limits` beside these.

    Attributes:
        body_mib: of a request.
        bodies_mib: of all requests that are held at once; half of them for one client.
        images: in one request.
        characters: of all its texts.
        tokens: of one response.
        best_of: candidates, or responses that are given.
        queue: requests that wait; a further one is refused.
        seconds: from a request's first byte to its answer's last.
        body_seconds: until the whole request has arrived; and until the head of a connection's next
            one has, so that a connection may be idle for as long.
        in_flight: requests that share the engine.
        grace: seconds that requests at work have left when the server is told to end.
    """

    body_mib: int = 32
    bodies_mib: int = 256
    images: int = 8
    characters: int = 100_000
    tokens: int = 1024
    best_of: int = 64
    queue: int = 64
    seconds: float = 120.0
    body_seconds: float = 30.0
    in_flight: int = 4
    grace: float = 30.0


@dataclass(frozen=True)
class Settings:
    """All settings of a server.

    Attributes:
        defaults: of requests.
        limits: of requests.
        names: what requests may call the model; answers have the first. By default the engine's
            own name.
        any_name: whether requests may call it anything.
        api_key: what requests must bring; None for no key.
        allow_urls: whether images may be named by public http(s) addresses.
        origins: whose pages may ask (CORS).
        prefixes: prompts whose keys are kept for others about the same images, where the engine can
            (`Engine.keep_prefixes`); vLLM has a cache of its own.
        log_text: whether questions are logged.
        hosts: the names that the server answers to; None for any.

    Raises:
        ValueError: a key, name or origin is one that no request can bring, or all do.
    """

    defaults: Defaults = field(default_factory=Defaults)
    limits: Limits = field(default_factory=Limits)
    names: tuple[str, ...] = ()
    any_name: bool = False
    api_key: str | None = None
    allow_urls: bool = False
    origins: tuple[str, ...] = ()
    prefixes: int = 0
    log_text: bool = False
    hosts: tuple[str, ...] | None = LOCAL

    def __post_init__(self) -> None:
        # What is wrong with a key is not said by showing it: this may go to a log.
        if self.api_key is not None and not re.fullmatch(r"[!-~]+", self.api_key):
            why = "has blanks, or other than ASCII characters," if self.api_key else "is empty"
            raise ValueError(
                f"--api-key (or {KEY_VARIABLE}) {why}: give letters, digits and signs, or leave "
                "it out (unset it) to ask for no key"
            )
        for name in self.hosts or ():
            if not re.fullmatch(r"[a-z0-9._:-]+", name):
                raise ValueError(f"--allow-host must be the name of a host (got {name!r})")
        for origin in self.origins:
            if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/]+", origin):
                raise ValueError(
                    f"--cors must be an origin, e.g. https://example.org without a path (got "
                    f"{origin!r})"
                )
