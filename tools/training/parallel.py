"""Several processes of one thread each, which models this small like better than threads."""

from __future__ import annotations

import fcntl
import signal
import sys
from pathlib import Path

from torch.multiprocessing.spawn import spawn

from tools.training.export import export_clip, export_lvlm
from tools.training.models import make_tokenizer
from tools.training.recipe import Recipe
from tools.training.stages import train


def train_and_export(
    recipe: Recipe, folder: Path, lvlm: Path, clip: Path, processes: int = 2
) -> None:
    """Train both models (or go on with what `folder` holds) and write them to their folders.

    Raises:
        RuntimeError: another training is at work in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The workers go when this process does, also if it is told to from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another training is at work in {folder}") from None
        (folder / "meeting").unlink(missing_ok=True)  # of a run that was stopped
        arguments = processes, recipe, folder, lvlm, clip
        if processes == 1:
            _work(0, *arguments)
        else:
            spawn(_work, arguments, nprocs=processes, daemon=True)


def _work(rank: int, world: int, recipe: Recipe, folder: Path, lvlm: Path, clip: Path) -> None:
    tokenizer = make_tokenizer(recipe)  # of the same texts, so the same in every process
    trained = train(recipe, tokenizer, folder, rank, world)
    if rank == 0:
        export_lvlm(trained[0], tokenizer, lvlm, clip)
        export_clip(trained[1], tokenizer, clip)
