"""`lookback.record(model)`: signals from somebody else's own `model.generate(...)`.

Inside the block the tap stands in front of the model's attention, and two hooks watch its passes:
each pass gives the logits and A_t of the next token, and the pass after it tells which token was
chosen. What is kept is a few numbers per token, and the logits of the newest pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoProcessor, DynamicCache, PreTrainedModel

from lookback.conversations import NO_SOURCE, NOTHING_THERE, SourceError
from lookback.engines.transformers.decoder import Continuation, stack_signals
from lookback.engines.transformers.engine import TransformersEngine, make_candidate
from lookback.engines.transformers.logits import TokenStats, token_stats
from lookback.engines.transformers.prompts import IdText, Prompter
from lookback.engines.transformers.support import (
    attention_layers,
    check_supported,
    decoder_configs,
    end_token_ids,
)
from lookback.engines.transformers.tap import LastRow, current_reader, reading, tapped
from lookback.families import family_of
from lookback.signals import Candidates


@contextmanager
def record(
    model: PreTrainedModel | TransformersEngine, processor: Any = None
) -> Iterator[Recorder]:
    """Record the signals of every `model.generate(...)` inside the block.

    Greedy decoding and sampling, with any number of prompts and `num_return_sequences`. The model
    is left as it was found, whatever happens inside.

    Args:
        model: a transformers LVLM, or what `lookback.load` returned.
        processor: turns token ids into text; by default the one of the folder or hub id that the
            model was loaded from. A model made in memory has none: text is then token ids, "<42>".

    Raises:
        UnsupportedModelError: its visual lookback cannot be read.
        RuntimeError: recording is on already, here or around.
    """
    if isinstance(model, TransformersEngine):
        model, processor = model.model, processor or model.processor
    if current_reader() is not None:
        raise RuntimeError("lookback.record() is on already: one block at a time")
    recorder = Recorder(model, processor)
    generate = model.__dict__.get("generate")
    hooks = [
        model.register_forward_pre_hook(recorder._before, with_kwargs=True),
        model.register_forward_hook(recorder._after, with_kwargs=True),
    ]
    try:
        model.generate = recorder._generate
        with tapped(decoder_configs(model)), reading(recorder._reader):
            yield recorder
    finally:
        for hook in hooks:
            hook.remove()
        if generate is None:
            del model.generate
        else:
            model.generate = generate


@dataclass
class _Generation:
    """What one call of generate did: its prompts, and a column of numbers for each step."""

    prompt_ids: Tensor  # (B, P), B rows for B / returned prompts
    returned: int
    end_tokens: list[int]
    padding: Tensor | None  # (B / returned, P), 0 where a prompt is padded
    lookback: list[Tensor] = field(default_factory=list)  # (B,) per step
    tokens: list[Tensor] = field(default_factory=list)  # (B,) per step but the last
    stats: list[Tensor] = field(default_factory=list)  # (3, B) per step but the last
    logits: Tensor | None = None  # (B, V), of the newest pass

    def chosen(self, token: Tensor) -> None:
        """The newest pass was followed by this token, (B,)."""
        assert self.logits is not None
        self.tokens.append(token)
        self.stats.append(torch.stack(token_stats(self.logits, token.to(self.logits.device))))

    def matches(self, sequences: Tensor) -> bool:
        """Could this be what generate returned?"""
        rows, length = self.prompt_ids.shape
        if sequences.shape != (rows, length + len(self.lookback)):
            return False
        fed = torch.stack(self.tokens, 1) if self.tokens else sequences[:, :0]
        return torch.equal(sequences[:, :length], self.prompt_ids) and torch.equal(
            sequences[:, length:-1], fed
        )


class Recorder:
    """What `record` yields: ask it for the `candidates` of what generate returned."""

    def __init__(self, model: PreTrainedModel, processor: Any = None) -> None:
        self.model = model
        self.processor = processor
        self._image_token = check_supported(model)
        self._layers = attention_layers(model)
        self._reader = LastRow(torch.zeros(1, 0, dtype=torch.bool))
        self._generations: list[_Generation] = []
        self._call: dict[str, Any] = {
            "returned": 1,
            "end_tokens": end_token_ids(model),
            "padding": None,
        }

    def candidates(
        self, out: Any, prompt: int | None = None, *, source: str | None = None
    ) -> Candidates:
        """The candidates in what a recorded `generate` returned.

        Args:
            out: the return value of generate: token ids, or the dict it gives if asked to.
            prompt: which prompt's candidates, if generate was given several.
            source: "none" for a prompt without vision tokens: A_t is 0 then, and that is meant.

        Raises:
            ValueError: this is not what a recorded generate returned.
            SourceError: the prompt has no vision tokens.
        """
        if source not in (None, NO_SOURCE):
            raise SourceError(f"source = {source!r}: what is recorded is every vision token")
        sequences = getattr(out, "sequences", out)
        matching = [one for one in self._generations if one.matches(sequences)]
        if not matching:
            raise ValueError(
                "this is not what a recorded model.generate(...) returned: call it inside the "
                "record() block, and pass its return value as it is"
            )
        generation = matching[-1]
        prompts = len(sequences) // generation.returned
        if prompt is None and prompts > 1:
            raise ValueError(f"generate was given {prompts} prompts: say which, candidates(out, 0)")
        if not 0 <= (prompt or 0) < prompts:
            raise IndexError(f"prompt {prompt}: there are {prompts}")
        found = self._candidates(generation, sequences, prompt or 0)
        if source is None and self._image_token not in found.prompt_ids:
            raise SourceError(NOTHING_THERE)
        return replace(found, source=source)

    def _candidates(self, generation: _Generation, sequences: Tensor, prompt: int) -> Candidates:
        start = generation.prompt_ids.shape[1]
        rows = range(prompt * generation.returned, (prompt + 1) * generation.returned)
        assert generation.logits is not None
        last = torch.stack(token_stats(generation.logits, sequences[:, -1]))
        stats = torch.stack([*generation.stats, last])  # (T, 3, B)
        lookback = torch.stack(generation.lookback)  # (T, B)
        signals = stack_signals(TokenStats(*stats.unbind(1)), lookback).cpu().numpy()  # (4, T, B)

        own = generation.prompt_ids[rows[0]]
        if generation.padding is not None:
            own = own[generation.padding[prompt].bool()]
        prompt_ids = own.tolist()
        family = family_of(self.model.config)
        prompter = self._prompter()
        items = []
        for i, row in enumerate(rows):
            ids = sequences[row, start:].tolist()
            ended = [t for t, token in enumerate(ids) if token in generation.end_tokens]
            length = ended[0] if ended else len(ids)
            found = Continuation(
                ids[:length], signals[:, :length, row], "end" if ended else "length"
            )
            items.append(make_candidate(prompter, prompt_ids, i, found))
        words = [token for token in prompt_ids if token != self._image_token]
        return Candidates(
            tuple(items),
            prompter.decode([], words),
            np.array(prompt_ids),
            model=self.model.name_or_path or type(self.model).__name__,
            defaults=family.defaults,
        )

    def _prompter(self) -> Prompter | IdText:
        if self.processor is None and self.model.name_or_path:
            self.processor = AutoProcessor.from_pretrained(self.model.name_or_path)
        if self.processor is None:
            return IdText()
        return Prompter(self.processor, family_of(self.model.config), self._image_token)

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        """Stands in for model.generate: refuses what cannot be recorded, notes what matters."""
        config = kwargs.get("generation_config") or self.model.generation_config

        def setting(name: str) -> Any:
            return kwargs.get(name, getattr(config, name, None))

        if (setting("num_beams") or 1) > 1:
            raise ValueError(
                f"num_beams = {setting('num_beams')}: beam search reorders its rows, so a beam's "
                "signals cannot be recorded; sample or decode greedily"
            )
        if kwargs.get("assistant_model") is not None or setting("prompt_lookup_num_tokens"):
            raise ValueError(
                "assisted generation cannot be recorded: a pass is not one token there"
            )
        self._call = {
            "returned": setting("num_return_sequences") or 1,
            "end_tokens": end_token_ids(self.model, setting("eos_token_id")),
            "padding": kwargs.get("attention_mask"),
        }
        return type(self.model).generate(self.model, *args, **kwargs)

    def _before(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if current_reader() is not self._reader:  # another thread's pass, or an engine's own
            return
        self._reader.reset()
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is None:
            raise ValueError("cannot record a pass on inputs_embeds: the vision tokens have no ids")
        cache = kwargs.get("past_key_values")
        vision = ids == self._image_token
        if cache is None or int(cache.get_seq_length()) == 0:
            self._generations.append(_Generation(ids.clone(), **self._call))
            self._reader.source = vision
            self._reader.keys = ids.shape[1] if isinstance(cache, DynamicCache) else None
            return
        self._reader.keys = None
        generation = self._generations[-1]
        if ids.shape[1] > 1:
            if generation.tokens:
                raise ValueError("a pass of several tokens after the first one cannot be recorded")
            # The next piece of a prompt that goes through the model piece by piece.
            generation.prompt_ids = torch.cat([generation.prompt_ids, ids], 1)
            generation.lookback.clear()
        else:
            generation.chosen(ids[:, -1])
        self._reader.source = torch.cat([self._reader.source, vision], 1)

    def _after(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if current_reader() is not self._reader:
            return
        generation = self._generations[-1]
        generation.logits = output.logits[:, -1].detach()
        generation.lookback.append(self._reader.lookback(self._layers)[:, 0])
