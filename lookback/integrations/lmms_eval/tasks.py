"""What a task of lmms-eval asks: settings, documents as conversations, and a log of the answers.

Nothing here needs lmms-eval.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from PIL.Image import Image
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from lookback.conversations import NO_SOURCE, Conversation
from lookback.engines import check_sampling
from lookback.errors import check_whole
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array
from lookback.signals import Candidates
from lookback.steering.pruning import Pruning

if TYPE_CHECKING:
    from lookback.integrations.lmms_eval.model import Request

TEMPERATURE, TOP_P = 1.2, 0.9
"""The paper's, for best-of-N."""
MAX_NEW_TOKENS = 256
"""Where neither the task nor `--model_args` says how long a response may be."""
BLANK_LINE = "\n\n"
"""lmms-eval itself puts it into `until` of a task that names none (its few-shot delimiter), and its
own models ignore it: descriptions have paragraphs."""
IGNORED = {"do_sample", "temperature", "top_p", "top_k", "until", "max_new_tokens"}
IGNORED |= {"max_gen_toks", "num_beams", "image_aspect_ratio", "image_sizes"}
"""Of a task's settings: those that `sampling` reads, and those that are for other models' input."""
NO_PENALTY = ("repetition_penalty", 1.0)
PLACEHOLDER = "<image>"
"""Where a task of the older kind wants its images to stand within the text."""
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
AUDIO = (".wav", ".mp3", ".flac", ".ogg", ".m4a", ".aac", ".opus")
CUTS = ("start_time", "end_time", "video_start", "video_end")
NO_AUDIO = "the document has audio: LookBack is for models that see; choose a task without"


class Settings(BaseModel):
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

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

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
    def of(cls, model_args: Mapping[str, Any]) -> Self:
        """Return what lmms-eval hands over, which are texts and what it takes for numbers.

        Raises:
            ValueError: a name is not known, or a value is wrong; said before a model is loaded.
        """
        unknown = [name for name in model_args if name not in cls.model_fields]
        if unknown:
            known = ", ".join(cls.model_fields)
            raise ValueError(f"model_args has {unknown[0]!r}; there are {known}")
        try:
            return cls(**{name: value for name, value in model_args.items() if value is not None})
        except ValidationError as error:
            first = error.errors()[0]
            if first["type"] == "value_error":
                raise first["ctx"]["error"] from None
            where = f"{first['loc'][0]} = {first['input']!r:.60}"
            raise ValueError(f"{where}: {first['msg']}") from None

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_flags(cls, value: Any, info: Any) -> Any:
        """Raise ValueError for True and False as numbers."""
        name = info.field_name
        if isinstance(value, bool) and name != "trust_remote_code":
            raise ValueError(f"{name} = {value}: must not be True or False")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
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
        return self

    @property
    def loading(self) -> dict[str, Any]:
        """What `lookback.load` is given beside the model: only what was asked for."""
        names = {"device", "dtype", "revision", "device_map", "trust_remote_code"}
        return self.model_dump(include=names, exclude_none=True)

    @property
    def scorer_settings(self) -> dict[str, float]:
        """What the scorer is given; the rest is the family's."""
        return self.model_dump(include={"alpha", "lam"}, exclude_none=True)

    @property
    def pruning(self) -> Pruning | None:
        """Which candidates end early, by LookBack; with its settings, if it is the scorer too."""
        if self.prune is None:
            return None
        settings = self.scorer_settings if self.scorer == "lookback" else {}
        rule = Pruning(_schedule(self.prune), scorer="lookback", settings=settings)
        rule.of(self.n, {})
        return rule

    def sampling(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return how candidates are drawn for a task with these `generation_kwargs`.

        Best-of-N needs candidates that differ, so that a task's own temperature, which is 0 for
        nearly all of them, is ignored; with n=1 it counts. What `--model_args` names wins.

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
        sampling: dict[str, Any] = {
            "n": self.n,
            "max_new_tokens": self.max_new_tokens or int(longest or MAX_NEW_TOKENS),
            "stop": _stops(task.get("until")) or None,
        }
        best_of_n = {"temperature": TEMPERATURE, "top_p": TOP_P, "top_k": None}
        sampling |= best_of_n if self.n > 1 else _own_sampling(task)
        return sampling | self.model_dump(include={"temperature", "top_p"}, exclude_none=True)


def unsupported_kwargs(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a task's `generation_kwargs` that have no effect, though they ask for one."""
    return {
        name: value
        for name, value in task.items()
        if name not in IGNORED and value is not None and (name, value) != NO_PENALTY
    }


def _own_sampling(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's own way to draw one response; greedy if it does not say."""
    temperature, samples = task.get("temperature"), task.get("do_sample")
    if temperature is None:
        temperature = 1.0 if samples else 0.0
    if samples is False:
        temperature = 0.0
    return {
        "temperature": float(temperature),
        "top_p": float(task.get("top_p") or 1.0),  # 0 stands beside temperature 0
        "top_k": int(task.get("top_k") or 0) or None,
    }


def _stops(until: Any) -> list[str]:
    texts = [until] if isinstance(until, str) else list(until or [])
    return [text for text in texts if text and text != BLANK_LINE]


def _schedule(prune: str) -> str | list[tuple[int, int]]:
    """Return `half`, or `16:12+32:6` as pairs: a comma would end the setting."""
    if prune == "half":
        return prune
    try:
        pairs = [part.split(":") for part in prune.split("+")]
        return [(int(tokens), int(keep)) for tokens, keep in pairs]
    except ValueError:
        raise ValueError(
            f"prune = {prune!r:.60}: write half, or after how many tokens how many go on, e.g. "
            "16:12+32:6"
        ) from None


def conversation_of(messages: Any) -> Conversation:
    """Return the messages of a chat task.

    Raises:
        ValueError: they are of another shape, or hold audio or a part of a video.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise ValueError(f"doc_to_messages gave {messages!r:.60}, must give a list of turns")
    turns = [_turn(turn) if isinstance(turn, Mapping) else turn for turn in messages]
    return Conversation.from_messages(turns)


def simple_conversation(text: str, visuals: Any) -> Conversation:
    """Return a text and what is shown before it; or within it, if it has a place for each.

    Raises:
        ValueError: there is something else than images and videos.
    """
    if not isinstance(visuals, (list, tuple)):
        visuals = [] if visuals is None else [visuals]
    shown = [_visual_part(visual) for visual in visuals]
    pieces = text.split(PLACEHOLDER)
    if shown and len(pieces) == len(shown) + 1:
        parts = [_text_part(pieces[0])]
        for visual, piece in zip(shown, pieces[1:], strict=True):
            parts += [visual, _text_part(piece)]
        content = [part for part in parts if part.get("text") != ""]
    else:
        content = [*shown, _text_part(text)]
    return Conversation.from_messages([{"role": "user", "content": content}])


def source_of(conversation: Conversation) -> str | None:
    """Return what A_t is measured on: all images and videos; nothing, if there are none."""
    return None if conversation.parts("image") or conversation.parts("video") else NO_SOURCE


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    content = turn.get("content")
    if isinstance(content, (list, tuple)):
        content = [_part(part) if isinstance(part, Mapping) else part for part in content]
    return {"role": turn.get("role"), "content": content}


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part as it is; raise ValueError if it cannot be shown."""
    if part.get("type") in ("audio", "input_audio", "audio_url"):
        raise ValueError(NO_AUDIO)
    if part.get("type") == "video":
        inner = part.get("url")
        for where in (part, inner if isinstance(inner, Mapping) else {}):
            _check_whole_video(where)
    return part


def _check_whole_video(video: Mapping[str, Any]) -> None:
    cut = [name for name in CUTS if video.get(name) is not None]
    if cut:
        raise ValueError(f"a video with {cut[0]} = {video[cut[0]]}: only whole videos are read")


def _visual_part(visual: Any) -> dict[str, Any]:
    """Return one thing that `doc_to_visual` gave."""
    if isinstance(visual, Image):
        return {"type": "image", "image": visual}
    if isinstance(visual, (str, os.PathLike)):
        ending = os.path.splitext(os.fspath(visual))[1].lower()
        if ending in AUDIO:
            raise ValueError(NO_AUDIO)
        kind = "image" if ending in IMAGES else "video"
        return {"type": kind, kind: os.fspath(visual)}
    if isinstance(visual, Mapping):
        return _mapping_part(visual)
    if isinstance(visual, (list, tuple)) and all(isinstance(frame, Image) for frame in visual):
        return {"type": "video", "video": list(visual)}
    raise ValueError(f"doc_to_visual gave {visual!r:.60}: images, their files and videos are read")


def _mapping_part(visual: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given as {"type": "video", "url": ...}; audio comes as an array."""
    if "array" in visual or visual.get("type") == "audio":
        raise ValueError(NO_AUDIO)
    _check_whole_video(visual)
    kind = visual.get("type", "video")
    where = visual.get("url") or visual.get("path")
    if kind not in ("image", "video") or where is None:
        raise ValueError(f"doc_to_visual gave {dict(visual)!r:.60}: no image or video is in it")
    return {"type": kind, kind: where}


def _text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


class Log:
    """A file of JSON lines: per document how candidates were drawn, what they say, their scores.

    Args:
        path: the file, new. A process beside the first has its own: `name.1.jsonl`.
        rank: which process this is.

    Raises:
        ValueError: there is such a file already.
    """

    def __init__(self, path: str, rank: int = 0) -> None:
        self.path = Path(path)
        if rank:
            self.path = self.path.with_suffix(f".{rank}{self.path.suffix}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.path.open("x").close()
        except FileExistsError:
            raise ValueError(
                f"log = {str(self.path)!r}: there is such a file; give another name"
            ) from None

    def write(
        self, request: Request, candidates: Candidates, scores: Array, best: int | None
    ) -> None:
        """Add a document; at once, so that a run that ends early leaves what it did."""
        line: dict[str, Any] = {
            "task": request.task,
            "split": request.split,
            "doc_id": request.doc_id,
            "repeat": request.repeat,
            "question": candidates.question,
            "source": candidates.source,
            "sampling": dict(candidates.sampling),
            "prompt_tokens": len(candidates.prompt_ids),
            "best": best,
            "candidates": [
                {
                    "text": candidate.text,
                    "score": None if np.isnan(score) else float(score),
                    "tokens": len(candidate.token_ids),
                    "finish": candidate.finish,
                }
                for candidate, score in zip(candidates, scores, strict=True)
            ],
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
