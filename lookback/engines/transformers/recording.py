"""`lookback.record(model)`: signals of the user's own calls of `model.generate(...)`.

Inside the block `model.generate` is patched, and two hooks see the model's passes. Each call of
generate has a `Generation` of its own, which is the reader of the thread that runs it, and the tap
is on for that time: calls in several threads do not mix, and passes that are no part of a call (an
engine's, the user's own) are left alone. All passes over the model take turns (`session.shared`).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
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

_RECORDED: set[int] = set()  # ids of the models with an open block
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
    with _exclusive(model):
        recorder = Recorder(model, processor, by_layer=by_layer)
        suggest_check(model, model.name_or_path or "MODEL")
        with recorder._hooks_installed(), recorder._patched_generate():
            yield recorder


@contextmanager
def _exclusive(model: PreTrainedModel) -> Iterator[None]:
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
def _patched(model: PreTrainedModel, methods: dict[str, Any]) -> Iterator[None]:
    """Replace methods of a model; afterwards restore those that were not replaced again."""
    before = {name: model.__dict__.get(name) for name in methods}
    for name, function in methods.items():
        setattr(model, name, function)
    try:
        yield
    finally:
        for name, function in methods.items():
            if model.__dict__.get(name) is not function:
                continue  # the user has wrapped ours: it still calls the model's own
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
        self._users = 0  # the block, and each running call of generate
        self._undo = ExitStack()

    def candidates(
        self, out: Any = None, prompt: int | None = None, *, source: str | None = None
    ) -> Candidates:
        """Return the candidates of a recorded call of `generate`.

        Args:
            out: the return value of generate: token ids, or the dict it returns if told to. By
                default that of the call that ended last (in a thread the value is often lost).
            prompt: which prompt's candidates, if generate was given several.
            source: "none" for a prompt without vision tokens: A_t is then 0.

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
        candidates = self._candidates(generation, prompt or 0)
        if source is None and not np.isin(candidates.prompt_ids, self._media).any():
            raise SourceError(NOTHING_THERE)
        return replace(candidates, source=source)

    def _find(self, out: Any) -> Generation:
        """Return the call that returned this very object, or the only one with these tokens."""
        if out is None and self._generations:
            return self._generations[-1]
        sequences = getattr(out, "sequences", out)
        matching = [call for call in self._generations if call.returned_these(sequences)]
        same = [call for call in matching if call.sequences is sequences]
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
            response = Continuation.of(ids, signals[..., row], finish)
            items.append(make_candidate(prompter, prompt_ids, i, response))
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

    def _patched_generate(self) -> AbstractContextManager[None]:
        methods = {"generate": self._generate, "init_continuous_batching": _refuse_batching}
        return _patched(self.model, methods)

    @contextmanager
    def _hooks_installed(self) -> Iterator[None]:
        """Install hooks on the model; the last block to end removes them."""
        with shared(self.model):
            with self._lock:
                self._users += 1
                if self._users == 1:
                    self._install_hooks()
            try:
                yield
            finally:
                with self._lock:
                    self._users -= 1
                    if self._users == 0:
                        self._undo.close()

    def _install_hooks(self) -> None:
        hook = self.model.register_forward_pre_hook(self._before, with_kwargs=True)
        self._undo.callback(hook.remove)
        self._undo.callback(self.model.register_forward_hook(self._after).remove)
        self._undo.enter_context(around_compiled_call(self.model, self._with_hooks))
        methods = {
            "get_compiled_call": self._compiled_call,
            STOPPING_CRITERIA: self._stopping_criteria,
        }
        self._undo.enter_context(_patched(self.model, methods))

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        """Replaces model.generate: refuse what cannot be recorded, record the rest."""
        engine = not isinstance(current_reader(), Generation | None)
        if engine or not self._users:  # or the user kept this method after the block
            return self._plain(*args, **kwargs)
        generation = self._generation(_by_name(self._plain, args, kwargs))
        # The tap is put on for each call: another attention may be set between two.
        with (
            self._hooks_installed(),
            tapped(decoder_configs(self.model)),
            reading(generation),
            calling(self.model, generation),
        ):
            out = self._plain(*args, **kwargs)
        if generation.finish(out):
            self._generations.append(generation)
        return out

    def _generation(self, arguments: dict[str, Any]) -> Generation:
        """Return the reader of a call with these arguments.

        Raises:
            ValueError: it cannot be recorded.
        """
        check_evaluating(self.model)
        named = dict(arguments)
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
        ids = arguments.get("input_ids", arguments.get("inputs"))
        padding = arguments.get("attention_mask")
        return Generation(
            ids if isinstance(ids, Tensor) else None,
            settings.num_return_sequences or 1,
            self._media,
            self._layers,
            padding if isinstance(padding, Tensor) else None,
            owner=self,
            by_layer=self.by_layer,
        )

    def _current(self) -> Generation | None:
        """Return the recorded call of generate that runs in this thread, if any."""
        reader = current_reader()
        return reader if isinstance(reader, Generation) and reader.owner is self else None

    def _compiled_call(self, config: Any) -> Any:
        """Replaces model.get_compiled_call, by which generate compiles its passes."""
        call = self._plain_compiled_call(config)
        return call if call == self.model.__call__ else self._with_hooks(call)

    def _stopping_criteria(self, *args: Any, **kwargs: Any) -> Any:
        """Replaces the method that makes a call's stopping criteria."""
        criteria = self._plain_criteria(*args, **kwargs)
        generation = self._current()
        if generation is None or generation.endings is not None:  # of a call inside this one
            return criteria
        generation.endings = Endings(criteria)
        return generation.endings

    def _with_hooks(self, call: Any) -> Any:
        """Wrap a compiled pass: the hooks are no part of its graph, so they run around it."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generation = self._current()
            if generation is None or generation.in_compiled_pass:
                return call(*args, **kwargs)
            self._before(self.model, args, kwargs)
            generation.in_compiled_pass = True
            try:
                with step(self.model):
                    out = call(*args, **kwargs)
            finally:
                generation.in_compiled_pass = False
            self._after(self.model, args, out)
            return out

        return wrapped

    def _before(self, model: Any, args: Any, kwargs: dict[str, Any] | None = None) -> None:
        if torch.compiler.is_compiling():
            return
        generation = self._current()
        # Without kwargs: a pass of another thread while the hook was installed or removed.
        if generation is not None and kwargs is not None and not generation.in_compiled_pass:
            ids = kwargs.get("input_ids", args[0] if args else None)
            cache = kwargs.get("past_key_values")
            generation.before(ids, cache, kwargs.get("attention_mask"), pixels=_has_pixels(kwargs))

    def _after(self, model: Any, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        generation = self._current()
        if generation is not None and not generation.in_compiled_pass:
            generation.after(output)


def _has_pixels(inputs: dict[str, Any]) -> bool:
    """Whether a pass has pixels or image features, whatever they are called: ids, masks and sizes
    are integers."""
    others = {name: value for name, value in inputs.items() if name != "past_key_values"}
    return any(
        isinstance(one, Tensor) and (one.is_floating_point() or one.dtype == torch.uint8)
        for one in tree_iter(others)
    )


def _by_name(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name."""
    signature = inspect.signature(function)
    named = dict(signature.bind(*args, **kwargs).arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= named.pop(parameter.name, {})
        if parameter.kind is parameter.VAR_POSITIONAL and named.pop(parameter.name, ()):
            raise ValueError("to record this model's generate, give its arguments by name")
    return named


def _refuse_batching(*args: Any, **kwargs: Any) -> NoReturn:
    raise ValueError(
        "continuous batching (generate_batch, cache_implementation='paged') cannot be recorded: "
        "its passes mix the tokens of several prompts; call model.generate(...)"
    )
