"""A second engine, without torch: what it says follows from the images, the question and the seed.

It keeps the contract of `lookback.engines` (tests/engines/contract.py) and registers as "toy", so
that `lookback --plugin tests/toy_engine.py run --engine toy ...` works.
"""

import time
import zlib
from dataclasses import asdict, fields, replace

import numpy as np

import lookback
from lookback.engines import ABILITIES, Engine, Identity
from lookback.engines.common.options import RecordOptions, check_top
from lookback.families import Family
from lookback.io.json_values import check_text
from lookback.looks.look import Look, Picture
from lookback.signals import PRUNED, SIGNALS, WRITING, Asked, Candidate, Candidates, Signals, Top
from lookback.steering.pruning import pruned_at

WORDS = (" red", " blue", " dog", " yes", " no", " two", " left", " cup")
END = len(WORDS)
LAYERS = 3
PLACES = 4
BOXES = np.array([[x, y, x + 0.5, y + 0.5] for y in (0, 0.5) for x in (0, 0.5)])
GRID = np.arange(PLACES).reshape(2, 2)
PLAIN = RecordOptions()


class ToyEngine(Engine):
    name = "toy"
    family = Family("toy", alpha=0.5, lam=1.25, vauq_k=0.4, clip="embedded")

    def __init__(self, abilities=frozenset(ABILITIES) - {"check", "search"}):
        self.abilities = abilities
        self.sampled = []  # the questions and settings that it was asked with

    def identity(self):
        return Identity("toy", "toy", "ToyEngine", dtype="float64", versions={"toy": "1"})

    def _sample(self, request):
        options, record, rule = request.options, request.record, request.steering
        check_top(record.top_log_probs, END + 1)
        settings = asdict(options) | {"stop": options.stop or None}
        self.sampled.append((request.conversation.question, settings))
        drawn = []
        for index in range(options.n):
            rng = np.random.default_rng([options.seed, index])
            length = int(rng.integers(0, min(6, options.max_new_tokens + 1)))
            ids = rng.integers(0, len(WORDS) if options.temperature else 1, length).tolist()
            drawn.append([*ids, END] if record.keep_end else ids)
            if record.progress:
                record.progress(index + 1, options.n)
        found = self._made(request, drawn, "end", settings, None, record)
        found = found if rule is None else _pruned(found, rule, record.keep_end)
        if record.listen is not None:
            _tell(found, record.listen)
        return found

    def _score(self, request):
        end = [END] if request.record.keep_end else []
        ids = [[*self._ids(i, one), *end] for i, one in enumerate(request.responses)]
        if request.record.progress:
            request.record.progress(len(ids), len(ids))
        texts = [one if isinstance(one, str) else None for one in request.responses]
        return self._made(request, ids, "given", {}, texts, request.record)

    def _knockout(self, request):
        request.conversation.source(request.source)
        ids = [self._ids(i, one) for i, one in enumerate(request.responses)]
        blind = request.conversation.with_images(None)
        if request.rows == "all":  # the question is then another one too
            blind = blind.with_question(f"{blind.question} (unseen)")
        found = self._made(replace(request, conversation=blind, source="none"), ids, "given", {})
        if request.progress:
            request.progress(len(ids), len(ids))
        return found

    def _look(self, request):
        """Two by two places per image; what is paid to all is dealt out to them by lot."""
        conversation, response = request.conversation, request.response
        chosen = sorted(conversation.source(request.source).images)
        first, last = request.layers or (0, LAYERS)
        if not chosen or not 0 <= first < last <= LAYERS:
            raise ValueError(f"layers {first}-{last} of {LAYERS}, images {chosen}: no source")
        ids = self._ids(0, response)
        text = [response] if isinstance(response, str) else None
        (one,) = self._made(request, [ids], "given", {}, text, RecordOptions(by_layer=True))
        if request.progress:
            request.progress(len(ids), len(ids))
        rows = []
        for layer in range(first, last):
            rng = np.random.default_rng([layer, len(ids), *ids])
            dealt = rng.dirichlet(np.ones(PLACES * len(chosen)), len(ids))
            rows.append(one.by_layer[:, layer, None] * dealt)
        baseline = None
        if request.relative_to is not None:
            other = conversation.with_question(request.relative_to)
            again = replace(request, conversation=other, response=ids, relative_to=None)
            baseline = self._look(replace(again, progress=None)).weights
        places = np.arange(PLACES)
        pictures = [
            Picture(f"image:{i}", conversation.images[i], k * PLACES + places, BOXES, (GRID,))
            for k, i in enumerate(chosen)
        ]
        tokens = one.tokens
        return Look(
            one.text, one.token_ids, tokens, np.mean(rows, 0), pictures, (first, last), baseline
        )

    def _generate(self, request):
        asked = [conversation.question for conversation in request.conversations]
        return [f"The most consistent response is Response {len(p) % 3}" for p in asked]

    def _ids(self, i, response):
        if isinstance(response, str):
            if not check_text(response, f"response {i}").strip():
                raise ValueError(f"response {i}: it is empty")
            known = [WORDS.index(f" {w}") for w in response.split() if f" {w}" in WORDS]
            return known or [len(response) % len(WORDS)]
        ids = response.token_ids if isinstance(response, Candidate) else response
        if not len(ids):
            raise ValueError(f"response {i} is empty: there is nothing to score")
        for token in ids:
            if not 0 <= token <= END:
                raise ValueError(f"response {i}: token id {token} is outside the vocabulary")
        return [int(token) for token in ids]

    def _made(self, request, drawn, finish, sampling, texts=None, record=PLAIN):
        conversation, source = request.conversation, request.source
        by_layer, top = record.by_layer, record.top_log_probs
        seen = conversation.source(source)
        images = conversation.images
        asked = _number(conversation.transcript.encode(), *(one.tobytes() for one in images))
        look = _number(
            str(sorted(seen.texts)).encode(), *(images[i].tobytes() for i in seen.images)
        )
        items = []
        for index, ids in enumerate(drawn):
            rng = np.random.default_rng([asked, len(ids), *ids])
            looked = np.random.default_rng([look, asked, len(ids), *ids])
            layers = looked.uniform(0.1, 0.9, (len(ids), LAYERS)).astype(np.float32)
            layers = layers if seen else np.zeros_like(layers)
            signals = Signals(
                np.array(ids, dtype=np.int64),
                [(*WORDS, "<end>")[i] for i in ids],
                log_prob=-rng.exponential(size=len(ids)),
                visual_lookback=layers.mean(1),
                self_certainty=rng.exponential(size=len(ids)),
                entropy=rng.exponential(size=len(ids)),
                by_layer=layers if by_layer else None,
            )
            if top:
                signals = replace(signals, top=_top(signals, top))
            text = texts[index] if texts else None
            text = "".join(signals.tokens).removesuffix("<end>").strip() if text is None else text
            items.append(Candidate(index, text, signals, finish))
        return Candidates(
            tuple(items),
            conversation.question,
            np.arange(3),
            "toy",
            self.family.defaults,
            sampling,
            conversation.to_json(),
            source,
            Asked(self, conversation),
        )


def _pruned(found, rule, keep_end):
    """What is left of a whole draw: a toy need not save work."""
    signals = [np.stack([getattr(c, name) for name in SIGNALS]) for c in found]
    ends = pruned_at(rule, signals, [len(c.tokens) + (not keep_end) for c in found])
    sampling = {**found.sampling, "prune": rule.to_json()}
    return replace(found, items=tuple(map(_cut, found, ends)), sampling=sampling)


def _cut(candidate, length, finish=PRUNED):
    if length is None:
        return candidate
    parts = {f.name: getattr(candidate.signals, f.name) for f in fields(Signals)}
    top = parts.pop("top")
    if top is not None:
        top = Top(top.token_ids[:length], top.tokens[:length], top.log_prob[:length])
    short = Signals(**{k: None if v is None else v[:length] for k, v in parts.items()}, top=top)
    text = "".join(short.tokens).removesuffix("<end>").strip()
    return replace(candidate, signals=short, text=text, finish=finish)


def _tell(found, listen):
    """Tell of them word by word, and of all that changed at the end."""
    told, at = {}, time.monotonic() + listen.every
    for length in range(1, max(len(c.tokens) for c in found) + 1):
        if time.monotonic() >= at:
            new = [c if length > len(c.tokens) else _cut(c, length, WRITING) for c in found]
            listen.hear([c for c in new if told.get(c.index) != (len(c.tokens), c.finish)])
            told = {c.index: (len(c.tokens), c.finish) for c in new}
            at = time.monotonic() + listen.every
    listen.hear([c for c in found if told.get(c.index) != (len(c.tokens), c.finish)])


def _top(signals, count):
    """The word that was said has its own probability; all others share the rest by halves."""
    rows = []
    for token, log_prob in zip(signals.token_ids.tolist(), signals.log_prob, strict=True):
        others = [i for i in range(END + 1) if i != token]
        rest = np.log(-np.expm1(min(log_prob, -1e-6)) / 2 ** np.arange(1.0, len(others) + 1))
        row = sorted([(-log_prob, token), *zip(-rest, others, strict=True)])[:count]
        rows.append([(token, -value) for value, token in row])
    ids = np.array([[token for token, _ in row] for row in rows], np.int64).reshape(-1, count)
    log_prob = np.array([[value for _, value in row] for row in rows]).reshape(-1, count)
    return Top(ids, [tuple((*WORDS, "<end>")[i] for i in row) for row in ids], log_prob)


def _number(*parts):
    return zlib.crc32(b"|".join(parts))


@lookback.engine("toy")
def load(model=None, processor=None):
    """An engine for tests that needs no model."""
    return ToyEngine()
