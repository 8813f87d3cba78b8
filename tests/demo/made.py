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
            "consensus": (70.04, 67.1, 72.8),
            "greedy": (68.04, 65.1, 70.7),
            "random": (59.59, 58.0, 61.2),
        }
        for more, task in enumerate(("vqa", "caption", "pairs", "amber"))
    },
    {
        "scenes-vqa": (9.74, 8.0, 11.5),
        "scenes-caption": (0.21, -1.3, 1.6),
        "scenes-pairs": (11.74, 9.0, 13.5),
        "scenes-amber": (12.74, 10.0, 14.5),
    },
    {
        "mean_log_prob": (0.24, -0.3, 0.8),
        "consensus": (-2.19, -3.5, -0.8),
        "greedy": (0.5, -1.6, 2.4),
        "self_certainty": (12.74, 10.4, 15.2),
        "random": (9.15, 7.8, 10.4),
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
    return Asked("made", "1 if right", item, cands, quality, lambda: ("A cup.", 0.5), wrong, seed)


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
