"""A look: its shape, maps of words, what they are relative to, and what it refuses."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from lookback.looks.look import FAINT, Look, Picture

TOKENS = (" A", " red", " c", "up", ".")
GRID = np.arange(6).reshape(2, 3)
BOXES = [[x / 3, y / 2, (x + 1) / 3, (y + 1) / 2] for y in range(2) for x in range(3)]


def picture(name="image:0", columns=range(6), boxes=BOXES, grids=(GRID,), size=(12, 8)):
    return Picture(name, Image.new("RGB", size, "gray"), np.array(columns), boxes, grids)


def look(weights=None, pictures=None, **more):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0, 0.1, (5, 6)) if weights is None else weights
    pictures = [picture()] if pictures is None else pictures
    return Look("A red cup.", range(5), TOKENS, weights, pictures, (0, 4), **more)


def test_a_grid_is_a_tokens_weights_as_the_model_saw_them():
    found = look()
    (grid,) = found.grid(3)
    np.testing.assert_array_equal(grid, found.weights[3].reshape(2, 3))
    two = look(
        np.arange(40.0).reshape(5, 8),
        [
            picture("image:0", [0, 1, 2], BOXES[:3], [[[2, -1], [0, 1]]]),
            picture("image:1", [3, 4, 5, 6, 7], None, ()),
            picture("image:2", [7, 6], BOXES[:2], [[[0, 1]], [[1], [-1]]]),
        ],
    )
    assert [grid.tolist() for grid in two.grid(1)] == [
        [[10, 0], [8, 9]],
        [[15, 14]],
        [[14], [0]],
    ]


@pytest.mark.parametrize(
    ("what", "tokens"),
    [
        (0, slice(0, 1)),
        (-1, slice(4, 5)),
        (np.int64(2), slice(2, 3)),
        (slice(1, 3), slice(1, 3)),
        (slice(-2, None), slice(3, 5)),
        ("cup", slice(2, 4)),
        ("Red cup", slice(1, 4)),
        (None, slice(0, 5)),
    ],
)
def test_a_map_adds_up_to_what_its_tokens_pay(what, tokens):
    found = look()
    assert found.tokens_of(what) == tokens
    heat = found.heatmap(what)
    assert heat.shape == (8, 12)
    mean = found.weights[tokens].mean(0)
    assert heat.sum() == pytest.approx(mean.sum(), abs=1e-7)
    cells = heat.reshape(2, 4, 3, 4).sum((1, 3))  # of 4 by 4 pixels each
    np.testing.assert_allclose(cells, mean.reshape(2, 3), atol=1e-7)
    np.testing.assert_allclose(found.row(what), mean, atol=1e-7)


def test_only_placed_tokens_of_the_picture_are_on_its_map():
    """The second of two pictures; one of its tokens ends a row, and one place was seen twice."""
    boxes = [[0, 0, 0.5, 1], [0.5, 0, 1, 1], [np.nan] * 4, [0, 0, 1, 1]]
    weights = np.tile([9.0, 9.0, 0.1, 0.2, 0.7, 0.4], (5, 1))
    one = picture("image:1", [2, 3, 4, 5], boxes, (), (2, 1))
    found = look(weights, [picture("image:0", [0, 1], None, ()), one])
    for name in (1, -1, "image:1"):
        np.testing.assert_allclose(found.heatmap(0, name), [[0.3, 0.4]], atol=1e-7)
    assert found.overlay(0, 1).size == (2, 1)


def test_relative_to_the_mean_over_tokens():
    """A sink that every token looks at is as usual, 1; the mean of all tokens' maps is 1."""
    weights = np.full((5, 6), 0.01)
    weights[:, 0] = 0.5
    weights[3, 4] = 0.06
    found = look(weights)
    assert np.unravel_index(found.heatmap(3).argmax(), (8, 12)) == (0, 0)
    for relative in (True, "tokens"):
        heat = found.heatmap(3, relative=relative)
        assert heat[0, 0] == pytest.approx(1)
        y, x = np.unravel_index(heat.argmax(), heat.shape)
        assert (y // 4, x // 4) == (1, 1)
        usual = weights.mean(0)
        faint = FAINT * usual.mean()
        assert heat[y, x] == pytest.approx((0.06 + faint) / (0.02 + faint), rel=1e-5)
        np.testing.assert_allclose(
            found.row(3, relative), (weights[3] + faint) / (usual + faint), rtol=1e-5
        )
    mean = np.mean([found.heatmap(t, relative=True) for t in range(5)], 0)
    np.testing.assert_allclose(mean, 1, rtol=1e-6)


def test_relative_to_another_prompt():
    rng = np.random.default_rng(1)
    weights, baseline = rng.uniform(0.01, 0.1, (2, 5, 6))
    found = look(weights, baseline=baseline)
    faint = FAINT * baseline[2:4].mean()
    expected = (weights[2:4].mean(0) + faint) / (baseline[2:4].mean(0) + faint)
    np.testing.assert_allclose(found.row("cup", "prompt"), expected, rtol=1e-5)
    heat = found.heatmap("cup", relative="prompt")
    np.testing.assert_allclose(heat[::4, ::4].ravel(), expected, rtol=1e-5)
    assert np.isfinite(look(weights, baseline=np.zeros((5, 6))).heatmap(0, relative="prompt")).all()
    with pytest.raises(ValueError, match=r"relative = 'prompt' needs look\(..., relative_to="):
        look(weights).heatmap(0, relative="prompt")


def test_nothing_is_divided_by_zero():
    """A place at which no token looks is as usual; pixels that nothing saw are 0."""
    weights = np.zeros((5, 6))
    weights[:, 1] = [0.1, 0.2, 0.3, 0.2, 0.1]
    boxes = [[0, 0, 0.25, 0.5], [0.25, 0, 0.5, 0.5], *[[np.nan] * 4] * 4]
    heat = look(weights, [picture(boxes=boxes)]).heatmap(2, relative=True)
    assert heat[0, 0] == pytest.approx(1)
    assert heat[0, 3] > 1.5
    assert (heat[4:] == 0).all()
    assert (heat[:, 6:] == 0).all()
    assert look(np.zeros((5, 6))).heatmap(0, relative=True).min() == pytest.approx(1)


def test_an_overlay_shines_where_the_map_is_highest():
    weights = np.full((5, 6), 0.01)
    weights[:, 0] = 0.5  # a sink
    weights[1, 5] = 0.2
    found = look(weights)
    for relative, place in ((False, (0, 0)), (True, (7, 11))):
        shown = np.asarray(found.overlay("red", relative=relative), dtype=int).sum(-1)
        assert shown.shape == (8, 12)
        assert shown[place] == shown.max() > shown[7, 0] + 200
    flat = np.asarray(found.overlay(None, relative=True))
    assert (flat == flat[0, 0]).all()  # the whole response is as usual everywhere


def test_words():
    assert [(word.text, word.tokens, word.content) for word in look().words()] == [
        ("A", slice(0, 1), False),
        ("red", slice(1, 2), True),
        ("cup", slice(2, 4), True),
    ]


def test_as_a_dict_it_is_json():
    boxes = [*BOXES[:5], [np.nan] * 4]
    found = look(pictures=[picture(boxes=boxes), picture("image:1", [0], None, ())])
    back = json.loads(json.dumps(found.to_dict()))
    assert (back["text"], back["tokens"], back["layers"]) == ("A red cup.", list(TOKENS), [0, 4])
    np.testing.assert_allclose(back["weights"], found.weights)
    assert back["baseline"] is None
    first, second = back["pictures"]
    assert first["boxes"][5] is None
    np.testing.assert_allclose(first["boxes"][:5], BOXES[:5], atol=1e-6)
    assert (first["name"], first["size"], first["grids"]) == ("image:0", [12, 8], [GRID.tolist()])
    assert (second["boxes"], second["columns"], second["grids"]) == (None, [0], [])


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"what": "blue"}, ValueError, "'blue' is not in the response; its words are: A, red, cup"),
        ({"what": 5}, ValueError, "token 5: the response has 5, from 0 to 4"),
        ({"what": -6}, ValueError, "token -6"),
        ({"what": slice(3, 3)}, ValueError, "must be some tokens in a row"),
        ({"what": slice(None, None, 2)}, ValueError, "must be some tokens in a row"),
        ({"what": 1.5}, TypeError, "1.5 is no token number"),
        ({"what": True}, TypeError, "True is no token number"),
        ({"picture": 1}, ValueError, "no picture 1: this look has image:0"),
        ({"picture": "image:7"}, ValueError, "no picture 'image:7': this look has image:0"),
        ({"relative": "words"}, ValueError, "relative = 'words': must be False, True, 'tokens' or"),
    ],
)
def test_what_is_not_there_is_named(asked, error, message):
    for way in (look().heatmap, look().overlay):
        with pytest.raises(error, match=message):
            way(**asked)


def test_without_a_layout_there_is_no_map_but_the_flat_vector():
    found = look(pictures=[picture(boxes=None, grids=())])
    for way in (found.heatmap, found.overlay):
        with pytest.raises(ValueError, match=r"image:0 saw is not known .*; look\.weights has"):
            way("red")
    assert found.grid(0) == []
    assert found.row("red").shape == (6,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.ones((4, 6))}, r"weights has the shape \(4, 6\) for 5 tokens"),
        ({"weights": np.ones(5)}, r"weights has the shape \(5,\)"),
        ({"weights": np.full((5, 6), -0.1)}, r"weights\[0, 0\] = -0.1: must be a finite number"),
        ({"weights": np.full((5, 6), np.nan)}, r"weights\[0, 0\] = nan"),
        ({"baseline": np.ones((5, 7))}, r"baseline has the shape \(5, 7\), the weights have"),
        ({"baseline": np.full((5, 6), np.inf)}, r"baseline\[0, 0\] = inf"),
        ({"pictures": [picture(columns=range(1, 7))]}, "image:0 has columns that are not among 6"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        look(**changes)
    with pytest.raises(ValueError, match="at least one token"):
        Look("", [], [], np.ones((0, 6)), [], (0, 4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": [[0, 1]]}, r"columns have the shape \(1, 2\)"),
        ({"boxes": BOXES[:5]}, r"boxes have the shape \(5, 4\), must be \(6, 4\)"),
        ({"boxes": [*BOXES[:5], [0.5, 0, 0.2, 1]]}, "box 5 is"),
        ({"boxes": [*BOXES[:5], [0.5, 0, 1.2, 1]]}, "box 5 is"),
        ({"boxes": [*BOXES[:5], [0.5, 0, np.nan, 1]]}, "box 5 is"),
        ({"boxes": [*BOXES[:5], [0.5, 0.5, 0.5, 1]]}, "box 5 is"),
        ({"grids": [[[0, 6]]]}, "a grid is rows and columns of places in 6 columns"),
        ({"grids": [[0, 1]]}, "a grid is"),
        ({"grids": [[[-2]]]}, "a grid is"),
    ],
)
def test_a_picture_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=f"image:0: {message}"):
        picture(**changes)


def test_a_look_is_made_to_be_read():
    found = look()
    assert repr(found) == (
        "Look('A red cup.', 5 tokens on 6, (Picture('image:0', 12x8, 6 tokens, 2 by 3),))"
    )
    for array in (found.weights, found.pictures[0].boxes, found.pictures[0].columns):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_saving_is_the_pages_business(monkeypatch, tmp_path):
    saved = []
    module = type(sys)("lookback.pages.look")
    module.save = lambda *given: saved.append(given)
    monkeypatch.setitem(sys.modules, "lookback.pages.look", module)
    found = look()
    found.save(tmp_path / "look.html")
    assert saved == [(found, tmp_path / "look.html")]


def test_it_needs_neither_torch_nor_matplotlib():
    code = "import sys, lookback; lookback.Look; print({'torch', 'matplotlib'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
