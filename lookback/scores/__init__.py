"""Scores: what each response is worth. Scorers by subject, all behind one registry.

Only the names of the package's own scorers are here, so that help and shell completion can list
them without importing anything; `base` has the registry, `formula` the paper's equations.
"""

from __future__ import annotations

MODULES = {
    "likelihood": (
        "lookback",
        "mean_log_prob",
        "sum_log_prob",
        "perplexity",
        "self_certainty",
        "entropy",
        "visual_lookback",
    ),
    "texts": ("consensus", "majority", "self_certainty_borda", "random", "oracle"),
    "visual": ("clipscore", "visual_gain", "vauq"),
    "judges": ("usc", "judge"),
}
HOMES = {name: f"lookback.scores.{module}" for module, names in MODULES.items() for name in names}
"""The module that registers each scorer, in the order in which lists show them."""
