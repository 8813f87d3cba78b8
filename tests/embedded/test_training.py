"""The training: packed texts equal the processor's, the loss falls, a stopped run goes on."""

import copy
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from lookback.scenes.render import render
from lookback.scenes.scene import Scene, Thing
from lookback.scenes.world import CATEGORIES, COLORS
from tools.training.batches import IGNORED, Packer, images, patch_labels, patch_places
from tools.training.export import export_clip, export_lvlm
from tools.training.loop import FLOOR, Trainer, learning_rate
from tools.training.losses import answer_loss, clip_texts, pack_texts, token_weights
from tools.training.models import make_lvlm, make_processor, make_tokenizer
from tools.training.optimizers import make_optimizers
from tools.training.recipe import TINY, VISION_TOKENS, Stage
from tools.training.stages import train
from tools.training.texts import (
    BRIEF_PROMPT,
    BRIEF_PROMPTS,
    DETAILED_PROMPT,
    DETAILED_PROMPTS,
    training_scene,
)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(TINY)


@pytest.fixture(scope="module")
def trained(tokenizer, tmp_path_factory):
    return train(TINY, tokenizer, tmp_path_factory.mktemp("run"))


def test_the_tokenizer_is_the_same_every_time(tokenizer):
    assert make_tokenizer(TINY).get_vocab() == tokenizer.get_vocab()


def test_a_packed_text_is_what_the_processor_makes(tokenizer):
    processor, scene = make_processor(tokenizer), training_scene(3)
    turns = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Where?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "At the top."}]},
    ]
    text = processor.apply_chat_template(turns, tokenize=False)
    made = processor(
        images=[[render(scene)]], text=[text], return_tensors="pt", add_special_tokens=False
    )
    packed = Packer(tokenizer).pack([[("Where?", "At the top.")]])
    assert torch.equal(made["input_ids"], packed.input_ids)
    assert torch.equal(made["pixel_values"], images([scene]))


def test_packed_texts_do_not_see_each_other(tokenizer):
    """Each text's loss is that of the text alone behind the picture."""
    model = make_lvlm(TINY, tokenizer).eval()
    packer, seen = Packer(tokenizer), images([training_scene(0)])
    pairs = [("What is it?", "A red cup."), ("Where?", "At the top left of the picture.")]

    def losses(packed):
        inputs = packed._asdict()
        labels = inputs.pop("labels")[:, 1:]
        logits = model(**inputs, pixel_values=seen, use_cache=False).logits[:, :-1]
        spoken = labels != IGNORED
        return nn.functional.cross_entropy(logits[spoken], labels[spoken], reduction="none")

    with torch.no_grad():
        together = losses(packer.pack([pairs]))
        apart = torch.cat([losses(packer.pack([[pair]])) for pair in pairs])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)


def test_blind_batches_have_no_vision_tokens(tokenizer):
    packer = Packer(tokenizer)
    image = tokenizer.convert_tokens_to_ids("<image>")
    seeing = pack_texts(packer, range(2), 2, 2, blind=False).input_ids
    assert (seeing == image).sum() == 2 * VISION_TOKENS
    assert not (pack_texts(packer, range(2), 2, 2, blind=True).input_ids == image).any()


def test_of_so_many_pictures_one_is_described():
    class Unpacked:
        def pack(self, texts, blind):
            return texts

    texts = pack_texts(Unpacked(), range(8), 2, 4, blind=False)
    prompts = {BRIEF_PROMPT, DETAILED_PROMPT, *BRIEF_PROMPTS, *DETAILED_PROMPTS}
    described = [i for i, pairs in enumerate(texts) if prompts & {asked for asked, _ in pairs}]
    assert described == [1, 5]
    assert [len(pairs) for pairs in texts] == [2, 3, 2, 2, 2, 3, 2, 2]


def test_patches_are_labelled_by_what_covers_them():
    scene = Scene((Thing("cup", "blue", "large", 0), Thing("key", "red", "small", 8)), 5, "sea")
    labels = patch_labels([scene])[0]
    places = patch_places()
    cup, key = (labels[:, 0] == list(CATEGORIES).index(name) + 1 for name in ("cup", "key"))
    assert set(places[cup].tolist()) == {0}
    assert set(places[key].tolist()) == {8}
    assert cup.sum() > key.sum() >= 1
    assert set(labels[cup][:, 1].tolist()) == {list(COLORS).index("blue") + 1}
    assert (labels[~(cup | key)] == 0).all()


def test_matrices_go_to_muon_but_for_queries_and_keys(tokenizer):
    """Each weight to one optimizer; embeddings, norms and biases stay with AdamW."""
    model = make_lvlm(TINY, tokenizer)
    language, tower = model.model.language_model, model.model.vision_tower
    muon, adam = make_optimizers([(language, 1.0), (tower, 0.3)], muon=3.0)
    names = {id(p): name for name, p in model.named_parameters()}
    found = [
        [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
        for optimizer in (muon, adam)
    ]
    trained = [*language.parameters(), *tower.parameters()]
    assert sorted(found[0] + found[1]) == sorted(names[id(p)] for p in trained)
    matrix = re.compile(r"(v_proj|o_proj|out_proj|gate_proj|up_proj|down_proj|fc1|fc2)\.weight$")
    assert set(found[0]) == {name for name in found[0] + found[1] if matrix.search(name)}
    assert [group["share"] for group in muon.param_groups] == pytest.approx([3.0, 0.9])
    assert [group["share"] for group in adam.param_groups] == [1.0, 0.3]


def test_the_learning_rate_rises_and_falls():
    stage = Stage(steps=100, batch=1, lr=1.0, warmup=10)
    rates = [learning_rate(stage, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1, rel=0.01)
    assert max(rates) == pytest.approx(1.0, abs=0.03)
    assert rates[-1] == pytest.approx(FLOOR, abs=0.01)


def test_a_few_steps_lower_the_loss(tokenizer, trained):
    untrained = make_lvlm(TINY, tokenizer)
    packed = pack_texts(Packer(tokenizer), range(900, 916), 2, 2, blind=False)
    seen = images([training_scene(i) for i in range(900, 916)])
    with torch.no_grad():
        before, after = (
            float(answer_loss(m, packed, seen, torch.ones(len(tokenizer))))
            for m in (untrained, trained[0])
        )
    assert after < before - 0.3


def counting(folder, stop=None):
    """A trainer of one number, which a loss drives; `stop` ends it in the middle."""
    module = nn.Linear(1, 1)
    nn.init.zeros_(module.weight)
    trainer = Trainer(folder, nn.ModuleDict({"m": module}), 0, 1, say=lambda line: None)
    seen = []

    def loss(step, indices):
        if step == stop:
            raise KeyboardInterrupt
        seen.extend(indices)
        return (module(torch.ones(1, 1)) - 1).square().sum() * (1 + indices[0] % 3)

    return trainer, module, seen, loss


def test_a_stopped_run_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    import tools.training.loop as loop

    monkeypatch.setattr(loop, "SAVE_EVERY", -1.0)  # after every step
    stage = Stage(steps=12, batch=2, lr=0.1, warmup=2)
    torch.manual_seed(0)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    trainer, whole, seen, loss = counting(tmp_path / "a")
    torch.manual_seed(0)
    first = copy.deepcopy(whole.state_dict())
    trainer.run("one", stage, loss, [(whole, 1.0)])
    assert seen == list(range(24))

    trainer, module, early, loss = counting(tmp_path / "b", stop=5)
    module.load_state_dict(first)
    with pytest.raises(KeyboardInterrupt):
        trainer.run("one", stage, loss, [(module, 1.0)])
    trainer, module, late, loss = counting(tmp_path / "b")
    trainer.run("one", stage, loss, [(module, 1.0)])
    assert early + late == seen
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(value, module.state_dict()[name])


def test_exported_folders_are_ordinary_transformers(tokenizer, trained, tmp_path):
    from transformers import AutoProcessor, CLIPModel, LlavaForConditionalGeneration

    export_lvlm(trained[0], tokenizer, tmp_path / "lvlm")
    export_clip(trained[1], tokenizer, tmp_path / "clip")
    model = LlavaForConditionalGeneration.from_pretrained(tmp_path / "lvlm", dtype="float32")
    for name, value in trained[0].state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, atol=2e-3, rtol=2e-3)
    assert AutoProcessor.from_pretrained(tmp_path / "lvlm").chat_template
    clip = CLIPModel.from_pretrained(tmp_path / "clip", dtype="float32")
    processor = AutoProcessor.from_pretrained(tmp_path / "clip")
    long = "a red cup and " * 60
    texts = processor(
        text=[" a cup", f" {long}"], padding=True, truncation=True, return_tensors="pt"
    )
    ours = clip_texts(tokenizer, ["a cup", long])
    assert torch.equal(texts["input_ids"], ours["input_ids"])
    assert texts["input_ids"][1, -1] == tokenizer.eos_token_id  # cut, and the end kept
    assert clip.get_text_features(**texts).pooler_output.shape[0] == 2


def test_verdicts_count_more(tokenizer, trained):
    """The weighted mean, token by token."""
    packer = Packer(tokenizer)
    packed = packer.pack([[("Is the cup red?", "Blue, so no."), ("Where is it?", "There.")]], True)
    weights = token_weights(tokenizer, verdict=7.0)
    ids, labels = packed.input_ids[0], packed.labels[0]
    with torch.no_grad():
        inputs = {k: v for k, v in packed._asdict().items() if k != "labels"}
        log_p = trained[0](**inputs).logits[0].log_softmax(-1)
        loss = float(answer_loss(trained[0], packed, None, weights))
    words = [tokenizer.decode([i]) for i in ids]
    total = count = 0.0
    seen = []
    for t in range(1, len(ids)):
        if labels[t] < 0:
            continue
        weight = 7.0 if words[t - 1] == " so" else 1.0
        seen.append((words[t], weight))
        total -= weight * float(log_p[t - 1, labels[t]])
        count += weight
    assert ("no", 7.0) in [(word.strip(), weight) for word, weight in seen]
    assert [weight for _, weight in seen].count(7.0) == 1
    assert loss == pytest.approx(total / count, rel=1e-4)


def test_checkpoints_of_another_recipe_are_refused(tokenizer, tmp_path):
    short = Stage(steps=1, batch=2, lr=1e-3, warmup=1)
    small = replace(
        TINY, vision=short, language=short, projector=short, sight=short, logic=short, joint=short
    )
    small = replace(small, clip=short)
    train(small, tokenizer, tmp_path)
    train(small, tokenizer, tmp_path)  # goes on, with nothing left to do
    with pytest.raises(ValueError, match="comes from another recipe"):
        train(replace(small, blind=0.5), tokenizer, tmp_path)
