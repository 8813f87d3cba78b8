"""The models in the package: they load with plain transformers, offline, and they see."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, CLIPModel, LlavaForConditionalGeneration

import lookback
from lookback.benchmarks.base import GENERATED, get_benchmark
from lookback.cli.demo import FIRST, TASK, ask, tells_apart
from lookback.embedded import CLIP, LVLM
from lookback.scenes.render import render
from lookback.scenes.scene import sample_scene, scene_seed
from tools.training.texts import describe_pair

ITEMS = 24
# By how much greedy answers about the right picture beat those about another item's, in points.
MARGINS = {"scenes-vqa": 15, "scenes-caption": 20, "scenes-amber": 20, "scenes-pairs": 5}


@pytest.fixture(scope="module")
def lb():
    return lookback.load()


def size(folder):
    return sum(f.stat().st_size for f in folder.glob("*.safetensors")) / 2**20


def test_they_are_small_and_in_half_precision():
    assert size(LVLM) <= 12
    assert size(CLIP) <= 6
    assert LlavaForConditionalGeneration.from_pretrained(LVLM).dtype == torch.float16


def test_the_card_says_what_the_models_are():
    card = (Path(__file__).parents[2] / "docs" / "embedded.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z][^|]*) \| (.*) \|$", card, re.MULTILINE))
    models = [LlavaForConditionalGeneration.from_pretrained(LVLM), CLIPModel.from_pretrained(CLIP)]
    counts = [sum(p.numel() for p in model.parameters()) for model in models]
    assert rows["parameters"] == " | ".join(f"{count:,}" for count in counts)
    eyes = [model.config.vision_config for model in models]
    assert {(eye.image_size, eye.patch_size) for eye in eyes} == {(80, 8)}
    assert rows["sees"].startswith("80 x 80 pixels, 100 vision tokens |")
    assert models[0].config.image_seq_length == 100
    vocabulary = {model.config.text_config.vocab_size for model in models}
    assert rows["reads and writes"].startswith(f"byte-level BPE of {vocabulary.pop()} tokens |")
    assert not vocabulary


def test_plain_transformers_can_use_the_lvlm(lb):
    """No code of ours between the picture and the answer."""
    model = LlavaForConditionalGeneration.from_pretrained(LVLM, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(LVLM)
    item = get_benchmark("scenes-caption").items("test")[0]
    turn = [{"type": "image", "image": item.image}, {"type": "text", "text": item.question}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": turn}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    out = model.generate(**inputs, do_sample=False, max_new_tokens=60)
    text = processor.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    ours = lb.sample(item.image, item.question, 1, temperature=0, max_new_tokens=60)[0]
    assert text.strip() == ours.text.strip()


def test_it_brings_its_own_settings(lb):
    assert lb.family.name == "embedded"
    assert lb.family.alpha >= 0


@pytest.mark.parametrize("task", GENERATED)
def test_it_beats_its_blind_self(lb, task):
    benchmark = get_benchmark(task)
    items = benchmark.items("test")
    gains = []
    for i in range(ITEMS):
        item, other = items[i], items[i + len(items) // 2]
        seeing, blind = (
            lb.sample(image, item.question, 1, temperature=0, max_new_tokens=80)[0].text
            for image in (item.image, other.image)
        )
        gains.append(benchmark.score(item, seeing) - benchmark.score(item, blind))
    assert 100 * np.mean(gains) > MARGINS[task]


def test_it_has_conversations_but_no_system_turns(lb):
    """It was never shown any; what it has not learned is refused, not rendered as another role."""
    picture = get_benchmark("scenes-vqa").items("test")[0].image
    asked = {"role": "user", "content": [{"type": "image", "image": picture}]}
    asked["content"].append({"type": "text", "text": "What is it?"})
    later = [asked, {"role": "assistant", "content": "A cup."}, {"role": "user", "content": "Why?"}]
    assert len(lb.score(messages=later, responses=["Because."])) == 1
    with pytest.raises(ValueError, match=r"refuses the conversation: .* without system turns"):
        lb.score(messages=[{"role": "system", "content": "Hi."}, asked], responses=["A cup."])


def test_most_of_what_is_sampled_is_spelled_as_the_tokenizer_spells_it(lb):
    """So that a sampled text, given back as text, has the same tokens and the same signals."""
    item = get_benchmark("scenes-caption").items("test")[1]
    cands = lb.sample(item.image, item.question, 10, max_new_tokens=60, seed=0)
    scored = lb.score(item.image, item.question, [c.text for c in cands])
    same = [
        (a, b)
        for a, b in zip(cands, scored, strict=True)
        if a.token_ids.tolist() == b.token_ids.tolist()
    ]
    assert len(same) >= 8
    for a, b in same:
        np.testing.assert_allclose(a.visual_lookback, b.visual_lookback, atol=1e-5)


def test_the_dual_encoder_finds_the_description_of_a_picture():
    """Of 40 descriptions: chance is 2.5 %."""
    model = CLIPModel.from_pretrained(CLIP, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(CLIP)
    rng = np.random.default_rng(0)
    scenes = [sample_scene(scene_seed("tune", "scenes-caption", i)) for i in range(40)]
    texts = [f" {describe_pair(scene, rng)[1]}" for scene in scenes]
    inputs = processor(
        text=texts,
        images=[render(s) for s in scenes],
        padding=True,
        truncation=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        found = model(**inputs).logits_per_image.argmax(-1)
    assert (found == torch.arange(40)).float().mean() > 0.5


def test_the_demo_finds_its_item_compares_and_writes_a_page(lb, tmp_path):
    command = [sys.executable, "-m", "lookback.cli", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "of 25 answers are right" in done.stdout
    assert re.search(r"^LookBack picks: [✓✗~] ", done.stdout, re.MULTILINE)
    assert "▀" not in done.stdout  # nobody watches
    assert done.stderr == ""
    html = (tmp_path / "demo.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in html
    tried = int(re.search(r"(\d+) items? w", done.stdout)[1])
    benchmark = get_benchmark(TASK)
    places = range(FIRST, FIRST + tried)
    taken = [tells_apart(ask(lb, benchmark, place, 42)) for place in places]
    assert taken == [False] * (tried - 1) + [True]
    assert benchmark.items("test")[FIRST + tried - 1].question in html


def test_without_a_model_the_shell_asks_this_one_and_says_what_it_knows(tmp_path):
    scene = get_benchmark("scenes-vqa").items("test")[0].image
    scene.save(tmp_path / "scene.png")
    scene.resize((200, 150)).save(tmp_path / "other.png")
    command = [sys.executable, "-m", "lookback.cli", "ask", tmp_path]
    done = subprocess.run(
        [*command, "What is it?", "-n", "3"], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("best by lookback:") == 2
    assert done.stderr.count("knows drawn scenes only") == 1  # and this is said once
    command[-1] /= "scene.png"
    done = subprocess.run([*command, "What is it?"], capture_output=True, text=True, check=True)
    assert "knows drawn scenes only" not in done.stderr


@pytest.mark.parametrize("name", ["clipscore", "vauq", "usc", "judge", "majority"])
def test_scorers_that_need_more_work_on_it_by_name_alone(lb, name):
    item = get_benchmark("scenes-vqa").items("test")[2]
    cands = lb.sample(item.image, item.question, 3, max_new_tokens=20, seed=1)
    assert np.isfinite(cands.best(name).score)
    assert cands.model == "embedded"
