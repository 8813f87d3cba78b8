"""LookBack as the reward of real GRPO steps with the embedded model."""

import copy
import functools

import numpy as np
import pytest
import torch
from datasets import Dataset, Features, Image, List, Value
from documents import ROOT, blocks, read
from trl import GRPOConfig, GRPOTrainer

import lookback
from lookback.benchmarks import get_benchmark
from lookback.embedded import LVLM
from lookback.integrations.trl import reward

SMALL = {
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_steps": 1,
    "max_completion_length": 24,
    "learning_rate": 1e-3,
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "save_strategy": "no",
    "logging_steps": 1,
    "seed": 5,
}
TURN = {"role": Value("string"), "content": Value("string")}


@pytest.fixture(scope="module")
def frozen():
    return lookback.load()


@pytest.fixture(scope="module")
def dataset():
    """Scenes with a question each, as the page has them."""
    items = get_benchmark("scenes-caption").items("train", 8)
    rows = [
        {"prompt": [{"role": "user", "content": one.question}], "image": one.image} for one in items
    ]
    return Dataset.from_list(rows, features=Features({"prompt": [TURN], "image": Image()}))


class Spy:
    """A reward function that keeps what it was given and what it said."""

    def __init__(self, function, beside=lambda given: None):
        self.function, self.beside, self.calls = function, beside, []
        self.__name__ = function.__name__

    def __call__(self, **given):
        found = self.function(**given)
        self.calls.append((given, found, self.beside(given)))
        return found


def train(policy, spies, dataset, frozen, tmp_path, **settings):
    trainer = GRPOTrainer(
        model=policy,
        reward_funcs=spies,
        args=GRPOConfig(output_dir=str(tmp_path), **SMALL | settings),
        train_dataset=dataset,
        processing_class=frozen.processor,
    )
    trainer.train()
    return trainer.state.log_history


def by_hand(engine, given, scorer):
    """The scores of each prompt's completions, which stand together, four by four."""
    found = []
    for i in range(0, len(given["prompts"]), 4):
        question = given["prompts"][i][-1]["content"][-1]["text"]
        ids = given["completion_ids"][i : i + 4]
        ids = [one[:-1] if one[-1] in engine.end_tokens else one for one in ids]
        found += engine.score(given["image"][i], question, ids).scores(scorer).tolist()
    return found


def test_a_step_moves_the_policy_by_the_scores_of_the_frozen_model(frozen, dataset, tmp_path):
    policy = copy.deepcopy(frozen.model)
    spies = [Spy(reward(frozen)), Spy(reward(frozen, "majority"))]
    history = train(policy, spies, dataset, frozen, tmp_path)
    for spy in spies:
        ((given, found, _),) = spy.calls
        assert len(found) == 8
        np.testing.assert_allclose(found, by_hand(frozen, given, spy.__name__), atol=1e-6)
        texts = frozen.processor.batch_decode(given["completion_ids"], skip_special_tokens=True)
        assert texts == [one[0]["content"] for one in given["completions"]]
    rewards = spies[0].calls[0][1]
    np.testing.assert_allclose(history[0]["rewards/lookback/mean"], np.mean(rewards), rtol=1e-4)
    assert 0 < history[0]["lookback/visual_lookback"] < 1
    assert not torch.equal(policy.lm_head.weight, frozen.model.lm_head.weight)
    assert policy.training


def test_the_policy_itself_scores_with_the_weights_of_that_step(frozen, dataset, tmp_path):
    policy = copy.deepcopy(frozen.model)
    live = reward(lookback.load(policy, frozen.processor))

    def now(given):
        engine = lookback.load()
        engine.model.load_state_dict(policy.state_dict())
        return by_hand(engine, given, "lookback"), by_hand(frozen, given, "lookback")

    spy = Spy(live, now)
    train(policy, [spy], dataset, frozen, tmp_path, max_steps=2)
    (_, first, (same, start)), (_, second, (moved, still)) = spy.calls
    np.testing.assert_allclose(first, same, atol=1e-5)
    np.testing.assert_allclose(first, start, atol=1e-5)  # before the first step they are one
    np.testing.assert_allclose(second, moved, atol=1e-5)
    assert np.abs(np.subtract(second, still)).max() > 1e-3


def test_completions_of_nothing_are_left_out(frozen, dataset, tmp_path):
    policy = copy.deepcopy(frozen.model)
    silent = [i for i in range(frozen.decoder.vocab) if i not in frozen.end_tokens]
    spy = Spy(reward(frozen))
    settings = {"generation_kwargs": {"suppress_tokens": silent}, "weight_decay": 0.0}
    history = train(policy, [spy], dataset, frozen, tmp_path, **settings)
    assert spy.calls[0][1] == [None] * 8
    assert history[0]["loss"] == 0
    assert torch.equal(policy.lm_head.weight, frozen.model.lm_head.weight)


def test_several_images_in_their_placeholders(frozen, tmp_path):
    one, other = (item.image for item in get_benchmark("scenes-caption").items("train", 2))
    part = {"type": Value("string"), "text": Value("string")}
    hole, text = {"type": "image", "text": None}, {"type": "text", "text": "Describe the picture."}
    rows = [
        {"prompt": [{"role": "user", "content": [hole, hole, text]}], "images": [one, other]}
    ] * 2
    turn = {"role": Value("string"), "content": List(part)}
    kinds = Features({"prompt": List(turn), "images": List(Image())})
    spy = Spy(reward(frozen))
    policy = copy.deepcopy(frozen.model)
    train(policy, [spy], Dataset.from_list(rows, features=kinds), frozen, tmp_path)
    given, found, _ = spy.calls[0]
    ids = [i[:-1] if i[-1] in frozen.end_tokens else i for i in given["completion_ids"]]
    scores = frozen.score([one, other], text["text"], ids).scores("lookback")
    np.testing.assert_allclose(found, scores, atol=1e-5)


def test_the_page(frozen, dataset, tmp_path, monkeypatch):
    """Each block of docs/trl.md in turn, with the embedded model and one small step each."""
    monkeypatch.chdir(tmp_path)
    small = functools.partial(lambda real, *a, **k: real(*a, **k | SMALL), GRPOConfig)
    monkeypatch.setattr("trl.GRPOConfig", small)
    names = {"dataset": dataset}
    code = blocks(read(ROOT / "docs" / "trl.md"), "python")
    assert len(code) > 2
    for block in code:
        exec(block.replace('"Qwen/Qwen2.5-VL-3B-Instruct"', repr(str(LVLM))), names)
