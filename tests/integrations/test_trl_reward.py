"""LookBack as a reward, called as TRL calls it, without TRL; with it: tests/with_trl."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch

import lookback
from lookback.benchmarks import get_benchmark
from lookback.engines import AbilityError
from lookback.integrations.trl import reward
from lookback.registry import SettingError

ASK = "Describe the picture."
OTHER = "What colour is the sun?"


@pytest.fixture(scope="module")
def lb():
    return lookback.load()


@pytest.fixture(scope="module")
def images():
    return [item.image for item in get_benchmark("scenes-caption").items("test", 2)]


@pytest.fixture(scope="module")
def drawn(lb, images):
    """Three candidates of each picture."""
    return [lb.sample(image, ASK, 3, seed=1, max_new_tokens=24) for image in images]


def ended(lb, candidate):
    """A completion's tokens as TRL has them: with the end, if it was drawn."""
    return [*candidate.token_ids.tolist(), *lb.end_tokens[: candidate.finish == "end"]]


def batch(lb, drawn, images, order=(0, 1, 0, 1, 1, 0)):
    """What TRL hands over: rows of two prompts, in any order; a number of each within its own."""
    numbers = [list(order[:i]).count(one) for i, one in enumerate(order)]
    rows = [(which, drawn[which][i]) for which, i in zip(order, numbers, strict=True)]
    return {
        "prompts": [[{"role": "user", "content": ASK}] for _ in rows],
        "completions": [[{"role": "assistant", "content": one.text}] for _, one in rows],
        "completion_ids": [ended(lb, one) for _, one in rows],
        "image": [images[which].copy() for which, _ in rows],
    }


def expected(drawn, scorer, order=(0, 1, 0, 1, 1, 0), **params):
    scores = [iter(one.scores(scorer, **params)) for one in drawn]
    return [next(scores[which]) for which in order]


@pytest.mark.parametrize(
    ("scorer", "params"),
    [
        ("lookback", {}),
        ("lookback", {"alpha": 2.0, "lam": 0.5}),
        ("mean_log_prob", {}),
        ("majority", {}),
        ("consensus", {"weights": "lookback"}),
    ],
)
def test_rewards_are_the_scores_of_each_prompts_own_completions(lb, drawn, images, scorer, params):
    """The same as the candidates had when they were drawn, whatever stands between them."""
    found = reward(lb, scorer, **params)(**batch(lb, drawn, images))
    np.testing.assert_allclose(found, expected(drawn, scorer, **params), atol=1e-5)
    assert all(type(one) is float for one in found)


def test_one_pass_of_a_prompt_for_all_its_completions(lb, drawn, images, monkeypatch):
    asked = []
    monkeypatch.setattr(lb, "_prefill", lambda *a, f=lb._prefill: asked.append(1) or f(*a))
    reward(lb)(**batch(lb, drawn, images))
    assert len(asked) == 2


def test_texts_and_tokens_agree_where_a_text_is_read_as_it_was_written(lb, images):
    texts = ["A red cup.", "A yellow sun."]
    by_hand = lb.score(images[0], ASK, texts)
    given = {
        "prompts": [ASK] * 2,
        "completions": texts,
        "completion_ids": [one.token_ids.tolist() for one in by_hand],
        "image": [images[0]] * 2,
    }
    for use_ids in (True, False):
        found = reward(lb, use_ids=use_ids)(**given)
        np.testing.assert_allclose(found, by_hand.scores("lookback"), atol=1e-6)


def test_the_tokens_that_were_drawn_count_not_the_text_read_again(lb, images):
    """The same text in other tokens, as sampling can give it."""
    text = "A red cup."
    tokenizer = lb.processor.tokenizer
    letters = [token for one in text for token in tokenizer.encode(one, add_special_tokens=False)]
    assert tokenizer.decode(letters) == text
    given = {"prompts": [ASK], "completions": [text], "image": [images[0]]}
    (found,) = reward(lb)(**given, completion_ids=[letters])
    assert found == lb.score(images[0], ASK, [letters]).scores()[0]
    assert abs(found - reward(lb, use_ids=False)(**given)[0]) > 0.1


def test_one_completion_that_reads_differently_is_no_other_tokenizer(lb, images):
    """A lone byte at the end of a cut answer reads differently; the others tell."""
    texts = ["A red cup.", "Two dogs."]
    ids = [one.token_ids.tolist() for one in lb.score(images[0], ASK, texts)]
    given = {"prompts": [ASK] * 2, "image": [images[0]] * 2, "completion_ids": ids}
    for shown in (["\ufffd", texts[1]], [texts[0], "\ufffd"]):
        assert reward(lb)(**given, completions=shown) == reward(lb)(**given, completions=texts)


@pytest.mark.parametrize("use_ids", [True, False])
def test_nothing_said_is_none(lb, drawn, images, use_ids):
    given = batch(lb, drawn, images)
    before = reward(lb, use_ids=use_ids)(**given)
    given["completion_ids"][1], given["completions"][1] = [lb.end_tokens[0]], [{"content": ""}]
    given["completion_ids"][3], given["completions"][3] = [], [{"content": None}]
    found = reward(lb, use_ids=use_ids)(**given)
    assert [i for i, one in enumerate(found) if one is None] == [1, 3]
    for i in (0, 2, 4, 5):
        np.testing.assert_allclose(found[i], before[i], atol=1e-5)


def test_what_was_cut_at_its_longest_is_scored_as_it_is(lb, images):
    (cut,) = lb.sample(images[0], ASK, 1, seed=1, max_new_tokens=4)
    assert cut.finish == "length"
    given = {"prompts": [ASK], "completions": [cut.text], "image": [images[0]]}
    (found,) = reward(lb)(**given, completion_ids=[cut.token_ids.tolist()])
    np.testing.assert_allclose(found, lb.score(images[0], ASK, [cut]).scores()[0], atol=1e-6)


def stored(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def test_images_in_any_form(lb, drawn, images, tmp_path):
    image, one = images[0], drawn[0][0]
    path = tmp_path / "a.png"
    path.write_bytes(stored(image))
    rows = {"completions": [one.text], "completion_ids": [ended(lb, one)]}
    plain = [{"role": "user", "content": ASK}]
    (score,) = drawn[0].scores()[:1]
    kept = {"bytes": stored(image), "path": None}
    at = {"bytes": None, "path": str(path)}
    columns = [{"image": [form]} for form in (image, stored(image), str(path), kept, at)]
    columns += [{"images": [[form]]} for form in (image, kept, str(path))]
    columns += [{"image": [np.array(image)]}, {"image": [torch.tensor(np.array(image))]}]
    for column in columns:
        np.testing.assert_allclose(reward(lb)([plain], **rows, **column), [score], atol=1e-5)
    text = {"type": "text", "text": ASK, "image": None}  # as a table fills them up
    for part in ({"type": "image"}, {"type": "image", "image": None, "text": None}):
        asked = [{"role": "user", "content": [part, text]}]
        found = reward(lb)([asked], **rows, image=[image])
        np.testing.assert_allclose(found, [score], atol=1e-5)
    for form in (image, kept):  # as GRPOTrainer hands it over: in its place already
        asked = [{"role": "user", "content": [{"type": "image", "image": form}, text]}]
        found = reward(lb)([asked], **rows, image=[image])
        np.testing.assert_allclose(found, [score], atol=1e-5)


def test_several_turns_and_images(lb, images):
    """Placeholders take the column's images in their order; the prompt itself stays as it was."""
    hole, tell = {"type": "image"}, {"type": "text", "text": OTHER}
    prompt = [
        {"role": "user", "content": [hole, tell]},
        {"role": "assistant", "content": "Yellow."},
        {"role": "user", "content": [hole, {"type": "text", "text": ASK}]},
    ]
    full = [
        {"role": "user", "content": [hole | {"image": images[0]}, tell]},
        prompt[1],
        {"role": "user", "content": [hole | {"image": images[1]}, prompt[2]["content"][1]]},
    ]
    by_hand = lb.score(messages=full, responses=["A red cup."])
    ids = [by_hand[0].token_ids.tolist()]
    found = reward(lb)([prompt], ["A red cup."], ids, images=[images])
    assert found == by_hand.scores().tolist()
    assert "image" not in prompt[0]["content"][0]
    plain = [{"role": "user", "content": OTHER}, prompt[1], {"role": "user", "content": ASK}]
    first = [{"role": "user", "content": [full[0]["content"][0], tell]}, *plain[1:]]
    by_hand = lb.score(messages=first, responses=ids)  # before the first question, as TRL does
    assert reward(lb)([plain], ["A red cup."], ids, image=images[:1]) == by_hand.scores().tolist()
    marked = reward(lb, source="image:1")([prompt], ["A red cup."], ids, images=[images])
    by_hand = lb.score(messages=full, responses=ids, source="image:1")
    assert marked == by_hand.scores().tolist() != found


def test_a_row_without_its_image_is_none_and_a_column_without_a_name_an_error(lb, drawn, images):
    given = batch(lb, drawn, images)
    before = reward(lb)(**given)
    given["image"][2] = None
    found = reward(lb)(**given)
    assert found.pop(2) is None
    np.testing.assert_allclose(found, before[:2] + before[3:], atol=1e-5)
    given["picture"] = given.pop("image")
    with pytest.raises(ValueError, match="no source"):
        reward(lb)(**given)
    assert None not in reward(lb, "mean_log_prob", source="none")(**given)


def test_the_policy_itself_is_scored_at_rest_and_left_in_training(drawn, images):
    """Dropout would change the numbers; a part that is kept in eval mode stays there."""
    policy = lookback.load()
    given = batch(policy, drawn, images)
    frozen = reward(policy)(**given)
    policy.model.train()
    tower = policy.model.get_submodule("model.vision_tower").eval()
    drop = torch.nn.Dropout(0.5).train()
    policy.model.lm_head = torch.nn.Sequential(policy.model.lm_head, drop)
    policy.model.lm_head.train()
    before = {name: module.training for name, module in policy.model.named_modules()}
    np.testing.assert_allclose(reward(policy)(**given), frozen, atol=1e-6)
    assert {name: module.training for name, module in policy.model.named_modules()} == before
    assert policy.model.training
    assert not tower.training
    with pytest.raises(ValueError, match="prompt 0"):
        reward(policy)([5], ["A cup."], [[9]])
    assert {name: module.training for name, module in policy.model.named_modules()} == before
    with torch.no_grad():
        policy.model.lm_head[0].weight *= 1.5
    changed = reward(policy)(**given)  # live: with the weights, the numbers
    assert np.abs(np.subtract(changed, frozen)).max() > 1e-3
    policy.keep_prefixes(4)
    with pytest.raises(ValueError, match="keep_prefixes"):
        reward(policy)(**given)


def test_the_trainers_log_gets_what_shows_hacking(lb, drawn, images):
    logged = {}
    reward(lb)(**batch(lb, drawn, images), log_metric=logged.__setitem__)
    every = [one for candidates in drawn for one in candidates]
    for name in ("log_prob", "visual_lookback"):
        mean = np.concatenate([getattr(one, name) for one in every]).mean()
        np.testing.assert_allclose(logged.pop(f"lookback/{name}"), mean, atol=1e-5)
    assert not logged


class Blind(lookback.Engine):
    name = "blind"
    family = lookback.FAMILIES["llava"]
    abilities = frozenset({"score"})

    def identity(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("scorer", "params", "kind", "said"),
    [
        ("lookbak", {}, ValueError, "Did you mean 'lookback'"),
        ("lookback", {"alfa": 1}, SettingError, "no setting 'alfa'"),
        ("lookback", {"alpha": "much"}, SettingError, "alpha"),
        ("lookback", {"alpha": -1}, ValueError, "alpha"),
        ("oracle", {}, ValueError, "a reward by itself"),
        ("usc", {}, AbilityError, "'usc'"),
    ],
)
def test_what_is_wrong_is_said_before_the_first_step(scorer, params, kind, said):
    with pytest.raises(kind, match=said):
        reward(Blind(), scorer, **params)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completion_ids": None}, "use_ids=False"),
        ({"completions": [7]}, "completion 0 is neither text nor messages"),
        ({"completions": [[{"content": "a"}, {"role": "tool", "content": "b"}]]}, "turns of tools"),
        ({"prompts": [[{"role": "user", "content": [{"type": "image"}] * 2}]]}, "2 image placeh"),
        ({"prompts": [[{"role": "assistant", "content": "Yes."}]]}, "prompt 0: messages must end"),
        ({"completions": ["Something else"]}, "has another tokenizer"),
        ({"image": ["gone.png"]}, "gone.png"),
        ({"image": [np.zeros((4, 4, 3))]}, "prompt 0: .* is no image"),
        ({"completion_ids": [[5.9]]}, r"completion 0: .* 5\.9 "),
        ({"completion_ids": [["5"]]}, "completion 0: .* '5' "),
        ({"completion_ids": [5]}, "completion 0 is 5: "),
        ({"image": [{"bytes": None, "path": None}]}, "prompt 0: .* is no image"),
    ],
)
def test_rows_that_cannot_be_scored_are_named(lb, images, change, said):
    given = {"prompts": [ASK], "completions": ["A cup."], "image": images[:1]}
    given["completion_ids"] = [lb.score(images[0], ASK, ["A cup."])[0].token_ids.tolist()]
    assert len(reward(lb)(**given)) == 1
    with pytest.raises((ValueError, OSError), match=f"(?s){said}"):
        reward(lb)(**given | change)


def test_a_trainer_can_name_it(lb):
    assert reward(lb).__name__ == "lookback"
    assert reward(lb, "mean_log_prob").__name__ == "mean_log_prob"


def test_neither_trl_nor_torch_is_needed_to_import_it():
    code = "import sys, lookback.integrations.trl; assert not {'trl', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
