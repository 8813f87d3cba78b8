"""The embedded LVLM: choose alpha and lambda, and what its answers are like.

`make evaluate-embedded`: runs on held-out items of the four Scenes tasks. alpha and lambda are
chosen on `tune` alone, from the paper's grid; the model's own setting stays unless another is
clearly better there (95 % interval of the paired difference). What LookBack adds to the model is
the matter of `make reproduce`, on `test`; here is what no study has: answers by the kind of
question, A_t and length, and the dual encoder. A run that is there already is not made again.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from rich.progress import Progress, TaskID

from lookback.benchmarks.base import GENERATED
from lookback.embedded import LVLM
from lookback.engines.common.model_files import fingerprint
from lookback.runs import Run
from lookback.runs.plan import Plan
from lookback.runs.start import start
from lookback.scores.formula import ALPHAS, LAMBDAS
from lookback.studies.common.selection import bootstrap_means, interval, outcome, sweep
from lookback.studies.common.words import SETS, find_words, sample_responses, word_means, z_scores

BUDGETS = (5, 25)


def make_runs(split: str, items: int, folder: Path, model: Path = LVLM) -> dict[str, Run]:
    """25 answers each to the first items of a split, two processes, a run per task."""
    name = None if model == LVLM else str(model)
    found = {}
    with Progress(transient=True) as bar:
        for task in GENERATED:
            line = bar.add_task(f"{task} {split}", total=None)
            plan = Plan(task, model=name, split=split, limit=items, max_new_tokens=120)

            def show(done: int, total: int, line: TaskID = line) -> None:
                bar.update(line, completed=done, total=total)

            out = folder / f"{task}-{split}-{items}"
            found[task] = start(plan, out, workers=2, progress=show).run
    return found


def tune(runs: dict[str, Run]) -> dict[str, float | str]:
    """The setting that selects best over all tasks, N = 5 and 25, and its lead over the model's."""
    own = next(iter(runs.values())).defaults
    means = np.mean([sweep(run, ALPHAS, LAMBDAS, BUDGETS) for run in runs.values()], axis=(0, 1))
    a, b = np.unravel_index(means.argmax(), means.shape)
    best = {"alpha": ALPHAS[a], "lam": LAMBDAS[b]}
    leads = [
        outcome(run, "lookback", n, **best) - outcome(run, "lookback", n, **own)
        for run in runs.values()
        for n in BUDGETS
    ]
    # Both N of a task are of the same items: they share a seed.
    draws = [bootstrap_means(100 * lead, seed // len(BUDGETS)) for seed, lead in enumerate(leads)]
    low, high = interval(np.mean(draws, axis=0))
    chosen = best if low > 0 else own
    lead = f"{100 * np.mean([x.mean() for x in leads]):+.2f} [{low:+.2f}, {high:+.2f}]"
    tried = f"{best['alpha']}, {best['lam']}: {lead} points over {own['alpha']}, {own['lam']}"
    within = int((means > means.max() - 0.5).sum())
    return chosen | {"best on tune": tried, "within 0.5 points of it": f"{within} of {means.size}"}


def right(runs: dict[str, Run]) -> dict[str, dict[str, str]]:
    """How many answers are right, by the kind of question and, for yes/no, by how they begin."""
    groups: dict[str, dict[str, list[float]]] = {}
    for task in ("scenes-vqa", "scenes-pairs"):
        run, kinds = runs[task], groups.setdefault(task, {})
        truths = [json.loads(truth) for truth in run.items["truth"].to_pylist()]
        rows = np.repeat(np.arange(len(run.sizes)), run.sizes)
        quality = run.head["quality"].to_pylist()
        for row, text, value in zip(rows, run.texts, quality, strict=True):
            kinds.setdefault(truths[row]["kind"], []).append(value)
            if task == "scenes-pairs":
                first = "what is seen" if ", so " in text else "yes or no"
                kinds.setdefault(f"begins with {first}", []).append(value)
    return {
        task: {k: f"{100 * np.mean(v):.0f} % of {len(v)}" for k, v in kinds.items()}
        for task, kinds in groups.items()
    }


def length_correlation(run: Run) -> float:
    """Between mean A and the number of tokens, within an item, averaged over items."""
    a, lengths = run.scores("visual_lookback"), run.grid(run.lengths.astype(np.float64))
    found = []
    for means, tokens in zip(a, lengths, strict=True):
        known = np.isfinite(means)
        if known.sum() > 1 and np.std(tokens[known]):
            found.append(np.corrcoef(means[known], tokens[known])[0, 1])
    return round(float(np.mean(found)), 2)


def observation(runs: dict[str, Run]) -> dict[str, dict[str, float]]:
    """What the training is chosen by: how far apart A_t keeps words that show and words that join.

    And how good answers are at random, and the best of each item's.
    """
    found = {}
    for task, run in runs.items():
        words = find_words(run, sample_responses(np.flatnonzero(run.lengths > 0), 2000))
        a = word_means(z_scores(run.signal("visual_lookback")[words.tokens]), words.ranges)
        zs = {name: float(a[words.within(tags)].mean()) for name, tags in SETS.items()}
        ends = {m: 100 * float(outcome(run, m, run.n).mean()) for m in ("random", "oracle")}
        found[task] = {name: round(value, 2) for name, value in (zs | ends).items()}
    return found


def retrieval(clip: str, count: int = 200) -> dict[str, float]:
    """How often the dual encoder finds a held-out picture's description among so many, and back."""
    from lookback.engines.dual_encoder import DualEncoder
    from lookback.scenes.render import render
    from lookback.scenes.scene import TEXT, generator, sample_scene, scene_seed
    from tools.training.describe import BRIEF, describe

    encoder = DualEncoder.load(clip)
    seeds = [scene_seed("test", "scenes-caption", i) for i in range(count)]
    scenes = [sample_scene(seed) for seed in seeds]
    texts = [
        describe(scene, generator(seed, TEXT), BRIEF)
        for scene, seed in zip(scenes, seeds, strict=True)
    ]
    pictures = np.stack([encoder.image(render(scene)) for scene in scenes])
    similar = pictures @ encoder.texts(texts).T
    own = np.arange(count)
    return {
        "of": count,
        "image to text": round(100 * float((similar.argmax(1) == own).mean()), 1),
        "text to image": round(100 * float((similar.argmax(0) == own).mean()), 1),
    }


def main() -> None:
    """Runs, the choice, what there is to say; with --write, to the model's config."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tune", type=int, default=150, help="items per task to choose on")
    parser.add_argument("--test", type=int, default=250, help="items per task to describe")
    parser.add_argument("--out", type=Path, default=Path("build/embedded-runs"))
    parser.add_argument("--model", type=Path, default=LVLM, help="another training of it")
    parser.add_argument("--write", action="store_true", help="the chosen setting, to the model")
    given = parser.parse_args()
    folder = given.out / str(fingerprint(given.model))
    path = given.model / "config.json"
    config = json.loads(path.read_text())
    held = make_runs("tune", given.tune, folder, given.model)
    tuned = tune(held)
    test = make_runs("test", given.test, folder, given.model)
    report = {
        "tune": tuned,
        "observation on tune": observation(held),
        "right": right(test),
        "A and length": {task: length_correlation(run) for task, run in test.items()},
        "retrieval": retrieval(config["lookback"]["clip"]),
    }
    print(json.dumps(report, indent=1))
    if given.write:
        config["lookback"] |= {name: tuned[name] for name in ("alpha", "lam")}
        path.write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
