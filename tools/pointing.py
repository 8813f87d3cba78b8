"""The pointing game: does the brightest cell for an object's word lie on that object?

`python -m tools.pointing --write` asks the embedded model to describe drawn scenes, where it is
known what is where, looks at where each word that names a thing looked, and writes the tables of
docs/look.md. The brightest cell points to its centre; it hits if that lies in the box of a thing of
the kind that the word names. Chance is the share of all cells that would hit.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.progress import track

import lookback
from lookback.benchmarks.scenes import ScenesCaption
from lookback.embedded import LVLM
from lookback.engines.common.model_files import fingerprint
from lookback.looks.look import Look
from lookback.scenes.parse import origins, parse
from lookback.scenes.render import bounds, render
from lookback.scenes.scene import TASK, Scene, generator, scene_seed
from lookback.scenes.world import IMAGE_SIZE
from lookback.scores.formula import Array
from lookback.studies.common.controls import auc, bootstrap_aucs
from lookback.studies.common.selection import interval
from lookback.studies.common.words import token_ranges, words_interval

PAGE = Path(__file__).parents[1] / "docs" / "look.md"
BEGIN = "<!-- pointing: made by `python -m tools.pointing --write` from weights {} -->\n"
END = "<!-- end of pointing -->\n"
ITEMS = 100
DRAWN = 4
"""Descriptions of each scene: drawn, as hardly a word of a greedy one is wrong."""
OTHER = "How many things are there?"
"""The prompt that weights are divided by in one of the ways."""
WAYS: dict[str, Any] = {
    "raw": False,
    "relative to the tokens": "tokens",
    "relative to another prompt": "prompt",
}


class Mention(NamedTuple):
    """A word that names a thing.

    Attributes:
        item: which scene it is said of.
        right: whether there is such a thing.
        chance: the share of cells that hit a thing of this kind.
        hits: by layers and way, whether the brightest cell does.
        signs: what might tell a right word from a wrong one.
    """

    item: int
    right: bool
    chance: float
    hits: dict[tuple[str, str], bool]
    signs: dict[str, float]


def read_scene(lb: Any, index: int) -> list[Mention]:
    """The mentions in some descriptions of a test scene."""
    task = ScenesCaption()
    seed = scene_seed("test", task.name, index)
    scene, question, _ = task.compose(seed, index, generator(seed, TASK))
    asked = render(scene), question
    drawn = lb.sample(*asked, DRAWN, max_new_tokens=120, seed=index)
    return [m for told in drawn if told.tokens for m in mentions_of(lb, index, scene, asked, told)]


def mentions_of(
    lb: Any, index: int, scene: Scene, asked: tuple[Any, str], told: Any
) -> list[Mention]:
    """The mentions in one description of a scene."""
    whole = lb.look(*asked, told, relative_to=OTHER)
    looks = {"all": whole} | {
        str(layer): lb.look(*asked, told, layers=(layer, layer + 1), relative_to=OTHER)
        for layer in range(*whole.layers)
    }
    found = []
    for category, tokens in _named(told):
        hit = on_things(centres(whole), scene, category)
        hits = {
            (name, way): bool(hit[look.row(tokens, relative)[look.pictures[0].columns].argmax()])
            for name, look in looks.items()
            for way, relative in WAYS.items()
        }
        signs = _signs(whole, told, tokens, on_things(centres(whole), scene))
        there = bool(scene.of(category))
        found.append(Mention(index, there, float(hit.mean()), hits, signs))
    return found


def _named(told: Any) -> list[tuple[str, slice]]:
    """The kinds of things that a description says are there, and the tokens that name them."""
    at = origins(told.text)
    named = [m for m in parse(told.text).mentions if m.category and not m.negated]
    spans = [(0, at[m.at[0]], at[m.at[1] - 1] + 1) for m in named]
    ranges = token_ranges(pa.array([list(told.tokens)]), [told.text], np.array(spans))
    return [
        (str(m.category), slice(int(first), int(stop)))
        for m, (first, stop) in zip(named, ranges, strict=True)
        if stop > first
    ]


def centres(look: Look) -> Array:
    """(K, 2): the middle of each cell of the picture, as shares of its width and height."""
    boxes = look.pictures[0].boxes
    if boxes is None:
        raise ValueError("the layout of this model is not known: nothing can be pointed at")
    return np.asarray(boxes[:, :2] + boxes[:, 2:], dtype=np.float64) / 2


def on_things(points: Array, scene: Scene, category: str | None = None) -> Any:
    """(K,): which points lie in the box of a thing of this kind; of any thing for None."""
    found = np.zeros(len(points), dtype=bool)
    for thing in scene.of(category):
        left, top, right, bottom = np.array(bounds(thing)) / IMAGE_SIZE
        x, y = points.T
        found |= (left <= x) & (x < right) & (top <= y) & (y < bottom)
    return found


def _signs(look: Look, told: Any, tokens: slice, on_thing: Any) -> dict[str, float]:
    """What a word's map is like, and what its tokens' signals are."""
    row = look.row(tokens)
    share = row / row.sum()
    return {
        "entropy of the map": float(-(share * np.log(share + 1e-12)).sum()),
        "peak of the map": float(share.max()),
        "share of the map on any thing": float(share[on_thing].sum()),
        "A_t": float(told.visual_lookback[tokens].mean()),
        "log p": float(told.log_prob[tokens].mean()),
    }


def tables(mentions: Sequence[Mention], items: int) -> str:
    """Both tables, in Markdown."""
    right = [m for m in mentions if m.right]
    of = np.array([m.item for m in right])
    chance = 100 * np.mean([m.chance for m in right])
    layers = list(dict.fromkeys(name for name, _ in right[0].hits))
    lines = [
        f"{len(right)} words that name a thing that is there, in {DRAWN} drawn descriptions each "
        f"of {items} test scenes; chance {chance:.1f} %.",
        "",
        "| brightest cell on the thing, % | " + " | ".join(WAYS) + " |",
        "|---|" + "---|" * len(WAYS),
    ]
    for name in layers:
        cells = []
        for way in WAYS:
            values = np.array([100.0 * m.hits[name, way] for m in right])
            cells.append(_cell(values.mean(), words_interval(values, of, items), 1))
        title = "all layers" if name == "all" else f"layer {name}"
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    wrong = len(mentions) - len(right)
    lines += [
        "",
        f"Does it tell a right word from a wrong one? {len(right)} right and {wrong} wrong words; "
        "the probability that a right one has more:",
        "",
        "| | AUC |",
        "|---|---|",
    ]
    truth, of = np.array([m.right for m in mentions]), np.array([m.item for m in mentions])
    for sign in mentions[0].signs:
        values = np.array([m.signs[sign] for m in mentions])
        draws = bootstrap_aucs(values, truth, of, items)
        lines.append(f"| {sign} | {_cell(auc(values, truth), interval(draws), 2)} |")
    return "\n".join(lines) + "\n"


def _cell(value: float, within: tuple[float, float], digits: int) -> str:
    low, high = within
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def write(text: str, weights: str | None, page: Path = PAGE) -> None:
    """Put the tables into the page, between its two marks."""
    head, _, rest = page.read_text(encoding="utf-8").partition("<!-- pointing:")
    _, _, tail = rest.partition(END)
    made = f"{head}{BEGIN.format(weights)}\n{text}\n{END}{tail}"
    page.write_text(made, encoding="utf-8")


def main() -> None:
    """Play, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=ITEMS, help="how many scenes")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/look.md")
    asked = parser.parse_args()
    lb = lookback.load()
    mentions = [
        mention for i in track(range(asked.items), "scenes") for mention in read_scene(lb, i)
    ]
    text = tables(mentions, asked.items)
    print(text)
    if asked.write:
        write(text, fingerprint(LVLM))


if __name__ == "__main__":
    main()
