"""The settings of a run, as data that can be sent to another process."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lookback.engines import ENGINES, check_sampling
from lookback.runs.layout import RunError
from lookback.scores.base import get_scorer
from lookback.signals import BY_LAYER

if TYPE_CHECKING:
    from lookback.benchmarks.base import Benchmark, Item
    from lookback.engines import Engine
    from lookback.runs.executors import EngineInfo
    from lookback.runs.run import Run
    from lookback.steering.pruning import Pruning

IMAGES = ("own", "none", "random")


@dataclass(frozen=True)
class Plan:
    """The settings of a run.

    Attributes:
        benchmark, data, split, limit: which items; `data` is the folder of the benchmark's files,
            or the file of one's own.
        metric: compares the answers of one's own data where they name none.
        judge: of a benchmark that has one, as `benchmarks.judge.get_judge` takes it.
        model, engine, revision, device, dtype, device_map, trust_remote_code: what answers, as
            `lookback.load` takes it; a model of None is the embedded one.
        engine_settings: others of the engine's own, which change no result.
        n, temperature, top_p, max_new_tokens: how candidates are drawn.
        prune: which of them are ended early, if any are.
        seed: of the drawing, and of the choice of random images.
        candidates: instead of drawing: a JSONL file of responses, or a run, whose candidates are
            taken token by token.
        image: which image they are scored with: "own"; "none"; "random", that of another item.
        source: what A_t is measured on, as an engine takes it.
        by_layer: keep A_t in each layer too.
        scorers: those to record that need a model: "vauq", or "usc@5" for the first five.
        look: of how many items, the first ones, to keep where their picks looked.
        in_flight: how many questions an engine is given at once; by default as many as it wants.
            It decides no results, and is not part of `settings`.
    """

    benchmark: str
    data: str | None = None
    split: str | None = None
    limit: int | None = None
    metric: str | None = None
    judge: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    engine: str = "transformers"
    revision: str | None = None
    device: str | None = None
    dtype: str | None = None
    device_map: str | dict[str, Any] | None = None
    trust_remote_code: bool = False
    engine_settings: dict[str, Any] = field(default_factory=dict)
    n: int = 25
    temperature: float = 1.2
    top_p: float = 0.9
    max_new_tokens: int = 256
    prune: Pruning | None = None
    seed: int = 42
    candidates: str | None = None
    image: str = "own"
    source: str | None = None
    by_layer: bool = False
    scorers: tuple[str, ...] = ()
    look: int = 0
    in_flight: int | None = None

    def __post_init__(self) -> None:
        check_sampling(
            self.n, self.temperature, self.top_p, None, self.max_new_tokens, seed=self.seed
        )
        if self.limit is not None and self.limit < 1:
            raise RunError(f"limit = {self.limit}: must be at least 1")
        if self.image not in IMAGES:
            raise RunError(f"image = {self.image!r}: must be one of {', '.join(IMAGES)}")
        if self.image != "own" and self.candidates is None:
            raise RunError(
                f"--image {self.image} scores the candidates of a run again: name it with "
                "--candidates RUN"
            )
        if self.in_flight is not None and self.in_flight < 1:
            raise RunError(f"in_flight = {self.in_flight}: must be at least 1")
        if self.look < 0:
            raise RunError(f"look = {self.look}: must be at least 0")
        if self.look and self.image != "own":
            raise RunError(
                f"--look shows where candidates looked in their own image: not with "
                f"--image {self.image}"
            )
        if self.prune is not None:
            if self.candidates is not None:
                raise RunError(
                    "--prune ends candidates while they are drawn: with --candidates none are"
                )
            self.prune.of(self.n, {})  # said before a model is loaded
        if self.metric is not None:
            from lookback.benchmarks.metrics import METRICS

            METRICS.get(self.metric)  # said before a model is loaded
        object.__setattr__(self, "scorers", tuple(dict.fromkeys(map(self._named, self.scorers))))

    def _named(self, name: str) -> str:
        """Return a scorer's name as recorded: with @N exactly if the other candidates matter."""
        base, at, count = name.partition("@")
        scorer = get_scorer(base)
        if scorer.from_signals:
            raise RunError(f"--scorers {name}: {base} is computed from signals, at any time")
        if at and not re.fullmatch(r"[1-9]\d*", count):
            raise RunError(f"--scorers {name}: write {base}@N with N a number of candidates")
        if at and self.prune is not None and int(count) != self.n:
            raise RunError(
                f"--scorers {name}: of pruned candidates the first {count} are no draw of {count}; "
                f"write {base}@{self.n}"
            )
        return f"{base}@{count or self.n}" if scorer.joint else base

    def load_engine(self) -> Engine:
        from lookback.engines import load

        names = ("device", "dtype", "revision", "device_map", "trust_remote_code")
        values = {name: getattr(self, name) for name in names}
        settings = {name: value for name, value in values.items() if value not in (None, False)}
        settings |= self.engine_settings
        return load(self.model, engine=self.engine, quiet=True, **settings)

    def load_benchmark(self) -> Benchmark:
        from lookback.benchmarks.base import get_benchmark, get_kind

        settings: dict[str, Any] = {} if self.metric is None else {"metric": self.metric}
        if "judge" in get_kind(self.benchmark).settings:
            from lookback.benchmarks.judge import get_judge

            settings["judge"] = get_judge(**self.judge)
        return get_benchmark(self.benchmark, self.data, **settings)

    def items(self, benchmark: Benchmark) -> list[Item]:
        return list(benchmark.items(self.split or benchmark.default_split, self.limit))

    def settings(
        self, engine: EngineInfo, benchmark: Benchmark, candidates: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return all that decides the results, for the manifest."""
        from lookback.benchmarks.base import Fingerprinted, Judged

        model = asdict(engine.identity)
        del model["versions"]
        drawn: dict[str, Any] = {
            "n": self.n,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_new_tokens": self.max_new_tokens,
            "seed": self.seed,
        }
        # Named only where they are on: runs without them are what they were before there were any.
        if self.prune is not None:
            drawn["prune"] = self.prune.of(self.n, engine.defaults).to_json()
        layers = {BY_LAYER: True} if self.by_layer else {}
        return model | {
            "benchmark": benchmark.name,
            "split": self.split or benchmark.default_split,
            "limit": self.limit,
            "items": benchmark.fingerprint() if isinstance(benchmark, Fingerprinted) else None,
            "metric": self.metric,
            "judge": benchmark.judge_name() if isinstance(benchmark, Judged) else None,
            "candidates": candidates,
            "sampling": drawn if candidates is None else None,
            "image": self.image,
            "image_seed": self.seed if self.image == "random" else None,
            "source": self.source,
            **layers,
        }


def settings_like(run: Run, model: str | None = None) -> dict[str, Any]:
    """Return the settings that a run has from the run whose candidates it takes.

    Another model, if one is named, has its own revision and dtype.
    """
    settings = run.settings
    taken = ("benchmark", "split", "limit", "metric", "source")
    same: dict[str, Any] = {key: settings.get(key) for key in taken}
    same |= {"data": run.manifest.data, "model": None, "revision": None, "dtype": None}
    same["engine"] = settings.get("engine", "transformers")
    if model is None:
        takes = ENGINES.get(same["engine"]).settings
        same |= {key: settings[key] for key in ("revision", "dtype") if key in takes}
        same["model"] = None if run.model == "embedded" else run.model
    return same
