"""fig:motivation_overall and the qualitative figures: what each scorer sees in single tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lookback.pages.tokens import SIGNALS, Case, Response, color, shades, tokens_page
from lookback.runs import Run
from lookback.runs.items import item_images
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array, relevance, token_scores
from lookback.signals import Candidate
from lookback.studies.common import plots
from lookback.studies.common.base import Result, Runs, StudyError, study, title
from lookback.studies.common.selection import (
    has_scores,
    in_order,
    own_methods,
    picks,
    quality_of_picks,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "tokens"
COMPARED = ("lookback", "self_certainty", "visual_lookback")
"""Whose picks are shown; users' own follow."""
FULL = 1.0
"""The highest quality that a response can have."""
SUCCESS = "LookBack's pick has full quality (1) and SC's has less"
FAILURE = "the quality of LookBack's pick is at most half of the best candidate's"
RULE = (
    f"A success is an item of which {SUCCESS}; of several the one with the largest difference. A "
    f"failure is one of which {FAILURE}; of several the one with the largest difference. Of equal "
    "ones the first."
)
NOTES = [
    "Shades: darker is higher, from the lowest to the highest token of each row. LookBack's row is "
    "shaded by exp(u_t) = p_t A_t^alpha (Eq. 4), before the weights q(t), which the CSV has.",
    RULE,
]
WIDTH, LEFT, LABEL, MARGIN = 72 * plots.TWO_COLUMNS, 110.0, 48.0, 8.0  # of the page, in points
SIZE, LINE, GAP = 8.0, 12.5, 6.0


@study(
    NAME,
    paper="fig:motivation_overall, fig:appendix_quali_1, fig:appendix_quali_failure",
    title="Tokens",
)
def tokens(runs: Runs, item: int | str | None = None, shown: int | None = None) -> Result:
    """The picks of each scorer for single items, their tokens shaded by its token scores.

    Args:
        runs: the figure is of the first that has such an item; the page and the rows are of all.
        item: an item's id, or its position in the split; by default a success and a failure, as
            far as there are such, for which the quality of responses must be known.
        shown: the most candidates of an item; by default all picks: those of LookBack, SC, visual
            lookback, scorers of one's own, the oracle.

    Raises:
        StudyError: there is no such item, or no item with a success or a failure.
    """
    if shown is not None and shown < 1:
        raise StudyError(f"shown = {shown}: show at least one candidate")
    cases: list[list[Case]] = []
    rows: list[dict[str, Any]] = []
    if item is None:
        runs = runs.with_quality(NAME)
    notes = [*NOTES, *runs.notes]
    for run in in_order(runs.largest):
        n = runs.budget(run)
        chosen = _asked(run, item) if item is not None else choose_cases(run, n)
        if item is None:
            notes += _case_notes(run, n, chosen)
        cases.append([])
        image = item_images(run)
        for name, row in chosen.items():
            responses, token_rows = _responses(run, n, row, shown)
            seen = image(int(run.places[row]))
            notes += [f"{run.ids[row]}: no image: {seen}"] if isinstance(seen, str) else []
            qualities = _qualities(run, n, row) if item is None else ""
            label = f"{name}{qualities}: {title(run)}, {run.model}"
            cases[-1].append(Case(label, run.questions[row], seen, responses))
            labels = {"model": run.model, "benchmark": title(run), "N": n}
            labels |= {"case": name, "id": run.ids[row]}
            rows += [labels | values for values in token_rows]
    if not rows:
        wanted = f"no success and no failure to show: name an item with --set item=ID. {RULE}"
        raise StudyError(wanted if item is None else f"no run here has an item {item!r}")
    first = next(here for here in cases if here)
    page = tokens_page([case for here in cases for case in here], RULE if item is None else "")
    return Result(rows, [], shaded_figure(first), notes, {"page.html": page})


def _asked(run: Run, item: int | str) -> dict[str, int]:
    """The row of an item by its id or its position; none if the run does not have it."""
    if str(item) in run.ids:
        return {str(item): run.ids.index(str(item))}
    rows = np.flatnonzero(run.places == int(item)) if str(item).isdecimal() else np.array([])
    return {run.ids[int(row)]: int(row) for row in rows}


def choose_cases(run: Run, n: int) -> dict[str, int]:
    """The rows of a success and of a failure, as far as there are such, by `RULE`.

    Args:
        run: whose items all have a quality.
        n: of how many candidates of each is picked.
    """
    ours, theirs, best = _picked(run, n)
    cases: dict[str, int] = {}
    for name, right, difference in (
        ("Success", (ours >= FULL) & (theirs < ours), ours - theirs),
        ("Failure", (ours < best) & (ours <= best / 2), best - ours),
    ):
        if right.any():
            cases[name] = int(np.where(right, difference, -np.inf).argmax())
    return cases


def _picked(run: Run, n: int) -> tuple[Array, Array, Array]:
    """(items,) each: the quality of LookBack's pick, of SC's, and of the best candidate."""
    quality = run.quality(n)
    ours, theirs = (quality_of_picks(run.scores(name, n), quality) for name in COMPARED[:2])
    return ours, theirs, np.asarray(np.nanmax(quality, axis=1))


def _qualities(run: Run, n: int, row: int) -> str:
    """What the picks of an item are worth."""
    ours, theirs, best = (values[row] for values in _picked(run, n))
    return f" (LookBack's pick {ours:.2f}, SC's {theirs:.2f}, best {best:.2f})"


def _case_notes(run: Run, n: int, chosen: dict[str, int]) -> list[str]:
    """A note per case: which item it is, or that there is none."""
    name, notes = f"{title(run)}, {run.model}", []
    for case, rule in (("Success", SUCCESS), ("Failure", FAILURE)):
        if case in chosen:
            row = chosen[case]
            notes.append(f"{name}: {case.lower()} {run.ids[row]}{_qualities(run, n, row)}.")
        else:
            notes.append(f"{name}: no {case.lower()}: there is no item of which {rule}.")
    return notes


def _responses(
    run: Run, n: int, row: int, most: int | None
) -> tuple[list[Response], list[dict[str, Any]]]:
    """The shown candidates of an item's first n, and a row for each of their tokens."""
    own = [method for method in own_methods([run]) if has_scores(run, method, n)]
    scores = {get_scorer(m).title: run.scores(m, n)[row] for m in (*COMPARED, *own)}
    quality, candidates = run.quality(n)[row], run.candidates(row)[:n]
    pickers = _pickers(scores, quality)
    responses, rows = [], []
    for index in list(pickers)[:most]:
        by, candidate = ", ".join(pickers[index]), candidates[index]
        if not len(candidate.signals):
            continue
        known = "-" if np.isnan(quality[index]) else f"{quality[index]:.2f}"
        ranks = [f"{name} {1 + int((v > v[index]).sum())}" for name, v in scores.items()]
        about = f"picked by {by} · quality {known} · rank of {len(candidates)}: "
        values = _token_rows(candidate, run.defaults)
        shaded = {"SC": "self_certainty", "A": "visual_lookback", "LookBack": "exp_token_score"}
        columns = {name: np.array([v[key] for v in values]) for name, key in shaded.items()}
        responses.append(Response(about + ", ".join(ranks), candidate.tokens, columns))
        labels = {"candidate": index, "picked_by": by, "quality": float(quality[index])}
        rows += [labels | value for value in values]
    return responses, rows


def _pickers(scores: dict[str, Array], quality: Array) -> dict[int, list[str]]:
    """Which candidates are picked, and by whom; the best, if known, by the oracle."""
    pickers: dict[int, list[str]] = {}
    for name, values in scores.items():
        pickers.setdefault(int(picks(values[None])[0]), []).append(name)
    if np.isfinite(quality).any():
        best = np.flatnonzero(quality == np.nanmax(quality)).tolist()
        oracle = next((i for i in pickers if i in best), best[0])
        pickers.setdefault(oracle, []).append("oracle")
    return pickers


def _token_rows(candidate: Candidate, defaults: dict[str, float]) -> list[dict[str, Any]]:
    """Everything about each token."""
    score = token_scores(candidate.log_prob, candidate.visual_lookback, defaults["alpha"])
    weight = relevance(candidate.visual_lookback, defaults["lam"])
    numbers: dict[str, Any] = {
        "log_prob": candidate.log_prob,
        "visual_lookback": candidate.visual_lookback,
    }
    numbers |= {"self_certainty": candidate.self_certainty, "token_score": score}
    numbers |= {"exp_token_score": np.exp(score), "relevance": weight}
    return [
        {"t": t, "token": token} | {name: float(values[t]) for name, values in numbers.items()}
        for t, token in enumerate(candidate.tokens)
    ]


@plots.in_style
def shaded_figure(cases: Sequence[Case]) -> Figure:
    """A figure of the cases, one below another: image and question left, responses right."""
    figure, axes = plots.panels(1, 1, plots.TWO_COLUMNS, height=1)
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
        room = (WIDTH - MARGIN - left) * SIZE / plots.SMALL
        self.paragraph(left, response.about, room, color=plots.MUTED, fontsize=plots.SMALL)
        for signal, scores in response.scores.items():
            self.y += LINE + 2
            shade = plots.readable(get_scorer(SIGNALS[signal]).color)
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
