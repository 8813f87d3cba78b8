"""The table of docs/trl.md: what each reward of `tools.grpo` did to the embedded model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.benchmarks import get_benchmark
from lookback.studies.shared.selection import bootstrap_means, interval

TITLES = {
    "before": "none (before)",
    "lookback": "LookBack, frozen model",
    "lookback-policy": "LookBack, the policy itself",
    "mean_log_prob": "mean log p, frozen model",
    "quality": "the task's own quality",
}
COLUMNS = {
    "tokens": ("tokens", "{:.1f}"),
    "distinct": ("different", "{:.0%}"),
    "visual_lookback": ("A_t", "{:.3f}"),
    "log_prob": ("log p", "{:.2f}"),
    "lookback": ("LookBack, frozen", "{:.2f}"),
}
"""What is shown beside quality: its title and how it is written."""


def table(results: Sequence[dict[str, Any]]) -> str:
    """A row per task and reward; changes of quality against the row "before", paired by scene.

    Args:
        results: as `tools.grpo.result_of` gives them, a task's "before" among them.
    """
    heads = ["Task", "Reward", "Quality, %", "change", "Greedy, %"]
    heads += [title for title, _ in COLUMNS.values()]
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
    before = {one["task"]: one["values"] for one in results if one["reward"] == "before"}
    for one in results:
        values = one["values"]
        cells = [get_benchmark(one["task"]).title, TITLES[one["reward"]]]
        cells += [f"{100 * np.mean(values['quality']):.1f}"]
        cells += ["" if one["reward"] == "before" else change(values, before[one["task"]])]
        cells += [f"{100 * np.mean(values['greedy']):.1f}"]
        cells += [how.format(np.nanmean(values[name])) for name, (_, how) in COLUMNS.items()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + f"\n\n{about(results[0]['made_with'])}\n"


def change(after: dict[str, list[float]], before: dict[str, list[float]]) -> str:
    """By how many points quality changed, with its 95 % interval over scenes."""
    gain = 100 * (np.array(after["quality"]) - np.array(before["quality"]))
    low, high = interval(bootstrap_means(gain))
    return f"{gain.mean():+.1f} [{low:.1f}, {high:.1f}]"


def about(made_with: dict[str, Any]) -> str:
    """What the numbers were made with, in a sentence or two."""
    return (
        f"{made_with['steps']} steps of {made_with['prompts']} scenes with "
        f"{made_with['generations']} completions each, learning rate {made_with['rate']:g}, seed "
        f"{made_with['seed']}; measured on {made_with['items']} held-out scenes with "
        f"{made_with['n']} answers each, temperature 1. One seed: the intervals are over scenes, "
        "not over trainings."
    )
