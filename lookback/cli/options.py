"""The options that commands share, each declared once.

A dataclass is a group of options. A command names it as the type of a keyword-only parameter, gets
one option per field, and is called with an instance (`app.command`). A field is an option by its
`option(...)`, or by a type that has one; or it is a group itself.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import typer

from lookback.cli.inputs import read_conversation, refuse_stdin
from lookback.cli.terminal import say
from lookback.io.files import OUTSIDE_VARIABLE
from lookback.registry import PLUGINS_VARIABLE
from lookback.scores import HOMES

if TYPE_CHECKING:
    from lookback.conversations import Conversation
    from lookback.steering.pruning import Pruning
    from lookback.steering.search import Search

ASKED = "What is asked"
DRAWN = "How answers are drawn"
RANKED = "How they are ranked"
MODEL = "The model"
OUTPUT = "Output"
"""The panels of options in --help, in this order."""
JUDGE = "lookback"
"""The scorer that decides which answers go on, if --prune-by names no other."""


def option(default: Any = None, *names: str, **settings: Any) -> Any:
    """Return a dataclass field that is an option of a command.

    Args:
        default: its default.
        names: `--like-this`; by default made from the field's name.
        settings: further arguments of `typer.Option`.
    """
    return field(default=default, metadata={"option": typer.Option(*names, **settings)})


def complete_scorer(incomplete: str) -> list[str]:
    """Return names of scorers for shell completion.

    Plugins are imported only if LOOKBACK_PLUGINS names some.
    """
    if os.environ.get(PLUGINS_VARIABLE):
        from lookback.scores.base import SCORERS

        names = SCORERS.names()
    else:
        names = [*HOMES, *(point.name for point in entry_points(group="lookback.scorers"))]
    return [name for name in names if name.startswith(incomplete)]


def _allow_outside(allowed: bool) -> bool:
    """Set the environment variable, which worker processes inherit."""
    if allowed:
        os.environ[OUTSIDE_VARIABLE] = "1"
    return allowed


def _no_stdin(data: str | None) -> str | None:
    refuse_stdin("--data", data, "it is read more than once, by each worker and when a run goes on")
    return data


Source = Annotated[
    str | None,
    typer.Option(
        help="What A is measured on, e.g. image:1; by default every vision token.",
        rich_help_panel=ASKED,
    ),
]
AllowOutside = Annotated[
    bool,
    typer.Option(
        "--allow-outside",
        help="Allow data files to reference paths outside their directory.",
        callback=_allow_outside,
        rich_help_panel=ASKED,
    ),
]
Seed = Annotated[
    int, typer.Option(help="The same seed draws the same answers.", rich_help_panel=DRAWN)
]
Temperature = Annotated[float, typer.Option(help="0 is greedy.", rich_help_panel=DRAWN)]
TopP = Annotated[float, typer.Option(help="The nucleus to sample from.", rich_help_panel=DRAWN)]
MaxNewTokens = Annotated[int, typer.Option(help="The longest answer.", rich_help_panel=DRAWN)]
Prune = Annotated[
    str | None,
    typer.Option(
        metavar="half|T:K,T:K",
        help="End the worst early: half, or e.g. 16:12,32:6 (after 16 tokens the best 12 go on, "
        "after 32 the best 6).",
        rich_help_panel=DRAWN,
    ),
]
Scorer = Annotated[
    str,
    typer.Option(
        help=f"Rank by this: {', '.join(HOMES)}; or one of your own (--plugin). `lookback scorers` "
        "says what each is and needs.",
        autocompletion=complete_scorer,
        rich_help_panel=RANKED,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the scorer; may be repeated.",
        rich_help_panel=RANKED,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="A hub id (llava-hf/llava-1.5-7b-hf) or a folder; by default the embedded model, "
        "which knows drawn scenes only.",
        rich_help_panel=MODEL,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="The folder of the benchmark's files, or of one folder per benchmark; or a file of "
        "your own; here or at s3://, gs://, ...",
        envvar="LOOKBACK_DATA",
        callback=_no_stdin,
    ),
]
RunFolders = Annotated[
    list[str],
    typer.Argument(
        help="Folders of runs, or folders that hold such folders; here or at s3://, gs://, ...",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


@dataclass(frozen=True, kw_only=True)
class MediaOptions:
    """What is asked about, beside the first image."""

    PANEL: ClassVar[str] = ASKED
    more_images: list[str] | None = option(
        None, "--image", "-i", help="A further image of the same question; may be repeated."
    )
    source: Source = None

    def read(self, image: str, question: str) -> Conversation:
        """Read the images and return the conversation; raise ValueError if it lacks the source."""
        conversation = read_conversation([image, *(self.more_images or [])], question)
        conversation.source(self.source)
        return conversation


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How answers are drawn: arguments of `Engine.sample`."""

    PANEL: ClassVar[str] = DRAWN
    n: int = option(25, "-n", "--n", help="How many answers to draw.")
    temperature: Temperature = 1.2
    top_p: TopP = 0.9
    max_new_tokens: MaxNewTokens = 256
    seed: Seed = 42

    def check(self) -> None:
        """Raise ValueError if an option is out of range."""
        from lookback.engines.common.options import check_sampling

        check_sampling(self.n, self.temperature, self.top_p, None, self.max_new_tokens, self.seed)

    def without_repeats(self) -> Self:
        """Return the options with n = 1 at temperature 0, where all answers would be the same."""
        return replace(self, n=count_drawn(self.n, self.temperature))


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How tokens are drawn, where how many answers and which seed are other options."""

    temperature: Temperature = 1.2
    top_p: TopP = 0.9
    max_new_tokens: MaxNewTokens = 256


def count_drawn(n: int, temperature: float) -> int:
    """Return how many of n answers to draw: at temperature 0 one, with a note."""
    if temperature != 0 or n <= 1:
        return n
    say(f"--temperature 0 is greedy: one answer is drawn, as all {n} would be the same")
    return 1


@dataclass(frozen=True, kw_only=True)
class PruneOptions:
    """Which answers end early."""

    PANEL: ClassVar[str] = DRAWN
    prune: Prune = None
    prune_by: str | None = option(
        metavar="SCORER",
        help="Who judges what is still being written, from its signals; lookback by default.",
        autocompletion=complete_scorer,
    )

    def pruning(self, n: int, settings: dict[str, Any] | None = None) -> Pruning | None:
        """Return the rule for n candidates, or None; `settings` are those of its scorer.

        Raises:
            ValueError: it is no schedule, or the scorer cannot judge drafts with these settings.
        """
        if self.prune is None:
            return None
        from lookback.steering.pruning import Pruning

        schedule = parse_schedule(self.prune)
        rule = Pruning(schedule, scorer=self.prune_by or JUDGE, settings=settings or {})
        rule.of(n, {})  # wrong settings are an error before a model is loaded
        return rule


@dataclass(frozen=True, kw_only=True)
class SteeringOptions(PruneOptions):
    """Which answers end early, or are continued in their place."""

    search: bool = option(
        False,
        "--search",
        help="Every few tokens go on from the best answers, with forks of them in the places of "
        "the others.",
    )
    keep: int = option(5, help="--search: candidates to keep at each checkpoint.")
    every: int = option(16, help="--search: tokens between checkpoints.")

    def rule(self, n: int, scorer: str, params: dict[str, Any]) -> Pruning | Search | None:
        """Return the rule for n answers, or None.

        If its scorer is the one that ranks the answers, it has the same settings, `params`.

        Raises:
            BadParameter: options exclude each other.
            ValueError: one is out of range.
        """
        if self.prune is not None and self.search:
            raise typer.BadParameter("give either --prune or --search", param_hint="--search")
        if self.prune_by is not None and self.prune is None and not self.search:
            raise typer.BadParameter("it goes with --prune or --search", param_hint="--prune-by")
        judge = self.prune_by or JUDGE
        settings = params if judge == scorer else {}
        if not self.search:
            return self.pruning(n, settings)
        from lookback.steering.search import Search

        rule = Search(n, self.keep, self.every, scorer=judge, settings=settings)
        rule.of({})  # wrong settings are an error before a model is loaded
        return rule


def parse_schedule(text: str) -> str | list[tuple[int, int]]:
    """Parse `--prune`: `half`, or `16:12,32:6` as pairs.

    Raises:
        ValueError: it is neither.
    """
    if text.strip() == "half":
        return "half"
    pairs = [[word.strip() for word in part.split(":")] for part in text.split(",")]
    if not all(len(pair) == 2 and all(map(_is_count, pair)) for pair in pairs):
        raise ValueError(
            f"--prune {text:.60}: write half, or after how many tokens how many go on, "
            "e.g. 16:12,32:6"
        )
    return [(int(tokens), int(keep)) for tokens, keep in pairs]


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 10


@dataclass(frozen=True, kw_only=True)
class ScorerOptions:
    """What ranks the answers."""

    PANEL: ClassVar[str] = RANKED
    scorer: Scorer = "lookback"
    alpha: float | None = option(help="LookBack's α; by default the model family's.")
    lam: float | None = option(help="LookBack's λ; by default the model family's.")
    settings: Settings = None

    def params(self, count: int) -> dict[str, Any]:
        """Return the scorer's settings, checked before a model is loaded, which can take minutes.

        Raises:
            SettingError, ValueError: the scorer cannot score `count` answers with these settings.
        """
        from lookback.scores.base import get_scorer

        own = {"alpha": self.alpha, "lam": self.lam}
        params = {name: value for name, value in own.items() if value is not None}
        params |= parse_settings(self.settings)
        get_scorer(self.scorer).check(params, count)
        return params


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What runs the model: arguments of `lookback.load` beside the model."""

    PANEL: ClassVar[str] = MODEL
    engine: str | None = option(help="What runs the model; see `lookback engines`.")
    device: str | None = option(help="cpu, cuda, ...; by default a GPU if there is one.")
    dtype: str | None = option(
        help="Of the weights, e.g. bfloat16; by default the checkpoint's own on a GPU."
    )
    revision: str | None = option(help="Hub revision: branch, tag or commit.")
    device_map: str | None = option(
        help="Instead of a device: auto, or JSON that says which part goes where."
    )
    trust_remote_code: bool = option(
        False, "--trust-remote-code", help="Run code that comes with the model."
    )
    engine_set: list[str] | None = option(
        metavar="NAME=VALUE",
        help="A setting of the engine's own, e.g. tensor_parallel_size=2; may be repeated.",
    )

    def load_settings(self) -> dict[str, Any]:
        """Return the arguments of `lookback.load` that were given."""
        own = asdict(self) | {"device_map": self.parse_device_map()}
        own["trust_remote_code"] = self.trust_remote_code or None  # other engines need not know it
        del own["engine_set"]
        return {name: value for name, value in own.items() if value is not None} | self.settings()

    def settings(self) -> dict[str, Any]:
        """Return the settings of `--engine-set`."""
        return parse_settings(self.engine_set, "--engine-set")

    def parse_device_map(self) -> str | dict[str, Any] | None:
        """Return `--device-map`: a word, or a JSON object.

        Raises:
            ValueError: it begins like a JSON object and is none.
        """
        text = self.device_map
        if text is None or not text.lstrip().startswith("{"):
            return text
        try:
            parsed: dict[str, Any] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"--device-map {text:.60}: not JSON ({error})") from None
        return parsed


def parse_settings(texts: list[str] | None, option: str = "--set") -> dict[str, Any]:
    """Parse `--set NAME=VALUE`, several times, into a dictionary; values are JSON, or words.

    Raises:
        ValueError: there is no `=`, or the value is JSON nested too deeply.
    """
    settings: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{option} {text}: write NAME=VALUE")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value  # a word
        except RecursionError as error:
            raise ValueError(f"{option} {text:.60}: not JSON ({error})") from None
    return settings


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where the items of a benchmark come from."""

    data: Data = None
    metric: str | None = option(
        help="Your own data: compares the answers of lines that name no metric."
    )
    allow_outside: AllowOutside = False


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """The language model that judges free-text answers."""

    judge_model: str | None = option(
        help="hallusionbench: the language model that judges; without, rules do.",
        envvar="LOOKBACK_JUDGE_MODEL",
    )
    judge_prompt: str | None = option(
        help="What it is asked: official (HallusionBench's rules, the default) or brief."
    )


@dataclass(frozen=True, kw_only=True)
class SignalOutputOptions:
    """How answers and their signals are printed."""

    PANEL: ClassVar[str] = OUTPUT
    by_layer: bool = option(
        False, "--by-layer", help="Keep A in each layer too; it is in what --json prints."
    )
    as_json: bool = option(False, "--json", help="Print all signals as JSON.")

    def check(self) -> None:
        """Raise ValueError if something is to be kept that would not be shown."""
        if self.by_layer and not self.as_json:
            raise ValueError("--by-layer is shown by --json alone: add --json")
