"""What an engine records of each response, token by token, and the candidates that carry it.

Signals are facts about a response; scores are arithmetic on them (`lookback.scores`). Nothing here
needs torch. Arrays are float32 and read-only, and go to and from Arrow without loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from lookback.conversations import Conversation
    from lookback.engines import Engine
    from lookback.scores.batch import SignalBatch

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

SIGNALS = ("log_prob", "visual_lookback", "self_certainty", "entropy")
"""The per-token signals, in their order everywhere: in arrays, tables, files and pages."""
PRUNED = "pruned"
"""The `finish` of a candidate that was ended because others were better: it is not complete."""
WRITING = "writing"
"""The `finish` of a candidate that is still being written, as stream callbacks get it."""
TREE = ("parent", "forked_at")
"""Further fields of a candidate that is a fork of another."""
BY_LAYER = "by_layer"
"""A further signal, kept on request: A_t in each layer."""
MOST_NEW_TOKENS = 2**17
"""The longest response that an engine may be asked for."""


@dataclass(frozen=True, eq=False)
class Top:
    """The k likeliest tokens at each of T steps, the likeliest first.

    Attributes:
        token_ids: (T, k).
        tokens: their texts, k for each step.
        log_prob: (T, k), untempered.
    """

    token_ids: Ids
    tokens: tuple[tuple[str, ...], ...]
    log_prob: Floats

    def __post_init__(self) -> None:
        shape = np.shape(self.token_ids)
        if len(shape) != 2 or np.shape(self.log_prob) != shape:
            raise ValueError(
                f"likeliest tokens of the shape {shape}, their log p {np.shape(self.log_prob)}: "
                "both must be (steps, tokens)"
            )
        object.__setattr__(self, "token_ids", _readonly(self.token_ids, np.int64, shape))
        object.__setattr__(self, "log_prob", _readonly(self.log_prob, np.float32, shape))

    def __reduce__(self) -> tuple[Any, ...]:
        return _constructor_call(self)


@dataclass(frozen=True, eq=False)
class Signals:
    """The record of one response of T tokens; every signal is an array of length T.

    Attributes:
        token_ids: the response's tokens, without the end-of-turn token unless it was asked for.
        tokens: their text; joined, they give the response as the model wrote it after the prompt.
        log_prob: log p_t, the model's own probability (no temperature, no top-p).
        visual_lookback: A_t (Eq. 3), the share of attention the step that predicts token t pays to
            the source (by default every vision token), averaged over all layers and heads.
        self_certainty: KL(U || p_t), in nats.
        entropy: H(p_t), in nats.
        by_layer: (T, L), A_t in each of the model's L attention layers, in their order, averaged
            over the layer's heads; None unless it was asked for. Where all layers have as many
            heads, the mean over layers is `visual_lookback`; where they do not, that is the mean
            weighted by heads.
        top: the likeliest tokens of each step; None unless they were asked for. Not stored.
    """

    token_ids: Ids
    tokens: tuple[str, ...]
    log_prob: Floats
    visual_lookback: Floats
    self_certainty: Floats
    entropy: Floats
    by_layer: Floats | None = None
    top: Top | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", _readonly(self.token_ids, np.int64))
        object.__setattr__(self, "tokens", tuple(self.tokens))
        for name in SIGNALS:
            object.__setattr__(self, name, _readonly(getattr(self, name), np.float32))
        for name in ("tokens", *SIGNALS):
            if len(getattr(self, name)) != len(self.token_ids):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} values for "
                    f"{len(self.token_ids)} tokens: one value per token"
                )
        for name in SIGNALS:
            values = getattr(self, name)
            if not np.isfinite(values).all():
                t = int(np.argmax(~np.isfinite(values)))
                raise ValueError(f"{name}[{t}] = {values[t]}: not a finite number")
        if self.by_layer is not None:
            object.__setattr__(self, "by_layer", _shares(self.by_layer, len(self.token_ids)))
        if self.top is not None and len(self.top.token_ids) != len(self.token_ids):
            raise ValueError(f"top has {len(self.top.token_ids)} rows: one per token")

    def __reduce__(self) -> tuple[Any, ...]:
        return _constructor_call(self)

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One response with its signals, which can also be read straight from it.

    Attributes:
        index: its place in the candidates it came from.
        text: the response.
        signals: the record.
        finish: why it ended: "end" (the model's end-of-turn token), "stop" (a stop string),
            "length" (the token limit), "pruned" (others were better, so it is not complete),
            "given" (the text came from elsewhere), or "writing" (it has not ended yet).
        score: set by `Candidates.rank` and `Candidates.best`; NaN for an empty or pruned response.
        parent: of a fork, the index of the candidate that it continues.
        forked_at: of a fork, how many of its tokens are that candidate's.
    """

    index: int
    text: str
    signals: Signals
    finish: str = "given"
    score: float | None = None
    parent: int | None = None
    forked_at: int | None = None

    @property
    def scorable(self) -> bool:
        """Whether it has a score: it is neither empty nor pruned."""
        return len(self.signals) > 0 and self.finish != PRUNED

    @property
    def token_ids(self) -> Ids:
        """The response's token ids."""
        return self.signals.token_ids

    @property
    def tokens(self) -> tuple[str, ...]:
        """The response's tokens as text."""
        return self.signals.tokens

    @property
    def log_prob(self) -> Floats:
        """log p_t of each token."""
        return self.signals.log_prob

    @property
    def visual_lookback(self) -> Floats:
        """A_t of each token."""
        return self.signals.visual_lookback

    @property
    def self_certainty(self) -> Floats:
        """KL(U || p_t) of each token."""
        return self.signals.self_certainty

    @property
    def entropy(self) -> Floats:
        """H(p_t) of each token."""
        return self.signals.entropy

    @property
    def by_layer(self) -> Floats | None:
        """(T, L), A_t of each token in each layer, if it was asked for."""
        return self.signals.by_layer

    @property
    def top(self) -> Top | None:
        """The likeliest tokens of each step, if they were asked for."""
        return self.signals.top

    def __repr__(self) -> str:
        score = "" if self.score is None else f", score={self.score:.4f}"
        return f"Candidate({self.index}, {self.text!r}, {len(self.signals)} tokens{score})"

    def _repr_html_(self) -> str:
        from lookback.pages.tokens import candidate_html

        return candidate_html(self)


@dataclass(frozen=True, eq=False)
class Asked:
    """The engine and the conversation of candidates, for scorers that need the model again."""

    engine: Engine
    conversation: Conversation

    def replies(
        self, prompts: Sequence[str], *, image: bool = True, max_new_tokens: int = 256
    ) -> list[str]:
        """Return the model's reply to each prompt about the same images, or about none."""
        media: dict[str, list[Any]] = {
            kind: [part.media for part in self.conversation.parts(kind)] if image else []
            for kind in ("image", "video")
        }
        if len(media["video"]) > 1:
            raise ValueError("the model cannot be asked again about several videos: image=False")
        more = {"video": media["video"][0]} if media["video"] else {}
        return self.engine.generate(
            media["image"] or None, prompts, max_new_tokens=max_new_tokens, **more
        )


@dataclass(frozen=True, eq=False)
class Candidates(Sequence[Candidate]):
    """The candidates for one question or conversation: a sequence, in the order drawn or given.

    A pickle has neither the engine nor the conversation (`asked` is None), and scorers that need
    the model then raise an error. Copies share them.

    Attributes:
        items: the candidates.
        question: what was asked (last).
        prompt_ids: the prompt's tokens, vision placeholders included.
        model: name of the model.
        defaults: the family's settings for scorers (the paper's `alpha` and `lam`).
        sampling: the sampling settings; empty if the responses were given.
        messages: the whole conversation; images that are no files or URLs by their hash.
        source: what A_t is measured on; None for every vision token.
        asked: the engine and the conversation; None for candidates read from a file or a pickle.
            Not stored.
    """

    items: tuple[Candidate, ...]
    question: str
    prompt_ids: Ids
    model: str = ""
    defaults: Mapping[str, float] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[Mapping[str, Any]] = ()
    source: str | Sequence[str] | None = None
    asked: Asked | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(self.items))
        object.__setattr__(self, "prompt_ids", _readonly(self.prompt_ids, np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        return _constructor_call(replace(self, asked=None))

    def __copy__(self) -> Candidates:
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Candidates:
        make, values = self.__reduce__()
        copied: Candidates = make(*deepcopy(values, memo))
        return replace(copied, asked=self.asked)

    @overload
    def __getitem__(self, i: int) -> Candidate: ...
    @overload
    def __getitem__(self, i: slice) -> Candidates: ...
    def __getitem__(self, i: int | slice) -> Candidate | Candidates:
        return replace(self, items=self.items[i]) if isinstance(i, slice) else self.items[i]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.items)

    def __repr__(self) -> str:
        return f"Candidates({len(self)} for {self.question!r})"

    def _repr_html_(self) -> str:
        from lookback.pages.tokens import candidates_html

        return candidates_html(self)

    def batch(self) -> SignalBatch:
        """Return the signals and texts of all candidates as one ragged batch for scorers."""
        from lookback.scores.batch import SignalBatch

        pruned = [c.finish == PRUNED for c in self]
        return SignalBatch.of([c.signals for c in self], [c.text for c in self], pruned=pruned)

    def scorable(self) -> Candidates:
        """Return the candidates that are neither empty nor pruned, in order."""
        return replace(self, items=tuple(c for c in self if c.scorable))

    def scores(self, scorer: str = "lookback", **params: Any) -> NDArray[np.float64]:
        """Return each candidate's score, in order; higher is better, NaN if empty or pruned."""
        from lookback.scores.base import get_scorer

        return get_scorer(scorer).of_candidates(self, params)

    def rank(self, scorer: str = "lookback", **params: Any) -> list[Candidate]:
        """Return the candidates from best to worst, each with its `score`; ties keep their order.

        Args:
            scorer: one of `lookback.scorers()`.
            params: the scorer's own settings, e.g. `alpha` and `lam`; the family's by default.
        """
        from lookback.scores.base import best_first

        scores = self.scores(scorer, **params)
        return [replace(self.items[i], score=float(scores[i])) for i in best_first(scores)]

    def best(self, scorer: str = "lookback", **params: Any) -> Candidate:
        """Return the candidate with the highest score.

        Raises:
            ValueError: every response is empty or pruned.
        """
        ranked = self.rank(scorer, **params)
        if not ranked or ranked[0].score != ranked[0].score:  # NaN
            raise ValueError(
                f"none of {len(self)} candidates has a {scorer!r} score: each is empty or pruned"
            )
        return ranked[0]

    def to_arrow(self) -> pa.Table:
        """Return one row per candidate, signals as lists, all else in the schema's metadata."""
        import pyarrow as pa

        floats = pa.list_(pa.float32())
        columns: dict[str, Any] = {
            "index": pa.array([c.index for c in self], pa.int32()),
            "text": pa.array([c.text for c in self], pa.string()),
            "finish": pa.array([c.finish for c in self], pa.string()),
            "token_ids": pa.array([c.token_ids for c in self], pa.list_(pa.int64())),
            "tokens": pa.array([list(c.tokens) for c in self], pa.list_(pa.string())),
        }
        columns |= {name: pa.array([getattr(c, name) for c in self], floats) for name in SIGNALS}
        depth = max((c.by_layer.shape[1] for c in self if c.by_layer is not None), default=None)
        if depth is not None:
            # The type has the number of layers, also for a response without tokens.
            layers = pa.list_(pa.list_(pa.float32(), depth or -1))
            shares = [None if c.by_layer is None else list(c.by_layer) for c in self]
            columns[BY_LAYER] = pa.array(shares, layers)
        for name in TREE:
            if any(getattr(c, name) is not None for c in self):
                columns[name] = pa.array([getattr(c, name) for c in self], pa.int32())
        meta = json.dumps(self._about())
        return pa.table(columns).replace_schema_metadata({"lookback": meta})

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Candidates:
        """Return the candidates of a table made by `to_arrow`."""
        meta = (table.schema.metadata or {}).get(b"lookback")
        if meta is None:
            raise ValueError("this table has no 'lookback' metadata: was it made by to_arrow()?")
        items = []
        for row in table.to_pylist():
            head = {k: row.pop(k) for k in ("index", "text", "finish", *TREE) if k in row}
            if row.get(BY_LAYER) == []:
                row[BY_LAYER] = np.empty((0, _layers_of(table.schema.field(BY_LAYER).type)))
            items.append(Candidate(**head, signals=Signals(**row)))
        return cls(items=tuple(items), **json.loads(meta))

    def to_pandas(self, *scorers: str) -> pd.DataFrame:
        """Return `to_arrow` as a pandas frame, with a column of scores for each scorer.

        Needs pandas: `pip install lookback-vlm[pandas]`.

        Args:
            scorers: names; by default "lookback".
        """
        scores = {name: self.scores(name) for name in scorers or ("lookback",)}
        try:
            return self.to_arrow().to_pandas().assign(**scores)
        except ImportError as error:
            raise ImportError(
                "to_pandas() needs pandas: pip install 'lookback-vlm[pandas]' (to_arrow() does not)"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        return self._about() | {"candidates": [candidate_dict(c) for c in self]}

    def _about(self) -> dict[str, Any]:
        """Return all but the candidates, ready for JSON."""
        return {
            "question": self.question,
            "model": self.model,
            "prompt_ids": self.prompt_ids.tolist(),
            "defaults": dict(self.defaults),
            "sampling": dict(self.sampling),
            "messages": list(self.messages),
            "source": self.source,
        }


def candidate_dict(candidate: Candidate) -> dict[str, Any]:
    """Return one candidate as plain lists and numbers, ready for JSON."""
    signals = {
        k: v.tolist() if isinstance(v, np.ndarray) else list(v)
        for k, v in asdict(candidate.signals).items()
        if v is not None
    }
    head = {"index": candidate.index, "text": candidate.text, "finish": candidate.finish}
    if candidate.parent is not None:
        head |= {name: getattr(candidate, name) for name in TREE}
    score = candidate.score
    if score is not None:
        head["score"] = score if np.isfinite(score) else None
    return head | signals


def _layers_of(kind: Any) -> int:
    """Return the number of layers in a column's Arrow type; 0 if it has none."""
    import pyarrow as pa

    inner = kind.value_type
    return inner.list_size if pa.types.is_fixed_size_list(inner) else 0


def _shares(values: Any, tokens: int) -> Floats:
    """Return shares of attention by token and layer as an array of shape (tokens, L).

    Raises:
        ValueError: they are of another shape, or one is outside [0, 1].
    """
    try:
        array: Floats = np.array(values, dtype=np.float32)
    except ValueError:
        raise ValueError(
            f"by_layer is no table of numbers: it must be ({tokens}, layers), as many layers for "
            "each token"
        ) from None
    if array.shape == (0,):  # an empty list has no number of layers
        array = array.reshape(0, 0)
    if array.ndim != 2 or len(array) != tokens or (tokens and not array.shape[1]):
        raise ValueError(
            f"by_layer has the shape {array.shape} for {tokens} tokens: it must be "
            f"({tokens}, layers), one value per token and layer"
        )
    outside = ~((array >= 0) & (array <= 1))  # NaN too
    if outside.any():
        t, layer = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(
            f"by_layer[{t}, {layer}] = {array[t, layer]:g}: a share of attention lies in [0, 1]"
        )
    array.setflags(write=False)
    return array


def _constructor_call(record: Any) -> tuple[Any, ...]:
    """Pickle a record by its constructor, which makes its arrays read-only again."""
    return type(record), tuple(getattr(record, field.name) for field in fields(record))


def _readonly(values: Any, dtype: type, shape: Sequence[int] = (-1,)) -> NDArray[Any]:
    array: NDArray[Any] = np.array(values, dtype=dtype).reshape(shape)
    array.setflags(write=False)
    return array
