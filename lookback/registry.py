"""One way to register things by name: scorers, metrics, benchmarks, studies, engines.

An entry comes from the package itself (its module is imported when the entry is first asked for),
from another installed package (an entry point of the registry's group), or from a file or module
that the user names (`--plugin`, LOOKBACK_PLUGINS). All of them register with a decorator:

    @lookback.scorer("cautious")
    def cautious(batch): ...

and a package says in its pyproject.toml where that happens:

    [project.entry-points."lookback.scorers"]
    cautious = "my_package.scorers:cautious"

What belongs to an entry (its title, its colour) travels with it. Nothing here knows what is
registered.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from lookback.errors import error_line

PLUGINS_VARIABLE = "LOOKBACK_PLUGINS"
"""Names modules and files to import, separated like the entries of PATH."""

_plugins: dict[str, str] = {}
"""Modules that were imported as plugins or for an entry point: what their users call them."""


class PluginError(ValueError):
    """A plugin, or another package's entry point, cannot be loaded."""


class SettingError(TypeError):
    """A setting that does not exist, is missing, or has a value of the wrong kind."""


WRONG_KIND = (TypeError, AttributeError, OverflowError)
"""Errors that a setting of the wrong kind causes, e.g. text where a number is needed."""


def wrong_kind(who: str, settings: Mapping[str, object], error: Exception) -> SettingError:
    """Return the error of something that failed with settings which it does have."""
    values = ", ".join(f"{name} = {value!r:.60}" for name, value in settings.items())
    return SettingError(f"{who} cannot work with {values} ({error_line(error)})")


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the most similar known one."""
    alike = difflib.get_close_matches(name, list(names), 1) if isinstance(name, str) else []
    return f". Did you mean {alike[0]!r}?" if alike else ""


class Entry(Protocol):
    """What can be registered."""

    @property
    def name(self) -> str:
        """The name that users write."""

    @property
    def origin(self) -> object:
        """The function or class that was registered."""


E = TypeVar("E", bound=Entry)


class FunctionEntry:
    """An entry that is a function; its arguments but the first are settings."""

    function: Callable[..., Any]

    @property
    def origin(self) -> object:
        """The registered function."""
        return self.function

    @property
    def params(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(inspect.signature(self.function).parameters)[1:]


class Registry(Generic[E]):
    """Entries of one kind.

    Args:
        kind: the word for an entry in messages, e.g. "scorer".
        builtin: the module that registers each of the package's own entries, by name, in the order
            in which lists show them.
        adopt: registers an object under a name; for entry points that name a plain function or
            class, without the decorator.
        plural: the group of entry points is `lookback.` and this; kind + s by default.

    Attributes:
        entries: what was registered so far, by name.
    """

    def __init__(
        self,
        kind: str,
        builtin: Mapping[str, str],
        adopt: Callable[[str, object], object],
        plural: str | None = None,
    ) -> None:
        self.kind = kind
        self.group = f"lookback.{plural or f'{kind}s'}"
        self.builtin = builtin
        self._adopt = adopt
        self.entries: dict[str, E] = {}

    def add(self, entry: E) -> None:
        """Register an entry.

        The same definition, run again as in a notebook, replaces the older one.

        Raises:
            TypeError: its name is no text, or what is registered cannot be called.
            ValueError: there is another of that name.
        """
        self._check(entry)
        known = self.entries.get(entry.name)
        home = _home(entry.origin)
        taken = known is not None and _home(known.origin) != home
        if taken or (known is None and self.builtin.get(entry.name, home[0]) != home[0]):
            article = "an" if self.kind[0] in "aeiou" else "a"
            raise ValueError(f"there is already {article} {self.kind} named {entry.name!r}")
        self.entries[entry.name] = entry

    def _check(self, entry: E) -> None:
        """Raise TypeError for an entry that would fail later, far from where it is registered."""
        if not isinstance(entry.name, str) or not entry.name.strip():
            raise TypeError(f"the name of a {self.kind} is {entry.name!r:.60}: give it a word")
        if not callable(entry.origin):
            raise TypeError(
                f"{self.kind} {entry.name!r} is {entry.origin!r:.60}: a function or a class is "
                "needed"
            )

    def names(self) -> list[str]:
        """Return all names: the package's own in its order, then those from elsewhere."""
        load_plugins()
        return list(dict.fromkeys([*self.builtin, *self._points(), *self.entries]))

    def get(self, name: str) -> E:
        """Return the entry of that name; its module is imported now.

        Raises:
            ValueError: there is none; the message lists those there are.
            PluginError: another package's entry cannot be loaded.
        """
        names = self.names()
        if name not in names:
            raise ValueError(
                f"no {self.kind} named {name!r:.60}; there are: {', '.join(names)}"
                f"{did_you_mean(name, names)}"
            )
        if name not in self.entries:
            self._load(name)
        return self.entries[name]

    def all(self) -> dict[str, E]:
        """Return every entry by name; warn of another package's that cannot be loaded."""
        entries = {}
        for name in self.names():
            try:
                entries[name] = self.get(name)
            except PluginError as error:
                warnings.warn(str(error), stacklevel=2)
        return entries

    def own(self, name: str) -> bool:
        """Whether an entry comes from a user or another package."""
        return name not in self.builtin

    def _points(self) -> dict[str, EntryPoint]:
        return _points(self.group, tuple(self.builtin))

    def _load(self, name: str) -> None:
        if name in self.builtin:
            importlib.import_module(self.builtin[name])
            return
        point = self._points()[name]
        _plugins[point.module] = point.value
        try:
            loaded = point.load()
            if name not in self.entries:
                self._adopt(name, loaded)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(
                f"the {self.kind} {name!r} ({point.value}) cannot be loaded: {error_line(error)}"
            ) from error


def load_plugins() -> None:
    """Import what LOOKBACK_PLUGINS names, once."""
    for plugin in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        load_plugin(plugin)


def load_plugin(plugin: str) -> None:
    """Import a module by its name, or a Python file by its path, once.

    Raises:
        FileNotFoundError: there is no such file.
        PluginError: it failed.
    """
    is_file = plugin.endswith(".py")
    path = Path(plugin).resolve()
    # Two files of one name in two folders are two plugins.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"lookback_plugin_{path.stem}_{digest}" if is_file else plugin
    if name in sys.modules:
        return
    if is_file and not path.is_file():
        raise FileNotFoundError(f"no plugin {plugin}: there is no such file")
    _plugins[name] = plugin
    try:
        if is_file:
            _run_file(name, path)
        else:
            importlib.import_module(name)
    except BaseException as error:  # a script that ends itself must not end the command
        if is_interrupt(error):
            raise
        raise PluginError(f"the plugin {plugin} failed: {error_line(error)}") from error


def is_interrupt(error: BaseException) -> bool:
    """Whether an error is Ctrl-C itself, not a subclass that a plugin raised."""
    return type(error) is KeyboardInterrupt


def plugin_in(trace: TracebackType | None) -> str | None:
    """Return the plugin that an error passed through, as its user named it, or None."""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        for name, plugin in _plugins.items():
            if module == name or module.startswith(f"{name}."):
                return plugin
        trace = trace.tb_next
    return None


def _run_file(name: str, path: Path) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


@cache
def _points(group: str, taken: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Return other packages' entry points of a group; warn of one whose name is taken."""
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        first = points.get(point.name)
        if point.name in taken or (first and first.value != point.value):
            whose = first.value if first else "lookback itself"
            warnings.warn(
                f"{point.value} is left out: {whose} has the name {point.name!r} in {group}",
                stacklevel=2,
            )
        else:
            points[point.name] = point
    return points


def _home(thing: object) -> tuple[str, str]:
    """Return the module and the qualified name of a function or class."""
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    return getattr(thing, "__module__", ""), name
