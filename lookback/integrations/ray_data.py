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
from lookback.scores.rehearsal import rehearse
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
        scorer: who scores; any that `lookback scorers` lists.
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
        self.drawing = {"n": n, "temperature": temperature, "top_p": top_p}
        self.drawing |= {"max_new_tokens": max_new_tokens}
        self.seed, self.source = seed, source
        self.columns = ADDED | {name: OF_TOKENS[name] for name in signals}
        found = get_scorer(scorer)
        rehearse(found, self.scorer_settings, 2)
        self.engine = load(model, engine=engine, quiet=True, **dict(load_settings or {}))
        require(self.engine, found.uses, f"scorer {scorer!r}")

    def __call__(self, batch: Batch) -> Batch:
        """The batch with further columns; `responses` is replaced by the same ones.

        Args:
            batch: as Ray Data has it with batch_format "numpy" (the default) or "pyarrow".
        """
        rows = _rows(batch)
        asked = [self._ask(row) for row in rows]
        answers = self._answers(rows, asked)
        found = [self._row(*pair) for pair in zip(asked, answers, strict=True)]
        added = {
            name: pa.array([row.get(name) for row in found], kind)
            for name, kind in self.columns.items()
        }
        if not isinstance(batch, pa.Table):
            return {**batch, **added}
        for name, values in added.items():
            if name in batch.column_names:
                batch = batch.drop_columns([name])
            batch = batch.append_column(name, values)
        return batch

    def _ask(self, row: Mapping[str, Any]) -> Conversation | Exception:
        """What a row asks."""
        try:
            messages = row.get("messages")
            if messages is None:
                return Conversation.of(_images(row.get("image")), row.get("question"))
            messages = json.loads(messages) if isinstance(messages, str) else list(messages)
            return Conversation.from_messages(messages)
        except Exception as error:
            return error

    def _answers(
        self, rows: Sequence[Mapping[str, Any]], asked: Sequence[Conversation | Exception]
    ) -> list[Candidates | Exception]:
        """Candidates of each row: given responses are scored, others drawn, all in one call."""
        answers: list[Any] = list(asked)
        drawn: dict[int, dict[str, Any]] = {}
        for place, (row, question) in enumerate(zip(rows, asked, strict=True)):
            if isinstance(question, Exception):
                continue
            if row.get("responses") is None:
                name = row.get("id")
                seed = self.seed if name is None else item_seed(self.seed, str(name))
                drawn[place] = {"messages": question.messages(), "seed": seed}
                continue
            try:
                answers[place] = self._score(question, row["responses"])
            except Exception as error:
                answers[place] = error
        settings: dict[str, Any] = {**self.drawing, "source": self.source}
        settings["return_exceptions"] = True
        found = self.engine.sample_many(list(drawn.values()), **settings) if drawn else []
        for place, candidates in zip(drawn, found, strict=True):
            answers[place] = candidates
        return answers

    def _score(self, question: Conversation, responses: Any) -> Candidates:
        if isinstance(responses, str):
            raise TypeError("responses must be a list of texts, not a text")
        given = [ProvidedResponse(text) for text in check_texts("responses", responses)]
        return scored(self.engine, question, self.source, given)

    def _row(
        self, asked: Conversation | Exception, found: Candidates | Exception
    ) -> dict[str, Any]:
        """What is added to a row."""
        if isinstance(asked, Exception):
            return {"error": error_line(asked)[:1000]}
        if isinstance(found, Exception):
            return {"error": error_line(found)[:1000]}
        try:
            known = Asked(self.engine, asked)
            scores = replace(found, asked=known).scores(self.scorer, **self.scorer_settings)
        except Exception as error:
            return {"error": error_line(error)[:1000], "responses": [one.text for one in found]}
        best = None if np.isnan(scores).all() else int(np.nanargmax(scores))
        row: dict[str, Any] = {
            name: [getattr(one, name) for one in found]
            for name in self.columns
            if name in OF_TOKENS
        }
        return row | {
            "responses": [one.text for one in found],
            "scores": [None if np.isnan(one) else one for one in scores.tolist()],
            "best": None if best is None else found[best].text,
            "best_index": best,
        }


def _rows(batch: Batch) -> list[dict[str, Any]]:
    """The rows of a batch, of the columns that are read."""
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
    """A column's values: pictures that Ray keeps as tensors as arrays."""
    plain = not isinstance(column.type, pa.BaseExtensionType)
    return column.to_pylist() if plain else column.combine_chunks().to_numpy(zero_copy_only=False)


def _images(given: Any) -> Any:
    """What `Conversation.of` takes: one image or a list; an array of pixels is one."""
    several = isinstance(given, np.ndarray) and given.dtype.kind == "O"
    return list(given) if several else given
