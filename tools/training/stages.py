"""The stages in their order, in one process of several."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tools.training.batches import Packer, images
from tools.training.loop import Trainer
from tools.training.losses import (
    PatchHead,
    answer_loss,
    contrastive_loss,
    pack_reasoned,
    pack_texts,
    token_weights,
    vision_loss,
)
from tools.training.models import make_clip, make_lvlm
from tools.training.recipe import Recipe, Stage
from tools.training.texts import training_scene

SCENES = 200_000
"""More than a training uses: another seed has other scenes, too; there are enough for five."""


def train(
    recipe: Recipe, tokenizer: Any, folder: Path, rank: int = 0, world: int = 1
) -> tuple[Any, Any]:
    """Train the LVLM and the dual encoder, or go on with it; both models, trained.

    Args:
        recipe: the numbers.
        tokenizer: made from the recipe.
        folder: for checkpoints; remove it to begin anew.
        rank: which process this is.
        world: of how many; they meet through a file in `folder`.
    """
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder.resolve()}/meeting", rank=rank, world_size=world
        )
    lvlm, clip = make_lvlm(recipe, tokenizer), make_clip(recipe, tokenizer)
    head = PatchHead(recipe.vision_width)
    tower = lvlm.model.vision_tower
    language, projector = lvlm.model.language_model, lvlm.model.multi_modal_projector
    packer = Packer(tokenizer)
    trainer = Trainer(
        folder,
        nn.ModuleDict({"lvlm": lvlm, "clip": clip, "head": head}),
        rank,
        world,
        say=lambda line: None if rank else print(line, flush=True),
        made_of=fingerprint(recipe, tokenizer),
        muon=recipe.muon,
        scenes=recipe.seed * SCENES,
    )

    weights = token_weights(tokenizer, recipe.verdict)
    on_verdict = token_weights(tokenizer, recipe.logic_verdict)

    def answers(stage: Stage, blind_share: float) -> Callable[[int, Any], Tensor]:
        def loss(step: int, indices: Any) -> Tensor:
            # A fixed pattern of blind steps, spread evenly and the same in every process.
            blind = int((step + 1) * blind_share) > int(step * blind_share)
            packed = pack_texts(packer, indices, recipe.questions, stage.described, blind)
            seen = None if blind else images([training_scene(i) for i in indices])
            return answer_loss(lvlm, packed, seen, weights)

        return loss

    def reasons(step: int, indices: Any) -> Tensor:
        packed = pack_reasoned(packer, indices, recipe.logic_questions)
        return answer_loss(lvlm, packed, None, on_verdict)

    def patches(step: int, indices: Any) -> Tensor:
        return vision_loss(tower, head, [training_scene(i) for i in indices])

    trainer.run("vision", recipe.vision, patches, [(tower, 1.0), (head, 1.0)])
    alone, between = answers(recipe.language, 1.0), answers(recipe.projector, 0.0)
    trainer.run("language", recipe.language, alone, [(language, 1.0)])
    trainer.run("projector", recipe.projector, between, [(projector, 1.0)])

    def together(name: str, stage: Stage) -> None:
        groups = [(language, 1.0), (projector, 1.0), (tower, stage.vision_lr)]
        trainer.run(name, stage, answers(stage, recipe.blind), groups)

    together("sight", recipe.sight)
    # Whether yes or no follows from what was said: learned on text alone within minutes once the
    # model finds things in its context, and never among everything else.
    trainer.run("logic", recipe.logic, reasons, [(language, 1.0)])
    together("joint", recipe.joint)
    copy_tower(tower, clip)
    trainer.run(
        "clip",
        recipe.clip,
        lambda s, i: contrastive_loss(clip, tokenizer, i),
        [(clip.vision_model, recipe.clip.vision_lr)]
        + [(part, 1.0) for name, part in clip.named_children() if name != "vision_model"],
    )
    if world > 1:
        dist.destroy_process_group()
    return lvlm, clip


def fingerprint(recipe: Recipe, tokenizer: Any) -> str:
    """The same for the same numbers and the same vocabulary, which the training texts make."""
    texts = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(f"{recipe}\n{texts}".encode()).hexdigest()


def copy_tower(tower: Any, clip: Any) -> None:
    """The dual encoder begins with the eyes of the LVLM."""
    own = clip.vision_model.state_dict()
    known = {name.split("vision_model.")[-1]: value for name, value in tower.state_dict().items()}
    missing = set(own) - set(known)
    if missing:
        raise ValueError(f"the vision towers differ: {sorted(missing)[:3]}")
    clip.vision_model.load_state_dict({name: known[name] for name in own})
