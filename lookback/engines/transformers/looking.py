"""Where a response looked: the engine's `look`, from a conversation and a response to a `Look`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lookback.conversations import Conversation, SourceError
from lookback.engines.common.options import Progress, check_one
from lookback.engines.transformers.layouts import pictures
from lookback.engines.transformers.support import suggest_check
from lookback.looks.look import Look

if TYPE_CHECKING:
    from lookback.conversations import SourceLike
    from lookback.engines.common.options import Response
    from lookback.engines.transformers.engine import TransformersEngine


def look(
    engine: TransformersEngine,
    conversation: Conversation,
    response: Response,
    source: SourceLike,
    layers: tuple[int, int],
    relative_to: str | None,
    progress: Progress | None,
) -> Look:
    """As the contract says: one pass for the prompt, one for the response, of each prompt.

    Raises:
        SourceError: there is no source.
        ValueError: this is not one response, or its tokens are not the model's.
    """
    response = check_one(response)
    if not conversation.source(source):
        raise SourceError('source = "none": there is nothing that a response could look at')
    if relative_to is not None:
        _check_kept(conversation, source)
    prompter = engine._prompter
    inputs, mask = engine._inputs(conversation, source)
    prompt_ids = inputs["input_ids"][0].tolist()
    ids = engine._response_ids(prompt_ids, 0, response)
    shown = pictures(prompter, conversation, inputs, mask, engine.model.config)
    tell = _Told(progress, len(ids) * (1 if relative_to is None else 2))
    weights = engine._decoder.look(inputs, mask, ids, layers, tell)
    baseline = None
    if relative_to is not None:
        tell.before = len(ids)
        inputs, other = engine._inputs(conversation.with_question(relative_to), source)
        baseline = engine._decoder.look(inputs, other, ids, layers, tell).cpu().numpy()
    suggest_check(engine.model, engine.name)
    return Look(
        text=response if isinstance(response, str) else prompter.decode(prompt_ids, ids),
        token_ids=np.array(ids),
        tokens=tuple(prompter.pieces(prompt_ids, ids)),
        weights=weights.cpu().numpy(),
        pictures=shown,
        layers=layers,
        baseline=baseline,
    )


def _check_kept(conversation: Conversation, source: SourceLike) -> None:
    """Let pass a source that is still there when something else is asked.

    Raises:
        SourceError: it has text of the question in it.
    """
    texts = len(conversation.parts("text"))
    own = sum(part.kind == "text" for part in conversation.turns[-1].parts)
    if any(number >= texts - own for number in conversation.source(source).texts):
        raise SourceError(
            "relative_to asks something else about the same source, but the question's own text is "
            "part of the source"
        )


class _Told:
    """Tells of the progress of several passes as if they were one."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.before = progress, total, 0

    def __call__(self, done: int, _: int) -> None:
        if self.progress is not None:
            self.progress(self.before + done, self.total)
