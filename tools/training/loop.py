"""One loop for all stages: processes that share gradients, checkpoints, progress with an ETA."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tools.training.optimizers import make_optimizers
from tools.training.recipe import Stage

CLIP_NORM = 1.0
FLOOR = 0.03  # the share of the learning rate that is left at the end
SAVE_EVERY = 60.0  # seconds


@dataclass
class Trainer:
    """Runs stages one after another, in `world` processes, each on scenes of its own.

    What is done is kept in `folder`: a run that was stopped goes on where it was. The scenes of a
    step follow from the stage, the step and the process alone, so nothing is drawn twice.

    Attributes:
        folder: where checkpoints go.
        modules: everything that is trained or kept, by name.
        rank, world: which process this is, of how many.
        say: prints a line, in the first process.
        made_of: what decides what comes out; checkpoints of anything else are refused.
        muon: the learning rate of matrices, as a multiple of that of the rest.
        scenes: how many training scenes are used up: those of the stages before.
    """

    folder: Path
    modules: nn.ModuleDict
    rank: int
    world: int
    say: Callable[[str], None]
    made_of: str = ""
    muon: float = 1.0
    scenes: int = 0

    def run(
        self,
        name: str,
        stage: Stage,
        loss: Callable[[int, Sequence[int]], Tensor],
        groups: Sequence[tuple[nn.Module, float]],
    ) -> None:
        """Train some modules on a loss.

        Args:
            name: of the stage.
            stage: its numbers.
            loss: of a step and the indices of its scenes.
            groups: the modules to train, each with its share of the learning rate.
        """
        for parameter in self.modules.parameters():
            parameter.requires_grad_(False)
        for module, _ in groups:
            module.requires_grad_(True)
        optimizers = make_optimizers(groups, self.muon)
        first, start = self._restore(name, optimizers), self.scenes
        parts = [group for optimizer in optimizers for group in optimizer.param_groups]
        parameters = [p for group in parts for p in group["params"]]
        self.scenes += stage.steps * stage.batch * self.world
        began = saved = told = time.monotonic()
        mean = math.nan
        for step in range(first, stage.steps):
            for group in parts:
                group["lr"] = group["share"] * learning_rate(stage, step)
            place = start + (step * self.world + self.rank) * stage.batch
            for parameter in parameters:
                parameter.grad = None
            result = loss(step, range(place, place + stage.batch))
            result.backward()
            self._share_gradients(parameters)
            nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
            for optimizer in optimizers:
                optimizer.step()
            value = float(result.detach())
            mean = value if math.isnan(mean) else 0.98 * mean + 0.02 * value
            now = time.monotonic()
            if now - told > 20 or step == stage.steps - 1:
                left = (now - began) / (step - first + 1) * (stage.steps - step - 1)
                self.say(
                    f"{name:>9} {step + 1:>5}/{stage.steps} loss {mean:.3f} "
                    f"{left / 60:.1f} min left in this stage"
                )
                told = now
            if now - saved > SAVE_EVERY:
                self._save(name, step + 1, optimizers)
                saved = now
        self._save(name, stage.steps, optimizers)

    def _share_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Every process gets the mean of all gradients; one message for all parameters."""
        if self.world == 1:
            return
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        flat /= self.world
        for parameter, piece in zip(
            parameters, flat.split([p.numel() for p in parameters]), strict=True
        ):
            parameter.grad = piece.view_as(parameter)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.pt"

    def _save(self, name: str, step: int, optimizers: Sequence[Any]) -> None:
        if self.rank:
            return
        state = {
            "step": step,
            "made_of": self.made_of,
            "modules": self.modules.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        }
        partial = self._path(name).with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self._path(name))

    def _restore(self, name: str, optimizers: Sequence[Any]) -> int:
        """Load the stage's checkpoint, if there is one, in all processes; the step to go on at."""
        if not self._path(name).exists():
            return 0
        state = torch.load(self._path(name), weights_only=True)
        if state["made_of"] != self.made_of:
            raise ValueError(
                f"{self._path(name)} comes from another recipe or other texts: remove the folder "
                "to begin anew"
            )
        self.modules.load_state_dict(state["modules"])
        for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        step: int = state["step"]
        if self.world > 1:
            dist.barrier()  # nobody writes the next checkpoint before all have read this one
        return step


def learning_rate(stage: Stage, step: int) -> float:
    """Linear warm-up, then a cosine down to `FLOOR` of the peak."""
    rise = min(1.0, (step + 1) / stage.warmup)
    fall = FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * step / stage.steps))
    return stage.lr * rise * fall
