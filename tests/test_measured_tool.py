"""The numbers of README's table: of the shipped weights, as the reproduction has them."""

import json
import re
from itertools import product

import numpy as np
import pytest
from documents import ROOT, read, table
from made_runs import make_run

import lookback
from lookback.benchmarks.base import GENERATED, get_kind
from lookback.embedded import LVLM
from lookback.engines.common.model_files import fingerprint
from lookback.studies.common.selection import title_of
from tools.measured import FILE, NAMES, fairness, measure, write

REPRODUCTION = ROOT / "docs" / "reproduction.md"


def test_they_are_of_the_shipped_weights():
    data = json.loads(FILE.read_text(encoding="utf-8"))
    assert data["weights"] == fingerprint(LVLM)
    assert list(data["tasks"]) == list(GENERATED)


def test_they_are_those_of_the_reproduction():
    data = json.loads(FILE.read_text(encoding="utf-8"))
    cells = table(read(REPRODUCTION), "<!-- main -->")
    for task, scorer in product(GENERATED, NAMES):
        shown = cells[title_of(scorer), f"{get_kind(task).title} N={data['n']}"]
        assert_shown(data["tasks"][task]["scorers"][scorer], shown)
    leads = table(read(REPRODUCTION), "LookBack's lead with embedded")
    assert {"mean_log_prob", "greedy"} <= data["leads"].keys() == NAMES.keys() - {"lookback"}
    for scorer, lead in data["leads"].items():
        assert_shown(lead, leads[f"over {title_of(scorer)}", f"N={data['n']}"])


def assert_shown(numbers, text):
    """`1.23 [0.4, 2.1]` says these numbers, rounded twice."""
    told = [float(number) for number in re.findall(r"[-+]?[\d.]+", text)]
    assert told[0] == pytest.approx(numbers[0], abs=0.0051)
    assert told[1:] == pytest.approx(numbers[1:], abs=0.051)


def test_runs_are_measured(tmp_path):
    for i, task in enumerate(GENERATED):
        make_run(tmp_path / task, benchmark=task, items=6, n=25, seed=i)
        make_run(tmp_path / f"{task}-greedy", benchmark=task, items=6, n=1, seed=i + 9)
    write(tmp_path, tmp_path / "measured.json")
    data = json.loads((tmp_path / "measured.json").read_text())
    assert (data["n"], data["items"]) == (25, 6)
    run = lookback.open_run(tmp_path / "scenes-pairs")
    quality, told = run.quality(), data["tasks"]["scenes-pairs"]
    picks = {s: np.nanargmax(run.scores(s), axis=1) for s in ("lookback", "self_certainty")}
    best, other = ([quality[i, pick] for i, pick in enumerate(p)] for p in picks.values())
    mean, low, high = told["scorers"]["lookback"]
    known = list(zip(best, other, quality.max(axis=1), strict=True))
    ours = sum(a == top and b <= a - 0.25 for a, b, top in known)
    theirs = sum(b == top and a <= b - 0.25 for a, b, top in known)
    assert told["apart"] == [ours + theirs, ours]
    assert mean == pytest.approx(100 * np.mean(best), abs=1e-4)
    assert low <= mean <= high
    assert told["scorers"]["random"][0] == pytest.approx(100 * quality.mean(), abs=1e-4)
    greedy = lookback.open_run(tmp_path / "scenes-pairs-greedy").quality().mean()
    assert told["scorers"]["greedy"][0] == pytest.approx(100 * greedy, abs=1e-4)
    assert f"LookBack is ahead on {ours} of them" in fairness(
        "scenes-pairs", tmp_path / "measured.json"
    )
    for scorer, (lead, low, high) in data["leads"].items():
        each = [
            task["scorers"]["lookback"][0] - task["scorers"][scorer][0]
            for task in data["tasks"].values()
        ]
        assert lead == pytest.approx(np.mean(each), abs=1e-3)
        assert low <= lead <= high


def test_runs_of_several_sizes_are_refused(tmp_path):
    runs = [(make_run(tmp_path / str(n), items=n, n=25),) * 2 for n in (2, 3)]
    with pytest.raises(ValueError, match=r"one number of items .*\{2, 3\}"):
        measure(runs)
