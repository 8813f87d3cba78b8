"""What a run is asked to do, as data that can go to another process; and its identity."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookback.runs.layout import RunError
from lookback.scores.registry import get_scorer

if TYPE_CHECKING:
    from lookback.benchmarks.base import Benchmark, Item
    from lookback.engines.transformers import TransformersEngine
    from lookback.runs.run import Run

IMAGES = ("own", "none", "random")
WHOLE = 64 * 2**20  # weight files up to this size are hashed whole, larger ones by name and size


@dataclass(frozen=True)
class Plan:
    """The settings of a run.

    Attributes:
        benchmark, data, split, limit: which items; `data` is the folder of the benchmark's files.
        judge: HallusionBench's judge, as `benchmarks.judge.get_judge` takes it.
        model, revision, device, dtype: what answers, as `lookback.load` takes it; None for the
            embedded model.
        n, temperature, top_p, max_new_tokens: how candidates are drawn.
        seed: of the drawing, and of the choice of random images.
        candidates: instead of drawing: a JSONL file of responses, or a run, whose candidates are
            taken token by token.
        image: which image they are scored with: "own"; "none"; "random", that of another item.
        scorers: those to record that look again: "vauq", or "usc@5" for the first five.
    """

    benchmark: str
    data: str | None = None
    split: str | None = None
    limit: int | None = None
    judge: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    n: int = 25
    temperature: float = 1.2
    top_p: float = 0.9
    max_new_tokens: int = 256
    seed: int = 42
    candidates: str | None = None
    image: str = "own"
    scorers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.image not in IMAGES:
            raise RunError(f"image = {self.image!r}: must be one of {', '.join(IMAGES)}")
        if self.image != "own" and self.candidates is None:
            raise RunError(
                f"--image {self.image} scores the candidates of a run again: name it with "
                "--candidates RUN"
            )
        object.__setattr__(self, "scorers", tuple(dict.fromkeys(map(self._named, self.scorers))))

    def _named(self, name: str) -> str:
        """A scorer's name as it is recorded: with @N exactly if the other candidates matter."""
        base, at, count = name.partition("@")
        scorer = get_scorer(base)
        if not scorer.looks_again:
            raise RunError(f"--scorers {name}: {base} is computed from signals, at any time")
        if at and not re.fullmatch(r"[1-9]\d*", count):
            raise RunError(f"--scorers {name}: write {base}@N with N a number of candidates")
        return f"{base}@{count or self.n}" if scorer.together else base

    def load_engine(self) -> TransformersEngine:
        """The model, loaded now."""
        import transformers

        from lookback.engines.transformers import load

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        return load(self.model, device=self.device, dtype=self.dtype, revision=self.revision)

    def load_benchmark(self) -> Benchmark:
        """The benchmark, with its judge if it has one."""
        from lookback.benchmarks.base import get_benchmark

        settings: dict[str, Any] = {}
        if self.benchmark == "hallusionbench":
            from lookback.benchmarks.judge import get_judge

            settings["judge"] = get_judge(**self.judge)
        return get_benchmark(self.benchmark, self.data, **settings)

    def items(self, benchmark: Benchmark) -> list[Item]:
        """The items, in the split's order."""
        return list(benchmark.items(self.split or benchmark.default_split, self.limit))

    def what(
        self, engine: TransformersEngine, benchmark: Benchmark, source: dict[str, Any] | None
    ) -> dict[str, Any]:
        """All that decides the results, for the manifest."""
        judge = getattr(benchmark, "judge", None)
        drawn = {
            "n": self.n,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_new_tokens": self.max_new_tokens,
            "seed": self.seed,
        }
        return {
            "model": engine.name,
            "revision": getattr(engine.model.config, "_commit_hash", None) or self.revision,
            "weights": fingerprint(Path(engine.model.name_or_path)),
            "processor": type(engine.processor).__name__,
            "dtype": str(engine.model.dtype).removeprefix("torch."),
            "device": engine.model.device.type,
            "benchmark": self.benchmark,
            "split": self.split or benchmark.default_split,
            "limit": self.limit,
            "judge": getattr(judge, "name", None),
            "candidates": source,
            "sampling": drawn if source is None else None,
            "image": self.image,
            "image_seed": self.seed if self.image == "random" else None,
        }


def settings_like(run: Run, model: str | None = None) -> dict[str, Any]:
    """What a run that takes another's candidates has from it, unless told otherwise.

    Args:
        run: the other.
        model: another model, if one was named: revision and dtype are then its own.
    """
    what = run.what
    same = {key: what[key] for key in ("benchmark", "split", "limit")}
    same |= {"data": run.manifest.get("data"), "model": None, "revision": None, "dtype": None}
    if model is None:
        same |= {"revision": what["revision"], "dtype": what["dtype"]}
        same["model"] = None if run.model == "embedded" else run.model
    return same


def fingerprint(folder: Path) -> str | None:
    """Of a model's files, the same for the same weights; None if it is in no folder."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")])
    if not files or not folder.is_dir():
        return None
    found = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        found.update(f"{file.name} {size}\n".encode())
        if size <= WHOLE:
            found.update(file.read_bytes())
    return found.hexdigest()[:16]
