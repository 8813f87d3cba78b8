"""From candidates to the bodies of answers; numbers that are not finite become null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lookback.io.json_values import finite
from lookback.looks.look import Look, rounded
from lookback.pages.look import look_head, sums_of
from lookback.server.requests import Draw, Ranked
from lookback.signals import PRUNED, WRITING, Candidate, Candidates

FINISH = {"end": "stop", "stop": "stop", "length": "length", PRUNED: "length"}
"""OpenAI's words for why a response ended; a pruned one is not complete either."""


def completion(
    head: dict[str, Any], found: Candidates, ranked: Sequence[Candidate], draw: Draw
) -> dict[str, Any]:
    """A chat completion: the best `n` of the candidates."""
    chosen = ranked[: draw.n]
    choices = [
        {
            "index": place,
            "message": {"role": "assistant", "content": one.text, "refusal": None},
            "logprobs": None if draw.top is None else logprobs(one),
            "finish_reason": FINISH[one.finish],
            "lookback": facts(one, place, draw.best_of, draw.ranked),
        }
        for place, one in enumerate(chosen)
    ]
    return head | {
        "object": "chat.completion",
        "choices": choices,
        "usage": usage(found, chosen),
        "lookback": summary(found, draw),
    }


def usage(found: Candidates, chosen: Sequence[Candidate]) -> dict[str, int]:
    """Tokens of the prompt and of what comes back; `summary` has those of all candidates."""
    prompt, written = len(found.prompt_ids), sum(len(one.tokens) for one in chosen)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }


def summary(found: Candidates, draw: Draw) -> dict[str, Any]:
    """What was drawn in all."""
    told = {
        "seed": found.sampling.get("seed"),
        "best_of": draw.best_of,
        "pruned": sum(one.finish == PRUNED for one in found),
        "tokens_drawn": drawn(found),
    }
    return told if draw.ranked.note is None else told | {"note": draw.ranked.note}


def drawn(found: Candidates) -> int:
    """How many tokens all candidates have, pruned ones too."""
    return sum(len(one.tokens) for one in found)


def facts(one: Candidate, place: int, of: int, ranked: Ranked) -> dict[str, Any]:
    """What LookBack says of one response."""
    return {
        "score": finite(one.score),
        "rank": place + 1,
        "of": of,
        "scorer": ranked.scorer.name,
        "alpha": ranked.settings.get("alpha"),
        "lam": ranked.settings.get("lam"),
        "index": one.index,
        "finish": one.finish,
    } | signals(one, ranked.signals)


def signals(one: Candidate, names: Sequence[str], start: int = 0) -> dict[str, Any]:
    """Its tokens from one on, and their signals; nothing if none is asked for."""
    if not names:
        return {}
    told: dict[str, Any] = {
        "tokens": list(one.tokens[start:]),
        "token_ids": one.token_ids[start:].tolist(),
    }
    return told | {name: getattr(one, name)[start:].tolist() for name in names}


def news(one: Candidate, start: int, names: Sequence[str]) -> dict[str, Any]:
    """What is new of a candidate that is being written."""
    finish = None if one.finish == WRITING else one.finish
    return {"index": one.index, "start": start} | signals(one, names, start) | {"finish": finish}


def logprobs(one: Candidate, start: int = 0, stop: int | None = None) -> dict[str, Any]:
    """OpenAI's log-probabilities of its tokens, or some: the model's own, without temperature."""
    content = []
    for t in range(len(one.tokens))[start:stop]:
        top = []
        if one.top is not None:
            pairs = zip(one.top.tokens[t], one.top.log_prob[t].tolist(), strict=True)
            top = [_token(text, value) for text, value in pairs]
        told = _token(one.tokens[t], float(one.log_prob[t]))
        content.append(told | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def _token(text: str, log_prob: float) -> dict[str, Any]:
    """A token that is a part of a character has no text of its own, and no bytes are told."""
    known = list(text.encode()) if "\ufffd" not in text else None
    return {"token": text, "logprob": finite(log_prob), "bytes": known}


def scores(
    head: dict[str, Any], found: Candidates, ranked: Sequence[Candidate], by: Ranked
) -> dict[str, Any]:
    """The scores of given responses, in their order."""
    told = {
        one.index: {"text": one.text} | facts(one, place, len(found), by)
        for place, one in enumerate(ranked)
    }
    return head | {"object": "lookback.scores", "scores": [told[one.index] for one in found]}


def look(head: dict[str, Any], found: Look) -> dict[str, Any]:
    """Where a response looked; weights are rounded by at most 0.1 %."""
    about = look_head(found)
    about["count"] = about.pop("tokens")
    pictures = [one | _map(found, place) for place, one in enumerate(about.pop("pictures"))]
    sums = {"a": sums_of(found.weights).tolist()}
    if found.baseline is not None:
        sums["a_prompt"] = sums_of(found.baseline).tolist()
    told = {"tokens": list(found.tokens), "pictures": pictures} | sums
    return head | {"object": "lookback.look"} | about | told


def _map(found: Look, place: int) -> dict[str, Any]:
    """Of one picture: where its tokens are, and what each token of the response paid to each."""
    picture = found.pictures[place]
    boxes = None if picture.boxes is None else _finite(picture.boxes.tolist())
    told = {"boxes": boxes, "weights": rounded(found.weights[:, picture.columns]).tolist()}
    if found.baseline is not None:
        told["baseline"] = rounded(found.baseline[:, picture.columns]).tolist()
    return told


def _finite(boxes: list[list[float]]) -> list[list[float | None]]:
    """A token that stands for no place has a box of nulls."""
    return [[finite(edge) for edge in box] for box in boxes]
