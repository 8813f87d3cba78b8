"""Figures inside the page: as wide as the page, and light or dark as the page is."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from lookback.pages import data_uri
from lookback.studies.common.plots import ONE_COLUMN, TWO_COLUMNS, contrast, figure_bytes

SVG_MOST = 300_000
"""Bytes above which a figure (a scatter of many points) goes in as PNG, which stays light."""
PIXELS_PER_INCH = 108
CARD = np.array([0x1C, 0x1F, 0x24]) / 255
"""What is behind a figure on a dark page: `--card` of base.css."""
STRONG = 4.5
"""The contrast that a strong colour has on a dark page at least."""
_STYLE = '<style type="text/css">'
_COLORS = re.compile(
    r'^(?P<indent> *)<g id="QuadMesh_.*?^(?P=indent)</g>'  # a heat map: its colours are values
    r'|\b(?P<part>(?:fill|stroke)(?:: |="))#(?P<color>[0-9a-f]{6})\b',
    re.MULTILINE | re.DOTALL,
)


class FigureView(NamedTuple):
    """A figure inside the page.

    Attributes:
        uri: the image.
        width, height: in pixels.
        small: the image for a small screen, None for one that is too wide for it.
        shows: a sentence or two for those who cannot see it.
    """

    uri: str
    width: int
    height: int
    small: str | None
    shows: str


def figure_view(figure: Any) -> FigureView:
    """Return a figure as the page shows it.

    One that was made for a single column of a paper is drawn as wide as two, in the same height;
    small screens show it as it was made.
    """
    made, small = figure.get_size_inches(), None
    if made[0] < (ONE_COLUMN + TWO_COLUMNS) / 2:
        small = _image(figure)
        figure.set_size_inches(TWO_COLUMNS, made[1])
    width, height = (round(PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
    view = FigureView(_image(figure), width, height, small, _describe(figure))
    figure.set_size_inches(*made)
    return view


def _image(figure: Any) -> str:
    svg = figure_bytes(figure, "svg")
    if len(svg) > SVG_MOST:
        return data_uri("image/png", figure_bytes(figure, "png"))
    return data_uri("image/svg+xml", with_dark_scheme(svg.decode()).encode())


def with_dark_scheme(svg: str) -> str:
    """Return matplotlib's SVG with colours that follow the reader's scheme."""
    names: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        if match["color"] is None:
            return match[0]
        names[match["color"]] = dark(f"#{match['color']}")
        return f"{match['part']}var(--c{match['color']})"

    named = _COLORS.sub(name, svg)
    light_ones = "".join(f"--c{color}:#{color};" for color in names)
    dark_ones = "".join(f"--c{color}:{other};" for color, other in names.items())
    schemes = f"svg{{{light_ones}}}@media (prefers-color-scheme: dark){{svg{{{dark_ones}}}}}"
    return named.replace(_STYLE, _STYLE + schemes, 1)


def dark(color: str) -> str:
    """Return what a colour is on a dark page.

    A strong one, of a line or a bar, is as bright as it must be to be read. Others (ink, greys,
    tints) stand out as much as they do on white, so white itself is the page.
    """
    from matplotlib.colors import to_hex, to_rgb

    rgb = np.array(to_rgb(color))
    wanted, white = contrast(rgb), np.ones(3)
    steps = np.linspace(CARD, white if wanted > 3 else rgb, 200)
    if rgb.max() > 0.4 and rgb.min() < 0.4 * rgb.max():
        wanted, steps = STRONG, np.linspace(rgb, white, 200)
    shade = next((step for step in steps if contrast(step, CARD) >= wanted), steps[-1])
    return to_hex(shade.tolist())


def _describe(figure: Any) -> str:
    """What a figure's panels are, and what is named in them."""
    seen = [axis for axis in figure.axes if axis.axison and axis.get_label() != "<colorbar>"]
    parts = [_describe_panel(axis) for axis in seen]
    texts = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for axis in seen:
        legend = axis.get_legend()
        texts += [text.get_text() for text in (legend.get_texts() if legend else [])]
        ticks = (*axis.get_yticklabels(), *axis.get_xticklabels())
        texts += [text.get_text() for text in (*axis.texts, *ticks)]
    names = [_one_line(text) for text in dict.fromkeys(texts) if any(c.isalpha() for c in text)]
    shown = "; ".join(filter(None, dict.fromkeys(parts)))
    panels = [f"Panels: {shown}."] if shown else []
    return " ".join([*panels, *([f"Named in it: {', '.join(names)}."] if names else [])])


def _describe_panel(axis: Any) -> str:
    axes = " against ".join(filter(None, (axis.get_ylabel(), axis.get_xlabel())))
    title = axis.get_title() or axis.get_title(loc="left")
    return _one_line(": ".join(filter(None, (title, axes))))


def _one_line(text: str) -> str:
    return ", ".join(text.split("\n"))
