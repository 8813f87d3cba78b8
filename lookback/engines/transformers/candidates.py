"""Between responses and continuations: token ids of what is given, candidates of what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.engines.transformers.continuations import Continuation
from lookback.engines.transformers.spelling import IdText, Spelling
from lookback.plain import check_text
from lookback.signals import SIGNALS, Asked, Candidate, Candidates, Signals, Top

if TYPE_CHECKING:
    from lookback.conversations import Conversation, SourceLike
    from lookback.engines import Engine, Response
    from lookback.engines.transformers.prompts import Prompter


def response_ids(
    prompter: Prompter, vocab: int, prompt_ids: list[int], i: int, response: Response
) -> list[int]:
    """Return the tokens of the i-th response, as `check_responses` returned it.

    Raises:
        ValueError: it is empty, or a token of it is not the model's, or a placeholder.
    """
    if isinstance(response, str):
        check_text(response, f"response {i}")
        try:
            return prompter.encode(prompt_ids, response)
        except ValueError as error:
            raise ValueError(f"response {i}: {error}") from None
    ids = response.token_ids.tolist() if isinstance(response, Candidate) else list(response)
    if not ids:
        raise ValueError(f"response {i} is empty: there is nothing to score")
    for token in ids:
        if not 0 <= token < vocab:
            raise ValueError(f"response {i}: token id {token} is outside the vocabulary of {vocab}")
        for kind, placeholder in prompter.media_tokens.items():
            if token == placeholder:
                raise ValueError(f"response {i}: token id {token} is the {kind} placeholder")
    return ids


def with_end(prompter: Prompter, ids: list[int], end_tokens: Sequence[int]) -> list[int]:
    """A response with its end token, if it has none yet.

    A model may have several: it is the one that the chat template writes behind an answer, or else
    the first.
    """
    if ids[-1] in end_tokens:
        return ids
    written = prompter.tokenizer(prompter.tail, add_special_tokens=False)["input_ids"]
    ends = [token for token in written if token in end_tokens] or list(end_tokens)
    return [*ids, *ends[:1]]


def make_candidates(
    engine: Engine,
    prompter: Spelling,
    conversation: Conversation,
    source: SourceLike,
    prompt_ids: list[int],
    found: Sequence[Continuation],
    texts: Sequence[str | None] | None = None,
    sampling: dict[str, Any] | None = None,
) -> Candidates:
    """What an engine gives back: continuations of a prompt, with what was asked.

    Args:
        engine: was asked.
        prompter: turns tokens into text.
        conversation: what was asked.
        source: what A_t was measured on.
        prompt_ids: the prompt's tokens.
        found: the continuations.
        texts: of those that were given as text.
        sampling: how they were drawn, if they were.
    """
    items = [
        make_candidate(prompter, prompt_ids, i, one, texts[i] if texts else None)
        for i, one in enumerate(found)
    ]
    return Candidates(
        tuple(items),
        conversation.question,
        np.array(prompt_ids),
        model=engine.name,
        defaults=engine.family.defaults,
        sampling=sampling or {},
        messages=conversation.to_json(),
        source=source,
        asked=Asked(engine, conversation),
    )


def make_candidate(
    prompter: Spelling | IdText,
    prompt_ids: list[int],
    i: int,
    one: Continuation,
    text: str | None = None,
) -> Candidate:
    """A continuation with its text (decoded, if not given) and the text of its tokens."""
    signals = Signals(
        np.array(one.token_ids),
        tuple(prompter.pieces(prompt_ids, one.token_ids)),
        **dict(zip(SIGNALS, one.signals, strict=True)),
        by_layer=one.by_layer,
        top=_top(prompter, prompt_ids, one),
    )
    text = prompter.decode(prompt_ids, one.token_ids) if text is None else text
    return Candidate(i, text, signals, one.finish, None, one.parent, one.forked_at)


def _top(prompter: Spelling | IdText, prompt_ids: list[int], one: Continuation) -> Top | None:
    """The likeliest tokens of each step, each with its text where it would have stood."""
    if one.top is None:
        return None
    texts = prompter.alternatives(prompt_ids, one.token_ids, one.top.token_ids.tolist())
    return Top(one.top.token_ids, tuple(map(tuple, texts)), one.top.log_prob)
