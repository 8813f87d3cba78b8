"""Every document's candidates in a file, since lmms-eval keeps the winner alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.scores.formula import Array
from lookback.signals import Candidates

if TYPE_CHECKING:
    from lookback.integrations.lmms_eval.model import Request


class Log:
    """A file of JSON lines: per document how candidates were drawn, what they say, their scores.

    Args:
        path: the file, new. A process beside the first has its own: `name.1.jsonl`.
        rank: which process this is.

    Raises:
        ValueError: there is such a file already.
    """

    def __init__(self, path: str, rank: int = 0) -> None:
        given = Path(path)
        self.path = given.with_suffix(f".{rank}{given.suffix}") if rank else given
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.path.open("x").close()
        except FileExistsError:
            raise ValueError(
                f"log = {str(self.path)!r}: there is such a file; give another name"
            ) from None

    def write(self, request: Request, found: Candidates, scores: Array, best: int | None) -> None:
        """Add a document; at once, so that a run that ends early leaves what it did."""
        line: dict[str, Any] = {
            "task": request.task,
            "split": request.split,
            "doc_id": request.doc_id,
            "repeat": request.repeat,
            "question": found.question,
            "source": found.source,
            "sampling": dict(found.sampling),
            "prompt_tokens": len(found.prompt_ids),
            "best": best,
            "candidates": [
                {
                    "text": one.text,
                    "score": None if np.isnan(score) else float(score),
                    "tokens": len(one.token_ids),
                    "finish": one.finish,
                }
                for one, score in zip(found, scores, strict=True)
            ],
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
