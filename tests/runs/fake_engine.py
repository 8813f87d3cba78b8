"""An engine without a model: what it says follows from the image, the question and the seed."""

import types
import zlib

import numpy as np

from lookback.families import Family
from lookback.signals import Asked, Candidate, Candidates, Signals

WORDS = (" red", " blue", " dog", " yes", " no", " two", " left")


class FakeEngine:
    name = "fake"
    family = Family("fake", alpha=0.5, lam=1.25)
    processor = object()
    model = types.SimpleNamespace(
        config=types.SimpleNamespace(),
        name_or_path="",
        dtype="torch.float32",
        device=types.SimpleNamespace(type="cpu"),
    )

    def __init__(self):
        self.sampled = []

    def sample(self, image, question, n, *, seed, max_new_tokens, **settings):
        self.sampled.append(question)
        drawn = []
        for index in range(n):
            rng = np.random.default_rng([seed, index])
            length = int(rng.integers(0, min(6, max_new_tokens)))
            drawn.append(rng.integers(0, len(WORDS), length).tolist())
        return self._made(image, question, drawn)

    def score(self, image, question, responses):
        ids = [
            r.token_ids.tolist() if isinstance(r, Candidate) else [len(r) % len(WORDS)]
            for r in responses
        ]
        return self._made(image, question, ids)

    def knockout(self, image, question, responses, *, layers=None, share=None):
        return self._made(None, question, [c.token_ids.tolist() for c in responses])

    def ask(self, image, prompts, **settings):
        return [f"The most consistent response is Response {len(p) % 3}" for p in prompts]

    def _made(self, image, question, drawn):
        look = zlib.crc32(b"" if image is None else image.tobytes())
        items = []
        for index, ids in enumerate(drawn):
            rng = np.random.default_rng([look, len(ids), *ids])
            a = np.zeros(len(ids)) if image is None else rng.uniform(0.1, 0.9, len(ids))
            signals = Signals(
                np.array(ids, dtype=np.int64),
                [WORDS[i] for i in ids],
                log_prob=-rng.exponential(size=len(ids)),
                lookback=a,
                self_certainty=rng.exponential(size=len(ids)),
                entropy=rng.exponential(size=len(ids)),
            )
            items.append(Candidate(index, "".join(signals.tokens).strip(), signals, "end"))
        defaults = {"alpha": 0.5, "lam": 1.25}
        return Candidates(
            tuple(items), question, np.arange(3), "fake", defaults, asked=Asked(self, image)
        )
