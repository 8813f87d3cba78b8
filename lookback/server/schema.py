"""The bodies of requests and answers: OpenAI's chat completions, and LookBack's own.

What OpenAI's API has and this one has not is refused by name (`REFUSED`), unless it is given as
nothing. What changes no answer is accepted (`IGNORED`). Docstrings and descriptions of the models
are those of /openapi.json.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from lookback.io.json_values import HalfCharacterError, check_texts

REFUSED = {
    "tools": "tools are not supported",
    "tool_choice": "tools are not supported",
    "parallel_tool_calls": "tools are not supported",
    "functions": "functions are not supported",
    "function_call": "functions are not supported",
    "audio": "audio is not supported",
    "modalities": "only text is written: leave modalities out",
    "logit_bias": "logit_bias is not supported: log p would not be the model's own",
    "presence_penalty": "penalties are not supported: leave them at 0",
    "frequency_penalty": "penalties are not supported: leave them at 0",
    "prediction": "predicted output is not supported",
    "reasoning_effort": "reasoning_effort is not supported",
    "verbosity": "verbosity is not supported",
    "web_search_options": "web search is not supported",
    "top_k": "top_k is not supported here",
}
"""What OpenAI's API, or others like it, have and this one does not."""
NEUTRAL: tuple[Any, ...] = (None, 0, False, "none", [], {}, ["text"])
"""Given so, a refused parameter asks for nothing."""
IGNORED = ("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
"""What changes no answer."""
REFUSED_IN_MESSAGES = {
    "tool_calls": "tools are not supported",
    "function_call": "functions are not supported",
    "audio": "audio is not supported",
    "refusal": "refusals are not supported",
}
"""What a message may have beside its words, and must not here; clients send it as nothing."""
REFUSED_PARTS = {
    "input_audio": "audio is not supported",
    "file": "files are not supported: give images as image_url",
    "video_url": "videos are not supported: give frames as image_url",
    "refusal": "refusals are not supported",
}

KEYS = 100
"""Of one object: each unknown one is an error of its own, and there are so many parameters."""

Name = Annotated[str, Field(max_length=1000)]
"""A text that is no part of the conversation, which has a limit of its own (`Limits`)."""
StopText = Annotated[str, Field(min_length=1, max_length=1000)]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=2**31)]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
SignalName = Literal["log_prob", "visual_lookback", "self_certainty", "entropy"]
# One error is said of a request: a list is read to its first, not for a million of them.
TokenIds = Annotated[
    list[Annotated[int, Field(ge=0, le=2**31)]], Field(min_length=1, fail_fast=True)
]
Checkpoint = Annotated[list[Count], Field(min_length=2, max_length=2)]


class Strict(BaseModel):
    """Nothing is turned into another kind, and nothing unknown is let pass."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _count_keys(cls, data: Any) -> Any:
        if isinstance(data, dict) and len(data) > KEYS:
            about = {"count": len(data), "most": KEYS}
            raise PydanticCustomError("too_many_keys", "{count} keys: at most {most}", about)
        return data


class RequestBody(Strict):
    """A whole request, whose texts are whole, too."""

    @model_validator(mode="before")
    @classmethod
    def _check_texts(cls, data: Any) -> Any:
        try:
            check_texts(data)
        except HalfCharacterError as error:
            about = {"words": str(error), "name": error.name}
            raise PydanticCustomError("half_character", "{words}", about) from None
        return data


class ImageUrl(Strict):
    """An image."""

    url: str = Field(description="data:image/png;base64,...; an http(s) address if allowed.")
    detail: Name | None = Field(
        default=None, description="Of no effect: the model has its own size."
    )


class TextPart(Strict):
    """Words."""

    type: Literal["text"]
    text: str
    source: StrictBool = Field(default=False, description="Whether A is measured on these words.")


class ImagePart(Strict):
    """An image among the words."""

    type: Literal["image_url"]
    image_url: ImageUrl | str
    source: StrictBool = Field(default=False, description="Whether A is measured on this image.")


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(Strict):
    """What one side says at a time."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Part], Field(min_length=1, fail_fast=True)]
    name: Name | None = Field(default=None, description="Of no effect.")

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.get("role") in ("tool", "function"):
            raise _unsupported("tools are not supported")
        for name, message in REFUSED_IN_MESSAGES.items():
            if data.get(name):
                raise _unsupported(message, name)
        content = data.get("content")
        for part in content if isinstance(content, list) else []:
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind in REFUSED_PARTS:
                raise _unsupported(REFUSED_PARTS[kind])
        return _without(data, REFUSED_IN_MESSAGES)


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]


class Ranking(Strict):
    """Who ranks, and what is told of it."""

    scorer: Name | None = Field(default=None, description="A name that `lookback scorers` lists.")
    alpha: Share | None = Field(
        default=None, description="LookBack's α; by default the model family's."
    )
    lam: Share | None = Field(
        default=None, description="LookBack's λ; by default the model family's."
    )
    signals: StrictBool | Annotated[list[SignalName], Field(fail_fast=True)] = Field(
        default=False,
        description="Whether choices carry their tokens with all signals, or with these.",
    )
    source: Name | Annotated[list[Name], Field(fail_fast=True)] | None = Field(
        default=None, description="What A is measured on, e.g. image:1; by default every image."
    )


class Lookback(Ranking):
    """What LookBack does beside OpenAI's parameters: `extra_body` in their clients."""

    best_of: Count | None = Field(default=None, description="How many candidates are drawn.")
    prune: (
        Literal["half"] | Annotated[list[Checkpoint], Field(min_length=1, fail_fast=True)] | None
    ) = Field(
        default=None,
        description="End the worst early: half, or pairs (tokens, candidates to keep).",
    )
    watch: StrictBool = Field(
        default=False,
        description="stream: tell of every candidate while it is written, as comments.",
    )


class StreamOptions(Strict):
    """Of a stream."""

    include_usage: StrictBool | None = None
    include_obfuscation: StrictBool | None = Field(default=None, description="Of no effect.")


class TextFormat(Strict):
    """The only format there is."""

    type: Literal["text"]


class ChatRequest(RequestBody):
    """OpenAI's chat completion, as far as it is supported, and `lookback`."""

    messages: Messages = Field(
        description="The conversation; the user speaks last. Without any image, answers are "
        "ranked by mean_log_prob unless lookback.scorer says otherwise."
    )
    model: Name | None = Field(default=None, description="What /v1/models lists, or lookback.")
    n: Count | None = Field(default=None, description="How many come back, the best first; 1.")
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = Field(
        default=None, description="By default the server's, 1.2 as in the paper."
    )
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = Field(
        default=None, description="By default the server's, 0.9 as in the paper."
    )
    max_tokens: Count | None = Field(default=None, description="The longest response.")
    max_completion_tokens: Count | None = Field(default=None, description="The same.")
    stop: StopText | Annotated[list[StopText], Field(max_length=4)] | None = Field(
        default=None, description="Texts at which a response ends; they are not part of it."
    )
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = Field(
        default=None, description="The same seed and settings draw the same candidates."
    )
    logprobs: StrictBool | None = Field(
        default=None, description="The model's own log p of each token, without temperature."
    )
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        default=None, description="How many of the likeliest tokens of each step to return."
    )
    stream: StrictBool | None = Field(
        default=None, description="Server-Sent Events: comments on the way, then the best."
    )
    stream_options: StreamOptions | None = None
    user: Name | None = Field(
        default=None, description="Waiting requests are served in turns, by client and by user."
    )
    response_format: TextFormat | None = None
    lookback: Lookback | None = Field(default=None, description="What LookBack does beside this.")

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name, message in REFUSED.items():
            if name in data and data[name] not in NEUTRAL:
                raise _unsupported(message, name)
        kind = data.get("response_format")
        if isinstance(kind, dict) and kind.get("type") in ("json_object", "json_schema"):
            message = "only text is written: response_format must be text"
            raise _unsupported(message, "response_format")
        return _without(data, (*REFUSED, *IGNORED))

    @model_validator(mode="after")
    def _check_top_logprobs(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            about = {"name": "top_logprobs"}
            raise PydanticCustomError("needs", "top_logprobs needs logprobs: true", about)
        return self


class ScoreRequest(RequestBody):
    """Responses that exist already, to be scored."""

    messages: Messages
    responses: Annotated[list[Text | TokenIds], Field(min_length=1, fail_fast=True)] = Field(
        description="Texts, or lists of token ids, which are taken as they are."
    )
    model: Name | None = None
    lookback: Ranking | None = None
    user: Name | None = None


class LookRequest(RequestBody):
    """A response, of which it is asked where in the images it looked."""

    messages: Messages
    response: Text | TokenIds
    model: Name | None = None
    source: Name | Annotated[list[Name], Field(fail_fast=True)] | None = None
    layers: (
        Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)] | None
    ) = Field(default=None, description="The first attention layer and the one behind the last.")
    relative_to: str | None = Field(
        default=None, description="Another question about the same images."
    )
    user: Name | None = None


def _without(data: dict[Any, Any], names: Collection[str]) -> dict[Any, Any]:
    return {name: value for name, value in data.items() if name not in names}


def _unsupported(message: str, name: str | None = None) -> PydanticCustomError:
    return PydanticCustomError("unsupported", "{message}", {"message": message, "name": name})


class Error(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """An answer that is an error."""

    error: Error


class Facts(BaseModel):
    """What LookBack says of one response; tokens and signals if they were asked for."""

    model_config = ConfigDict(extra="forbid")

    score: float | None = Field(description="null for a response that is empty or pruned")
    rank: int
    of: int
    scorer: str
    alpha: float | None
    lam: float | None
    index: int = Field(description="its number as it was drawn or given")
    finish: Literal["end", "stop", "length", "pruned", "given"]
    tokens: list[str] | None = None
    token_ids: list[int] | None = None
    log_prob: list[float] | None = None
    visual_lookback: list[float] | None = None
    self_certainty: list[float] | None = None
    entropy: list[float] | None = None


class Scored(Facts):
    """A response that was given."""

    text: str


class Said(BaseModel):
    """A message of the model."""

    role: Literal["assistant"]
    content: str
    refusal: None


class Choice(BaseModel):
    """One of the best candidates."""

    index: int
    message: Said
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]
    lookback: Facts


class Usage(BaseModel):
    """Tokens of the prompt and of the choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Drawn(BaseModel):
    """Of all candidates."""

    seed: int | None
    best_of: int
    pruned: int
    tokens_drawn: int
    note: str | None = Field(
        default=None, description="only where no message has an image: who ranked then"
    )


class Completion(BaseModel):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    lookback: Drawn


class Scores(BaseModel):
    """Scores of given responses, in their order."""

    id: str
    object: Literal["lookback.scores"]
    created: int
    model: str
    scores: list[Scored]


class LookedAt(BaseModel):
    """One picture, and what each token of the response paid to each of its tokens."""

    name: str
    width: int
    height: int
    tokens: int
    placed: bool
    boxes: list[list[float | None]] | None = Field(description="left, top, right, bottom: shares")
    weights: list[list[float]]
    baseline: list[list[float]] | None = None


class LookBody(BaseModel):
    """Where a response looked."""

    id: str
    object: Literal["lookback.look"]
    created: int
    model: str
    tokens: list[str]
    count: int
    source: int
    a: list[float]
    a_prompt: list[float] | None = None
    pictures: list[LookedAt]


class Model(BaseModel):
    """The model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(BaseModel):
    """The one model, by each of its names."""

    object: Literal["list"]
    data: list[Model]


class Status(BaseModel):
    """In a word."""

    status: str


EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
COMPLETION: dict[str, Any] = {
    "model": Completion,
    "description": "The best, or with `stream` Server-Sent Events.",
    "content": {"text/event-stream": {"itemSchema": EVENT}},
}
