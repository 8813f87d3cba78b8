"""The table of docs/trl.md: what each reward of `tools.grpo` did to the embedded model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lookback.benchmarks import get_benchmark
from lookback.studies.common.selection import bootstrap_means, interval

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
WEAK = (
    " The task's own quality did not clearly raise it either: so short a training shows what a "
    "reward does to the answers, not which reward is the better one."
)


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
    words = [findings(task, values, results) for task, values in before.items()]
    return "\n".join([*lines, "", *words, "", about(results[0]["made_with"])]) + "\n"


def gains(after: dict[str, list[float]], before: dict[str, list[float]]) -> tuple[float, ...]:
    """By how many points quality changed, and its 95 % interval over scenes."""
    gain = 100 * (np.array(after["quality"]) - np.array(before["quality"]))
    return float(gain.mean()), *interval(bootstrap_means(gain))


def change(after: dict[str, list[float]], before: dict[str, list[float]]) -> str:
    """The same as a cell."""
    mean, low, high = gains(after, before)
    return f"{mean:+.1f} [{low:.1f}, {high:.1f}]"


def findings(task: str, before: dict[str, list[float]], results: Sequence[dict[str, Any]]) -> str:
    """A task's rows in words: where quality rose or fell clearly, and what happened beside it."""
    trained = [one for one in results if one["task"] == task and one["reward"] != "before"]
    kinds: dict[str, list[str]] = {"rose": [], "fell": [], "did not clearly change": []}
    for one in trained:
        _, low, high = gains(one["values"], before)
        kind = "rose" if low > 0 else "fell" if high < 0 else "did not clearly change"
        kinds[kind].append(TITLES[one["reward"]])
    said = "; ".join(f"{kind} by {', by '.join(names)}" for kind, names in kinds.items() if names)
    fewer, shorter, higher = (
        sum(
            sign * np.nanmean(one["values"][name]) < sign * np.nanmean(before[name])
            for one in trained
        )
        for name, sign in (("distinct", 1), ("tokens", 1), ("lookback", -1))
    )
    return (
        f"- {get_benchmark(task).title}: quality {said}. Of {len(trained)} trainings {fewer} made "
        f"answers to one scene more alike, {shorter} made them shorter, and {higher} raised what "
        f"the frozen model's LookBack gives.{'' if TITLES['quality'] in kinds['rose'] else WEAK}"
    )


def about(made_with: dict[str, Any]) -> str:
    """What the numbers were made with, in a sentence or two."""
    return (
        f"{made_with['steps']} steps of {made_with['prompts']} scenes with "
        f"{made_with['generations']} completions each, learning rate {made_with['rate']:g}, seed "
        f"{made_with['seed']}; measured on {made_with['items']} held-out scenes with "
        f"{made_with['n']} answers each, temperature 1. One seed: the intervals are over scenes, "
        "not over trainings."
    )
