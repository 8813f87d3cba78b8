"""Validate a model on this machine: compare LookBack's signals with reference eager decoding."""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from lookback.conversations import Conversation
from lookback.engines.common.check_report import Check, CheckReport
from lookback.engines.common.compat import (
    TorchDispatchMode,
    attention_name,
    set_attention_name,
    tree_iter,
    uncompiled,
)
from lookback.engines.common.sources import source_mask
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.engines.transformers.decoding.prefix import Prefix
from lookback.engines.transformers.recording import record
from lookback.engines.transformers.support import decoder_configs
from lookback.errors import error_line
from lookback.signals import BY_LAYER, SIGNALS, Candidate

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress
    from lookback.engines.transformers.engine import TransformersEngine


QUESTION = "What is in the picture?"
LONGER = "What is in the picture, and what is to the left of it? Look closely."
RESPONSES = ("A red circle.", "There is a small dog to the left of the tree.")
TOLERANCES = {"float32": (1e-4, 1e-3), "float64": (1e-4, 1e-3), "float16": (0.01, 0.1)}
LOW_PRECISION = (0.03, 0.3)  # bfloat16, and weights of fewer bits
"""The largest difference allowed in A_t, and in the other signals (relative, where above 1)."""


def check(engine: TransformersEngine, progress: Progress | None = None) -> CheckReport:
    """Compare what LookBack gives with the model's own step-by-step decoding.

    Args:
        engine: the model.
        progress: called with (checks done, total).
    """
    return _Checker(engine).run(progress)


class _Checker:
    def __init__(self, engine: TransformersEngine) -> None:
        self.engine, self.model = engine, engine.model
        identity = engine.identity()
        self.dtype = identity.dtype or "unknown"
        self.tolerance = TOLERANCES.get(self.dtype, LOW_PRECISION)
        self.asked = Conversation.of(picture(), QUESTION)

    def run(self, progress: Progress | None) -> CheckReport:
        plans: dict[str, Callable[[], dict[str, float]]] = {
            "score, all tokens in one pass": self.score,
            "score, token by token": self.score_stepwise,
            "score, layer by layer": self.score_by_layer,
            "sample": self.sample,
            "record": self.record,
            "record, beside a longer prompt": self.record_padded,
            "score, a prompt padded on the left": self.score_padded,
            "two prompts in turn": self.interleaved,
            "two images": lambda: self.optional(Conversation.of([picture(), picture(1)], QUESTION)),
            "an image after two turns": lambda: self.optional(_turns()),
            "a video": self.video,
            "your own decoding, with LookBack's calls in between": self.undisturbed,
        }
        checks = []
        for number, (what, plan) in enumerate(plans.items()):
            checks.append(self._check(what, plan))
            if progress is not None:
                progress(number + 1, len(plans))
        speed, peak = self._speed()
        configs = decoder_configs(self.model)
        layers = self.engine.decoder.layers
        identity = self.engine.identity()
        return CheckReport(
            identity.model,
            identity.model_class,
            self.dtype,
            str(self.model.device),
            layers,
            layers * int(configs[0].num_attention_heads),
            self.tolerance,
            checks,
            speed,
            peak,
        )

    def _check(self, what: str, plan: Callable[[], dict[str, float]]) -> Check:
        try:
            found = plan()
        except _NotApplicable as reason:
            return Check(what, note=str(reason))
        except Exception as error:
            return Check(what, ok=False, note=error_line(error)[:300])
        within = all(
            value <= self.tolerance[name != "visual_lookback"] for name, value in found.items()
        )
        return Check(what, found, within and bool(found))

    # What LookBack does, and the model's own numbers for the same tokens.

    def score(self) -> dict[str, float]:
        return self.given(self.asked)

    def given(self, conversation: Conversation) -> dict[str, float]:
        found = self.engine.score(messages=conversation.messages(), responses=list(RESPONSES))
        return self.compare(conversation, list(found))

    def score_stepwise(self) -> dict[str, float]:
        decoder = self.engine.decoder
        before = decoder.batch_rows
        try:
            decoder.batch_rows = 1
            return self.given(self.asked)
        finally:
            decoder.batch_rows = before

    def score_by_layer(self) -> dict[str, float]:
        messages = self.asked.messages()
        found = self.engine.score(messages=messages, responses=list(RESPONSES), by_layer=True)
        inputs, source = self.prompt(self.asked)
        differences = [
            _difference(one.by_layer, reference[BY_LAYER])
            for one in found
            for reference in self.reference(inputs, source, [one.token_ids.tolist()])
        ]
        return {"visual_lookback": max(differences)}

    def sample(self) -> dict[str, float]:
        drawn = self.engine.sample(
            messages=self.asked.messages(), n=3, max_new_tokens=8, seed=1, keep_end=True
        )
        return self.compare(self.asked, list(drawn))

    def record(self) -> dict[str, float]:
        inputs, _ = self.engine.inputs(self.asked)
        with _seeded(), record(self.engine) as recorder:
            out = self.model.generate(**inputs, do_sample=True, max_new_tokens=8)
        return self.compare(self.asked, list(recorder.candidates(out)))

    def record_padded(self) -> dict[str, float]:
        """Two prompts of unequal length in one call, the shorter padded on the left."""
        both = [self.asked, Conversation.of(picture(1), LONGER)]
        prompter = self.engine.prompter
        inputs = prompter.inputs(both, [prompter.text(one) for one in both], self.model)
        with _seeded(), record(self.engine) as recorder:
            out = self.model.generate(**inputs, do_sample=True, max_new_tokens=6)
        found = [recorder.candidates(out, i)[0] for i in range(2)]
        padded = inputs["input_ids"].shape[1]
        sources = torch.zeros(2, padded, dtype=torch.bool)
        for row, one in zip(sources, both, strict=True):
            source = self.prompt(one)[1][0]
            row[padded - len(source) :] = source
        ids = [one.token_ids.tolist() for one in found]
        try:
            return self._differences(found, self.reference(inputs, sources, ids))
        except FloatingPointError as error:
            raise _NotApplicable(f"there is nothing to compare with: {error}") from error

    def score_padded(self) -> dict[str, float]:
        inputs, sources = self.prompt(self.asked)
        more, text = 5, self.engine.prompter.text(self.asked)
        size = inputs["input_ids"].shape[1] + more
        try:
            padded = self.engine.prompter.inputs([self.asked], [text], self.model, size)
        except Exception as error:  # whatever a processor raises: nothing was computed yet
            raise _NotApplicable(f"its processor does not pad a prompt: {error}") from error
        if padded["input_ids"].shape[1] != size:
            raise _NotApplicable("its processor does not pad a prompt")
        (ids,) = [c.token_ids.tolist() for c in self._scored(RESPONSES[1])]
        source = torch.nn.functional.pad(sources[0], (more, 0))
        decoder = self.engine.decoder
        with self.engine.lock:
            (found,) = decoder.score(decoder.prefill(padded, source), [ids])
        return self._compare_signals(found.signals, *self.reference(inputs, sources, [ids]))

    def _scored(self, response: str) -> list[Candidate]:
        return list(self.engine.score(messages=self.asked.messages(), responses=[response]))

    def _compare_signals(
        self, ours: NDArray[Any], theirs: dict[str, NDArray[Any]]
    ) -> dict[str, float]:
        return {
            name: _difference(row, theirs[name]) for name, row in zip(SIGNALS, ours, strict=True)
        }

    def interleaved(self) -> dict[str, float]:
        other = Conversation.of(picture(1), LONGER)
        decoder = self.engine.decoder
        (ids,) = [c.token_ids.tolist() for c in self._scored(RESPONSES[1])]
        with self.engine.lock:
            first = decoder.prefill(*self.engine.inputs(self.asked))
            second = decoder.prefill(*self.engine.inputs(other))
            decoder.score(second, [ids])
            (found,) = decoder.score(first, [ids])
        return self._compare_signals(
            found.signals, *self.reference(*self.prompt(self.asked), [ids])
        )

    def video(self) -> dict[str, float]:
        if "video" not in self.engine.prompter.media_tokens:
            raise _NotApplicable("this model takes no videos")
        parts = [
            {"type": "video", "video": [picture() for _ in range(4)]},
            {"type": "text", "text": QUESTION},
        ]
        return self.optional(Conversation.from_messages([{"role": "user", "content": parts}]))

    def optional(self, conversation: Conversation) -> dict[str, float]:
        """As `given`, for a conversation that a processor or template may refuse."""
        try:
            self.engine.inputs(conversation)
        except Exception as error:  # whatever a processor raises: nothing was computed yet
            raise _NotApplicable(f"no prompt can be made of it here: {error}") from error
        return self.given(conversation)

    def undisturbed(self) -> dict[str, float]:
        plain, disturbed = (self._loop(calls) for calls in (False, True))
        return {"log_prob": _difference(disturbed, plain)}

    def _loop(self, calls: bool) -> NDArray[Any]:
        """Return log p of a few tokens by a plain loop over the model."""
        inputs, _ = self.engine.inputs(self.asked)
        found, ids = [], [7, 8, 9, 10]
        with torch.no_grad():
            out = self.model(**inputs, use_cache=True)
            for token in ids:
                found.append(out.logits[0, -1].float().log_softmax(-1).cpu().numpy())
                if calls:
                    other = Conversation.of(picture(1), LONGER)
                    self.engine.score(messages=other.messages(), responses=[RESPONSES[0]])
                step = torch.tensor([[token]], device=inputs["input_ids"].device)
                out = self.model(
                    input_ids=step, past_key_values=out.past_key_values, use_cache=True
                )
        return np.stack(found)

    # The reference.

    def compare(self, conversation: Conversation, found: Sequence[Candidate]) -> dict[str, float]:
        """Return the largest difference of each signal over some candidates."""
        inputs, source = self.prompt(conversation)
        theirs = [
            reference
            for one in found
            for reference in self.reference(inputs, source, [one.token_ids.tolist()])
        ]
        return self._differences(found, theirs)

    def _differences(
        self, found: Sequence[Candidate], theirs: Sequence[dict[str, NDArray[Any]]]
    ) -> dict[str, float]:
        pairs = [(a, b) for a, b in zip(found, theirs, strict=True) if len(a.signals)]
        return {
            name: max(_difference(getattr(a, name), b[name]) for a, b in pairs)
            for name in (SIGNALS if pairs else ())
        }

    def prompt(self, conversation: Conversation) -> tuple[dict[str, Any], torch.Tensor]:
        """Return the model's inputs, and which of its tokens are the source, (1, P)."""
        inputs, _ = self.engine.inputs(conversation)
        ids = inputs["input_ids"][0].tolist()
        return inputs, source_mask(self.engine.prompter, conversation, ids)[None]

    def reference(
        self, inputs: dict[str, Any], sources: torch.Tensor, responses: Sequence[Sequence[int]]
    ) -> list[dict[str, NDArray[Any]]]:
        """Return the signals of responses, one per prompt, from the model's own generate."""
        with self.engine.lock:
            return slow_signals(self.model, inputs, sources, responses)

    # Speed.

    def _speed(self, n: int = 4, steps: int = 16) -> tuple[dict[str, float], int]:
        """Return tokens per second of a small sample, with the tap and without it (the best of
        three), and its peak memory."""
        inputs, mask = self.engine.inputs(self.asked)

        def draw(decoder: Decoder, prefix: Prefix) -> None:
            decoder.sample(
                prefix, n, temperature=1.0, top_p=1.0, top_k=None,
                max_new_tokens=steps, seed=0, end_tokens=[],
            )  # fmt: skip

        found = {}
        for name, tap in (("with the tap", True), ("without it", False)):
            decoder = Decoder(self.model, tap=tap)
            prefix = decoder.prefill(inputs, mask)
            times = []
            for _ in range(3):
                began = time.perf_counter()
                draw(decoder, prefix)
                times.append(time.perf_counter() - began)
            found[name] = n * steps / min(times)
        decoder = Decoder(self.model)
        with PeakMemory() as memory:
            draw(decoder, decoder.prefill(inputs, mask))
        return found, memory.peak


class _NotApplicable(Exception):
    """A check that does not apply to this model."""


def picture(number: int = 0) -> Image.Image:
    """Draw one of two test pictures."""
    image = Image.new("RGB", (336, 224), (180 - 60 * number, 200, 230))
    pen = ImageDraw.Draw(image)
    pen.ellipse((60 + 90 * number, 40, 160 + 90 * number, 140), fill=(200, 40 + 90 * number, 40))
    pen.rectangle((200 - 120 * number, 120, 300 - 120 * number, 200), fill=(40, 120, 60))
    # Of another shape, too: a model may keep state of one picture's size for the next.
    return image if number == 0 else image.resize((200, 420))


def _turns() -> Conversation:
    return Conversation.from_messages(
        [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hello."},
            {
                "role": "user",
                "content": [
                    {"type": "image", "image": picture()},
                    {"type": "text", "text": QUESTION},
                ],
            },
        ]
    )


@contextmanager
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def _difference(ours: Any, theirs: Any) -> float:
    """Return the largest difference, relative where above 1."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if a.shape != b.shape:
        return float("inf")
    return float((np.abs(a - b) / np.maximum(1.0, np.abs(b))).max())


def slow_signals(
    model: Any, inputs: dict[str, Any], sources: torch.Tensor, responses: Sequence[Sequence[int]]
) -> list[dict[str, NDArray[Any]]]:
    """Return the signals of responses, one per prompt, and A_t by layer, by forced decoding.

    `model.generate` writes the responses with eager attention and returns its attention maps.

    Args:
        model: the model.
        inputs: of B prompts, as a processor made them.
        sources: (B, P), which tokens of each prompt are the source.
        responses: B lists of token ids.

    Raises:
        FloatingPointError: its own logits are not numbers.
        RuntimeError: its generate writes something else.
    """
    length = max(len(ids) for ids in responses)
    if not length:
        return [_nothing() for _ in responses]
    forced = [[*ids, *[7] * (length - len(ids))] for ids in responses]
    prompt = inputs["input_ids"].shape[1]
    config = copy.deepcopy(model.generation_config)
    config.eos_token_id = None
    with torch.no_grad(), uncompiled(model), _eager(model):
        out = model.generate(
            **inputs,
            generation_config=config,
            prefix_allowed_tokens_fn=lambda row, ids: [forced[row][len(ids) - prompt]],
            max_new_tokens=length,
            do_sample=False,
            output_attentions=True,
            output_logits=True,
            return_dict_in_generate=True,
        )
    if any(step.isnan().any() for step in out.logits):
        # Eager attention of padded prompts, for one, in float64: its softmax is in float32.
        raise FloatingPointError("its own eager attention gives logits that are not numbers")
    if out.sequences[:, prompt:].tolist() != forced:
        raise RuntimeError("its generate() does not write the tokens that it is made to write")
    found = []
    for row, ids in enumerate(responses):
        if not len(ids):
            found.append(_nothing())
            continue
        shares = [
            _shares([m if m is None else m[row] for m in maps], sources[row], prompt + t)
            for t, maps in enumerate(out.attentions[: len(ids)])
        ]
        looked = {
            "visual_lookback": np.array([float(torch.cat(step).mean()) for step in shares]),
            BY_LAYER: np.array([[float(layer.mean()) for layer in step] for step in shares]),
        }
        logits = torch.stack([step[row] for step in out.logits[: len(ids)]])
        found.append(_from_logits(logits, ids) | looked)
    return found


def _nothing() -> dict[str, NDArray[Any]]:
    return {name: np.empty(0) for name in SIGNALS}


def _from_logits(logits: torch.Tensor, ids: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Return log p, self-certainty and entropy of each token, from (T, V), in float64."""
    log_p = logits.double().cpu().log_softmax(-1)
    return {
        "log_prob": log_p.gather(-1, torch.tensor(list(ids))[:, None])[:, 0].numpy(),
        "self_certainty": (-log_p.mean(-1) - float(np.log(log_p.shape[-1]))).numpy(),
        "entropy": -(log_p.exp() * log_p).sum(-1).numpy(),
    }


def _shares(maps: Sequence[Any], source: torch.Tensor, positions: int) -> list[torch.Tensor]:
    """Return the heads' shares (H,) of one step in each layer, from its map (H, R, K)."""
    shares = []
    for attention in maps:
        if attention is None:  # a layer that does not attend
            continue
        row = attention[:, -1].double().cpu()  # (H, K)
        columns = torch.zeros(positions, dtype=torch.bool)
        columns[: len(source)] = source.cpu()
        # A layer with a window has the newest keys only.
        shares.append(row[:, columns[positions - row.shape[1] :]].sum(-1))
    return shares


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Use eager attention in the decoder, which returns its maps."""
    configs = decoder_configs(model)
    before = [attention_name(config) for config in configs]
    for config in configs:
        set_attention_name(config, "eager")
    try:
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            set_attention_name(config, name)


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of tensors that operations inside the block make while they are alive.

    Scratch memory of a kernel, freed before it returns, is not counted. `peak`: in bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._now = 0
        self._alive: dict[int, int] = {}  # storage to bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        inputs = {_storage(leaf) for leaf in tree_iter((args, kwargs)) if isinstance(leaf, Tensor)}
        out = func(*args, **(kwargs or {}))
        for leaf in tree_iter(out):
            if isinstance(leaf, Tensor) and _storage(leaf) not in inputs:
                self._count(leaf)
        return out

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        place = storage._cdata
        if place in self._alive:
            return
        self._alive[place] = storage.nbytes()
        self._now += storage.nbytes()
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._free, place)

    def _free(self, place: int) -> None:
        self._now -= self._alive.pop(place, 0)


def _storage(tensor: Tensor) -> int:
    place: int = tensor.untyped_storage()._cdata
    return place
