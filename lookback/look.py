"""Where a response looked: the attention that each of its tokens pays to each vision token.

An engine's `look` gives a `Look`: one row of weights per token, which sums to the token's A_t, and
the pictures that the weights lie on. What a vision token saw is a box in its picture, whatever the
model's layout (a grid, tiles, merged patches, frames), so everything here works on boxes alone.
Nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float32]
Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Picture:
    """One image, or one frame of a video, and the source's tokens that stand for it.

    Attributes:
        name: how `source=` calls it, e.g. "image:0"; a frame has its number behind, "video:0/3".
        image: as it was given, RGB.
        columns: (K,), which columns of `Look.weights` belong to it.
        boxes: (K, 4), what each of them saw: left, top, right, bottom as shares of the image's
            width and height; NaN for a token that stands for no place (a row's end, a padded
            tile). None if the model's layout is not known: there is no map then.
        grids: what the model saw, as rows and columns of places in `columns` (-1 for none): one
            for a plain grid, one for all tiles and one for the thumbnail of a tiled image.
    """

    name: str
    image: Image
    columns: Places
    boxes: Floats | None = None
    grids: tuple[Places, ...] = ()


@dataclass(frozen=True, eq=False)
class Look:
    """The attention of one response's T tokens on the V tokens of the source.

    Attributes:
        text: the response.
        token_ids: its tokens.
        tokens: their text.
        weights: (T, V), the attention that the row predicting token t pays to source token v,
            averaged over the heads of all chosen layers. With all layers, row t sums to A_t.
        pictures: what the source's vision tokens stand for.
        layers: the attention layers that were read, end exclusive.
        baseline: (T, V), the same tokens' weights after another prompt, if one was asked for.
    """

    text: str
    token_ids: NDArray[np.int64]
    tokens: tuple[str, ...]
    weights: Floats
    pictures: tuple[Picture, ...]
    layers: tuple[int, int]
    baseline: Floats | None = None
