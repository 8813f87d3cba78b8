"""`lookback.record(model)`: signals from somebody else's own `model.generate(...)`.

Inside the block `model.generate` is ours, and two hooks watch the model's passes. Each call of
generate has a `Generation` of its own, which is the reader of the thread that runs it, and for its
time the tap stands in front of the model's attention: calls in several threads do not meet, and
passes that are no part of a call (an engine's, somebody's own) are left alone. All passes over the
model take turns (`state.share`).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from lookback.conversations import NO_SOURCE, NOTHING_THERE, SourceError
from lookback.engines.common.compat import (
    STOPPING_CRITERIA,
    around_compiled_call,
    generation_settings,
    tree_iter,
    unwrapped,
)
from lookback.engines.common.continuations import Continuation, make_candidate
from lookback.engines.common.fair_lock import survive_forks
from lookback.engines.common.model_files import load_processor
from lookback.engines.common.prompts import IdText, Prompter
from lookback.engines.transformers.attention.tap import current_reader, reading, tapped
from lookback.engines.transformers.decoding.session import calling, shared, step
from lookback.engines.transformers.engine import TransformersEngine
from lookback.engines.transformers.generation import Endings, Generation
from lookback.engines.transformers.support import (
    attention_layers,
    check_evaluating,
    check_supported,
    decoder_configs,
    suggest_check,
)
from lookback.families import family_of, video_token_id
from lookback.signals import Candidates

_RECORDED: set[int] = set()  # ids of the models that a block is open for
_RECORDED_LOCK = threading.Lock()
survive_forks(_RECORDED_LOCK)


@contextmanager
def record(model: Any, processor: Any = None, *, by_layer: bool = False) -> Iterator[Recorder]:
    """Record the signals of every `model.generate(...)` inside the block.

    Greedy decoding and sampling, with any number of prompts and `num_return_sequences`, in this
    thread or in others. The model is left as it was found, whatever happens inside; a call that
    still runs in another thread when the block ends is recorded to its end.

    Args:
        model: a transformers LVLM, as it is or inside `torch.compile` or PEFT, or what
            `lookback.load` returned.
        processor: turns token ids into text; by default the one of the folder or hub id that the
            model was loaded from. A model made in memory has none: text is then token ids, "<42>".
        by_layer: keep A_t in each attention layer too: `candidate.by_layer`, (T, L).

    Raises:
        UnsupportedModelError: its visual lookback cannot be read.
        ValueError: it is in training mode, or has no weights.
        RuntimeError: another block is open for this model.
    """
    if isinstance(model, TransformersEngine):
        model, processor = model.model, processor or model.processor
    model = unwrapped(model)
    with _alone(model):
        recorder = Recorder(model, processor, by_layer=by_layer)
        suggest_check(model, model.name_or_path or "MODEL")
        ours = {"generate": recorder._generate, "init_continuous_batching": _refuse_batching}
        with recorder._watching(), _replaced(model, ours):
            yield recorder


@contextmanager
def _alone(model: PreTrainedModel) -> Iterator[None]:
    with _RECORDED_LOCK:
        if id(model) in _RECORDED:
            raise RuntimeError(
                "lookback.record() is on already for this model: one block at a time"
            )
        _RECORDED.add(id(model))
    try:
        yield
    finally:
        _RECORDED.discard(id(model))


@contextmanager
def _replaced(model: PreTrainedModel, ours: dict[str, Any]) -> Iterator[None]:
    """Put functions in the place of the model's own; then what was there, unless it was changed."""
    before = {name: model.__dict__.get(name) for name in ours}
    for name, function in ours.items():
        setattr(model, name, function)
    try:
        yield
    finally:
        for name, function in ours.items():
            if model.__dict__.get(name) is not function:
                continue  # somebody put theirs around ours: it goes on to the model's own
            if before[name] is None:
                delattr(model, name)
            else:
                setattr(model, name, before[name])


class Recorder:
    """What `record` yields: ask it for the `candidates` of what generate returned."""

    def __init__(
        self, model: PreTrainedModel, processor: Any = None, *, by_layer: bool = False
    ) -> None:
        self.model = model
        self.by_layer = by_layer
        self.processor = processor
        self._image_token = check_supported(model)
        check_evaluating(model)
        self._video_token = video_token_id(model.config)
        self._media = tuple(t for t in (self._image_token, self._video_token) if t is not None)
        self._layers = attention_layers(model)
        self._plain = model.generate  # as it was found
        self._plain_compiled_call = model.get_compiled_call
        self._plain_criteria = getattr(model, STOPPING_CRITERIA)
        self._generations: list[Generation] = []
        self._lock = threading.Lock()
        self._users = 0  # the block, and each call of generate at work
        self._undo = ExitStack()

    def candidates(
        self, out: Any = None, prompt: int | None = None, *, source: str | None = None
    ) -> Candidates:
        """The candidates in what a recorded `generate` returned.

        Args:
            out: the return value of generate: token ids, or the dict it gives if asked to. By
                default that of the call that ended last (in a thread the value is often lost).
            prompt: which prompt's candidates, if generate was given several.
            source: "none" for a prompt without vision tokens: A_t is 0 then, and that is meant.

        Raises:
            ValueError: this is not what a recorded generate returned.
            SourceError: the prompt has no vision tokens.
        """
        if source not in (None, NO_SOURCE):
            raise SourceError(f"source = {source!r}: what is recorded is every vision token")
        generation = self._find(out)
        assert generation.prompt is not None
        prompts = len(generation.prompt) // generation.returned
        if prompt is None and prompts > 1:
            raise ValueError(f"generate was given {prompts} prompts: say which, candidates(out, 0)")
        if not 0 <= (prompt or 0) < prompts:
            raise IndexError(f"prompt {prompt}: there are {prompts}")
        found = self._candidates(generation, prompt or 0)
        if source is None and not np.isin(found.prompt_ids, self._media).any():
            raise SourceError(NOTHING_THERE)
        return replace(found, source=source)

    def _find(self, out: Any) -> Generation:
        """The call that returned this: the very object, or the only one with these tokens."""
        if out is None and self._generations:
            return self._generations[-1]
        sequences = getattr(out, "sequences", out)
        matching = [one for one in self._generations if one.returned_these(sequences)]
        same = [one for one in matching if one.sequences is sequences]
        if same or len(matching) == 1:
            return (same or matching)[-1]
        if matching:
            raise ValueError(
                f"{len(matching)} recorded calls of model.generate(...) returned these tokens: "
                "pass the return value itself, not a copy, to say which is meant"
            )
        raise ValueError(
            "this is not what a recorded model.generate(...) returned: call it inside the "
            "record() block, and pass its return value as it is"
        )

    def _candidates(self, generation: Generation, prompt: int) -> Candidates:
        assert generation.signals is not None
        signals = generation.signals.numpy()  # (4 or 4 + L, T, B)
        prompt_ids = generation.prompt_ids(prompt)
        family = family_of(self.model.config)
        prompter = self._prompter()
        items = []
        for i, (row, ids, finish) in enumerate(generation.responses(prompt)):
            found = Continuation.of(ids, signals[..., row], finish)
            items.append(make_candidate(prompter, prompt_ids, i, found))
        words = [token for token in prompt_ids if token not in self._media]
        return Candidates(
            tuple(items),
            prompter.decode([], words),
            np.array(prompt_ids),
            model=self.model.name_or_path or type(self.model).__name__,
            defaults=family.defaults,
        )

    def _prompter(self) -> Prompter | IdText:
        if self.processor is None and self.model.name_or_path:
            self.processor = load_processor(self.model.name_or_path)
        if self.processor is None:
            return IdText()
        family = family_of(self.model.config)
        return Prompter(self.processor, family, self._image_token, self._video_token)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Hooks are on the model; the last to leave takes them off."""
        with shared(self.model):
            with self._lock:
                self._users += 1
                if self._users == 1:
                    self._watch()
            try:
                yield
            finally:
                with self._lock:
                    self._users -= 1
                    if self._users == 0:
                        self._undo.close()

    def _watch(self) -> None:
        hook = self.model.register_forward_pre_hook(self._before, with_kwargs=True)
        self._undo.callback(hook.remove)
        self._undo.callback(self.model.register_forward_hook(self._after).remove)
        self._undo.enter_context(around_compiled_call(self.model, self._watched))
        ours = {
            "get_compiled_call": self._compiled_call,
            STOPPING_CRITERIA: self._stopping_criteria,
        }
        self._undo.enter_context(_replaced(self.model, ours))

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        """Stands in for model.generate: refuses what cannot be recorded, reads the rest."""
        engine = not isinstance(current_reader(), Generation | None)
        if engine or not self._users:  # or somebody kept ours beyond the block
            return self._plain(*args, **kwargs)
        generation = self._generation(_by_name(self._plain, args, kwargs))
        # The tap is put on for each call: somebody may set another attention between two.
        with (
            self._watching(),
            tapped(decoder_configs(self.model)),
            reading(generation),
            calling(self.model, generation),
        ):
            out = self._plain(*args, **kwargs)
        if generation.finish(out):
            self._generations.append(generation)
        return out

    def _generation(self, given: dict[str, Any]) -> Generation:
        """What a call with these arguments will do.

        Raises:
            ValueError: it cannot be recorded.
        """
        check_evaluating(self.model)
        named = dict(given)
        config = named.pop("generation_config", None)
        assistant = named.pop("assistant_model", None)
        settings = generation_settings(self.model, config, named)
        if (settings.num_beams or 1) > 1:
            raise ValueError(
                f"num_beams = {settings.num_beams}: beam search reorders its rows, so a beam's "
                "signals cannot be recorded; sample or decode greedily"
            )
        if assistant is not None or settings.prompt_lookup_num_tokens:
            raise ValueError(
                "assisted generation cannot be recorded: a pass is not one token there"
            )
        if settings.cache_implementation == "paged":
            _refuse_batching()
        ids, padding = given.get("input_ids", given.get("inputs")), given.get("attention_mask")
        return Generation(
            ids if isinstance(ids, Tensor) else None,
            settings.num_return_sequences or 1,
            self._media,
            self._layers,
            padding if isinstance(padding, Tensor) else None,
            owner=self,
            by_layer=self.by_layer,
        )

    def _own(self) -> Generation | None:
        """The call of generate at work in this thread, if it is one of ours."""
        reader = current_reader()
        return reader if isinstance(reader, Generation) and reader.owner is self else None

    def _compiled_call(self, config: Any) -> Any:
        """Stands in for model.get_compiled_call, by which generate compiles its passes."""
        call = self._plain_compiled_call(config)
        return call if call == self.model.__call__ else self._watched(call)

    def _stopping_criteria(self, *args: Any, **kwargs: Any) -> Any:
        """Stands in for the method that makes a call's stopping criteria."""
        criteria = self._plain_criteria(*args, **kwargs)
        generation = self._own()
        if generation is None or generation.endings is not None:  # of a call inside this one
            return criteria
        generation.endings = Endings(criteria)
        return generation.endings

    def _watched(self, call: Any) -> Any:
        """A compiled pass, hooks and all: they are no part of its graph, and come before and after
        it instead."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            generation = self._own()
            if generation is None or generation.watched:
                return call(*args, **kwargs)
            self._before(self.model, args, kwargs)
            generation.watched = True
            try:
                with step(self.model):
                    out = call(*args, **kwargs)
            finally:
                generation.watched = False
            self._after(self.model, args, out)
            return out

        return watched

    def _before(self, model: Any, args: Any, kwargs: dict[str, Any] | None = None) -> None:
        if torch.compiler.is_compiling():
            return
        generation = self._own()
        # Without kwargs: a pass of another thread that met the hook while it came or went.
        if generation is not None and kwargs is not None and not generation.watched:
            ids = kwargs.get("input_ids", args[0] if args else None)
            cache = kwargs.get("past_key_values")
            generation.before(ids, cache, kwargs.get("attention_mask"), pixels=_has_pixels(kwargs))

    def _after(self, model: Any, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        generation = self._own()
        if generation is not None and not generation.watched:
            generation.after(output)


def _has_pixels(inputs: dict[str, Any]) -> bool:
    """Whether a pass is given pixels, or features of an image: whatever a model calls them, ids,
    masks and sizes are whole numbers."""
    others = {name: value for name, value in inputs.items() if name != "past_key_values"}
    return any(
        isinstance(one, Tensor) and (one.is_floating_point() or one.dtype == torch.uint8)
        for one in tree_iter(others)
    )


def _by_name(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by name, also those given by position."""
    signature = inspect.signature(function)
    found = dict(signature.bind(*args, **kwargs).arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(parameter.name, {})
        if parameter.kind is parameter.VAR_POSITIONAL and found.pop(parameter.name, ()):
            raise ValueError("to record this model's generate, give its arguments by name")
    return found


def _refuse_batching(*args: Any, **kwargs: Any) -> NoReturn:
    raise ValueError(
        "continuous batching (generate_batch, cache_implementation='paged') cannot be recorded: "
        "its passes mix the tokens of several prompts; call model.generate(...)"
    )
