"""The names of the package's own scorers, by the module that has them: known without any import."""

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
    "consensus": ("consensus",),
    "votes": ("majority", "self_certainty_borda"),
    "bounds": ("random", "oracle"),
    "visual": ("clipscore", "visual_gain", "vauq"),
    "judges": ("usc", "judge"),
}
HOMES = {name: f"lookback.scores.{module}" for module, names in MODULES.items() for name in names}
"""From each name to the module that registers it."""
