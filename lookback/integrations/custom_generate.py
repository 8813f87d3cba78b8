"""transformers' `custom_generate`: best of n inside somebody's own `model.generate(...)`.

    model.generate(**inputs, custom_generate=FOLDER, trust_remote_code=True, n=25)

`FOLDER` is a repository as the hub keeps them: its `custom_generate/generate.py` brings `generate`
below. The candidates are drawn by the model's own generate, under `lookback.record`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig

from lookback.engines.common.compat import ModelOutput, generation_settings
from lookback.engines.transformers.recording import record
from lookback.errors import check_whole
from lookback.scores.base import NEEDS, Scorer, best_first, get_scorer
from lookback.signals import Candidates

FOLDER = str(Path(__file__).parent / "custom_generate_repo")
"""The repository, as `custom_generate` takes it: a folder of this installation."""
KEPT_ELSEWHERE = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


@dataclass
class BestOfN(ModelOutput):  # type: ignore[misc]
    """What `generate` returns for `return_dict_in_generate=True`.

    Attributes:
        sequences: (prompts * k, T), prompt and response, of each prompt the best first; what stands
            behind a response's end is padding.
        sequences_scores: (prompts * k,), float64, the scorer's score of each; NaN for an empty one.
        candidates: for each prompt all n candidates, as drawn, with their signals.
    """

    sequences: Tensor | None = None
    sequences_scores: Tensor | None = None
    candidates: Sequence[Candidates] | None = None


def generate(
    model: Any,
    *,
    n: int = 25,
    scorer: str = "lookback",
    processor: Any = None,
    num_return_sequences: int | None = None,
    **settings: Any,
) -> Tensor | BestOfN:
    """Draw n responses to each prompt by the model's own sampling, and return the best.

    Args:
        model: a transformers LVLM.
        n: how many are drawn for each prompt.
        scorer: ranks them; any scorer of recorded signals and texts.
        processor: turns token ids into text; by default that of the folder or hub id that the model
            was loaded from.
        num_return_sequences: how many are returned for each prompt, the best first; by default one,
            or all n if a dict is asked for.
        settings: the scorer's own settings (alpha, lam), and whatever `model.generate` takes.
            Temperature, top_p and top_k are those of the generation config unless they are given;
            `do_sample` is on.

    Returns:
        (prompts * num_return_sequences, T), as generate returns them; a `BestOfN` with
        `return_dict_in_generate=True`.

    Raises:
        ValueError: a setting is wrong, or the scorer needs more than a recorded generate leaves.
    """
    check_whole("n", n, 1)
    chosen = _scorer(scorer, model, processor)
    params = {name: settings.pop(name) for name in chosen.params if _own(name, settings)}
    chosen.check(params, n)
    as_dict = _check(model, settings)
    count = num_return_sequences if num_return_sequences is not None else n if as_dict else 1
    check_whole("num_return_sequences", count, 1)
    if count > n:
        raise ValueError(f"num_return_sequences = {count}: of n = {n} candidates at most {n}")
    settings |= {"do_sample": True, "num_return_sequences": n, "return_dict_in_generate": False}
    with record(model, processor) as recorder:
        out: Tensor = model.generate(**settings)
    drawn = [recorder.candidates(out, i) for i in range(len(out) // n)]
    scores = [candidates.scores(scorer, **params) for candidates in drawn]
    orders = [best_first(values)[:count] for values in scores]
    rows = np.concatenate([i * n + order for i, order in enumerate(orders)])
    sequences = _trim_padding(out, rows, drawn)
    if not as_dict:
        return sequences
    return BestOfN(
        sequences=sequences,
        sequences_scores=torch.from_numpy(np.concatenate(scores)[rows]).to(out.device),
        candidates=drawn,
    )


def _own(name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a setting is the scorer's: what generation has stays generation's."""
    return name in settings and not hasattr(GenerationConfig(), name)


def _scorer(name: str, model: Any, processor: Any) -> Scorer:
    """Return the scorer of a name; raise ValueError if a recorded call leaves it too little."""
    scorer = get_scorer(name)
    if not scorer.from_signals or scorer.needs == "truth":
        raise ValueError(
            f"scorer {name!r} needs {NEEDS[scorer.needs]}, which generate does not have: take one "
            "of recorded signals and texts, or lookback.load(model, processor).sample(...)"
        )
    if scorer.needs == "texts" and processor is None and not model.name_or_path:
        raise ValueError(
            f"scorer {name!r} compares texts, and this model was made in memory: give generate "
            "its processor=..."
        )
    return scorer


def _check(model: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether a dict is asked for.

    Raises:
        ValueError: something is asked for that n drawn candidates cannot have.
    """
    if settings.get("do_sample") is False:
        raise ValueError("do_sample=False: n candidates are drawn, and greedily they would be one")
    if settings.get("streamer") is not None:
        raise ValueError("a streamer: which of n candidates is the best is known at their end")
    given = {name: value for name, value in settings.items() if name != "generation_config"}
    asked = generation_settings(model, settings.get("generation_config"), given)
    if (asked.num_beams or 1) > 1:
        raise ValueError(f"num_beams = {asked.num_beams}: n candidates are drawn, without beams")
    for name in KEPT_ELSEWHERE:
        if getattr(asked, name, False):
            raise ValueError(
                f"{name}=True: not kept for n candidates; return_dict_in_generate=True gives "
                "`candidates`, with log p, A_t, self-certainty and entropy of each token"
            )
    return bool(asked.return_dict_in_generate)


def _trim_padding(out: Tensor, rows: Any, drawn: Sequence[Candidates]) -> Tensor:
    """Return some rows of what was drawn, without the columns at the end that are padding."""
    lengths = np.array([len(c.token_ids) + (c.finish == "end") for group in drawn for c in group])
    width = out.shape[1] - int(lengths.max()) + int(lengths[rows].max())
    return out[torch.as_tensor(rows, device=out.device), :width]
