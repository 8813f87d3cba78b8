"""An item with made-up answers, for tests of the demo that need no model."""

import numpy as np
from PIL import Image

from lookback.benchmarks.base import Item
from lookback.demo.asked import Asked
from lookback.demo.measured import Measured
from lookback.signals import Candidate, Candidates, Signals

SAID = [
    (" A red cup.", 1.0, ()),
    (" A blue flag and a red cup.", 0.5, ((8, 12),)),
    (" A red cup.", 1.0, ()),
    (" No.", 0.0, ()),
    (" A cup, a red cup and, in the very middle of the picture, one more cup of red.", 1.0, ()),
    ("", 0.0, ()),
]
"""Text, quality, and what is wrong in it: "flag"."""


MEASURED = Measured(
    25,
    250,
    {
        f"scenes-{task}": {
            "lookback": (69.33 + more, 66.6, 72.0),
            "self_certainty": (59.64, 56.7, 62.7 + more),
            "mean_log_prob": (66.94, 64.1, 69.8),
            "random": (59.59, 58.0, 61.2),
        }
        for more, task in enumerate(("vqa", "caption", "pairs", "amber"))
    },
    (88, 67),
)


def make_asked(said=SAID, image=True, seed=0, question="What is there?"):
    """Signals by lot; equal answers have equal ones, as they have from a model."""
    made = {text: _signals(np.random.default_rng([seed, len(text)]), text) for text, _, _ in said}
    items = [Candidate(i, text.strip(), made[text]) for i, (text, _, _) in enumerate(said)]
    cands = Candidates(
        tuple(items), question, np.arange(3), "m", defaults={"alpha": 0.5, "lam": 2.0}
    )
    picture = Image.effect_noise((80, 80), 60).convert("RGB")
    item = Item("made/test/0", question, {}, (lambda: picture) if image else None)
    _, quality, wrong = zip(*said, strict=True)
    return Asked("made", "1 if right", item, cands, quality, wrong, seed)


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
