"""What the embedded LVLM can do, and what LookBack adds to it.

`make evaluate-embedded`: samples 25 answers to held-out items of the four Scenes tasks, chooses
alpha and lambda on `tune` alone, and compares selections on `test`, with the picture and with that
of another item. Samples are kept in build/evaluation, under the weights they come from, so that a
second run only computes.
"""

import argparse
import hashlib
import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from lookback.benchmarks.base import GENERATED, get_benchmark
from lookback.benchmarks.scenes.words import CONTENT
from lookback.embedded import LVLM
from lookback.scores.formula import ALPHAS, LAMBDAS
from lookback.scores.registry import SignalBatch, get_scorer
from lookback.signals import SIGNALS

N, CHUNK = 25, 25


def sample_chunk(task: str, split: str, first: int, last: int, folder: str) -> list[dict]:
    """25 answers each to items first..last-1: quality, signals, and signals under another image."""
    import torch

    import lookback

    torch.set_num_threads(1)
    path = Path(folder) / f"{task}-{split}-{first}-{last}.pkl"
    if path.exists():
        return pickle.loads(path.read_bytes())
    lb = lookback.load()
    benchmark = get_benchmark(task)
    items = benchmark.items(split)
    rows = []
    for index in range(first, last):
        item, other = items[index], items[(index + len(items) // 2) % len(items)]
        cands = lb.sample(item.image, item.question, N, max_new_tokens=120, seed=42 * 2**20 + index)
        filled = [c for c in cands if len(c.signals)]
        swapped = lb.score(other.image, item.question, filled) if split == "test" else filled
        rows.append(
            {
                "quality": [benchmark.score(item, c.text) for c in filled],
                "tokens": [c.tokens for c in filled],
                "signals": [{s: getattr(c, s) for s in SIGNALS} for c in filled],
                "swapped": [{s: getattr(c, s) for s in SIGNALS} for c in swapped],
                "empty": N - len(filled),
            }
        )
    path.write_bytes(pickle.dumps(rows))
    return rows


def sample_all(limits: dict[str, int], folder: Path) -> dict[tuple[str, str], list[dict]]:
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [
        (task, split, first, min(first + CHUNK, limit), str(folder))
        for split, limit in limits.items()
        for task in GENERATED
        for first in range(0, limit, CHUNK)
    ]
    found: dict[tuple[str, str], list[dict]] = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for (task, split, *_), rows in zip(
            jobs, pool.map(sample_chunk, *zip(*jobs, strict=True)), strict=True
        ):
            found.setdefault((task, split), []).extend(rows)
            print(f"{task} {split}: {len(found[task, split])} items", flush=True)
    return found


class Pool:
    """The candidates of one task and split as flat arrays."""

    def __init__(self, rows: list[dict]) -> None:
        self.rows = rows
        self.quality = [np.array(row["quality"]) for row in rows]

    def scores(self, scorer: str, source: str = "signals", **params: float) -> list[np.ndarray]:
        """Per item, one score a candidate."""
        flat = [s for row in self.rows for s in row[source]]
        lengths = np.array([len(s["log_prob"]) for s in flat])
        signals = {n: np.concatenate([s[n] for s in flat]).astype(float) for n in SIGNALS}
        count = len(lengths)
        batch = SignalBatch(lengths, np.array([count]), ("",) * count, **signals)
        scores = get_scorer(scorer).of_batch(batch, {}, params)
        return np.split(scores, np.cumsum([len(q) for q in self.quality])[:-1])

    def select(self, scores: list[np.ndarray], n: int) -> np.ndarray:
        """Per item, the mean quality of the best of n, over the disjoint groups of n."""
        return np.array(
            [
                np.mean(
                    [q[g : g + n][np.argmax(s[g : g + n])] for g in range(0, len(q) - n + 1, n)]
                )
                if len(q) >= n
                else q[np.argmax(s)]
                for q, s in zip(self.quality, scores, strict=True)
            ]
        )


def tune(pools: dict[str, Pool]) -> tuple[float, float]:
    """The (alpha, lambda) of the paper's grid, with 0, that selects best on tune, N = 5 and 25."""
    best = (-1.0, 0.0, 0.0)
    for alpha in (0.0, *ALPHAS):
        for lam in (0.0, *LAMBDAS):
            values = []
            for pool in pools.values():
                scores = pool.scores("lookback", alpha=alpha, lam=lam)
                values += [pool.select(scores, n).mean() for n in (5, 25)]
            best = max(best, (float(np.mean(values)), alpha, lam))
    return best[1:]


def interval(differences: list[np.ndarray]) -> str:
    """Mean of several tasks' paired differences with a 95 % bootstrap interval, in points."""
    rng = np.random.default_rng(0)
    draws = np.mean(
        [d[rng.integers(0, len(d), (4000, len(d)))].mean(1) for d in differences], axis=0
    )
    low, high = np.percentile(100 * draws, [2.5, 97.5])
    return f"{100 * np.mean([d.mean() for d in differences]):+.1f} [{low:+.1f}, {high:+.1f}]"


def words(pool: Pool) -> dict[str, dict[str, float]]:
    """Mean z-scored A and self-certainty of content and of function words."""
    groups: dict[str, list[tuple[float, float]]] = {"content": [], "function": []}
    flat = [s for row in pool.rows for s in row["signals"]]
    stats = {
        n: (np.concatenate([s[n] for s in flat]).mean(), np.concatenate([s[n] for s in flat]).std())
        for n in ("lookback", "self_certainty")
    }
    for row in pool.rows:
        for tokens, s in zip(row["tokens"], row["signals"], strict=True):
            starts = [i for i, t in enumerate(tokens) if t.startswith(" ") or i == 0]
            for a, b in zip(starts, [*starts[1:], len(tokens)], strict=True):
                word = "".join(tokens[a:b]).strip(" .,!?").lower()
                if not word.isalpha():
                    continue
                z = [
                    float((s[n][a:b].mean() - stats[n][0]) / stats[n][1])
                    for n in ("lookback", "self_certainty")
                ]
                groups["content" if word in CONTENT else "function"].append((z[0], z[1]))
    return {
        group: dict(zip(("z_A", "z_SC"), np.mean(found, 0).round(2).tolist(), strict=True))
        for group, found in groups.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=400)
    parser.add_argument("--folder", type=Path, default=Path("build/evaluation"))
    parser.add_argument("--write", action="store_true", help="the tuned setting, to the model")
    given = parser.parse_args()
    weights = hashlib.sha256((LVLM / "model.safetensors").read_bytes()).hexdigest()[:12]
    found = sample_all({"tune": given.tune, "test": given.test}, given.folder / weights)
    pools = {split: {t: Pool(found[t, split]) for t in GENERATED} for split in ("tune", "test")}
    alpha, lam = tune(pools["tune"])
    scorers = {
        "mean log p": {"scorer": "mean_log_prob"},
        "self-certainty": {"scorer": "self_certainty"},
        "A alone": {"scorer": "visual_lookback"},
        f"LookBack ({alpha}, {lam})": {"scorer": "lookback", "alpha": alpha, "lam": lam},
        "LookBack (0.25, 1.25)": {"scorer": "lookback", "alpha": 0.25, "lam": 1.25},
    }
    report: dict = {"alpha": alpha, "lam": lam, "test": {}, "control": {}, "differences": {}}
    chosen: dict[tuple[str, int, str], np.ndarray] = {}
    for task, pool in pools["test"].items():
        for n in (5, 25):
            row = {
                "random": np.array([q.mean() for q in pool.quality]),
                "oracle": pool.select(pool.quality, n),
            }
            row |= {name: pool.select(pool.scores(**s), n) for name, s in scorers.items()}
            for name, values in row.items():
                chosen[task, n, name] = values
            report["test"][f"{task} N={n}"] = {k: round(100 * v.mean(), 1) for k, v in row.items()}
        report["control"][task] = {
            name: round(100 * pool.select(pool.scores(**s, source="swapped"), 25).mean(), 1)
            for name, s in scorers.items()
        }
    tuned = f"LookBack ({alpha}, {lam})"
    for other in ("random", "self-certainty", "mean log p", "A alone"):
        for n in (5, 25):
            report["differences"][f"{tuned} - {other}, N={n}"] = interval(
                [chosen[t, n, tuned] - chosen[t, n, other] for t in GENERATED]
            )
    if given.write:
        path = LVLM / "config.json"
        config = json.loads(path.read_text())
        config["lookback"] |= {"alpha": alpha, "lam": lam}
        path.write_text(json.dumps(config, indent=2) + "\n")
    report["words"] = {t: words(pools["test"][t]) for t in ("scenes-caption", "scenes-amber")}
    report["right"] = right(pools["test"])
    report["A and length"] = {t: length_correlation(pool) for t, pool in pools["test"].items()}
    report["replies that choose"] = replies()
    report["retrieval"] = retrieval()
    report["items"] = {"tune": given.tune, "test": given.test}
    (given.folder / "report.json").write_text(json.dumps(report, indent=1))
    print(markdown(report))


def retrieval(count: int = 200) -> dict[str, float]:
    """How often the dual encoder finds a held-out picture's description among so many, and back."""
    from lookback.benchmarks.scenes.chance import TEXT, generator
    from lookback.benchmarks.scenes.describe import BRIEF, describe
    from lookback.benchmarks.scenes.render import render
    from lookback.benchmarks.scenes.scene import sample_scene
    from lookback.benchmarks.scenes.splits import scene_seed
    from lookback.engines.transformers.clip import DualEncoder

    encoder = DualEncoder.load("embedded")
    seeds = [scene_seed("test", "scenes-caption", i) for i in range(count)]
    scenes = [sample_scene(seed) for seed in seeds]
    texts = [
        describe(scene, generator(seed, TEXT), BRIEF)
        for scene, seed in zip(scenes, seeds, strict=True)
    ]
    pictures = np.stack([encoder.image(render(scene)) for scene in scenes])
    similar = pictures @ encoder.texts(texts).T
    right = np.arange(count)
    return {
        "of": count,
        "image to text": round(100 * float((similar.argmax(1) == right).mean()), 1),
        "text to image": round(100 * float((similar.argmax(0) == right).mean()), 1),
    }


def right(pools: dict[str, Pool]) -> dict[str, dict[str, str]]:
    """How many answers are right, by the kind of question and, for yes/no, by how they begin."""
    groups: dict[str, dict[str, list[float]]] = {}
    for task in ("scenes-vqa", "scenes-pairs"):
        items = get_benchmark(task).items("test")
        kinds = groups.setdefault(task, {})
        for item, row in zip(items, pools[task].rows, strict=False):
            for tokens, quality in zip(row["tokens"], row["quality"], strict=True):
                kinds.setdefault(item.truth["kind"], []).append(quality)
                if task == "scenes-pairs":
                    first = "what is seen" if ", so " in "".join(tokens) else "yes or no"
                    kinds.setdefault(f"begins with {first}", []).append(quality)
    return {
        task: {k: f"{100 * np.mean(v):.0f} % of {len(v)}" for k, v in kinds.items()}
        for task, kinds in groups.items()
    }


def length_correlation(pool: Pool) -> float:
    """Between mean A and the number of tokens, within an item, averaged over items."""
    found = []
    for row in pool.rows:
        lengths = [len(s["lookback"]) for s in row["signals"]]
        if np.std(lengths):
            means = [s["lookback"].mean() for s in row["signals"]]
            found.append(np.corrcoef(means, lengths)[0, 1])
    return round(float(np.mean(found)), 2)


def replies(tries: int = 8) -> dict[str, str]:
    """How many of the model's replies, as the judge of its own answers, choose one."""
    import lookback
    from lookback.scores.prompts import judge_choice, judge_prompt, usc_choice, usc_prompt

    lb = lookback.load()
    chosen = {"usc": 0, "judge": 0}
    for item in get_benchmark("scenes-caption").items("test", tries):
        texts = [
            c.text for c in lb.sample(item.image, item.question, 5, max_new_tokens=100, seed=1)
        ]
        (said,) = lb.ask(item.image, usc_prompt(item.question, texts), max_new_tokens=64)
        chosen["usc"] += usc_choice(said, len(texts)) is not None
        (said,) = lb.ask(item.image, judge_prompt(item.question, *texts[:2]), max_new_tokens=16)
        chosen["judge"] += judge_choice(said) is not None
    return {name: f"{count} of {tries}" for name, count in chosen.items()}


def markdown(report: dict) -> str:
    """The report as tables."""
    columns = list(next(iter(report["test"].values())))
    lines = [f"| task | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    rows = dict(report["test"])
    rows["**mean**"] = {
        c: round(float(np.mean([row[c] for row in report["test"].values()])), 1) for c in columns
    }
    lines += [
        f"| {name} | {' | '.join(str(row[c]) for c in columns)} |" for name, row in rows.items()
    ]
    lines += ["", "| difference | points [95 % interval] |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in report["differences"].items()]
    columns = list(next(iter(report["control"].values())))
    lines += [
        "",
        f"| another picture, N=25 | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    lines += [
        f"| {name} | {' | '.join(str(row[c]) for c in columns)} |"
        for name, row in report["control"].items()
    ]
    lines += ["", "| words | z(A) | z(SC) |", "|---|---:|---:|"]
    lines += [
        f"| {task}, {group} | {z['z_A']:+.2f} | {z['z_SC']:+.2f} |"
        for task, groups in report["words"].items()
        for group, z in groups.items()
    ]
    lines += [""]
    for key in ("right", "A and length", "replies that choose", "retrieval", "items"):
        lines += [f"{key}: {json.dumps(report[key])}"]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
