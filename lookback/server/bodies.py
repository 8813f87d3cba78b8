"""What answers look like, for the OpenAPI document; `answers` makes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


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
