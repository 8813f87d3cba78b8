"""Quality against tokens of search and of beam search, with the embedded model on two Scenes tasks.

`python -m tools.budget`: the first items of the test split of `scenes-caption` and `scenes-amber`,
each answered by best of 25, pruned draws, searches that three scorers guide, and plain beam search
of transformers. What a run can tell without the model (best of N for every N, every schedule of
pruning) is the matter of the study `budget`, which is done too, of runs of all tasks. Stopped, it
goes on where it was; what other weights, or other code of search and pruning, measured is measured
anew. With --docs the two blocks of tables in docs/reproduction.md, and the figures beside it, are
replaced.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lookback
from lookback.benchmarks.base import GENERATED, Item, get_benchmark
from lookback.embedded import LVLM
from lookback.engines.common.model_files import fingerprint
from lookback.engines.transformers.engine import TransformersEngine
from lookback.runs.sources import item_seed
from lookback.signals import Candidates
from lookback.studies.common.tables import write
from tools import reproduce
from tools.budget_table import result_of

TASKS = ("scenes-caption", "scenes-amber")
SEED, TOKENS, N = 42, 120, 25  # as in tools/reproduce.py
GUIDES = ("lookback", "mean_log_prob", "visual_lookback")
SCHEDULES = {"prune 16:12,32:6": "half", "prune 8:12,20:6": [(8, 12), (20, 6)]}
SEARCHES = ((5, 16), (5, 8))
BEAMS = (1, 5, 25)  # one is greedy decoding
FULL = f"best of {N}"
Answer = tuple[dict[str, str], int]
"""By the scorer that picks: a text; and how many tokens were decoded for it."""


def methods(lb: TransformersEngine) -> dict[str, Callable[[Item], Answer]]:
    """All that is compared, by name."""
    found: dict[str, Callable[[Item], Answer]] = {FULL: partial(_sampled, lb, None)}
    found |= {name: partial(_sampled, lb, rule) for name, rule in SCHEDULES.items()}
    for guide in GUIDES:
        for keep, every in SEARCHES:
            found[f"search {guide} {keep}/{every}"] = partial(_searched, lb, guide, keep, every)
    return found | {f"beam {beams}": partial(_beam, lb, beams) for beams in BEAMS}


def _sampled(lb: TransformersEngine, prune: Any, item: Item) -> Answer:
    cands = lb.sample(
        item.image,
        item.question,
        N,
        max_new_tokens=TOKENS,
        seed=item_seed(SEED, item.id),
        prune=prune,
    )
    return _picks(cands), tokens_of(cands)


def _searched(lb: TransformersEngine, guide: str, keep: int, every: int, item: Item) -> Answer:
    cands = lb.search(
        item.image,
        item.question,
        N,
        keep,
        every,
        scorer=guide,
        max_new_tokens=TOKENS,
        seed=item_seed(SEED, item.id),
    )
    return _picks(cands), tokens_of(cands)


def _picks(cands: Candidates) -> dict[str, str]:
    return {scorer: cands.best(scorer).text for scorer in GUIDES}


def tokens_of(cands: Candidates) -> int:
    """How many tokens were drawn; a whole draw has them all, and an end token where one ended."""
    if "tokens_drawn" in cands.sampling:
        return int(cands.sampling["tokens_drawn"])
    return sum(len(c.signals) + (c.finish == "end") for c in cands)


def _beam(lb: TransformersEngine, beams: int, item: Item) -> Answer:
    """Beam search as transformers does it, with its own defaults."""
    content = [{"type": "image"}, {"type": "text", "text": item.question}]
    turns = [{"role": "user", "content": content}]
    text = lb.processor.apply_chat_template(turns, add_generation_prompt=True)
    inputs = lb.processor(images=item.image, text=text, return_tensors="pt")
    count = Counter()
    out = lb.model.generate(
        **inputs,
        num_beams=beams,
        do_sample=False,
        max_new_tokens=TOKENS,
        logits_processor=[count],
    )
    new = out[:, inputs["input_ids"].shape[1] :]
    (answer,) = lb.processor.batch_decode(new, skip_special_tokens=True)
    return dict.fromkeys(GUIDES, answer.strip()), count.tokens


class Counter:
    """Sees the logits of every step of `generate`, and counts the tokens that it decodes."""

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """A row per beam: a token each."""
        self.tokens += len(input_ids)
        return scores


def measure(file: Path, items: int) -> None:
    """Answer what the file does not have yet; a line per item."""
    lb = lookback.load(quiet=True)
    assert isinstance(lb, TransformersEngine)
    ways = methods(lb)
    done = {(row["task"], row["id"]): row["methods"] for row in rows_of(file)}
    benchmarks = {task: get_benchmark(task) for task in TASKS}
    asked = {task: benchmark.items("test", items) for task, benchmark in benchmarks.items()}
    todo = [(task, number) for number in range(items) for task in TASKS]
    for task, number in todo:  # the tasks in turn: stopped early, there is as much of each
        item = asked[task][number]
        names = [name for name in ways if name not in done.get((task, item.id), {})]
        if not names:
            continue
        turn = number % len(names)  # none is always the first, or after the same one
        found = {name: _timed(ways[name], item) for name in (*names[turn:], *names[:turn])}
        for one in found.values():
            texts = list(one.pop("texts").values())
            one["quality"] = dict(zip(GUIDES, benchmarks[task].scores(item, texts), strict=True))
        row = {"task": task, "id": item.id, "code": code(), "methods": found}
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{task} {number + 1}/{items}", flush=True)


def _timed(answer: Callable[[Item], Answer], item: Item) -> dict[str, Any]:
    began = time.perf_counter()
    texts, tokens = answer(item)
    return {"texts": texts, "tokens": tokens, "seconds": time.perf_counter() - began}


def code() -> str:
    """A hash of what decides which candidates there are and go on: the weights, and the code."""
    folder = Path(lookback.__file__).parent
    files = [
        *sorted(folder.glob("steering/*.py")),
        folder / "engines/transformers/decoding/batch.py",
    ]
    files.append(folder / "engines/common/continuations.py")
    read = [str(fingerprint(LVLM)).encode(), *(file.read_bytes() for file in files)]
    return hashlib.sha256(b"".join(read)).hexdigest()[:12]


def rows_of(file: Path) -> list[dict[str, Any]]:
    """What this code measured, an item each; half a line that a kill left is cut off."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole, encoding="utf-8")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in map(json.loads, whole.splitlines()):
        if row.pop("code") == code():
            same = found.setdefault((row["task"], row["id"]), row)
            same["methods"] |= row["methods"]
    return list(found.values())


def make_runs(folder: Path, items: int) -> None:
    """The tasks' runs, as in tools/reproduce.py, but with nothing beside the signals."""
    for task in GENERATED:
        draw = ("run", "--benchmark", task, "--limit", str(items), "--max-new-tokens", str(TOKENS))
        reproduce.lookback(*draw, "--out", str(folder / task))


def main() -> None:
    """Runs, the study of them, answers; then tell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=110, help="of each task's test split")
    parser.add_argument("--run-items", type=int, default=250, help="of the runs")
    parser.add_argument("--out", type=Path, default=Path("build/budget"))
    parser.add_argument("--docs", type=Path, help="a Markdown file whose tables to replace")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    runs, studies, file = given.out / "runs", given.out / "studies", given.out / "search.jsonl"
    make_runs(runs, given.run_items)
    reproduce.lookback("study", "budget", str(runs), "--out", str(studies))
    measure(file, given.items)
    write("search", result_of(rows_of(file), runs, FULL), studies)
    if given.docs:
        reproduce.update(given.docs, studies, ("budget", "search"))


if __name__ == "__main__":
    main()
