"""How continuations must go through a model, detected by trying.

Most models take any number of tokens and count positions by their cache. Some drop a recurrent
state when several tokens come at once, some count from 0 again without `position_ids`. So, once per
model, a few tokens go through it in each mode and are compared with the model's own generation of
the same tokens; the first mode that agrees is taken, and a model that never agrees is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lookback.engines import UnsupportedModelError
from lookback.engines.common.compat import alone_settings, uncompiled
from lookback.engines.transformers.attention.tap import reading
from lookback.engines.transformers.decoding.session import exclusive

PROMPT, RESPONSE = 7, 5
"""How many tokens are tried."""


class DecodeMode(NamedTuple):
    """How continuations go through a model.

    Attributes:
        stepwise: one token per pass.
        positions: with explicit `position_ids`.
    """

    stepwise: bool = False
    positions: bool = False


Try = Callable[[DecodeMode, list[int], list[int]], Tensor]
"""Returns log-probabilities (T, V) of a response's rows after a prompt, in one mode."""


def detect_decode_mode(model: PreTrainedModel, attempt: Try, fallback: DecodeMode) -> DecodeMode:
    """Return the first mode that agrees with the model's own generation.

    Args:
        model: the model, in evaluation mode.
        attempt: sends a response through in a given mode.
        fallback: for models that cannot be asked without an image.

    Raises:
        UnsupportedModelError: none agrees.
    """
    words = _words(model)
    prompt, response = words[:PROMPT], words[PROMPT:]
    expected = _generated(model, prompt, response)
    if expected is None:
        return _unchecked(model, attempt, fallback, prompt, response)
    good, bearable = _tolerances(model.dtype)
    distances: dict[DecodeMode, float] = {}
    failure: Exception | None = None
    for stepwise, positions in product((False, True), repeat=2):
        mode = DecodeMode(stepwise, positions)
        try:
            distances[mode] = _distance(attempt(mode, prompt, response), expected)
        except UnsupportedModelError:
            raise
        except Exception as error:  # whatever a model raises says that it cannot go this way
            failure = failure or error
            continue
        if distances[mode] <= good:
            return mode
    best = min(distances, key=lambda mode: distances[mode], default=None)
    if best is not None and distances[best] <= bearable:
        return best
    if best is None:
        raise _stuck(model, failure) from failure
    raise UnsupportedModelError(
        f"{type(model).__name__} goes on after a prompt in a way that LookBack does not know: its "
        f"log p is off by {distances[best]:.2g} from the model's own generation"
    )


def _unchecked(
    model: PreTrainedModel,
    attempt: Try,
    fallback: DecodeMode,
    prompt: list[int],
    response: list[int],
) -> DecodeMode:
    """Return the fallback, unless a model that takes text alone does not take it with a cache."""
    try:
        attempt(fallback, prompt, response)
    except UnsupportedModelError:
        raise
    except Exception as error:
        if _takes_words(model, prompt):
            raise _stuck(model, error) from error
    return fallback


def _takes_words(model: PreTrainedModel, prompt: list[int]) -> bool:
    try:
        with exclusive(model), uncompiled(model), reading(None), torch.no_grad():
            model(input_ids=torch.tensor([prompt], device=model.device), use_cache=False)
    except Exception:
        return False
    return True


def _stuck(model: PreTrainedModel, error: Exception | None) -> UnsupportedModelError:
    reason = str(error).strip().split("\n")[0]
    return UnsupportedModelError(
        f"{type(model).__name__} does not go on after a prompt with the library's usual cache: "
        f"{reason}"
    )


def _words(model: PreTrainedModel) -> list[int]:
    """Return token ids from all over the vocabulary, except those that a config names."""
    vocab = int(model.config.get_text_config(decoder=True).vocab_size)
    named = set(_token_ids(model.config.to_dict()))
    plain = [token for token in range(vocab) if token not in named]
    count = PROMPT + RESPONSE
    return [plain[(i + 1) * len(plain) // (count + 2)] for i in range(count)]


def _token_ids(config: dict[str, Any]) -> list[int]:
    found = []
    for name, value in config.items():
        if isinstance(value, dict):
            found += _token_ids(value)
        elif "token" in str(name):
            many = value if isinstance(value, list) else [value]
            found += [one for one in many if isinstance(one, int)]
    return found


def _generated(model: PreTrainedModel, prompt: list[int], response: list[int]) -> Tensor | None:
    """Return log-probabilities (T, V) of the model's own generation, forced to the response.

    None for a model that cannot be asked this way.
    """
    said = [*prompt, *response]
    try:
        with exclusive(model), uncompiled(model), reading(None), torch.no_grad():
            out = type(model).generate(
                model,
                input_ids=torch.tensor([prompt], device=model.device),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=model.device),
                max_new_tokens=len(response),
                do_sample=False,
                num_beams=1,
                use_cache=True,
                prefix_allowed_tokens_fn=lambda _, ids: [said[len(ids)]],
                output_logits=True,
                return_dict_in_generate=True,
                **alone_settings(type(model).generate),
            )
    except Exception:  # it needs an image, or more than ids: nothing is known then
        return None
    logits = torch.stack([one[0] for one in out.logits])
    return logits.float().log_softmax(-1) if len(logits) == len(response) else None


def _tolerances(dtype: torch.dtype) -> tuple[float, float]:
    """Return mean differences of log p: up to rounding, and up to what is still acceptable."""
    return (0.01, 0.02) if torch.finfo(dtype).bits >= 32 else (0.1, 0.25)


def _distance(one: Tensor, other: Tensor) -> float:
    """Return the mean difference; tokens that both rule out agree."""
    apart = (one - other.to(one.device)).abs()
    return float(apart.masked_fill(one == other.to(one.device), 0.0).nan_to_num(torch.inf).mean())
