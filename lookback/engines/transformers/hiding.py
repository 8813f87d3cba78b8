"""A prompt's pass in which some of its tokens are hidden from every row, as if they were padding.

This is what a 0 inside the 2-D `attention_mask` of a whole sequence does, and nothing else: that
mask itself is left alone, for many models count positions by it (their images would then lie
elsewhere, or no longer fit), and what is to be compared are two passes that differ in what is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lookback.engines import UnsupportedModelError
from lookback.engines.transformers.tap import Call, LastRow


class HiddenKeys(LastRow):
    """Reads a prompt's last row while no row may look at some of its tokens.

    Args:
        source: (1, P), the source's positions.
        hidden: (P,), the positions that nobody sees, not even the row that stands there.
    """

    def __init__(self, source: Tensor, hidden: Tensor) -> None:
        super().__init__(source, keys=source.shape[1], by_layer=True)
        self.hidden = hidden

    def mask(self, base: Callable[..., Any], **kwargs: Any) -> Any:
        """The model's own mask, made with these tokens as padding."""
        seen, given = ~self.hidden[None], kwargs.get("attention_mask")
        if given is not None:
            seen = seen.to(given.device) & given.bool()
        batch = kwargs["batch_size"]
        shown = seen.expand(batch, -1).to(kwargs.get("device", seen.device))
        return base(**kwargs | {"attention_mask": shown, "allow_is_causal_skip": False})

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """As ever, once it is sure that the layer hides them."""
        if not self._hides(call.mask):
            raise UnsupportedModelError(
                f"{call.layer} attends with a mask of its own making, which shows tokens that were "
                "to be hidden: ask for rows='response'"
            )
        return super().attend(call)

    def _hides(self, mask: Tensor | None) -> bool:
        """Whether no row sees any of them by this mask; those that stand there see nothing.

        Every row counts: the last one may be blind to them by a window alone.
        """
        if mask is None:
            return False
        hidden = self.hidden.to(mask.device)
        rows = mask if mask.ndim == 2 else mask[:, :, ~hidden[-mask.shape[2] :]]
        keys = rows[..., hidden]
        shown = keys > torch.finfo(keys.dtype).min / 2 if keys.is_floating_point() else keys.bool()
        return not bool(shown.any())
