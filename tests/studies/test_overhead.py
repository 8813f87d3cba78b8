"""Times a response: the recorded ones by hand, the measured ones with a clock that is known."""

import statistics

import pytest
from made_runs import make_run, write_timings
from slow_outcomes import cells, mean, shorten

from lookback.studies import StudyError, get_study, overhead

MEASURED = {
    *("self_certainty", "lookback", "mean_log_prob", "sum_log_prob", "entropy"),
    *("visual_lookback", "consensus", "majority", "self_certainty_borda"),
}


@pytest.fixture
def run(tmp_path):
    made = make_run(
        tmp_path / "run", items=12, n=6, failed=(0,), empty=[(1, 0)], recorded=("vauq", "usc@5")
    )
    return shorten(made, 2, 3)


def with_times(run, rows):
    for shard in (0, 1):
        for stage in ("sample", "vauq", "usc@5"):
            here = [row for row in rows if (row["stage"], row["item"] // 10) == (stage, shard)]
            write_timings(run.path, shard, stage, here)
    return run


def of(result, scorer):
    (found,) = [row for row in result.rows if row["scorer"] == scorer]
    return found


def timing(what, item, responses, ms):
    return {"stage": what, "item": item, "responses": responses, "ms": ms}


@pytest.fixture
def clock(monkeypatch):
    """Every call takes two seconds, but for LookBack one in three takes a half."""
    asked = []

    def repeat(function, number, repeat):
        (name,) = [
            c.cell_contents for c in function.__closure__ if isinstance(c.cell_contents, str)
        ]
        function()
        asked.append((name, number, repeat))
        return [2.0, 0.5 if name == "lookback" else 2.0, 2.0]

    monkeypatch.setattr(overhead, "repeat", repeat)
    return asked


def test_recorded_times(run, clock):
    times = [
        timing("vauq", 1, 6, 60.0),
        timing("vauq", 2, 3, 60.0),
        timing("vauq", 3, 6, 90.0),
        timing("usc@5", 1, 5, 200.0),
        timing("usc@5", 2, 0, 7.0),
        timing("sample", 1, 6, 9999.0),
    ]
    result = get_study("overhead")([with_times(run, times)])
    vauq = of(result, "vauq")
    assert vauq["ms"] == pytest.approx(mean([10, 20, 15]))
    assert vauq["std"] == pytest.approx(statistics.pstdev([10, 20, 15]))
    assert (vauq["items"], vauq["source"]) == (3, "recorded")
    assert (of(result, "usc@5")["ms"], of(result, "usc@5")["std"]) == (40, 0)
    assert {row["scorer"] for row in result.rows} == {"vauq", "usc@5"} | MEASURED


def test_measured_times_are_the_best_of_three_an_item(run, clock):
    result = get_study("overhead")([run])
    ours = [500 / 6, 500 / 3, *[500 / 6] * 9]  # an item has three candidates, the others six
    assert of(result, "lookback")["ms"] == pytest.approx(mean(ours))
    assert of(result, "lookback")["std"] == pytest.approx(statistics.pstdev(ours))
    assert of(result, "lookback")["items"] == 11
    assert of(result, "lookback")["source"] == "measured now"
    assert of(result, "lookback")["ratio"] == 1
    assert of(result, "entropy")["ratio"] == pytest.approx(4)
    assert {(number, times) for _, number, times in clock} == {(1, 3)}
    assert of(result, "vauq")["ratio"] == pytest.approx(mean([40 / 6] * 11) / mean(ours))


def test_no_more_items_than_asked(run, clock):
    result = get_study("overhead")([run], {"items": 4})
    assert {of(result, name)["items"] for name in MEASURED} == {4}
    assert len(clock) == 4 * len(MEASURED)
    assert of(result, "vauq")["items"] == 11  # all that were recorded
    with pytest.raises(StudyError, match="items = 0"):
        get_study("overhead")([run], {"items": 0})


def test_table_and_notes(run, clock):
    result = get_study("overhead")([with_times(run, [timing("usc@5", 1, 5, 6e6)])])
    (table,) = result.tables
    lines = cells(table)
    assert next(iter(lines)) == "LookBack"  # from the cheapest
    assert list(lines)[-1] == "USC (N=5)"
    assert lines["USC (N=5)"] == ["1,200,000", "0", "13,200", "recorded"]
    assert lines["LookBack"][2:] == ["1", "measured now"]
    said = " ".join(result.notes)
    assert "machine and threads" in said
    assert "LLaVA" in said


@pytest.mark.parametrize(("ms", "scale"), [(20.0, "linear"), (1e5, "log")])
def test_figure(run, clock, ms, scale):
    # Nine times ms and once 91 ms: the mean is 10 ms, the standard deviation 27 ms.
    times = [timing("vauq", item, 1, 91 * ms if item == 4 else ms) for item in range(1, 11)]
    result = get_study("overhead")([with_times(run, times)])
    (axis,) = result.figure.axes
    assert axis.get_xscale() == scale
    assert ("log scale" in axis.get_xlabel()) == (scale == "log")
    names = [label.get_text() for label in axis.get_yticklabels()]
    widths = dict(zip(names, (bar.get_width() for bar in axis.patches), strict=True))
    assert widths["VAUQ"] == pytest.approx(10 * ms)
    assert widths["LookBack"] == pytest.approx(of(result, "lookback")["ms"])
    (bars,) = axis.containers[0].lines[2]
    low, high = bars.get_segments()[names.index("VAUQ")][:, 0]
    assert (low, high) == pytest.approx((ms, 37 * ms))  # no bar reaches zero


def test_panels_of_a_row_share_their_scale(run, clock, tmp_path):
    dear = with_times(run, [timing("vauq", item, 1, 1e5) for item in range(1, 11)])
    cheap = make_run(tmp_path / "vqa", "scenes-vqa", items=3, n=4)
    first, second = get_study("overhead")([dear, cheap]).figure.axes
    assert first.get_xscale() == second.get_xscale() == "log"
    assert first.get_xlim() == second.get_xlim()
    assert first.get_xlabel() == second.get_xlabel()


def test_a_panel_a_run_with_real_clocks(run, tmp_path):
    other = make_run(tmp_path / "vqa", "scenes-vqa", items=3, n=4)
    result = get_study("overhead")([run, other], {"items": 2})
    assert len(result.figure.axes) == len(result.tables) == 2
    assert all(row["ms"] > 0 for row in result.rows)
    assert not [
        r for r in result.rows if r["benchmark"] == "Scenes VQA" and r["source"] == "recorded"
    ]
