"""From the body of a request to the options of an engine's call, within the server's limits."""

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
from lookback.server.schema import (
    ChatRequest,
    ImagePart,
    Lookback,
    LookRequest,
    Message,
    Part,
    Ranking,
    ScoreRequest,
)
from lookback.server.settings import Limits, Settings
from lookback.signals import SIGNALS, Candidate, Candidates
from lookback.steering.pruning import Pruning, pruning_of

ROLES = {"developer": "system"}
WITHOUT_IMAGE = (
    *("mean_log_prob", "sum_log_prob", "perplexity", "self_certainty", "entropy"),
    *("self_certainty_borda", "majority", "consensus", "random"),
)
"""Scorers that rank answers about no image; the first does so where a request names none."""
TOKEN_CHARACTERS = 16
"""Characters of a given response that count as one token."""


@dataclass(frozen=True)
class RankOptions:
    """How candidates are ranked, and what is told of them.

    Attributes:
        scorer: ranks them.
        params: the settings of the scorer that the request gives.
        settings: all its settings.
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

    def rank(self, candidates: Candidates) -> list[Candidate]:
        return candidates.rank(self.scorer.name, **self.params)


@dataclass(frozen=True)
class ChatOptions:
    """What a chat completion asks for.

    Attributes:
        ranking: how candidates are ranked.
        n: how many come back.
        best_of: how many are drawn.
        sampling: how, as `Engine.sample` takes it.
        top: the likeliest tokens that are told of each step; None for no log-probabilities at all.
        watch: whether a stream tells of every candidate.
        include_usage: whether the last chunk of a stream has the usage.
    """

    ranking: RankOptions
    n: int
    best_of: int
    sampling: Mapping[str, Any]
    top: int | None
    watch: bool
    include_usage: bool


def parse_chat_request(engine: Engine, request: ChatRequest, settings: Settings) -> ChatOptions:
    """Return what a chat completion asks of the engine.

    Raises:
        ApiError: it asks for something that does not exist, or for more than is allowed.
    """
    defaults, limits = settings.defaults, settings.limits
    extra = request.lookback or Lookback()
    ranking = parse_ranking(engine, extra, settings)
    if _lacks_source(request):
        ranking = _rank_without_image(engine, extra, settings, ranking)
    n = request.n or 1
    temperature = defaults.temperature if request.temperature is None else request.temperature
    # At temperature 0 all candidates are one.
    usual = n if temperature == 0 else max(n, defaults.best_of)
    best_of = extra.best_of or usual
    if n > best_of:
        raise invalid(f"n = {n}: only {best_of} candidates are drawn (lookback.best_of)", "n")
    _at_most(best_of, limits.best_of, "n" if extra.best_of is None else "lookback.best_of")
    sampling = {
        "n": best_of,
        "temperature": temperature,
        "top_p": defaults.top_p if request.top_p is None else request.top_p,
        "max_new_tokens": _max_tokens(request, settings),
        "stop": [request.stop] if isinstance(request.stop, str) else request.stop or [],
        "seed": None if request.seed is None else request.seed % SEEDS,
        "source": ranking.source,
    }
    prune = extra.prune if "prune" in extra.model_fields_set else defaults.prune
    if prune is not None and best_of > 1:
        sampling["prune"] = _pruning(engine, prune, best_of, ranking)
    top = request.top_logprobs or 0 if request.logprobs else None
    if top:
        _require(engine, "top_log_probs", "top_logprobs")
        sampling["top_log_probs"] = top
    include_usage = request.stream_options is not None and bool(
        request.stream_options.include_usage
    )
    return ChatOptions(ranking, n, best_of, sampling, top, extra.watch, include_usage)


def parse_ranking(engine: Engine, request: Ranking, settings: Settings) -> RankOptions:
    """Return who ranks, with which settings.

    Raises:
        ApiError: there is no such scorer or setting, or the engine cannot do what it needs.
    """
    name = request.scorer or settings.defaults.scorer
    try:
        scorer = get_scorer(name)
        require(engine, scorer.uses, f"scorer {name!r}")
    except ValueError as error:
        raise invalid(str(error), "lookback.scorer") from None
    if scorer.needs == "truth":
        raise invalid(f"scorer {name!r} needs the truth, which no request has", "lookback.scorer")
    params = request.model_dump(include={"alpha", "lam"}, exclude_none=True)
    try:
        chosen = scorer.settings(engine.family.defaults, params)
    except TypeError as error:
        raise invalid(str(error), f"lookback.{min(params)}") from None
    wanted = request.signals
    signals = tuple(s for s in SIGNALS if wanted is True or (wanted and s in wanted))
    return RankOptions(scorer, params, chosen, signals, request.source)


def _lacks_source(request: ChatRequest) -> bool:
    """Return whether there is no image, no text marked as source, and no other is asked for."""
    parts = [part for _, part in _parts(request.messages)]
    shown = any(isinstance(part, ImagePart) or part.source for part in parts)
    return not shown and (request.lookback is None or request.lookback.source is None)


def _rank_without_image(
    engine: Engine, request: Lookback, settings: Settings, ranking: RankOptions
) -> RankOptions:
    """Return how answers about no image are ranked: not by a server's scorer that needs one.

    Raises:
        ApiError: the request itself asks for a scorer that needs an image.
    """
    name = ranking.scorer.name
    if name not in WITHOUT_IMAGE:
        if request.scorer is not None or ranking.params:
            raise invalid(
                f"scorer {name!r} needs an image, and no message has one: add one, or leave "
                f"scorer, alpha and lam out to have the answers ranked by {WITHOUT_IMAGE[0]}",
                "lookback.scorer",
            )
        name = WITHOUT_IMAGE[0]
    blind = request.model_copy(update={"scorer": name, "source": NO_SOURCE})
    note = f"no message has an image: ranked by {name}, and A is 0"
    return replace(parse_ranking(engine, blind, settings), note=note)


def check_score_request(request: ScoreRequest, limits: Limits) -> None:
    """Raise ApiError if there are more responses, or longer ones, than are allowed."""
    _at_most(len(request.responses), limits.best_of, "responses")
    for i, response in enumerate(request.responses):
        _check_response(response, limits, f"responses[{i}]")


def check_look_request(request: LookRequest, limits: Limits) -> None:
    """Raise ApiError if the response or the other question is longer than is allowed."""
    _check_response(request.response, limits, "response")
    question = request.relative_to or ""
    _at_most(len(question), limits.characters, "relative_to", "relative_to: characters")


def _check_response(response: str | Sequence[int], limits: Limits, name: str) -> None:
    is_text = isinstance(response, str)
    most = limits.tokens * (TOKEN_CHARACTERS if is_text else 1)
    if len(response) > most:
        unit = "characters" if is_text else "tokens"
        raise invalid(f"{name} has {len(response)} {unit}: at most {most} are allowed", name)


def check_messages(messages: Sequence[Message], settings: Settings) -> None:
    """Raise ApiError if there is too much text, or an image that may not be read here."""
    whole = [message.content for message in messages if isinstance(message.content, str)]
    texts = whole + [p.text for _, p in _parts(messages) if not isinstance(p, ImagePart)]
    _at_most(sum(map(len, texts)), settings.limits.characters, "messages", "characters")
    addresses = [(place, _url(p)) for place, p in _parts(messages) if isinstance(p, ImagePart)]
    _at_most(len(addresses), settings.limits.images, "messages", "images")
    for place, address in addresses:
        where = f"{place}.image_url"
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
    """Return the messages as engines take them, with every image as bytes whose head was read.

    It may fetch, and so take long: for a thread.

    Args:
        messages: with images as addresses.
        check: called before each image; raises if nobody waits any more.

    Raises:
        ValueError: an image cannot be read.
        LimitError: one is too large.
    """

    def read(place: str, part: Part) -> dict[str, Any]:
        marked = {"source": True} if part.source else {}
        if not isinstance(part, ImagePart):
            return {"type": "text", "text": part.text} | marked
        check()
        try:
            image = stored_image(_url(part), "public")
        except ValueError as error:
            error.args = (f"{place}: {error}",)
            raise
        return {"type": "image", "image": image} | marked

    turns = []
    for i, message in enumerate(messages):
        content: Any = message.content
        if not isinstance(content, str):
            content = [read(f"messages[{i}].content[{k}]", p) for k, p in enumerate(content)]
        turns.append({"role": ROLES.get(message.role, message.role), "content": content})
    return turns


def question_of(messages: Sequence[Mapping[str, Any]], source: Any) -> str:
    """Return what the user says last.

    Raises:
        ApiError: the conversation cannot be answered, or has no such source.
    """
    try:
        conversation = Conversation.of(messages=messages)
        conversation.source(source)
    except ValueError as error:
        raise invalid(str(error), "messages") from None
    return conversation.question


def _parts(messages: Sequence[Message]) -> list[tuple[str, Part]]:
    """Return the parts of all messages that have any, with their places in the request."""
    return [
        (f"messages[{i}].content[{k}]", part)
        for i, message in enumerate(messages)
        if not isinstance(message.content, str)
        for k, part in enumerate(message.content)
    ]


def _url(part: ImagePart) -> str:
    return part.image_url if isinstance(part.image_url, str) else part.image_url.url


def _at_most(count: int, most: int, param: str, what: str = "") -> None:
    if count > most:
        raise invalid(f"{what or param} = {count}: this server allows at most {most}", param)


def _max_tokens(request: ChatRequest, settings: Settings) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        value: int | None = getattr(request, name)
        if value is not None:
            _at_most(value, settings.limits.tokens, name)
            return value
    return min(settings.defaults.max_tokens, settings.limits.tokens)


def _pruning(engine: Engine, prune: Any, best_of: int, ranking: RankOptions) -> Pruning | None:
    """Return by whom candidates are judged: by the scorer that ranks them, if signals suffice."""
    _require(engine, "prune", "lookback.prune")
    rule = Pruning(prune)
    if ranking.scorer.needs == "signals" and not ranking.scorer.joint:
        rule = Pruning(prune, scorer=ranking.scorer.name, settings=dict(ranking.params))
    try:
        return pruning_of(rule, best_of, engine.family.defaults)
    except ValueError as error:
        raise invalid(str(error), "lookback.prune") from None


def _require(engine: Engine, ability: Any, param: str) -> None:
    try:
        require(engine, [ability], param)
    except AbilityError as error:
        raise ApiError(400, str(error), param, "unsupported") from None
