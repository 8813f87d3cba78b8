"""Looks with made-up weights on real pictures, for tests that need no model."""

import numpy as np

from lookback.benchmarks.base import get_benchmark
from lookback.looks.look import Look, Picture

TEXT = "A red car stands beside the tree, and the sun shines."
TOKENS = (
    *("A", " red", " car", " stands", " be", "side", " the", " tree", ","),
    *(" and", " the", " sun", " sh", "ines", "."),
)


def scene(number=0):
    """A drawn scene, as the embedded model knows them."""
    return get_benchmark("scenes-caption").items("test", number + 1)[number].image


def grid_boxes(rows, columns):
    """(rows * columns, 4), row by row."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    edges = [x / columns, y / rows, (x + 1) / columns, (y + 1) / rows]
    return np.stack(edges, axis=1).astype(np.float32)


def make_picture(name="image:0", image=None, rows=10, columns=10, first=0):
    """A picture of a plain grid, whose tokens begin at a column of the weights."""
    count = rows * columns
    return Picture(
        name,
        scene() if image is None else image,
        np.arange(first, first + count),
        grid_boxes(rows, columns),
        (np.arange(count).reshape(rows, columns),),
    )


def make_weights(tokens, pictures, seed=0, total=None):
    """(T, V): a spot per token somewhere in the pictures, on an even ground with a sink."""
    rng = np.random.default_rng(seed)
    width = 1 + max((int(p.columns.max()) for p in pictures), default=-1)
    weights = rng.uniform(0.2, 0.4, (tokens, max(width, total or 0)))
    for picture in pictures:
        boxes = picture.boxes if picture.boxes is not None else grid_boxes(1, len(picture.columns))
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2
        spots = rng.uniform(0.1, 0.9, (tokens, 1, 2))
        near = np.exp(-np.nan_to_num(((middle - spots) ** 2).sum(-1), nan=9) / 0.02)
        weights[:, picture.columns] += 4 * near
        weights[:, picture.columns[3]] += 3  # whatever the word
    looked = rng.uniform(0.05, 0.5, (tokens, 1))
    return (looked * weights / weights.sum(1, keepdims=True)).astype(np.float32)


def make_look(text=TEXT, tokens=TOKENS, pictures=None, baseline=False, seed=0, total=None):
    """A look of the usual picture, or of others."""
    pictures = (make_picture(),) if pictures is None else tuple(pictures)
    return Look(
        text,
        np.arange(len(tokens)),
        tuple(tokens),
        make_weights(len(tokens), pictures, seed, total),
        pictures,
        (0, 8),
        make_weights(len(tokens), pictures, seed + 1, total) if baseline else None,
    )


def make_tiled(first=0):
    """2 x 2 tiles of 4 x 4 tokens each, a thumbnail of 4 x 4, and a token without a place."""
    boxes = np.concatenate([grid_boxes(8, 8), grid_boxes(4, 4), np.full((1, 4), np.nan)])
    grids = np.arange(64).reshape(8, 8), np.arange(64, 80).reshape(4, 4)
    columns = np.arange(first, first + 81)
    return Picture("image:0", scene(1), columns, boxes.astype(np.float32), grids)
