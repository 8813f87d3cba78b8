"""Where a response looked: the attention that each of its tokens pays to each vision token.

An engine's `look` gives a `Look`: one row of weights per token, which sums to the token's A_t, and
the pictures that the weights lie on. What a vision token saw is a box in its picture, whatever the
model's layout (a grid, tiles, merged patches, frames), so everything here works on boxes alone.
Nothing here needs torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from lookback.looks.heat_map import Map, overlay, paint, strengths
from lookback.looks.words import Word, find_phrase, find_words

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float32]
Places = NDArray[np.intp]
What = int | slice | str | None
"""Which tokens of a response: one by its number, some, those that spell a word; None for all."""
Relative = bool | Literal["tokens", "prompt"]

FAINT = 0.01
"""Added to both sides of what is divided, as a share of the mean weight that is divided by."""


@dataclass(frozen=True, eq=False)
class Picture:
    """One image, or one frame of a video, and the source's tokens that stand for it.

    Attributes:
        name: how `source=` calls it, e.g. "image:0"; a frame has its number behind, "video:0/3".
        image: as it was given, RGB.
        columns: (K,), which columns of `Look.weights` belong to it.
        boxes: (K, 4), what each of them saw: left, top, right, bottom as shares of the image's
            width and height; NaN for a token that stands for no place (a row's end, a padded
            tile). None if the model's layout is not known: there is no map then.
        grids: what the model saw, as rows and columns of places in `columns` (-1 for none): one
            for a plain grid, one for all tiles and one for the thumbnail of a tiled image.
    """

    name: str
    image: Image
    columns: Places
    boxes: Floats | None = None
    grids: tuple[Places, ...] = ()

    def __post_init__(self) -> None:
        columns = readonly(self.columns, np.intp)
        if columns.ndim != 1:
            raise ValueError(f"{self.name}: columns have the shape {columns.shape}, must be (K,)")
        object.__setattr__(self, "columns", columns)
        grids = tuple(readonly(grid, np.intp) for grid in self.grids)
        for grid in grids:
            if grid.ndim != 2 or not ((grid >= -1) & (grid < len(columns))).all():
                raise ValueError(
                    f"{self.name}: a grid is rows and columns of places in {len(columns)} columns, "
                    f"-1 for none; this one has the shape {grid.shape}"
                )
        object.__setattr__(self, "grids", grids)
        if self.boxes is not None:
            object.__setattr__(self, "boxes", _boxes(self.name, self.boxes, len(columns)))

    def __repr__(self) -> str:
        width, height = self.image.size
        grids = " and ".join("{} by {}".format(*grid.shape) for grid in self.grids)
        known = "no known layout" if self.boxes is None else grids or "no grid"
        return f"Picture({self.name!r}, {width}x{height}, {len(self.columns)} tokens, {known})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON; no pixels."""
        boxes = None
        if self.boxes is not None:
            boxes = [None if np.isnan(box).any() else box.tolist() for box in self.boxes]
        return {
            "name": self.name,
            "size": list(self.image.size),
            "columns": self.columns.tolist(),
            "boxes": boxes,
            "grids": [grid.tolist() for grid in self.grids],
        }


@dataclass(frozen=True, eq=False)
class Look:
    """The attention of one response's T tokens on the V tokens of the source.

    Raw weights tell where attention went, sinks included: a few places that every token looks at,
    whatever it says, often more than at what it names. What is `relative` tells where a token
    looked more than usual (1 is as usual), which hides the sinks, and with them what the whole
    response looks at; places that hardly anything looks at are noise there. Neither tells whether a
    word is right, nor what made the model say it: attention is one of the ways by which the picture
    gets into an answer.

    Attributes:
        text: the response.
        token_ids: its tokens.
        tokens: their text.
        weights: (T, V), the attention that the row predicting token t pays to source token v,
            averaged over the heads of all chosen layers. With all layers, row t sums to A_t.
        pictures: what the source's vision tokens stand for.
        layers: the attention layers that were read, end exclusive.
        baseline: (T, V), the same tokens' weights after another prompt, if one was asked for.
    """

    text: str
    token_ids: NDArray[np.int64]
    tokens: tuple[str, ...]
    weights: Floats
    pictures: tuple[Picture, ...]
    layers: tuple[int, int]
    baseline: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", readonly(self.token_ids, np.int64))
        object.__setattr__(self, "tokens", tuple(self.tokens))
        object.__setattr__(self, "pictures", tuple(self.pictures))
        if not self.tokens or self.token_ids.shape != (len(self.tokens),):
            raise ValueError(
                f"{len(self.tokens)} tokens with ids of the shape {self.token_ids.shape}: there "
                "must be one id per token, and at least one token"
            )
        weights = _weights("weights", self.weights, len(self.tokens))
        object.__setattr__(self, "weights", weights)
        if self.baseline is not None:
            baseline = _weights("baseline", self.baseline, len(self.tokens))
            if baseline.shape != weights.shape:
                raise ValueError(
                    f"baseline has the shape {baseline.shape}, the weights have {weights.shape}"
                )
            object.__setattr__(self, "baseline", baseline)
        for picture in self.pictures:
            if any(not 0 <= column < self.source for column in picture.columns):
                raise ValueError(f"{picture.name} has columns that are not among {self.source}")

    @property
    def source(self) -> int:
        """Return how many tokens the source has: V."""
        return int(self.weights.shape[1])

    def __repr__(self) -> str:
        return f"Look({self.text!r}, {len(self.tokens)} tokens on {self.source}, {self.pictures})"

    def words(self) -> list[Word]:
        """Return the words of the response: (text, slice of tokens, whether it has content)."""
        return find_words(self.tokens)

    def tokens_of(self, what: What) -> slice:
        """Return which tokens are meant.

        Args:
            what: a token's number, a slice, a word or phrase (its first occurrence, whole words, in
                any case), or None for all tokens.

        Raises:
            ValueError: the response has none such.
        """
        if isinstance(what, str):
            return find_phrase(self.tokens, what)
        count = len(self.tokens)
        if what is None or isinstance(what, slice):
            chosen = range(count)[what if what is not None else slice(None)]
            if not chosen or chosen.step != 1:
                raise ValueError(f"{what} of {count} tokens: must be some tokens in a row")
            return slice(chosen.start, chosen.stop)
        if isinstance(what, bool) or not isinstance(what, (int, np.integer)):
            raise TypeError(f"{what!r:.60} is no token number, slice or text of the response")
        if not -count <= what < count:
            raise ValueError(f"token {what}: the response has {count}, from 0 to {count - 1}")
        return slice(int(what) % count, int(what) % count + 1)

    def row(self, what: What = None, relative: Relative = False) -> NDArray[np.float64]:
        """Return what some tokens pay to each source token, on average: (V,).

        Args:
            what: as for `tokens_of`.
            relative: as for `heatmap`.
        """
        part, usual = self._sides(what, relative)
        return part if usual is None else part / usual

    def grid(self, t: int) -> list[NDArray[np.float64]]:
        """The weights of token t as the model saw the pictures: (rows, columns) for each grid.

        A cell without a token has 0. There is none for a picture whose layout is not known.
        """
        row = self.row(t)
        values = []
        for picture in self.pictures:
            cells = np.append(row[picture.columns], 0.0)  # the place -1
            values += [cells[grid] for grid in picture.grids]
        return values

    def heatmap(self, what: What = None, picture: int | str = 0, relative: Relative = False) -> Map:
        """Where some tokens looked, as a map of a picture's size: (height, width).

        A raw map is a density, attention per pixel: its sum is what the tokens pay, on average, to
        the tokens of this picture that have a place. What is relative is that density divided by
        another, so 1 is as much as usual. Pixels that no vision token saw are 0.

        Args:
            what: a token's number, a slice, a word or phrase of the response, or None for all.
            picture: its number among `pictures`, or its name.
            relative: False for the weights; True or "tokens" divides by the mean over the tokens of
                the response; "prompt" by what the same tokens paid after another prompt
                (`baseline`). To both sides is added `FAINT` of the mean weight: nothing is divided
                by 0, and a place at which hardly anything looks stays near 1. A response of one
                token is its own mean: 1 everywhere.

        Raises:
            ValueError: there is no such text, picture or baseline, or the layout is not known.
        """
        shown = self._picture(picture)
        if shown.boxes is None:
            raise ValueError(
                f"what each vision token of {shown.name} saw is not known for this model, so there "
                "is no map; look.weights has the flat vector of each token"
            )
        size, columns = shown.image.size, shown.columns
        part, usual = self._sides(what, relative)
        heat = paint(shown.boxes, part[columns], size)
        if usual is None:
            return heat
        below = paint(shown.boxes, usual[columns], size)
        return np.divide(heat, below, out=np.zeros_like(heat), where=below > 0)

    def overlay(
        self, what: What = None, picture: int | str = 0, relative: Relative = False
    ) -> Image:
        """Return the picture, dimmed, with the heat of `heatmap` (same arguments) on it.

        What is relative shows heat only where it is above 1: more than usual.
        """
        heat = self.heatmap(what, picture, relative)
        return overlay(self._picture(picture).image, strengths(heat, 1.0 if relative else 0.0))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a page to explore ("look.html") or a strip of overlays ("look.png")."""
        from lookback.pages.look import save

        save(self, path)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON; pictures without their pixels."""
        return {
            "text": self.text,
            "token_ids": self.token_ids.tolist(),
            "tokens": list(self.tokens),
            "layers": list(self.layers),
            "weights": self.weights.tolist(),
            "baseline": None if self.baseline is None else self.baseline.tolist(),
            "pictures": [one.to_dict() for one in self.pictures],
        }

    def _picture(self, picture: int | str) -> Picture:
        names = [one.name for one in self.pictures]
        if isinstance(picture, str) and picture in names:
            return self.pictures[names.index(picture)]
        if not isinstance(picture, str) and -len(names) <= picture < len(names):
            return self.pictures[picture]
        raise ValueError(
            f"no picture {picture!r}: this look has {', '.join(names) or 'none'}; look.weights has "
            "the flat vector of each token"
        )

    def _sides(
        self, what: What, relative: Relative
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """(V,): the mean weights of some tokens, and what they are to be divided by."""
        chosen = self.tokens_of(what)
        part = self.weights[chosen].mean(0, dtype=np.float64)
        if relative is False:
            return part, None
        if relative in (True, "tokens"):
            usual = self.weights.mean(0, dtype=np.float64)
        elif relative != "prompt":
            raise ValueError(f"relative = {relative!r}: must be False, True, 'tokens' or 'prompt'")
        elif self.baseline is None:
            raise ValueError("relative = 'prompt' needs look(..., relative_to='another question')")
        else:
            usual = self.baseline[chosen].mean(0, dtype=np.float64)
        faint = FAINT * usual.mean() or 1.0  # nothing is looked at at all: all is as usual
        return part + faint, usual + faint


def readonly(values: Any, dtype: type) -> NDArray[Any]:
    """Return a copy that cannot be changed."""
    array: NDArray[Any] = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def _boxes(name: str, values: Any, count: int) -> Floats:
    """Return boxes as (count, 4); raise ValueError if one is no part of a picture."""
    boxes: Floats = np.array(values, dtype=np.float32)
    if boxes.shape != (count, 4):
        raise ValueError(f"{name}: boxes have the shape {boxes.shape}, must be ({count}, 4)")
    left, top, right, bottom = boxes.T
    inside = (boxes >= -1e-4).all(1) & (boxes <= 1 + 1e-4).all(1)
    wrong = ~np.isnan(boxes).all(1) & ~(inside & (left < right) & (top < bottom))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise ValueError(
            f"{name}: box {k} is {boxes[k].tolist()}: left, top, right and bottom must be shares "
            "of the picture in this order, from 0 to 1, or all NaN"
        )
    return readonly(boxes.clip(0, 1), np.float32)


def _weights(name: str, values: Any, tokens: int) -> Floats:
    """Return weights as (tokens, V); raise ValueError if one is no weight."""
    array: Floats = readonly(values, np.float32)
    if array.ndim != 2 or len(array) != tokens:
        raise ValueError(
            f"{name} has the shape {array.shape} for {tokens} tokens: must be ({tokens}, source)"
        )
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        t, v = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"{name}[{t}, {v}] = {array[t, v]:g}: must be a finite number, at least 0")
    return array


BITS = 9
"""Of a weight's fraction: it is off by at most one part in 2 ** (BITS + 1), 0.1 %."""
WHOLE = 23  # of float32


def rounded(values: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers from 0 to 1 as float32 with `BITS` bits of their fraction; the others are 0."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    cut = WHOLE - BITS
    half = np.uint32(1 << (cut - 1))
    kept: NDArray[np.float32] = ((bits + half) >> cut << cut).view(np.float32)
    return kept
