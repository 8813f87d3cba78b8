"""Which seeds belong to which split and task: ranges that cannot overlap.

Every (split, task) owns one block of `SPAN` seeds; an index outside its split's size is refused, so
no scene of one split can ever be another's. Training text has a block of its own beside the tasks.
"""

from __future__ import annotations

SPAN = 2**20
SIZES = {"train": 1_000_000, "tune": 400, "test": 1_000}  # scenes, and at most so many items
TASKS = ("training", "scenes-vqa", "scenes-caption", "scenes-amber", "scenes-pairs")

assert max(SIZES.values()) <= SPAN


def split_size(split: str) -> int:
    """How many items a task has in a split.

    Raises:
        ValueError: there is no such split.
    """
    if split not in SIZES:
        raise ValueError(f"no split named {split!r}; there are: {', '.join(SIZES)}")
    return SIZES[split]


def scene_seed(split: str, task: str, index: int) -> int:
    """The seed of a task's scene.

    Raises:
        ValueError: the split is unknown, or it has no such scene.
    """
    size = split_size(split)
    if not 0 <= index < size:
        raise ValueError(f"scene {index} of split {split!r}: it has scenes 0 to {size - 1}")
    block = list(SIZES).index(split) * len(TASKS) + TASKS.index(task)
    return block * SPAN + index
