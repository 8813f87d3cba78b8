"""Where signals come from. Every engine speaks the same small protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lookback.families import Family
from lookback.signals import Candidate, Candidates

if TYPE_CHECKING:
    from lookback.images import ImageLike

    Images = ImageLike | Sequence[ImageLike] | None
    Response = str | Sequence[int] | Candidate

Progress = Callable[[int, int], None]
"""Called with (done, total) while something long runs."""


class UnsupportedModelError(ValueError):
    """A model whose visual lookback cannot be read; the message says why."""


class Engine(Protocol):
    """A model that can draw candidates, score given ones, and answer questions.

    Attributes:
        family: what is known of models like it.
    """

    family: Family

    def sample(
        self, image: Images, question: str, n: int, *args: Any, **settings: Any
    ) -> Candidates:
        """Draw n candidates and record their signals on the way."""
        ...

    def score(
        self,
        image: Images,
        question: str,
        responses: Sequence[Response],
        *args: Any,
        **settings: Any,
    ) -> Candidates:
        """Record the signals of responses that exist already."""
        ...

    def knockout(
        self,
        image: Images,
        question: str,
        responses: Sequence[Response],
        *args: Any,
        **settings: Any,
    ) -> Candidates:
        """Record them again with the vision tokens hidden that each response looks at most."""
        ...

    def ask(self, image: Images, prompt: Sequence[str], *args: Any, **settings: Any) -> list[str]:
        """Plain answers to several prompts about one image."""
        ...
