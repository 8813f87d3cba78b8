"""Errors in one line, and checks of arguments."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class UnsupportedModelError(ValueError):
    """A model whose visual lookback cannot be read; the message says why."""


def one_line(text: object, most: int = 200) -> str:
    """Return a text, or an error's message, as one printable line of limited length.

    An error without a message is named by its kind.
    """
    words = " ".join(str(text).split())
    if not words and isinstance(text, BaseException):
        words = type(text).__name__
    shown = "".join(char if char.isprintable() else "\ufffd" for char in words)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def error_line(error: BaseException) -> str:
    """Return an error's kind and message in one line."""
    return " ".join([f"{type(error).__name__}:", *str(error).split()]).removesuffix(":")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raise ValueError if a value is no whole number, or out of range."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"{name} = {value!r:.60}: must be a whole number")
    if int(value) < least:
        raise ValueError(f"{name} = {value}: must be at least {least}")
    if most is not None and int(value) > most:
        raise ValueError(f"{name} = {value}: must be at most {most}")


def check_share(name: str, value: Any) -> None:
    """Raise ValueError if a value is no share of something, above 0 and at most 1."""
    if not is_number(value) or not 0 < value <= 1:
        raise ValueError(f"{name} = {value!r:.60}: must be above 0 and at most 1")


def check_flag(name: str, value: Any) -> None:
    """Raise ValueError if a value is neither True nor False."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):  # NumPy's
        raise ValueError(f"{name} = {value!r:.60}: must be True or False")


def check_texts(name: str, texts: Any) -> list[str]:
    """Return one text, or several, as a list; raise ValueError if something is no text."""
    if isinstance(texts, str):
        return [texts]
    several = isinstance(texts, Iterable) and not isinstance(texts, (bytes, bytearray))
    values = list(texts) if several else [texts]
    for text in values:
        if not isinstance(text, str):
            raise ValueError(f"{name} = {texts!r:.60}: {text!r:.60} is not text")
    return [str(text) for text in values]


def is_number(value: Any) -> bool:
    """Return whether a value is a real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)
