"""What a reward does to the embedded model: 50 steps of GRPO on Scenes, measured before and after.

`make grpo`: for each task and each reward a policy is trained (TRL's GRPOTrainer) and then measured
on held-out scenes, as the untrained model is. The rewards: LookBack by a frozen copy of the model
and by the policy itself, mean log p by a frozen copy, and, as one that can be verified, the task's
own quality. Stopped at any point, the same command goes on where it was. With --docs the table
between <!-- grpo --> and <!-- /grpo --> of a page is replaced.
"""

import argparse
import copy
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lookback.benchmarks import get_benchmark
from lookback.benchmarks.base import Benchmark, Item
from lookback.engines.transformers import TransformersEngine, load
from lookback.integrations.trl import reward
from tools.grpo_table import table
from tools.reproduce import update

TASKS = ("scenes-vqa", "scenes-caption")
REWARDS = ("before", "lookback", "lookback-policy", "mean_log_prob", "quality")
"""Who trains, in the order of the table; "before" is no training."""
MEASURED = ("quality", "greedy", "tokens", "distinct", "visual_lookback", "log_prob", "lookback")
"""A number per item: see `measure`."""
NEEDED = "this needs TRL: make grpo, or pip install 'trl==1.16.*' datasets"


@dataclass(frozen=True)
class Setting:
    """What a result depends on, beside the task and the reward.

    Attributes:
        steps: of GRPO.
        prompts: scenes per step.
        generations: completions per scene.
        rate: the learning rate.
        items: held-out scenes that are measured.
        n: answers to each, at temperature 1, as in training.
        max_new_tokens: the longest completion.
        seed: of training and measuring.
    """

    steps: int = 50
    prompts: int = 4
    generations: int = 8
    rate: float = 1e-4
    items: int = 100
    n: int = 8
    max_new_tokens: int = 96
    seed: int = 42


def reward_of(name: str, frozen: TransformersEngine, policy: Any, task: Benchmark) -> Any:
    """The reward function of that name; "quality" reads the number of the scene from a column."""
    if name == "lookback-policy":
        return reward(load(policy, frozen.processor, quiet=True), "lookback")
    if name != "quality":
        return reward(frozen, name)
    scenes = task.items("train")

    def quality(completions: Sequence[Any], scene: Sequence[int], **_: Any) -> list[float]:
        texts = [one[0]["content"] for one in completions]
        return [task.score(scenes[i], text) for i, text in zip(scene, texts, strict=True)]

    return quality


def train(name: str, frozen: TransformersEngine, task: Benchmark, how: Setting) -> Any:
    """A policy after training: a copy of the frozen model."""
    try:
        from datasets import Dataset, Features, Image, Value
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        raise SystemExit(f"{NEEDED} ({error})") from error
    scenes = task.items("train", how.steps * how.prompts)
    rows = [
        {"prompt": [{"role": "user", "content": one.question}], "image": one.image, "scene": i}
        for i, one in enumerate(scenes)
    ]
    turn = {"role": Value("string"), "content": Value("string")}
    kinds = Features({"prompt": [turn], "image": Image(), "scene": Value("int64")})
    policy = copy.deepcopy(frozen.model)
    settings = GRPOConfig(
        output_dir="build/grpo/trainer",
        per_device_train_batch_size=how.prompts * how.generations,
        num_generations=how.generations,
        max_steps=how.steps,
        max_completion_length=how.max_new_tokens,
        learning_rate=how.rate,
        lr_scheduler_type="constant",
        seed=how.seed,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_steps=10,
    )
    trainer = GRPOTrainer(
        model=policy,
        reward_funcs=reward_of(name, frozen, policy, task),
        args=settings,
        train_dataset=Dataset.from_list(rows, features=kinds),
        processing_class=frozen.processor,
    )
    trainer.train()
    return policy.eval()


def measure(
    engine: TransformersEngine, frozen: TransformersEngine, task: Benchmark, how: Setting
) -> dict[str, list[float]]:
    """What an engine says of held-out scenes: the mean over its n answers, for each scene.

    `quality` and `greedy`: by the task's own measure, of drawn answers and of the likeliest one;
    `tokens`: how long; `distinct`: the share of different texts; `visual_lookback` and `log_prob`:
    A_t and log p, by the engine itself, mean over tokens; `lookback`: the score that the frozen
    model gives.
    """
    found: dict[str, list[float]] = {name: [] for name in MEASURED}
    for item in task.items("test", how.items):
        for name, value in _measure_item(engine, frozen, task, item, how).items():
            found[name].append(value)
    return found


def _measure_item(
    engine: TransformersEngine,
    frozen: TransformersEngine,
    task: Benchmark,
    item: Item,
    how: Setting,
) -> dict[str, float]:
    image, asked = item.image, item.question
    longest = how.max_new_tokens
    drawn = engine.sample(
        image, asked, how.n, temperature=1.0, top_p=1.0, max_new_tokens=longest, seed=how.seed
    )
    likeliest = engine.sample(image, asked, 1, temperature=0.0, max_new_tokens=longest)[0].text
    said = [one for one in drawn if one.scorable]
    judged = frozen.score(image, asked, [one.token_ids.tolist() for one in said]) if said else None
    return {
        "quality": float(np.mean(task.scores(item, [one.text for one in drawn]))),
        "greedy": task.score(item, likeliest),
        "tokens": float(np.mean([len(one.token_ids) for one in drawn])),
        "distinct": len({one.text for one in drawn}) / how.n,
        "visual_lookback": _mean([one.visual_lookback.mean() for one in said]),
        "log_prob": _mean([one.log_prob.mean() for one in said]),
        "lookback": _mean([] if judged is None else judged.scores("lookback").tolist()),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def result_of(
    task: str, name: str, frozen: TransformersEngine, how: Setting, out: Path
) -> dict[str, Any]:
    """One policy's numbers, from disk if they are there for this setting and these weights."""
    made_with = {**dataclasses.asdict(how), "weights": frozen.identity().weights}
    file = out / f"{task}-{name}.json"
    if file.exists():
        known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if known["made_with"] == made_with:
            return known
    began = time.monotonic()
    _say(f"{task}, {name}: {'measuring' if name == 'before' else f'{how.steps} steps'} ...")
    benchmark = get_benchmark(task)
    engine = frozen
    if name != "before":
        engine = load(train(name, frozen, benchmark, how), frozen.processor, quiet=True)
    values = measure(engine, frozen, benchmark, how)
    found = {"task": task, "reward": name, "made_with": made_with, "values": values}
    file.write_text(json.dumps(found) + "\n", encoding="utf-8")
    _say(f"{task}, {name}: {time.monotonic() - began:.0f} s")
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Train and measure all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", action="append", choices=TASKS, help="one or several; both")
    parser.add_argument("--reward", action="append", choices=REWARDS[1:], help="by default all")
    for one in dataclasses.fields(Setting):
        kind: Callable[[str], Any] = float if one.name == "rate" else int
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=kind, default=one.default)
    parser.add_argument("--out", type=Path, default=Path("build/grpo"), help="what is kept")
    parser.add_argument("--docs", type=Path, help="a Markdown file whose table to replace")
    parser.add_argument("--json", action="store_true", help="all numbers, for machines")
    given = vars(parser.parse_args())
    how = Setting(**{one.name: given[one.name] for one in dataclasses.fields(Setting)})
    out: Path = given["out"]
    out.mkdir(parents=True, exist_ok=True)
    frozen = load(quiet=True)
    names = ["before", *(given["reward"] or REWARDS[1:])]
    results = [
        result_of(task, name, frozen, how, out) for task in given["task"] or TASKS for name in names
    ]
    text = table(results)
    (out / "grpo.md").write_text(text, encoding="utf-8")
    print(json.dumps(results) if given["json"] else text)
    if given["docs"]:
        update(given["docs"], out, ["grpo"])


if __name__ == "__main__":
    main()
