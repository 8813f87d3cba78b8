"""Errors in one line, and checks of arguments."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


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
    """An error's kind and message in one line."""
    return " ".join([f"{type(error).__name__}:", *str(error).split()]).removesuffix(":")


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Check a whole number.

    Raises:
        ValueError: it is none, or out of range.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"{name} = {value!r:.60}: must be a whole number")
    if int(value) < least:
        raise ValueError(f"{name} = {value}: must be at least {least}")
    if most is not None and int(value) > most:
        raise ValueError(f"{name} = {value}: must be at most {most}")


def check_share(name: str, value: Any) -> None:
    """Check a share of something.

    Raises:
        ValueError: it is none, or nothing at all.
    """
    if not is_number(value) or not 0 < value <= 1:
        raise ValueError(f"{name} = {value!r:.60}: must be above 0 and at most 1")


def check_flag(name: str, value: Any) -> None:
    """Check a truth value.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):  # NumPy's
        raise ValueError(f"{name} = {value!r:.60}: must be True or False")


def check_texts(name: str, texts: Any) -> list[str]:
    """Return one text, or several, as a list.

    Raises:
        ValueError: it has something else in it.
    """
    if isinstance(texts, str):
        return [texts]
    several = isinstance(texts, Iterable) and not isinstance(texts, (bytes, bytearray))
    found = list(texts) if several else [texts]
    for text in found:
        if not isinstance(text, str):
            raise ValueError(f"{name} = {texts!r:.60}: {text!r:.60} is not text")
    return [str(text) for text in found]


def is_number(value: Any) -> bool:
    """Whether a value is a real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)
