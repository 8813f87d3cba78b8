"""An item with made-up answers, for tests of the demo that need no model."""

import numpy as np
from PIL import Image

from lookback.benchmarks.base import Item
from lookback.cli.demo import Asked
from lookback.signals import Candidate, Candidates, Signals

SAID = [
    (" A red cup.", 1.0),
    (" A blue flag and a red cup.", 0.5),
    (" A red cup.", 1.0),
    (" No.", 0.0),
    (" A cup, a red cup and, in the very middle of the picture, one more cup of red.", 1.0),
    ("", 0.0),
]
"""Text and quality."""


def make_asked(said=SAID, image=True, seed=0, question="What is there?"):
    """Signals by lot; equal answers have equal ones, as they have from a model."""
    made = {text: _signals(np.random.default_rng([seed, len(text)]), text) for text, _ in said}
    items = [Candidate(i, text.strip(), made[text]) for i, (text, _) in enumerate(said)]
    cands = Candidates(
        tuple(items), question, np.arange(3), "m", defaults={"alpha": 0.5, "lam": 2.0}
    )
    picture = Image.effect_noise((80, 80), 60).convert("RGB")
    item = Item("made/test/0", question, {}, (lambda: picture) if image else None)
    return Asked(item, cands, [quality for _, quality in said])


def _signals(rng, text):
    tokens = [f" {word}" for word in text.split()]
    return Signals(
        np.arange(len(tokens)),
        tokens,
        log_prob=-rng.exponential(size=len(tokens)),
        visual_lookback=rng.uniform(0.2, 0.9, len(tokens)),
        self_certainty=rng.exponential(size=len(tokens)),
        entropy=rng.exponential(size=len(tokens)),
    )
