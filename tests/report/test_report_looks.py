"""Where picks looked, in the report: from a run with looks to a token under the pointer."""

import numpy as np
import pytest
from browsing import put, settle
from chromium import emulate, logs, needs_chromium
from page_blocks import items_of, unpack
from toy_engine import ToyEngine

from lookback.looks.heat_map import COLORS, STRONGEST
from lookback.looks.look import BITS
from lookback.report import report
from lookback.report.browser import browser_data
from lookback.runs import Run
from lookback.runs.plan import Plan
from lookback.runs.start import start

LOOK = 3
CLOSE = 2.0 ** -(BITS + 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "load_engine", lambda plan: ToyEngine())
        folder = tmp_path_factory.mktemp("runs") / "looks"
        plan = Plan("scenes-caption", limit=25, n=6, look=LOOK)
        return start(plan, folder).run


@pytest.fixture
def opened(browser, run, tmp_path):
    emulate(browser)
    logs(browser)
    page = tmp_path / "report.html"
    page.write_text(report([run], {}), encoding="utf-8")
    browser.get(page.as_uri())
    settle(browser)
    yield browser
    console, requests = logs(browser)
    own = [entry for entry in console if "getImageData" not in entry["message"]]  # asked by tests
    assert own == []
    assert [u for u in requests if not u.startswith(page.as_uri())] == []


def hover(browser, candidate, token):
    from selenium.webdriver import ActionChains

    row = f'#candidates li[data-index="{candidate}"]'
    element = browser.find_element("css selector", f'{row} [data-token="{token}"]')
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
    ActionChains(browser).move_to_element(element).perform()


def frame(browser):
    return browser.find_element("css selector", "#asked .frame")


def test_blocks_have_the_looks_of_the_items_that_have_any(run):
    data = browser_data([run])
    items = items_of(data, 0)
    for place, item in enumerate(items):
        assert [int(index) for index in item["looks"]] == run.looks.of(place)
    assert not any(item["looks"] for item in items[LOOK:])
    _, numbers = unpack(data.blocks[0])
    wanted = np.concatenate(
        [
            run.looks.read(place, index).weights.ravel()
            for place in range(LOOK)
            for index in run.looks.of(place)
        ]
    )
    np.testing.assert_array_equal(np.array(numbers["look.weights"], np.float32), wanted)
    _, others = unpack(data.blocks[1])
    assert not [name for name in others if name.startswith("look.")]


@needs_chromium
@pytest.mark.parametrize("mode", ["raw", "tokens"])
def test_a_token_under_the_pointer_lights_the_picture(opened, run, mode):
    for place in (0, 2):
        put(opened, item=place)
        put(opened, n=6)
        opened.execute_script(
            """const map = document.getElementById("map");
               map.value = arguments[0];
               map.dispatchEvent(new Event("change", { bubbles: true }));""",
            mode,
        )
        for index in run.looks.of(place):
            look = run.looks.read(place, index)
            for t in range(len(look.tokens)):
                hover(opened, index, t)
                assert frame(opened).get_attribute("data-token") == f"{index} {t}"
                assert "mapped" in frame(opened).get_attribute("class")
                found = np.array(
                    opened.execute_script(
                        """const pen = document.querySelector("#asked canvas").getContext("2d");
                           const at = (share, size) => Math.floor(share * size);
                           const { width, height } = pen.canvas;
                           return [0.25, 0.75].flatMap((y) => [0.25, 0.75].map((x) => [...pen
                             .getImageData(at(x, width), at(y, height), 1, 1).data]));"""
                    )
                )
                heat = look.heatmap(t, relative=mode if mode != "raw" else False)
                height, width = heat.shape
                cells = heat[[height // 4, 3 * height // 4]][:, [width // 4, 3 * width // 4]]
                if mode == "tokens" and cells.max() <= 1 + 1e-6:
                    assert found[:, 3].max() == 0  # nowhere more than usual
                    continue
                top = int(np.argmax(cells))
                np.testing.assert_allclose(found[top, :3], COLORS[-1], atol=2)
                assert found[top, 3] == found[:, 3].max() == pytest.approx(STRONGEST * 255, abs=2)


@needs_chromium
def test_the_picture_is_as_it_was_when_the_pointer_is_elsewhere(opened, run):
    from selenium.webdriver import ActionChains

    index = run.looks.of(0)[0]
    hover(opened, index, 0)
    assert "mapped" in frame(opened).get_attribute("class")
    heading = opened.find_element("css selector", ".question")
    ActionChains(opened).move_to_element(heading).perform()
    assert "mapped" not in frame(opened).get_attribute("class")
    others = [
        int(row.get_attribute("data-index"))
        for row in opened.find_elements("css selector", "#candidates li")
        if row.find_elements("css selector", "[data-token]")
        and not row.find_elements("css selector", ".badge.looked")
    ]
    assert not set(others) & set(run.looks.of(0))
    hover(opened, others[0], 0)
    assert "mapped" not in frame(opened).get_attribute("class")


@needs_chromium
def test_out_of_sight_the_picture_stands_beside_the_token(opened, run):
    emulate(opened, 420)
    hover(opened, run.looks.of(0)[0], 0)
    assert opened.find_elements("css selector", "#tip .frame.mapped canvas")
    box = opened.find_element("id", "tip").rect
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 420
    emulate(opened, 1300)
    hover(opened, run.looks.of(0)[0], 0)
    assert not opened.find_elements("css selector", "#tip .frame")


@needs_chromium
def test_items_without_looks_are_as_before(opened):
    put(opened, item=LOOK)
    assert opened.find_elements("css selector", "#asked img")
    assert not opened.find_elements("css selector", "#asked :is(canvas, .looks)")
    assert not opened.find_elements("css selector", ".badge.looked")


def test_a_run_without_looks_has_none_in_its_page(run, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "load_engine", lambda plan: ToyEngine())
        start(Plan("scenes-caption", limit=5, n=6), tmp_path / "plain")
    data = browser_data([Run(tmp_path / "plain")])
    _, numbers = unpack(data.blocks[0])
    assert not [name for name in numbers if name.startswith("look.")]
