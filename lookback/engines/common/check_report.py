"""The report of `Engine.check`: an engine's numbers compared with slow ones on this machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes:
        what: what was compared.
        differences: the largest, by signal; empty if nothing could be compared.
        ok: whether all are within the tolerance; None if it does not apply to this model.
        note: why nothing could be compared, or what is wrong.
    """

    what: str
    differences: dict[str, float] = field(default_factory=dict)
    ok: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class CheckReport:
    """All comparisons of one model.

    Attributes:
        layers, heads: how many attention layers were read, and heads in all of them.
        tolerance: of A_t, and of the other signals.
        tokens_per_second: with the tap, and with the same loop without it.
        peak_bytes: the most that a prompt and a few candidates took beyond the model, in tensors;
            None from an engine that does not know.
    """

    model: str
    model_class: str
    dtype: str
    device: str
    layers: int
    heads: int
    tolerance: tuple[float, float]
    checks: list[Check]
    tokens_per_second: dict[str, float]
    peak_bytes: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(check.ok is not False for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self) | {"ok": self.ok}
