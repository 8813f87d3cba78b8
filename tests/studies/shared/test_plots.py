"""Figures: what is drawn is what was computed."""

import io
import os
import subprocess
import sys
from itertools import combinations

import matplotlib
import numpy as np
import pytest
from made_runs import make_run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from lookback.studies import get_study, title
from lookback.studies.common.base import STUDIES, Runs
from lookback.studies.common.controls import control_pairs
from lookback.studies.common.plots import (
    FORMS,
    ONE_COLUMN,
    TWO_COLUMNS,
    Dots,
    add_legend,
    dots,
    figure_bytes,
    heading,
    panels,
)
from lookback.studies.common.tables import files_of


def test_dots_stand_where_the_values_are():
    series = [
        Dots("first", "#000000", [1.0, 2.0], [0.5, 1.0], [2.0, 2.5]),
        Dots("second", "#ff0000", [3.0, np.nan], [2.0, np.nan], [3.5, np.nan]),
        Dots("second", "#ff0000", [4.0, 5.0], [4.0, 5.0], [4.0, 5.0], filled=False),
    ]
    figure = dots(["a", "b\nmodel"], series, "per cent")
    assert [axis.get_title() for axis in figure.axes] == ["a", "b\nmodel"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["first", "second"]
    for number, axis in enumerate(figure.axes):
        for one, drawn in zip(series, axis.containers, strict=True):
            values = np.array([one.values[number], one.low[number], one.high[number]])
            shown = np.asarray(drawn.lines[0].get_xdata(), dtype=float)
            np.testing.assert_equal(shown, values[:1])
            ends = [s.reshape(-1, 2)[:, 0].tolist() for s in drawn.lines[2][0].get_segments()]
            assert ends == [values[1:].tolist() if np.isfinite(values[0]) else []]
        first, full, hollow = (drawn.lines[0] for drawn in axis.containers)
        assert (full.get_markerfacecolor(), hollow.get_markerfacecolor()) == ("#ff0000", "white")
        assert first.get_ydata()[0] == 0
        assert full.get_ydata()[0] < 1 < hollow.get_ydata()[0]  # both on the second line
    assert figure.axes[0].yaxis_inverted()  # the first on top
    ends = [axis.get_xlim() for axis in figure.axes]
    assert ends[0] == ends[1]  # panels of a row can be compared by eye


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    found = []
    for benchmark in ("scenes-vqa", "scenes-caption"):
        run = make_run(folder / benchmark, benchmark, recorded=("usc@5", "judge@5"), layers=3)
        found += [run, make_run(folder / f"{benchmark}2", benchmark, seed=7, n=5)]
        found += [make_run(folder / f"{benchmark}3", benchmark, image="random", controls=run)]
        found += [make_run(folder / f"{benchmark}4", benchmark, image="none", controls=run)]
    return found


def values_of(figure):
    """{series: its dots, a panel each}."""
    found = {}
    for axis in figure.axes:
        for one in axis.containers:
            hollow = " (hollow)" if one.lines[0].get_markerfacecolor() == "white" else ""
            found.setdefault(one.get_label() + hollow, []).append(one.lines[0].get_xdata()[0])
    return found


def test_the_judges_figure_has_the_rows_values(runs):
    result = get_study("judge")(runs)
    shown = values_of(result.figure)
    for method, name in (("random", "Random"), ("judge", "Judge"), ("lookback", "LookBack")):
        assert shown[name] == [r["value"] for r in result.rows if r["method"] == method]


def test_the_seeds_figure_has_means(runs):
    result = get_study("seeds")(runs)
    means = {(r["benchmark"], r["method"]): r["mean"] for r in result.rows}
    shown = values_of(result.figure)["LookBack"]
    assert shown == [means["Scenes VQA", "lookback"], means["Scenes Caption", "lookback"]]


def test_the_random_images_figure_has_both_outcomes(runs):
    result = get_study("random-image")(runs)
    shown = values_of(result.figure)
    ours = [row for row in result.rows if row["method"] == "lookback"]
    assert shown["LookBack"] == [row["original"] for row in ours]
    assert shown["LookBack (hollow)"] == [row["replaced"] for row in ours]
    floors = [axis.lines[-1].get_xdata()[0] for axis in result.figure.axes]
    assert floors == [row["random"] for row in ours]
    (legend,) = result.figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["own image", "random image", "random selection"]


def test_the_random_images_whiskers_are_intervals_of_the_outcomes(runs):
    result = get_study("random-image")(runs)
    row = next(row for row in result.rows if row["method"] == "lookback")
    pair = control_pairs(Runs(runs), "random")[0]
    for key, scores in zip(("original", "replaced"), pair.scores("lookback"), strict=True):
        quality = 100 * pair.quality()
        picked = [quality[i, int(np.argmax(line))] for i, line in enumerate(scores)]
        slow = slow_interval(picked)
        assert (row[f"{key}_low"], row[f"{key}_high"]) == pytest.approx(slow)
        assert row[f"{key}_low"] < row[key] < row[f"{key}_high"]
    drawn = [c for c in result.figure.axes[0].containers if c.get_label() == "LookBack"]
    ends = [c.lines[2][0].get_segments()[0][:, 0].tolist() for c in drawn]
    keys = ("original", "replaced")
    np.testing.assert_allclose(ends, [[row[f"{k}_low"], row[f"{k}_high"]] for k in keys])


def slow_interval(values):
    """The middle 95 % of the means of 2,000 samples of values, drawn one by one."""
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(values), (2000, len(values)))
    means = sorted(sum(values[i] for i in sample) / len(values) for sample in draws.tolist())
    return tuple(np.percentile(means, [2.5, 97.5]).tolist())


def test_the_oracles_figure_goes_from_mean_to_oracle(runs):
    result = get_study("oracle")(runs)
    lines, means, tops, *ends = result.figure.axes[0].collections
    rows = [row for row in result.rows if row["benchmark"] != "Average"][::-1]
    assert means.get_offsets()[:, 0].tolist() == [row["mean"] for row in rows]
    assert tops.get_offsets()[:, 0].tolist() == [row["oracle"] for row in rows]
    assert len(lines.get_segments()) == len(rows)
    for drawn, key in zip(ends, ("mean", "oracle"), strict=True):
        expected = [[row[f"{key}_low"], row[f"{key}_high"]] for row in rows]
        np.testing.assert_allclose([s[:, 0] for s in drawn.get_segments()], expected)
    first = rows[-1]
    run = next(run for run in runs if title(run) == first["benchmark"] and run.n == 25)
    best = [100 * max(line) for line in run.quality(first["N"]).tolist()]
    assert (first["oracle_low"], first["oracle_high"]) == pytest.approx(slow_interval(best))


def test_the_disagreements_figure_adds_up(runs):
    result = get_study("disagreements")(runs)
    bars = result.figure.axes[0].patches
    widths = np.array([bar.get_width() for bar in bars]).reshape(3, 2)  # verdicts x runs
    np.testing.assert_allclose(widths.sum(axis=0), 100)
    here = [row["verdict"] for row in result.rows if row["benchmark"] == "Scenes VQA"]
    shares = [100 * here.count(v) / len(here) for v in ("first", "tie", "second")]
    np.testing.assert_allclose(widths[:, 0], shares)
    above, below = result.figure.axes[0].containers[3:5]
    first, second = ([100.0 * (v == one) for v in here] for one in ("first", "second"))
    ends = above.lines[2][0].get_segments()[0][:, 0].tolist()
    assert ends == pytest.approx(slow_interval(first))
    ends = below.lines[2][0].get_segments()[0][:, 0].tolist()  # counted from the right
    assert ends == pytest.approx([100 - end for end in slow_interval(second)][::-1])


def test_a_figure_has_the_same_bytes_every_time(runs):
    first, second = (get_study("main")(runs).figure for _ in range(2))
    for form in FORMS:
        assert figure_bytes(first, form) == figure_bytes(second, form)


SAVE = """
import hashlib
from lookback.studies.common.plots import FORMS, figure_bytes, panels
figure, axes = panels(1, 2)
axes[0, 0].plot([1, 3, 2], label="α, λ and plain letters")
axes[0, 1].bar(["a", "b"], [1, 2], hatch="//")
axes[0, 0].legend()
for form in FORMS:
    print(form, hashlib.sha256(figure_bytes(figure, form)).hexdigest())
"""


def test_another_process_makes_the_same_bytes():
    def save(seed):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SAVE]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    assert save("1") == save("2")


def test_files_for_papers_documents_and_pages(runs):
    result = get_study("main")(runs)
    files = files_of("main", result)
    assert {"main.pdf", "main.png", "main.svg"} <= set(files)
    assert b"/FontFile2" in files["main.pdf"]  # TrueType, inside
    assert b"/Type3" not in files["main.pdf"]
    assert b"CreationDate" not in files["main.pdf"]
    assert b"<text" not in files["main.svg"]  # letters are drawn: no font is asked for
    image = Image.open(io.BytesIO(files["main.png"]))
    assert image.width / result.figure.get_figwidth() >= 200


@pytest.mark.parametrize("count", [4, 8], ids=["one benchmark", "two"])
@pytest.mark.parametrize("name", STUDIES.names())
def test_every_figure_is_as_wide_as_a_column_or_two_and_nothing_is_cut_off(runs, name, count):
    figure = get_study(name)(runs[:count]).figure
    assert figure.get_figwidth() in (ONE_COLUMN, TWO_COLUMNS)
    assert_nothing_is_cut_off(figure)


def assert_nothing_is_cut_off(figure):
    figure.draw_without_rendering()
    drawn, (wide, high) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(drawn.x0, drawn.y0, wide - drawn.x1, high - drawn.y1) > -0.01  # inches


@pytest.mark.parametrize("name", ["own", "a scorer of mine with a long name", "W" * 60])
def test_a_legend_is_no_wider_than_its_figure(name):
    for width in (ONE_COLUMN, TWO_COLUMNS):
        figure, axes = panels(1, 1, width)
        lines = [axes[0, 0].plot([1, 2])[0] for _ in range(5)]
        add_legend(figure, "lower", lines, [f"{name} {i}" for i in range(5)])
        assert_nothing_is_cut_off(figure)
        (legend,) = figure.legends
        assert len(legend.get_texts()) == 5


def test_the_combinations_figure_says_what_its_dots_are(runs):
    (legend,) = get_study("combine")(runs[:1]).figure.legends
    full, hollow, line = legend.legend_handles
    assert [text.get_text() for text in legend.get_texts()][:2] == ["mix", "ranks"]
    assert full.get_markerfacecolor() != hollow.get_markerfacecolor() == "white"
    assert line.get_linestyle() == "--"


def test_users_own_settings_stay_as_they_are(runs):
    with matplotlib.rc_context({"font.size": 13, "text.parse_math": True}):
        before = dict(matplotlib.rcParams)
        figure_bytes(get_study("main")(runs).figure, "svg")
        assert dict(matplotlib.rcParams) == before


def test_a_figure_of_ones_own_is_the_same_before_and_after_ours(runs):
    def draw():
        figure = Figure()
        axis = figure.subplots()
        axis.plot([1, 2, 5])
        axis.set_xlabel(r"$\alpha$")
        return [figure_bytes(figure, form) for form in FORMS]

    before = draw()
    get_study("scaling")(runs)
    assert draw() == before


def test_a_models_owner_has_a_line_of_its_own():
    assert (
        heading("Scenes VQA", "llava-hf/llava-1.5-7b-hf") == "Scenes VQA\nllava-hf/llava-1.5-7b-hf"
    )
    assert heading("llava-hf/llava-1.5-7b-hf", across=4) == "llava-hf/\nllava-1.5-7b-hf"
    assert max(map(len, heading("x" * 99, across=8).split("\n"))) == 10


def test_names_are_broken_to_fit_and_dollars_are_dollars(tmp_path):
    model = "somebody/a-very-long-name-of-a-model-with-$x_1$-and-a-date-2026-01-01"
    made = [
        make_run(tmp_path / benchmark, benchmark, model=model, items=5, n=3)
        for benchmark in ("scenes-vqa", "scenes-caption", "scenes-pairs", "scenes-amber")
    ]
    figure = get_study("scaling")(made).figure
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [axis.title.get_window_extent(renderer) for axis in figure.axes]
    wide, high = figure.get_size_inches() * figure.dpi
    assert all(b.x0 >= 0 and b.x1 <= wide and b.y1 <= high for b in boxes)
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert not any(axis.title.get_parse_math() for axis in figure.axes)
    assert "$x_1$" in figure.axes[0].get_title().replace("\n", "")
