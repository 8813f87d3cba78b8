"""The page with a pruned run: pruned candidates are shown last and win nothing, and N stays."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from browsing import put, ranking, settle, text
from chromium import needs_chromium
from made_runs import make_run, write_shard

from lookback.report import report
from lookback.report.browser import browser_data
from lookback.runs import Run
from lookback.runs.layout import shard_path
from lookback.scores.base import best_first
from lookback.studies.common.selection import outcome

N = 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run = make_run(folder / "pruned", items=6, n=N)
    rows = pq.read_table(shard_path(run.path, "candidates", 0)).to_pylist()
    for row in rows:
        if row["index"] in (0, 2):
            row |= {"finish": "pruned", "quality": float("nan")}
            row["log_prob"] = [-0.001] * row["length"]  # they would win
    write_shard(run.path, "candidates", 0, rows)
    vqa = make_run(folder / "vqa", benchmark="scenes-vqa", items=3, n=3)
    return [Run(run.path), vqa]


def test_the_index_says_which_n_a_run_tells_of(runs):
    pruned, whole = browser_data(runs).index["runs"]
    assert (pruned["least"], whole["least"]) == (N, 1)
    assert [n for _, _, n, _ in pruned["means"]] == [N]  # not at the other run's N
    assert [n for _, _, n, _ in whole["means"]] == [N, 3]
    for place in (pick[0] for _, _, picks in pruned["items"] for pick in picks.values()):
        assert place not in (0, 2)


@needs_chromium
def test_the_page_ranks_as_python_does(browser, runs, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(report(runs, {}), encoding="utf-8")
    browser.get("about:blank")
    browser.get(page.as_uri())
    settle(browser)
    for alpha in (0.5, 3):
        put(browser, alpha=alpha)
        scores = runs[0].scores("lookback", alpha=alpha, lam=1.25)[0]
        shown = ranking(browser)
        assert [index for index, _, _ in shown] == best_first(scores).tolist()
        assert [index for index, _, _ in shown][-2:] == [0, 2]
        np.testing.assert_allclose([s for *_, s in shown], np.sort(scores)[[2, 1, 0, 3, 4]])
        for method in ("lookback", "random", "oracle"):
            settings = {"alpha": alpha, "lam": 1.25} if method == "lookback" else {}
            value = browser.execute_script(
                f"return Number(document.querySelector('#means tbody .{method}').dataset.value)"
            )
            worth = outcome(runs[0], method, N, **settings)
            assert value == pytest.approx(100 * worth.mean(), rel=1e-12)
    field = browser.find_element("id", "n-number")
    assert (field.get_attribute("min"), field.get_attribute("max")) == (str(N), str(N))
    assert "pruned" in text(browser, "#candidates li:last-child .facts")
    put(browser, run=1, n=2)
    row = "document.querySelector('#means tbody tr .lookback').dataset.value"
    assert browser.execute_script(f"return {row}") == "NaN"  # of two it tells nothing
    put(browser, run=0)
    assert field.get_attribute("value") == str(N)
    browser.get("about:blank")
    browser.get(page.as_uri() + "#n=2")
    settle(browser)
    assert f"from {N} to {N}" in text(browser, "#problem")
