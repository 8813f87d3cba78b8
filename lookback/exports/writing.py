"""A run in a format, written whole or not at all; the format's module is imported only now."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lookback.exports.formats import FORMATS, OPTIONS, get_format
from lookback.exports.request import Request, Written

if TYPE_CHECKING:
    from lookback.engines import Progress


def export(name: str, request: Request, progress: Progress, **options: bool | None) -> Written:
    """Write a run in a format, whole or not at all.

    Args:
        name: of the format.
        request: what is asked for.
        progress: is told how many items are done.
        options: those of `OPTIONS` that somebody gave; None is the format's own.

    Raises:
        FileExistsError: there is something at the output already.
        ImportError: a library is missing; it says what to install.
        ValueError: the format does not take an option, or the output's name.
        RunError: the run has not what is asked for.
    """
    form = get_format(name)
    given = {key: value for key, value in options.items() if value is not None}
    for option in given:
        if option not in form.takes and given[option]:
            takers = ", ".join(one.name for one in FORMATS.values() if option in one.takes)
            raise ValueError(f"--{option} means nothing to {name}: it is for {takers}")
    if form.suffixes and request.out.suffix not in form.suffixes:
        ends = " or ".join(form.suffixes)
        raise ValueError(f"--out {str(request.out)!r}: {name} writes a file that ends in {ends}")
    if request.out.exists():
        raise FileExistsError(
            f"{str(request.out)!r} is there already and stays as it is: name another --out, or "
            "move it away"
        )
    module: Any = importlib.import_module(form.module)
    settings: dict[str, Any] = {"insist": given.get("images") is True}
    settings |= {key: form.defaults.get(key, False) for key in OPTIONS} | given
    written: Written = module.write(replace(request, **settings), progress)
    return written
