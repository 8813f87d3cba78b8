"""Quality against tokens of search and of beam search, with the embedded model on two Scenes tasks.

`python -m tools.budget`: the first items of the test split of `scenes-caption` and `scenes-amber`,
each answered by best of 25, pruned draws, searches that three scorers guide, and plain beam search
of transformers. What a run can tell without the model (best of N for every N, every schedule of
pruning) is the matter of the study `budget`. Stopped, it goes on where it was. With --docs the
table in docs/reproduction.md, and the figure beside it, are replaced by the new ones.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lookback
from lookback.benchmarks.base import Item, get_benchmark
from lookback.engines.transformers.engine import TransformersEngine
from lookback.runs.sources import item_seed
from lookback.signals import Candidates

TASKS = ("scenes-caption", "scenes-amber")
SEED, TOKENS, N = 42, 120, 25  # as in tools/reproduce.py
GUIDES = ("lookback", "mean_log_prob", "visual_lookback")
SCHEDULES = {"prune 16:12,32:6": "half", "prune 8:12,20:6": [(8, 12), (20, 6)]}
SEARCHES = ((5, 16), (5, 8))
BEAMS = (5, 25)
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
    done = {(row["task"], row["id"]) for row in rows_of(file)}
    benchmarks = {task: get_benchmark(task) for task in TASKS}
    asked = {task: benchmark.items("test", items) for task, benchmark in benchmarks.items()}
    todo = [(task, number) for number in range(items) for task in TASKS]
    for task, number in todo:  # the tasks in turn: stopped early, there is as much of each
        item = asked[task][number]
        if (task, item.id) in done:
            continue
        names = list(ways)
        turn = number % len(names)  # none is always the first, or after the same one
        found = {name: _timed(ways[name], item) for name in (*names[turn:], *names[:turn])}
        for one in found.values():
            texts = list(one.pop("texts").values())
            one["quality"] = dict(zip(GUIDES, benchmarks[task].scores(item, texts), strict=True))
        row = {"task": task, "id": item.id, "methods": {name: found[name] for name in names}}
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{task} {number + 1}/{items}", flush=True)


def _timed(answer: Callable[[Item], Answer], item: Item) -> dict[str, Any]:
    began = time.perf_counter()
    texts, tokens = answer(item)
    return {"texts": texts, "tokens": tokens, "seconds": time.perf_counter() - began}


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of the file that are whole: a kill may have left half of the last one.

    That half is cut off.
    """
    if not file.exists():
        return
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole, encoding="utf-8")
    yield from map(json.loads, whole.splitlines())


def main() -> None:
    """Answer, then tell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=110, help="of each task's test split")
    parser.add_argument("--out", type=Path, default=Path("build/budget"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    measure(given.out / "search.jsonl", given.items)


if __name__ == "__main__":
    main()
