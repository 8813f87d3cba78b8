"""Where signals come from: one contract for every engine, and `load`, which makes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lookback.engines.base import ABILITIES as ABILITIES
from lookback.engines.base import Ability as Ability
from lookback.engines.base import AbilityError as AbilityError
from lookback.engines.base import Engine as Engine
from lookback.engines.base import Identity as Identity
from lookback.engines.base import optional_settings as optional_settings
from lookback.engines.base import refuse as refuse
from lookback.engines.base import require as require
from lookback.engines.common.options import Progress as Progress
from lookback.engines.common.options import check_rows as check_rows
from lookback.engines.common.options import check_sampling as check_sampling
from lookback.errors import UnsupportedModelError as UnsupportedModelError
from lookback.registry import PluginError, Registry, SettingError, did_you_mean

if TYPE_CHECKING:
    from lookback.engines.common.options import Response as Response
    from lookback.engines.common.options import Rows as Rows

F = TypeVar("F", bound="Callable[..., Engine]")


@dataclass(frozen=True)
class EngineKind:
    """A registered engine: its name, the function that loads one, and a line about it."""

    name: str
    load: Callable[..., Engine]
    about: str

    @property
    def origin(self) -> object:
        """The function that loads it."""
        return self.load

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of what it takes beside model and processor."""
        parameters = inspect.signature(self.load).parameters
        return tuple(name for name in parameters if name not in ("model", "processor"))


def engine(name: str) -> Callable[[F], F]:
    """Register a function `(model, processor, **settings) -> Engine` as the engine `name`.

    The first line of its docstring describes it.

    Raises:
        TypeError: the function takes no model and processor.
    """

    def register(function: F) -> F:
        try:
            inspect.signature(function).bind(None, None)
        except TypeError as error:
            raise TypeError(
                f"engine {name!r} must take (model, processor, **settings): {error}"
            ) from None
        ENGINES.add(EngineKind(name, function, (inspect.getdoc(function) or "").split("\n")[0]))
        return function

    return register


def _adopt(name: str, function: Any) -> None:
    engine(name)(function)


ENGINES: Registry[EngineKind] = Registry(
    "engine",
    {"transformers": "lookback.engines.transformers", "vllm": "lookback.engines.vllm"},
    _adopt,
)


def load(
    model: Any = None,
    processor: Any = None,
    *,
    engine: str = "transformers",
    quiet: bool = False,
    **settings: Any,
) -> Engine:
    """Load an LVLM, and return it as an `Engine`.

    Args:
        model: a hub id, a folder, or a transformers model (then give its processor too); by
            default the embedded one, which knows drawn scenes only.
        processor: the processor, or where to load it from; the model's own by default.
        engine: what runs it: a name that `lookback engines` lists.
        quiet: keep the engine's libraries from writing to stderr, where the engine can.
        settings: the engine's own. Of "transformers": `device`, `dtype`, `attn`, `revision`,
            `trust_remote_code`, `device_map`, `quantization_config`, `prompt`
            (`help(lookback.engines.transformers.load)`); of "vllm": those of vLLM too
            (`help(lookback.engines.vllm.load)`).

    Raises:
        ValueError: there is no such engine.
        SettingError: it has no such setting.
        PluginError: what it returns is no engine.
        UnsupportedModelError: the model's visual lookback cannot be read.
    """
    kind = ENGINES.get(engine)
    takes = inspect.signature(kind.load).parameters.values()
    if quiet and "quiet" in kind.settings:
        settings["quiet"] = True
    unknown = sorted(settings.keys() - set(kind.settings))
    if unknown and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes):
        has = ", ".join(kind.settings) or "none"
        hint = did_you_mean(unknown[0], kind.settings)
        raise SettingError(f"engine {engine!r} has no setting {unknown[0]!r}; it has: {has}{hint}")
    loaded = kind.load(model, processor, **settings)
    if not isinstance(loaded, Engine):
        raise PluginError(f"engine {engine!r} gave {loaded!r:.60}: an Engine is needed")
    return loaded
