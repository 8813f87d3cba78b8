"""What an engine's check of itself found: its numbers beside slow ones, on this very machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes:
        what: was compared.
        differences: the largest, by signal; empty if it could not be made.
        ok: whether all are within the tolerance; None if it does not apply to this model.
        note: why it could not be made, or what is wrong.
    """

    what: str
    differences: dict[str, float] = field(default_factory=dict)
    ok: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class CheckReport:
    """What `check` found.

    Attributes:
        model: where it comes from.
        model_class: its class.
        dtype, device: of its weights.
        layers, heads: how many attention layers were read, and heads in all of them.
        tolerance: of A_t, and of the other signals.
        checks: every comparison.
        tokens_per_second: with the tap, and with the same loop without it.
        peak_bytes: the most that a prompt and a few candidates took beyond the model, in tensors;
            None from an engine that cannot tell.
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
