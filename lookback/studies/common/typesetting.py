"""Shaded tokens in a figure: text set line by line, each token measured, boxed and written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from lookback.pages.tokens import SIGNALS, Case, Response, color, shades
from lookback.scores.base import get_scorer
from lookback.studies.common.plots import MUTED, SMALL, TWO_COLUMNS, in_style, panels, readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, LEFT, LABEL, MARGIN = 72 * TWO_COLUMNS, 110.0, 48.0, 8.0  # of the page, in points
SIZE, LINE, GAP = 8.0, 12.5, 6.0


@in_style
def shaded_figure(cases: Sequence[Case]) -> Figure:
    """A figure of the cases, one below another: image and question left, responses right."""
    figure, axes = panels(1, 1, TWO_COLUMNS, height=1)
    figure.set_layout_engine("none")
    paper = _Paper(axes[0, 0])
    for case in cases:
        paper.case(case)
    height = paper.y + MARGIN
    figure.set_size_inches(WIDTH / 72, height / 72)
    axes[0, 0].set_position([0, 0, 1, 1])
    axes[0, 0].set(xlim=(0, WIDTH), ylim=(height, 0))
    axes[0, 0].set_axis_off()
    return figure


def break_lines(tokens: Sequence[str], widths: Sequence[float], limit: float) -> list[list[int]]:
    """The tokens of each line: a new line where a word would pass the limit, and at a line break.

    A word is a token that begins with a blank, with those behind it that do not; one that is
    wider than a line is broken between its tokens.
    """
    lines: list[list[int]] = [[]]
    used, ended = 0.0, False
    for i, token in enumerate(tokens):
        end = i + 1
        while token[:1].isspace() and end < len(tokens) and not tokens[end][:1].isspace():
            end += 1
        word = sum(widths[i:end])
        needed = word if word <= limit else widths[i]
        breaks = ended or token.startswith("\n")
        if lines[-1] and (used + needed > limit or breaks):
            lines.append([])
            used = 0.0
        lines[-1].append(i)
        used += widths[i]
        ended = token.endswith("\n") and token != "\n"
    return lines


@cache
def width(words: str) -> float:
    """How wide a text is, in points, with the blanks at its ends."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    # Between two letters, since blanks at the ends do not count; and large, since a width is a
    # whole number of pixels.
    renderer: Any = RendererAgg(1, 1, 72)  # type: ignore[no-untyped-call]
    large = FontProperties(size=100)
    wide, none = (
        renderer.get_text_width_height_descent(f"x{middle}x", large, False)[0]
        for middle in (words, "")
    )
    return float(wide - none) * SIZE / 100


class _Paper:
    """Axes in points, from the top left; `y` is the line that was written last."""

    def __init__(self, axis: Any) -> None:
        self.axis, self.y = axis, 0.0

    def write(self, x: float, words: str, **look: Any) -> None:
        look = {"fontsize": SIZE, "va": "baseline", "parse_math": False} | look
        self.axis.text(x, self.y, words, **look)

    def case(self, case: Case) -> None:
        self.y += MARGIN + LINE
        self.write(MARGIN, case.name, weight="bold", fontsize=SIZE + 1)
        self.y = top = self.y + GAP
        if not isinstance(case.image, str):
            wide, high = case.image.size
            self.y += LEFT * high / wide
            extent = (MARGIN, MARGIN + LEFT, self.y, top)
            self.axis.imshow(case.image, extent=extent, aspect="auto", zorder=1)
        self.paragraph(MARGIN, case.question, LEFT)
        lowest, self.y = self.y, top
        for response in case.responses:
            self.response(response)
        self.y = max(self.y, lowest)

    def paragraph(self, x: float, text: str, room: float, **look: Any) -> None:
        """Plain text from the next line on; `room` is as if it were of the usual size."""
        words = [f" {word}" for word in text.split()]
        for line in break_lines(words, [width(word) for word in words], room):
            self.y += LINE
            self.write(x, "".join(words[i] for i in line).strip(), **look)

    def response(self, response: Response) -> None:
        """Its line, and its text once for each signal."""
        left = 2 * MARGIN + LEFT
        room = (WIDTH - MARGIN - left) * SIZE / SMALL
        self.paragraph(left, response.about, room, color=MUTED, fontsize=SMALL)
        for signal, scores in response.scores.items():
            self.y += LINE + 2
            shade = readable(get_scorer(SIGNALS[signal]).color)
            self.write(left, signal, color=shade, weight="bold")
            shaded = [color(signal, shade) for shade in shades(scores)]
            self.tokens(left + LABEL, response.tokens, shaded)
        self.y += GAP

    def tokens(self, left: float, tokens: Sequence[str], colors: Sequence[str]) -> None:
        """From this line on."""
        from matplotlib.patches import Rectangle

        shown = ["".join(c if c.isprintable() or c == "\n" else " " for c in t) for t in tokens]
        widths = [width(token.replace("\n", "")) for token in shown]
        for number, line in enumerate(break_lines(shown, widths, WIDTH - MARGIN - left)):
            self.y += LINE if number else 0
            x = left - width(" ") * shown[line[0]].startswith(" ")
            for i in line:
                bare = shown[i].strip()
                start = x + width(shown[i].replace("\n", "").partition(bare)[0] if bare else "")
                box = Rectangle((start, self.y - SIZE), width(bare), LINE - 2)
                box.set(color=colors[i], linewidth=0, zorder=1)
                self.axis.add_patch(box)
                self.write(start, bare, zorder=2)
                x += widths[i]
