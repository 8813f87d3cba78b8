"""A shorter import of torch and transformers, for a command that asks the embedded model.

transformers imports much that one process on a CPU never uses: the compiler, distributed tensors,
solvers for losses. While `deferring` lasts, these modules are stand-ins. What is taken from one is
a promise: no object is an instance of it until the real module is loaded, and calling it later
loads and calls the real one. Afterwards the stand-ins are gone, and whoever imports such a module
gets the real one. Numbers do not change by a bit: tests compare them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

DEFERRED = (
    "torch._dynamo",
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch.distributed._composable",
    "torch.distributed.checkpoint",
    "scipy",
    "sklearn",
)
"""Modules that are promised, with all below them."""
TRIED = "2.13."
"""The releases of torch that it was tried with."""
_MARKS = ("allow_in_graph", "assume_constant_result", "disable")
"""Decorators of torch._dynamo that tell a compiler something: without one they do nothing."""
_SHAPES = "torch.fx.experimental.symbolic_shapes"
"""What a check of a plain truth value asks; behind it is all of sympy."""


@contextmanager
def deferring() -> Iterator[None]:
    """Defer imports for a block.

    Not if transformers was imported before, when there is no need; nor with a torch that this was
    not tried with: what it asks of these modules may be more.
    """
    if "transformers" in sys.modules or not version("torch").startswith(TRIED):
        yield
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    sys.meta_path.insert(0, _ShapesFinder())
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        finder.remove_stand_ins()


def import_transformers() -> None:
    """Import transformers, whose list of all models is made once instead of twice.

    It reads every model's files for it: for the package, and again for `transformers.models`.
    """
    import transformers
    from transformers.utils import import_utils

    name = "transformers.models"
    if name in sys.modules:
        return
    folder = Path(str(transformers.__file__)).parent / "models"
    file = str(folder / "__init__.py")
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(folder)]
    )
    found = import_utils.define_import_structure(folder)  # which is kept by its argument
    sys.modules[name] = import_utils._LazyModule(name, file, found, module_spec=spec)


class _Promise(type):
    """The metaclass of what is taken from a stand-in; `home` is the real module's name."""

    home: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if isinstance(sys.modules.get(cls.home), _StandIn):
            # E.g. a default in a plan for several devices, which nobody will use.
            return object.__new__(cls)  # type: ignore[arg-type]
        return getattr(importlib.import_module(cls.home), cls.__name__)(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        module = sys.modules.get(cls.home)
        if module is None or isinstance(module, _StandIn):
            return False  # nobody can have made one
        return isinstance(instance, getattr(module, cls.__name__))


class _StandIn(ModuleType):
    """A module of promises."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self.__name__} has no {name} yet")
        if self.__name__ == "torch._dynamo" and name in _MARKS:
            return _unmarked
        return _Promise(name, (), {"home": self.__name__})


def _unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    """A decorator, with or without settings, that leaves a function as it is."""
    return (lambda given: given) if function is None else function


class _Finder:
    """Finds stand-ins for modules that are there."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A stand-in's, for a deferred module whose package is installed."""
        if not any(name == one or name.startswith(f"{one}.") for one in DEFERRED):
            return None
        if PathFinder.find_spec(name.partition(".")[0]) is None:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty stand-in."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to do."""

    def remove_stand_ins(self) -> None:
        """Forget them, so that the next import is the real one."""
        for name, module in list(sys.modules.items()):
            if not isinstance(module, _StandIn):
                continue
            del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if vars(sys.modules.get(parent, module)).get(child) is module:
                delattr(sys.modules[parent], child)


class _Shapes(ModuleType):
    """`symbolic_shapes` for plain values; whatever else is asked of it makes it the real one."""

    def expect_true(self, value: Any, skip: int = 0) -> bool:
        """What the real one says of a bool: itself."""
        if type(value) is bool:
            return value
        _become_real(self)
        return bool(vars(self)["expect_true"](value, skip))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self.__name__} has no {name} yet")
        _become_real(self)
        return getattr(self, name)


def _become_real(module: ModuleType) -> None:
    parent = sys.modules[_SHAPES.rpartition(".")[0]]
    spec = PathFinder.find_spec(_SHAPES, parent.__path__)
    assert spec is not None
    assert spec.loader is not None
    module.__class__ = ModuleType
    module.__spec__, module.__file__ = spec, spec.origin
    spec.loader.exec_module(module)


class _ShapesFinder:
    """Finds `_Shapes`, for as long as the process lives: it is asked in every pass."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Its own."""
        return ModuleSpec(name, self) if name == _SHAPES else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """One that becomes the real one when it must."""
        return _Shapes(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to do."""
