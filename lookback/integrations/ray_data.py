"""Ray Data: a batch of rows in, the same rows out with their responses, scores and signals.

    dataset.map_batches(
        lookback.ray.Scorer,
        fn_constructor_kwargs={"model": "llava-hf/llava-1.5-7b-hf", "n": 25},
        batch_size=32, concurrency=8, num_gpus=1,
    )

A worker of Ray Data makes one `Scorer`, which loads its model once. What goes wrong with a row is
its `error`; the other rows go on. The columns: docs/scale.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lookback.conversations import Conversation
from lookback.engines import check_sampling, load, require
from lookback.errors import check_texts, error_line
from lookback.runs.sources import ProvidedResponse, item_seed, scored
from lookback.scores.base import get_scorer
from lookback.signals import SIGNALS, Asked, Candidates

FLOATS, TEXTS = pa.list_(pa.float64()), pa.list_(pa.string())
ADDED = {
    "responses": TEXTS,
    "scores": FLOATS,
    "best": pa.string(),
    "best_index": pa.int32(),
    "error": pa.string(),
}
"""The columns that every batch gets, with their types."""
OF_TOKENS = {
    **{name: pa.list_(pa.list_(pa.float32())) for name in SIGNALS},
    "tokens": pa.list_(TEXTS),
    "token_ids": pa.list_(pa.list_(pa.int64())),
}
"""The columns that `signals` can name: for each response a list over its tokens."""
ASKED = ("image", "question", "messages", "responses", "id")
"""The columns that are read."""

Batch: TypeAlias = Mapping[str, Any] | pa.Table


class Scorer:
    """Scores responses, or draws and scores them, for batches of Ray Data.

    Args:
        model: as for `lookback.load`; None for the embedded one.
        engine: which engine runs it.
        load_settings: what else `lookback.load` takes: device, dtype, ...
        scorer: any that `lookback scorers` lists.
        scorer_settings: its settings, e.g. alpha and lam; the family's by default.
        n: how many are drawn for a row without responses.
        temperature: as for `Engine.sample`.
        top_p: as for `Engine.sample`.
        max_new_tokens: as for `Engine.sample`.
        seed: of drawing: a row with an `id` has a seed of its own, the one that a run with this
            seed gives an item of that id; a row without one is drawn with `seed` itself.
        source: what A_t is measured on, as for `sample`.
        signals: columns to add of each token: log_prob, visual_lookback, self_certainty, entropy,
            tokens, token_ids.

    Raises:
        ValueError: a setting is wrong; said before a model is loaded.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        engine: str = "transformers",
        load_settings: Mapping[str, Any] | None = None,
        scorer: str = "lookback",
        scorer_settings: Mapping[str, Any] | None = None,
        n: int = 25,
        temperature: float = 1.2,
        top_p: float = 0.9,
        max_new_tokens: int = 256,
        seed: int = 42,
        source: str | None = None,
        signals: Sequence[str] = (),
    ) -> None:
        check_sampling(n, temperature, top_p, None, max_new_tokens, seed=seed)
        unknown = [name for name in signals if name not in OF_TOKENS]
        if unknown:
            raise ValueError(f"signals has {unknown[0]!r}: there are {', '.join(OF_TOKENS)}")
        self.scorer, self.scorer_settings = scorer, dict(scorer_settings or {})
        self.sampling: dict[str, Any] = {"n": n, "temperature": temperature, "top_p": top_p}
        self.sampling |= {"max_new_tokens": max_new_tokens}
        self.seed, self.source = seed, source
        self.columns = ADDED | {name: OF_TOKENS[name] for name in signals}
        found = get_scorer(scorer)
        found.check(self.scorer_settings, 2)
        self.engine = load(model, engine=engine, quiet=True, **dict(load_settings or {}))
        require(self.engine, found.uses, f"scorer {scorer!r}")

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with further columns; `responses` is replaced by the same ones.

        Args:
            batch: as Ray Data has it with batch_format "numpy" (the default) or "pyarrow".
        """
        rows = _rows(batch)
        conversations = [self._conversation(row) for row in rows]
        answers = self._answers(rows, conversations)
        new = [self._row(*pair) for pair in zip(conversations, answers, strict=True)]
        added = {
            name: pa.array([row.get(name) for row in new], kind)
            for name, kind in self.columns.items()
        }
        if not isinstance(batch, pa.Table):
            return {**batch, **added}
        for name, values in added.items():
            if name in batch.column_names:
                batch = batch.drop_columns([name])
            batch = batch.append_column(name, values)
        return batch

    def _conversation(self, row: Mapping[str, Any]) -> Conversation | Exception:
        try:
            messages = row.get("messages")
            if messages is None:
                return Conversation.of(_images(row.get("image")), row.get("question"))
            messages = json.loads(messages) if isinstance(messages, str) else list(messages)
            return Conversation.from_messages(messages)
        except Exception as error:
            return error

    def _answers(
        self, rows: Sequence[Mapping[str, Any]], conversations: Sequence[Conversation | Exception]
    ) -> list[Candidates | Exception]:
        """Return candidates of each row: responses are scored, others drawn, all in one call."""
        answers: list[Any] = list(conversations)
        questions: dict[int, dict[str, Any]] = {}
        for place, (row, conversation) in enumerate(zip(rows, conversations, strict=True)):
            if isinstance(conversation, Exception):
                continue
            if row.get("responses") is None:
                name = row.get("id")
                seed = self.seed if name is None else item_seed(self.seed, str(name))
                questions[place] = {"messages": conversation.messages(), "seed": seed}
                continue
            try:
                answers[place] = self._score(conversation, row["responses"])
            except Exception as error:
                answers[place] = error
        if questions:
            drawn = self.engine.sample_many(
                list(questions.values()),
                source=self.source,
                return_exceptions=True,
                **self.sampling,
            )
            for place, candidates in zip(questions, drawn, strict=True):
                answers[place] = candidates
        return answers

    def _score(self, conversation: Conversation, responses: Any) -> Candidates:
        if isinstance(responses, str):
            raise TypeError("responses must be a list of texts, not a text")
        provided = [ProvidedResponse(text) for text in check_texts("responses", responses)]
        return scored(self.engine, conversation, self.source, provided)

    def _row(
        self, conversation: Conversation | Exception, candidates: Candidates | Exception
    ) -> dict[str, Any]:
        """Return what is added to a row."""
        if isinstance(conversation, Exception):
            return {"error": error_line(conversation)[:1000]}
        if isinstance(candidates, Exception):
            return {"error": error_line(candidates)[:1000]}
        texts = [candidate.text for candidate in candidates]
        try:
            known = replace(candidates, asked=Asked(self.engine, conversation))
            scores = known.scores(self.scorer, **self.scorer_settings)
        except Exception as error:
            return {"error": error_line(error)[:1000], "responses": texts}
        best = None if np.isnan(scores).all() else int(np.nanargmax(scores))
        row: dict[str, Any] = {
            name: [getattr(candidate, name) for candidate in candidates]
            for name in self.columns
            if name in OF_TOKENS
        }
        return row | {
            "responses": texts,
            "scores": [None if np.isnan(score) else score for score in scores.tolist()],
            "best": None if best is None else texts[best],
            "best_index": best,
        }


def _rows(batch: Batch) -> list[dict[str, Any]]:
    """Return the rows of a batch, of the columns that are read."""
    if isinstance(batch, pa.Table):
        names = [name for name in ASKED if name in batch.column_names]
        columns = {name: _values(batch.column(name)) for name in names}
    elif isinstance(batch, Mapping):
        columns = {name: batch[name] for name in ASKED if name in batch}
    else:
        raise TypeError(
            f'a batch is {type(batch).__name__}: map_batches needs batch_format="numpy" or '
            '"pyarrow"'
        )
    if not {"question", "messages"} & columns.keys():
        raise ValueError("a batch has neither a column `question` nor `messages`")
    length = len(next(iter(columns.values())))
    return [{name: values[i] for name, values in columns.items()} for i in range(length)]


def _values(column: Any) -> Any:
    """Return a column's values; images, which Ray keeps as tensors, as arrays."""
    plain = not isinstance(column.type, pa.BaseExtensionType)
    return column.to_pylist() if plain else column.combine_chunks().to_numpy(zero_copy_only=False)


def _images(value: Any) -> Any:
    """Return what `Conversation.of` takes: one image or a list; an array of pixels is one."""
    several = isinstance(value, np.ndarray) and value.dtype.kind == "O"
    return list(value) if several else value
