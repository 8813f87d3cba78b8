"""The settings of `--model_args`, and what they make of a task's own for generation.

Nothing here needs lmms-eval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from lookback.engines import check_sampling
from lookback.errors import check_whole
from lookback.scores.base import get_scorer
from lookback.steering.pruning import Pruning

TEMPERATURE, TOP_P = 1.2, 0.9
"""The paper's, for best-of-N."""
MAX_NEW_TOKENS = 256
"""Where neither the task nor `--model_args` says how long a response may be."""
BLANK_LINE = "\n\n"
"""lmms-eval itself puts it into `until` of a task that names none (its few-shot delimiter), and its
own models pass over it: descriptions have paragraphs."""
PASSED_OVER = {"do_sample", "temperature", "top_p", "top_k", "until", "max_new_tokens"}
PASSED_OVER |= {"max_gen_toks", "num_beams", "image_aspect_ratio", "image_sizes"}
"""Of a task's settings: those that `drawing` reads, and those that are for other models' input."""


@dataclass(frozen=True)
class Settings:
    """What `--model_args` can say; None where the engine, the family or the task decides.

    Attributes:
        pretrained: a hub id or a folder; by default the embedded model.
        engine: what runs it: `transformers` or `vllm`.
        device: `cpu`, `cuda:1`, ...; by default a GPU if there is one, of several the process's.
        dtype: of the weights, e.g. `bfloat16`.
        revision: of the hub id.
        device_map: instead of a device: `auto`.
        trust_remote_code: run code that comes with the model.
        n: how many candidates are drawn per document.
        scorer: who chooses among them: any that `lookback scorers` lists.
        alpha: of the scorer; the family's by default.
        lam: of the scorer (λ); the family's by default.
        prune: end the worst early: `half`, or e.g. `16:12+32:6`.
        seed: of all documents; each has its own made from it.
        temperature: of the drawing; 1.2 by default, with n=1 the task's.
        top_p: of the drawing; 0.9 by default, with n=1 the task's.
        max_new_tokens: the longest response; the task's by default, or 256.
        batch_size: how many documents the engine is handed at a time.
        log: a new file that gets every document's candidates, a line of JSON each.
    """

    pretrained: str | None = None
    engine: str = "transformers"
    device: str | None = None
    dtype: str | None = None
    revision: str | None = None
    device_map: str | None = None
    trust_remote_code: bool | None = None
    n: int = 25
    scorer: str = "lookback"
    alpha: float | None = None
    lam: float | None = None
    prune: str | None = None
    seed: int = 42
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    batch_size: int = 1
    log: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """From what lmms-eval hands over: texts, and what it takes for numbers.

        Raises:
            ValueError: a name is not known, or a value is wrong; said before a model is loaded.
        """
        kinds = {field.name: str(field.type).removesuffix(" | None") for field in fields(cls)}
        unknown = [name for name in given if name not in kinds]
        if unknown:
            raise ValueError(f"model_args has {unknown[0]!r}; there are {', '.join(kinds)}")
        values = {
            name: READ[kinds[name]](name, value)
            for name, value in given.items()
            if value is not None
        }
        settings = cls(**values)
        settings._check()
        return settings

    def _check(self) -> None:
        check_sampling(
            self.n,
            TEMPERATURE if self.temperature is None else self.temperature,
            TOP_P if self.top_p is None else self.top_p,
            None,
            MAX_NEW_TOKENS if self.max_new_tokens is None else self.max_new_tokens,
            seed=self.seed,
        )
        check_whole("batch_size", self.batch_size, 1)
        if self.n > 1 and self.temperature == 0:
            raise ValueError(f"temperature = 0 draws one response {self.n} times: give n=1 with it")
        scorer = get_scorer(self.scorer)
        scorer.check(self.scorer_settings)
        if scorer.needs == "truth":
            raise ValueError(f"scorer {self.scorer!r} needs the truth, which no model is told here")
        self.pruning  # noqa: B018 - raises if it is none

    @property
    def loading(self) -> dict[str, Any]:
        """What `lookback.load` is given beside the model: only what was asked for."""
        names = ("device", "dtype", "revision", "device_map", "trust_remote_code")
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def scorer_settings(self) -> dict[str, float]:
        """What the scorer is given; the rest is the family's."""
        found = {"alpha": self.alpha, "lam": self.lam}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def pruning(self) -> Pruning | None:
        """Who ends early, judged by LookBack; with its settings, if it chooses in the end too."""
        if self.prune is None:
            return None
        settings = self.scorer_settings if self.scorer == "lookback" else {}
        rule = Pruning(_schedule(self.prune), scorer="lookback", settings=settings)
        rule.of(self.n, {})
        return rule

    def drawing(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """How candidates are drawn for a task with these `generation_kwargs`.

        Best-of-N needs candidates that differ, so that a task's own temperature, which is 0 for
        nearly all of them, is passed over; with n=1 it counts. What `--model_args` names wins.

        Raises:
            ValueError: the task needs beam search.
        """
        beams = task.get("num_beams") or 1
        if beams != 1:
            raise ValueError(
                f"the task's num_beams = {beams}: candidates are drawn, no beams are searched; "
                "--gen_kwargs num_beams=1 asks for that"
            )
        longest = task.get("max_new_tokens") or task.get("max_gen_toks")
        drawn: dict[str, Any] = {
            "n": self.n,
            "max_new_tokens": self.max_new_tokens or int(longest or MAX_NEW_TOKENS),
            "stop": _stops(task.get("until")) or None,
        }
        best_of_n = {"temperature": TEMPERATURE, "top_p": TOP_P, "top_k": None}
        drawn |= best_of_n if self.n > 1 else _own(task)
        named = {"temperature": self.temperature, "top_p": self.top_p}
        return drawn | {name: value for name, value in named.items() if value is not None}


def unheeded(task: Mapping[str, Any]) -> dict[str, Any]:
    """Of a task's `generation_kwargs` what nothing is done with, though it says something."""
    return {
        name: value
        for name, value in task.items()
        if name not in PASSED_OVER and value is not None and (name, value) != NO_PENALTY
    }


NO_PENALTY = ("repetition_penalty", 1.0)


def _own(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task's own way to draw one response; greedy if it does not say."""
    given = task.get("temperature")
    samples = task.get("do_sample")
    temperature = (1.0 if samples else 0.0) if given is None else float(given)
    if samples is False:
        temperature = 0.0
    return {
        "temperature": temperature,
        "top_p": float(task.get("top_p") or 1.0),  # 0 stands beside temperature 0
        "top_k": int(task.get("top_k") or 0) or None,
    }


def _stops(until: Any) -> list[str]:
    """The texts that end a response."""
    texts = [until] if isinstance(until, str) else list(until or [])
    return [text for text in texts if text and text != BLANK_LINE]


def _schedule(given: str) -> str | list[tuple[int, int]]:
    """`half`, or `16:12+32:6` as pairs: a comma would end the setting."""
    if given == "half":
        return given
    try:
        pairs = [part.split(":") for part in given.split("+")]
        return [(int(tokens), int(keep)) for tokens, keep in pairs]
    except ValueError:
        raise ValueError(
            f"prune = {given!r:.60}: write half, or after how many tokens how many go on, e.g. "
            "16:12+32:6"
        ) from None


def _text(name: str, value: Any) -> str:
    return str(value)  # a folder may be called 7


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, str):
            value = int(value)
    except ValueError:
        pass  # named below
    check_whole(name, value, 0)
    return int(value)


def _number(name: str, value: Any) -> float:
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} = {value!r:.60}: must be a number")


def _flag(name: str, value: Any) -> bool:
    words = {"true": True, "false": False}
    if str(value).lower() not in words:
        raise ValueError(f"{name} = {value!r:.60}: must be True or False")
    return words[str(value).lower()]


READ: dict[str, Callable[[str, Any], Any]] = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "bool": _flag,
}
