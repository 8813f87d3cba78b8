"""From a request to what an engine is asked, checked against the server's limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lookback.conversations import NO_SOURCE, Conversation
from lookback.engines import AbilityError, Engine, require
from lookback.engines.common.options import SEEDS
from lookback.io.images import stored_image
from lookback.scores.base import Scorer, get_scorer
from lookback.server.errors import ApiError, invalid
from lookback.server.schema import ChatRequest, ImagePart, Lookback, Message, Ranking, ScoreRequest
from lookback.server.settings import Limits, Settings
from lookback.signals import SIGNALS
from lookback.steering.pruning import Pruning, pruning_of

ROLES = {"developer": "system"}
WITHOUT_IMAGE = (
    *("mean_log_prob", "sum_log_prob", "perplexity", "self_certainty", "entropy"),
    *("self_certainty_borda", "majority", "consensus", "random"),
)
"""Scorers that rank answers about no image; the first does so where a request names none."""


@dataclass(frozen=True)
class Ranked:
    """Who ranks candidates, with all its settings.

    Attributes:
        scorer: the scorer.
        params: what the request says of its settings.
        settings: all of them.
        signals: those that are told of each token.
        source: what A is measured on.
        note: what a client should know that did not ask for it.
    """

    scorer: Scorer
    params: Mapping[str, Any]
    settings: Mapping[str, Any]
    signals: tuple[str, ...]
    source: Any
    note: str | None = None


@dataclass(frozen=True)
class Draw:
    """A request for candidates.

    Attributes:
        ranked: who ranks them.
        n: how many come back.
        best_of: how many are drawn.
        sampling: how, as `Engine.sample` takes it.
        top: the likeliest tokens that are told of each step; None for no log-probabilities at all.
    """

    ranked: Ranked
    n: int
    best_of: int
    sampling: Mapping[str, Any]
    top: int | None


def ask_for_draw(engine: Engine, request: ChatRequest, settings: Settings) -> Draw:
    """What a chat completion asks of the engine.

    Raises:
        ApiError: more than there is, or than is allowed.
    """
    defaults, limits = settings.defaults, settings.limits
    more = request.lookback or Lookback()
    ranked = ask_for_ranking(engine, more, settings)
    if _lacks_source(request):
        ranked = _rank_without_image(engine, more, settings, ranked)
    n = request.n or 1
    temperature = defaults.temperature if request.temperature is None else request.temperature
    # At temperature 0 all candidates are one.
    usual = n if temperature == 0 else max(n, defaults.best_of)
    best_of = more.best_of or usual
    if n > best_of:
        raise invalid(f"n = {n}: only {best_of} candidates are drawn (lookback.best_of)", "n")
    _at_most(best_of, limits.best_of, "n" if more.best_of is None else "lookback.best_of")
    tokens = _max_tokens(request, settings)
    if request.top_logprobs and not request.logprobs:
        raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
    sampling = {
        "n": best_of,
        "temperature": temperature,
        "top_p": defaults.top_p if request.top_p is None else request.top_p,
        "max_new_tokens": tokens,
        "stop": _stop(request.stop),
        "seed": None if request.seed is None else request.seed % SEEDS,
        "source": ranked.source,
    }
    prune = more.prune if "prune" in more.model_fields_set else defaults.prune
    if prune is not None and best_of > 1:
        sampling["prune"] = _pruning(engine, prune, best_of, ranked)
    top = None
    if request.logprobs:
        top = request.top_logprobs or 0
        if top:
            _require(engine, "top_log_probs", "top_logprobs")
            sampling["top_log_probs"] = top
    return Draw(ranked, n, best_of, sampling, top)


def ask_for_ranking(engine: Engine, more: Ranking, settings: Settings) -> Ranked:
    """Who ranks, with which settings.

    Raises:
        ApiError: there is no such scorer or setting, or the engine cannot do what it needs.
    """
    name = more.scorer or settings.defaults.scorer
    try:
        scorer = get_scorer(name)
        require(engine, scorer.uses, f"scorer {name!r}")
    except ValueError as error:
        raise invalid(str(error), "lookback.scorer") from None
    if scorer.needs == "truth":
        raise invalid(f"scorer {name!r} needs the truth, which no request has", "lookback.scorer")
    given = {"alpha": more.alpha, "lam": more.lam}
    params = {name: value for name, value in given.items() if value is not None}
    try:
        chosen = scorer.settings(engine.family.defaults, params)
    except TypeError as error:
        raise invalid(str(error), f"lookback.{min(params)}") from None
    told = tuple(signals_of(more.signals))
    return Ranked(scorer, params, chosen, told, more.source)


def _lacks_source(request: ChatRequest) -> bool:
    """Whether no message has an image, or words to look back at instead, and none is asked for."""
    contents = [one.content for one in request.messages if not isinstance(one.content, str)]
    shown = any(isinstance(p, ImagePart) or p.source for content in contents for p in content)
    return not shown and (request.lookback is None or request.lookback.source is None)


def _rank_without_image(
    engine: Engine, more: Lookback, settings: Settings, ranked: Ranked
) -> Ranked:
    """Return who ranks answers about no image, instead of the server's scorer if that needs one.

    Raises:
        ApiError: the request itself asks for a scorer that needs an image.
    """
    name = ranked.scorer.name
    if name not in WITHOUT_IMAGE:
        if more.scorer is not None or ranked.params:
            raise invalid(
                f"scorer {name!r} needs an image, and no message has one: add one, or leave "
                f"scorer, alpha and lam out to have the answers ranked by {WITHOUT_IMAGE[0]}",
                "lookback.scorer",
            )
        name = WITHOUT_IMAGE[0]
    blind = more.model_copy(update={"scorer": name, "source": NO_SOURCE})
    note = f"no message has an image: ranked by {name}, and A is 0"
    return replace(ask_for_ranking(engine, blind, settings), note=note)


def signals_of(asked: bool | Sequence[str]) -> Sequence[str]:
    """The names of the signals that a request wants."""
    if isinstance(asked, bool):
        return SIGNALS if asked else ()
    return [name for name in SIGNALS if name in asked]


def check_responses(request: ScoreRequest, limits: Limits) -> None:
    """Let pass as many responses, as long, as candidates may be.

    Raises:
        ApiError: there are more, or one is longer.
    """
    _at_most(len(request.responses), limits.best_of, "responses")
    for i, one in enumerate(request.responses):
        check_response(one, limits, f"responses[{i}]")


def check_response(response: str | Sequence[int], limits: Limits, name: str) -> None:
    """Let pass a response that is not too long; of text, 16 characters count as a token.

    Raises:
        ApiError: it is too long.
    """
    most = limits.tokens * (16 if isinstance(response, str) else 1)
    if not response:
        raise invalid(f"{name} is empty: there is nothing to score", name)
    if len(response) > most:
        what = "characters" if isinstance(response, str) else "tokens"
        raise invalid(f"{name} has {len(response)} {what}: at most {most} are allowed", name)


def check_text(text: str, limits: Limits, name: str) -> None:
    """Raise ApiError if a text has more characters than all messages may have."""
    _at_most(len(text), limits.characters, name, f"{name}: characters")


def check_messages(messages: Sequence[Message], settings: Settings) -> None:
    """Let pass texts that are not too long, and images that may be read here, not too many.

    Raises:
        ApiError: there is too much, or an address is of another kind.
    """
    texts = [
        text
        for one in messages
        for text in (
            [one.content]
            if isinstance(one.content, str)
            else [part.text for part in one.content if not isinstance(part, ImagePart)]
        )
    ]
    _at_most(sum(map(len, texts)), settings.limits.characters, "messages", "characters")
    addresses = [
        (f"messages[{i}].content[{k}].image_url", _url(part))
        for i, message in enumerate(messages)
        if not isinstance(message.content, str)
        for k, part in enumerate(message.content)
        if isinstance(part, ImagePart)
    ]
    _at_most(len(addresses), settings.limits.images, "messages", "images")
    for where, address in addresses:
        if address.startswith("data:"):
            continue
        if not address.lower().startswith(("http://", "https://")):
            raise invalid(f"{where}: give the image as a data URI (data:image/...)", where)
        if not settings.allow_urls:
            raise invalid(
                f"{where}: this server does not fetch addresses (--allow-urls); give the image as "
                "a data URI",
                where,
            )


def read_messages(messages: Sequence[Message], check: Callable[[], None]) -> list[dict[str, Any]]:
    """The messages as engines take them, with every image as bytes whose head was read.

    It may fetch, and so take long: for a thread.

    Args:
        messages: with images as addresses.
        check: called before each image, and raises if nobody waits any more.

    Raises:
        ValueError: an image is none.
        LimitError: one is too large.
    """

    def read(where: str, part: Any) -> dict[str, Any]:
        marked = {"source": True} if part.source else {}
        if not isinstance(part, ImagePart):
            return {"type": "text", "text": part.text} | marked
        check()
        try:
            found = stored_image(_url(part), "public")
        except ValueError as error:
            error.args = (f"{where}: {error}",)
            raise
        return {"type": "image", "image": found} | marked

    turns = []
    for i, message in enumerate(messages):
        content: Any = message.content
        if not isinstance(content, str):
            content = [read(f"messages[{i}].content[{k}]", p) for k, p in enumerate(content)]
        turns.append({"role": ROLES.get(message.role, message.role), "content": content})
    return turns


def check_conversation(messages: Sequence[Mapping[str, Any]], source: Any) -> str:
    """Let pass a conversation that can be answered, with the source that is asked for.

    Returns:
        What the user says last.

    Raises:
        ValueError: it cannot be answered, or has no such source.
    """
    conversation = Conversation.of(messages=messages)
    conversation.source(source)
    return conversation.question


def _url(part: ImagePart) -> str:
    return part.image_url if isinstance(part.image_url, str) else part.image_url.url


def _at_most(count: int, most: int, param: str, what: str = "") -> None:
    if count > most:
        raise invalid(f"{what or param} = {count}: this server allows at most {most}", param)


def _max_tokens(request: ChatRequest, settings: Settings) -> int:
    given = [request.max_completion_tokens, request.max_tokens]
    names = ["max_completion_tokens", "max_tokens"]
    for name, value in zip(names, given, strict=True):
        if value is not None:
            _at_most(value, settings.limits.tokens, name)
            return value
    return min(settings.defaults.max_tokens, settings.limits.tokens)


def _stop(given: str | Sequence[str] | None) -> list[str]:
    stops = [given] if isinstance(given, str) else list(given or [])
    for one in stops:
        if not one:
            raise invalid("stop: an empty text stops at once", "stop")
    return stops


def _pruning(engine: Engine, prune: Any, best_of: int, ranked: Ranked) -> Pruning | None:
    """Judged as they will be ranked, if that needs no more than signals."""
    _require(engine, "prune", "lookback.prune")
    alike = ranked.scorer.needs == "signals" and not ranked.scorer.joint
    rule = Pruning(prune)
    if alike:
        rule = Pruning(prune, scorer=ranked.scorer.name, settings=dict(ranked.params))
    try:
        return pruning_of(rule, best_of, engine.family.defaults)
    except ValueError as error:
        raise invalid(str(error), "lookback.prune") from None


def _require(engine: Engine, ability: Any, param: str) -> None:
    try:
        require(engine, [ability], param)
    except AbilityError as error:
        raise ApiError(400, str(error), param, "unsupported") from None
