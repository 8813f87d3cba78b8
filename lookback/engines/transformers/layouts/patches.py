"""Models that take a whole picture in patches: the processor says how many rows and columns.

The picture is stretched to whole patches, so their grid covers all of it and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lookback.engines.transformers.layouts.grids import Grid, Tokens, count_up, even_edges
from lookback.engines.transformers.layouts.settings import entry, merge_size
from lookback.families import Layout


def patch_tokens(layout: Layout, config: Any, inputs: Mapping[str, Any], kind: str) -> list[Tokens]:
    """The tokens of every image, or those of one step in time of every video."""
    found = []
    for number, (height, width) in enumerate(_patches(inputs, kind)):
        merge = merge_size(config, layout.merge)
        own = inputs.get(f"{kind}_merge_sizes")  # VideoLLaMA 3 says it with each picture
        merge = merge if own is None else int(own[number])
        found.append(whole_grid(height // merge, width // merge, layout.row_end))
    return found


def whole_grid(rows: int, columns: int, row_end: bool = False) -> Tokens:
    """Rows of tokens over the whole picture; maybe one more after each row, and around them all."""
    edge = int(row_end)
    places = count_up(rows, columns, start=edge, step=columns + edge)
    grid = Grid(places, even_edges(columns), even_edges(rows))
    return Tokens(rows * (columns + edge) + 2 * edge, (grid,))


def _patches(inputs: Mapping[str, Any], kind: str) -> list[tuple[int, int]]:
    """Rows and columns of patches of every image or video."""
    if "image_position_ids" in inputs and kind == "image":  # Gemma 4: x and y of each patch
        ids = torch.as_tensor(inputs["image_position_ids"])
        return [(int(one[:, 1].max()) + 1, int(one[:, 0].max()) + 1) for one in ids]
    grids = torch.as_tensor(entry(inputs, f"{kind}_grid_thw")).tolist()
    return [(height, width) for _, height, width in grids]
