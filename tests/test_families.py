"""The table of families: the paper's settings, and where the image token comes from."""

from types import SimpleNamespace

import pytest

from lookback.families import FAMILIES, GENERIC, family_of, image_token_id, video_token_id


@pytest.mark.parametrize(
    ("kind", "alpha", "lam", "layers", "k"),
    [
        ("llava", 7.0, 1.5, (10, 25), 0.6),
        ("qwen2_5_vl", 0.5, 1.25, (12, 26), 0.5),
        ("internvl", 0.25, 1.25, (10, 25), 0.4),
    ],
)
def test_the_papers_settings(kind, alpha, lam, layers, k):
    family = FAMILIES[kind]
    assert (family.alpha, family.lam) == (alpha, lam)
    assert (family.vauq_layers, family.vauq_k) == (layers, k)


def test_any_other_model_gets_the_global_setting():
    family = family_of(SimpleNamespace(model_type="something_new"))
    assert family is GENERIC
    assert (family.alpha, family.lam) == (0.25, 1.25)


def test_a_model_can_bring_its_own_settings():
    own = {"name": "mine", "alpha": 1.0, "lam": 2.0}
    family = family_of(SimpleNamespace(model_type="llava", lookback=own))
    assert (family.name, family.alpha, family.lam) == ("mine", 1.0, 2.0)


def test_the_image_token_is_read_from_the_config():
    assert image_token_id(SimpleNamespace(image_token_id=5)) == 5
    assert image_token_id(SimpleNamespace(image_token_index=6)) == 6
    with pytest.raises(ValueError, match="neither image_token_id nor image_token_index"):
        image_token_id(SimpleNamespace(model_type="x"))


@pytest.mark.parametrize(
    "own",
    [
        *(3, "x", [], {}, {"a": 1}, {"name": 1}, {"name": "x", "a": {"b": []}}),
        *({"name": "x", "alpha": "1"}, {"name": "x", "lam": None}, {"name": "x", "vauq_k": True}),
        *({"name": "x", "vauq_layers": 3}, {"name": "x", "clip": []}, {"name": "x", "prompt": 1}),
    ],
)
def test_settings_of_a_model_that_are_none(own):
    with pytest.raises(ValueError, match="the model's config has"):
        family_of(SimpleNamespace(model_type="llava", lookback=own))


@pytest.mark.parametrize("value", [-1, 2**31, 2**70])
def test_a_token_that_cannot_be_is_named(value):
    for read, key in ((image_token_id, "image_token_index"), (video_token_id, "video_token_id")):
        with pytest.raises(ValueError, match=f"{key} = {value} in the model's config"):
            read(SimpleNamespace(**{key: value}))
