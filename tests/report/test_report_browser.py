"""The browser of items in a real one: what it loads and when, links, search, keys, controls."""

import base64
import io
import json
import re
from urllib.parse import quote

import numpy as np
import pyarrow.parquet as pq
import pytest
from browsing import click, put, ranking, settle, text
from chromium import emulate, logs, needs_chromium
from made_runs import make_run, write_shard
from PIL import Image
from timeouts import HANG_SECONDS

from lookback.report import report
from lookback.runs import Run
from lookback.runs.layout import shard_path
from lookback.scores.base import best_first
from lookback.scores.formula import lookback_score
from lookback.studies.common.selection import outcome, picks

pytestmark = needs_chromium

LONG = "x" * 10_000
HOSTILE = [
    "</script><script>window.bad=1</script>",
    "<b>&amp;\u2028",
    "مرحبا بالعالم",
    LONG,
    "<!--",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    own = make_run(folder / "own", items=70, n=5)
    random = make_run(folder / "random", items=70, n=5, image="random", controls=own)
    none = make_run(folder / "none", items=70, n=5, image="none", controls=own, failed=(3,))
    change(none, lambda row: row.update(visual_lookback=[0.0] * row["length"]))
    vqa = make_run(folder / "vqa", benchmark="scenes-vqa", items=25, n=4, seed=7)
    change(vqa, hostile)
    rows = pq.read_table(shard_path(vqa.path, "candidates", 2)).to_pylist()
    fewer = [row for row in rows if row["item"] != 24 or row["index"] < 2]
    write_shard(vqa.path, "candidates", 2, fewer)
    rows = pq.read_table(shard_path(vqa.path, "items", 2)).to_pylist()
    rows[3]["truth"] = json.dumps({"half": "a\ud800<b>"})
    write_shard(vqa.path, "items", 2, rows)
    return [own, Run(random.path), Run(none.path), Run(vqa.path)]


def change(run, how):
    for shard in range(-(-len(run.items) // 10)):
        rows = pq.read_table(shard_path(run.path, "candidates", shard)).to_pylist()
        for row in rows:
            how(row)
        write_shard(run.path, "candidates", shard, rows)


def hostile(row):
    if row["item"] == 23:
        row["tokens"] = [HOSTILE[row["index"]], *row["tokens"][1:]]


def open_page(browser, text_or_path, hash=""):
    browser.get("about:blank")
    browser.get(text_or_path + hash)
    settle(browser)


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(report(runs, {}), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, page):
    logs(browser)
    open_page(browser, page)
    yield browser
    console, requests = logs(browser)
    assert console == []
    assert [u for u in requests if not u.startswith((page, "about:blank"))] == []


def decoded(browser):
    return int(browser.find_element("id", "browser").get_attribute("data-decoded"))


def here(browser):
    return text(browser, "#asked .id")


def address(browser):
    """The page's hash, once it was written: 200 ms after a change.

    A timer of the same page that is set later, and for longer, comes later on a slow machine, too.
    """
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    return browser.execute_script("return location.hash")


def keys(browser, *pressed):
    browser.find_element("css selector", "body").send_keys(*pressed)
    settle(browser)


def found(browser):
    return browser.execute_script(
        "return [...document.getElementById('item').options].map((o) => Number(o.value))"
    )


def test_one_block_is_decoded_to_begin_with_and_one_for_a_far_item(opened):
    assert decoded(opened) == 1
    put(opened, item=19)
    assert decoded(opened) == 1
    put(opened, item=65)
    assert (decoded(opened), here(opened)) == (2, "scenes-caption/test/65")
    put(opened, signal="log_prob", item=0)
    assert decoded(opened) == 2
    put(opened, run=1)
    assert decoded(opened) == 3


def test_a_moved_slider_reads_all_and_the_means_are_of_all_items(opened, runs):
    put(opened, alpha=3)
    assert decoded(opened) == 4 + 2
    for number, run in enumerate((runs[0], runs[3])):
        shown = opened.execute_script(
            """const row = document.querySelectorAll("#means tbody tr")[arguments[0]];
               return Number(row.querySelector(".lookback").dataset.value)""",
            number,
        )
        n = min(5, run.n)
        worth = outcome(run, "lookback", n, alpha=3, lam=1.25)
        assert shown == pytest.approx(100 * worth.mean(), rel=1e-12)
    assert text(opened, "#loading") == ""


def test_items_are_the_same_from_every_block(opened, runs):
    for row in (0, 20, 39, 40, 69):
        put(opened, item=row)
        scores = runs[0].scores("lookback")[row]
        shown = ranking(opened)
        assert [index for index, _, _ in shown] == best_first(scores).tolist()
        got = [score for _, _, score in sorted(shown)]
        np.testing.assert_allclose(got, scores, rtol=1e-9, atol=0)


def test_no_text_breaks_out_of_a_block(opened):
    put(opened, run=1, item=23)
    assert opened.execute_script("return window.bad") is None
    shown = opened.execute_script(
        """return [0, 1, 2, 3].map((i) =>
             document.querySelector(`[data-index="${i}"] [data-token]`).textContent)"""
    )
    assert shown == HOSTILE[:4]
    half = (
        "return [...document.querySelector('#asked dd').textContent].map((c) => c.codePointAt(0))"
    )
    assert opened.execute_script(half) == [ord(c) for c in "a\ud800<b>"]
    wide = "const p = document.documentElement; return p.scrollWidth - p.clientWidth"
    for width in (420, 1400):
        emulate(opened, width=width)
        assert opened.execute_script(wide) == 0
    emulate(opened)
    put(opened, search="ا بالعا")
    assert here(opened) == "scenes-vqa/test/23"
    picture(opened)  # and it can be drawn


def test_search_looks_into_truth_and_candidates_and_narrows(opened, runs):
    words = runs[0].candidates(44)[1].text[:14].lower()
    texts = [" ".join(c.text.lower() for c in runs[0].candidates(row)) for row in range(70)]
    put(opened, search=words.upper())
    wanted = [row for row, said in enumerate(texts) if words in said]
    assert 44 in wanted
    assert found(opened) == wanted
    assert f"{len(wanted)} match" in text(opened, "#place")
    assert here(opened) == f"scenes-caption/test/{wanted[0]}"
    put(opened, search="dog, ")
    put(opened, search="categories")  # of the truth
    assert len(found(opened)) == 70


@pytest.mark.parametrize(("alpha", "n"), [(0.5, 5), (2.5, 3)])
@pytest.mark.parametrize("other", ["self_certainty", "mean_log_prob", "visual_lookback"])
def test_where_scorers_disagree(opened, runs, alpha, n, other):
    put(opened, alpha=alpha, n=n, other=other)
    run = runs[0]
    ours, theirs = picks(run.scores("lookback", n, alpha=alpha)), picks(run.scores(other, n))
    rows = np.arange(70)
    worth = run.quality()[rows, ours] - run.quality()[rows, theirs]
    texts = [[c.text for c in run.candidates(row)] for row in rows]
    said = np.array([texts[r][ours[r]] != texts[r][theirs[r]] for r in rows])
    wanted = {"differ": said, "unequal": worth != 0, "better": worth > 0, "worse": worth < 0}
    for show, fits in wanted.items():
        put(opened, show=show)
        assert found(opened) == np.flatnonzero(fits).tolist()
        assert 0 < fits.sum() < 70
    put(opened, show="all")
    assert len(found(opened)) == 70


def test_arrows_go_through_what_was_found(opened):
    from selenium.webdriver.common.keys import Keys

    put(opened, show="differ")
    there = found(opened)
    keys(opened, Keys.ARROW_RIGHT)
    assert here(opened) == f"scenes-caption/test/{there[1]}"
    keys(opened, Keys.ARROW_LEFT)
    assert here(opened) == f"scenes-caption/test/{there[0]}"


def selected(browser):
    return browser.execute_script(
        """return [...document.querySelectorAll("#candidates [data-selected]")].map((li) =>
             [Number(li.dataset.index), li.firstChild.ariaPressed])"""
    )


def test_candidates_are_selected_by_keys_and_clicks(opened):
    from selenium.webdriver.common.keys import Keys

    order = [index for index, _, _ in ranking(opened)]
    assert selected(opened) == [[order[0], "true"]]
    opened.execute_script("document.getElementById('candidates').scrollIntoView()")
    keys(opened, Keys.ARROW_DOWN)
    keys(opened, Keys.ARROW_DOWN)
    assert selected(opened) == [[order[2], "true"]]
    focused = "return document.activeElement.closest('li').dataset.index"
    assert opened.execute_script(focused) == str(order[2])
    keys(opened, Keys.ARROW_UP)
    assert selected(opened) == [[order[1], "true"]]
    click(opened, opened.find_element("css selector", f'[data-index="{order[4]}"] .rank'))
    assert selected(opened) == [[order[4], "true"]]
    assert "candidate=" in address(opened)
    keys(opened, Keys.ARROW_RIGHT)  # another item: its best
    assert selected(opened)[0][0] == ranking(opened)[0][0]


def test_keys_are_left_alone_while_typing_and_are_explained(opened):
    from selenium.webdriver.common.keys import Keys

    keys(opened, "/")
    assert opened.execute_script("return document.activeElement.id") == "search"
    search = opened.find_element("id", "search")
    search.send_keys("te?/st", Keys.ARROW_LEFT, Keys.ARROW_DOWN)
    settle(opened)
    assert search.get_attribute("value") == "te?/st"
    shown = "return document.getElementById('keys').open"
    assert not opened.execute_script(shown)
    search.clear()
    opened.execute_script("document.activeElement.blur()")
    keys(opened, "?")
    assert opened.execute_script(shown)
    keys(opened, Keys.ESCAPE)
    assert not opened.execute_script(shown)


def test_up_and_down_scroll_where_there_are_no_candidates_in_sight(opened):
    from selenium.webdriver.common.keys import Keys

    opened.execute_script("scrollTo(0, 0)")
    before = selected(opened)
    keys(opened, Keys.ARROW_DOWN)
    assert selected(opened) == before


def test_a_link_brings_everything_back(opened, page, runs):
    put(opened, item=41, alpha=2.5, lam=0.35, n=4, signal="log_prob", show="differ", search="e")
    there = here(opened)
    index = ranking(opened)[2][0]
    click(opened, opened.find_element("css selector", f'[data-index="{index}"] .rank'))
    link, order, fits = address(opened), ranking(opened), found(opened)
    for part in ("run=own", f"item={there}", "alpha=2.5", "lam=0.35", "n=4", "signal=log_prob"):
        assert part in re.split("[#&]", link)
    open_page(opened, page, link)
    assert (here(opened), ranking(opened), found(opened)) == (there, order, fits)
    assert selected(opened)[0][0] == index
    ids = ("alpha-number", "lam-number", "n-number", "signal", "show", "search")
    fields = [opened.find_element("id", name).get_attribute("value") for name in ids]
    assert fields == ["2.5", "0.35", "4", "log_prob", "differ", "e"]
    assert not opened.find_element("id", "problem").is_displayed()
    top = "return document.getElementById('items').getBoundingClientRect().top"
    assert abs(opened.execute_script(top)) < 200


def arrive(browser, item):
    """Wait for the item that the history leads to."""
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, HANG_SECONDS, 0.01)
    wait.until(lambda _: here(browser) == f"scenes-caption/test/{item}")
    settle(browser)


def test_back_and_forward_go_through_items(opened):
    put(opened, item=2)
    first = address(opened)
    put(opened, alpha=1.5)  # the same entry
    changed = address(opened)
    put(opened, item=50)
    assert "alpha=1.5" in address(opened) != changed != first
    opened.back()
    arrive(opened, 2)
    assert address(opened) == changed
    assert opened.find_element("id", "alpha-number").get_attribute("value") == "1.5"
    opened.back()
    arrive(opened, 0)
    assert opened.find_element("id", "alpha-number").get_attribute("value") == "0.5"
    for item in (2, 50):
        opened.forward()
        arrive(opened, item)


@pytest.mark.parametrize(
    ("hash", "said"),
    [
        ("#item=scenes-caption/test/999", ["scenes-caption/test/999", "70 of the 70"]),
        ("#run=gone&item=scenes-caption/test/1", ["“gone”", "own, vqa"]),
        ("#alpha=-1&lam=x", ["“-1”", "“x”", "0 or more"]),
        ("#n=6", ["from 1 to 5"]),
        ("#candidate=6&signal=love", ["from 1 to 5", "one of visual_lookback"]),
        ("#run=vqa&item=scenes-vqa/test/24&candidate=4", ["candidate “4”", "has 2"]),
        ("#item=scenes-caption/test/5&search=test/4", ["test/5”", "search and filter"]),
        (f"#item={quote('<b>bold</b>')}", ["<b>bold</b>"]),
    ],
)
def test_a_link_to_what_is_not_here_says_so(browser, page, hash, said):
    open_page(browser, page, hash)
    assert browser.find_element("id", "problem").is_displayed()
    for words in said:
        assert words in text(browser, "#problem")
    assert browser.find_elements("css selector", "#problem b") == []
    put(browser, item=4, search="")
    assert not browser.find_element("id", "problem").is_displayed()
    assert here(browser).endswith("/test/4")


def columns(browser):
    """{image: [mean log p, mean A, score]} of the selected candidate, None for what has none."""
    shown = browser.execute_script(
        """return [...document.querySelectorAll("#candidates .column")].map((column) =>
             [column.dataset.image, [...column.querySelectorAll("dd")].map((dd) =>
               [dd.dataset.value, dd.querySelector(".change")?.textContent.trim() ?? ""])])"""
    )
    return {image: [(float(v), told) for v, told in rows] for image, rows in shown}


def test_three_images_side_by_side(opened, runs):
    own, random, none = runs[:3]
    put(opened, item=7, alpha=2, lam=0.5)
    index = ranking(opened)[1][0]
    click(opened, opened.find_element("css selector", f'[data-index="{index}"] .rank'))
    shown = columns(opened)
    assert list(shown) == ["own", "random", "none"]
    base = own.candidates(7)[index].signals
    for image, run in (("own", own), ("random", random), ("none", none)):
        signals = run.candidates_at(7)[index].signals
        log_p, a = signals.log_prob.astype(float), signals.visual_lookback.astype(float)
        (mean_p, drop), (mean_a, _), (score, moved) = shown[image]
        assert mean_p == pytest.approx(log_p.mean(), rel=1e-12)
        assert mean_a == pytest.approx(a.mean(), rel=1e-12)
        if image == "none":  # nothing to look at
            assert np.isnan(score)
            assert moved == ""
        else:
            assert score == pytest.approx(lookback_score(log_p, a, alpha=2, lam=0.5), rel=1e-9)
        if image != "own":
            change = log_p.mean() - base.log_prob.astype(float).mean()
            assert float(drop.replace("−", "-")) == pytest.approx(change, abs=6e-4)
    rows = opened.execute_script(
        """return [...document.querySelectorAll("#candidates .compare tbody tr")].map((tr) =>
             [...tr.cells].map((cell) => cell.textContent))"""
    )
    assert len(rows) == len(base.log_prob)
    there = random.candidates_at(7)[index].signals.log_prob
    for t, row in enumerate(rows):
        numbers = [float(cell.replace("−", "-")) for cell in row[1:4]]
        wanted = [base.log_prob[t], there[t], float(there[t]) - float(base.log_prob[t])]
        assert numbers == pytest.approx(wanted, abs=6e-4)


def test_what_a_control_has_not_is_said(opened):
    put(opened, item=3)
    assert "broken image" in text(opened, '[data-image="none"] .missing')
    assert opened.find_elements("css selector", '[data-image="none"] .strip') == []
    assert len(opened.find_elements("css selector", '[data-image="random"] .strip')) == 2
    assert not opened.find_element("id", "no-controls").is_displayed()
    put(opened, run=1)
    assert opened.find_elements("css selector", ".compare") == []
    assert opened.find_element("id", "no-controls").is_displayed()


def test_columns_are_beside_each_other_or_below(opened):
    tops = """return [...document.querySelectorAll(".column")].map((c) =>
                Math.round(c.getBoundingClientRect().top))"""
    emulate(opened, width=1400)
    assert len(set(opened.execute_script(tops))) == 1
    emulate(opened, width=420)
    assert len(set(opened.execute_script(tops))) == 3
    wide = "const p = document.documentElement; return p.scrollWidth - p.clientWidth"
    assert opened.execute_script(wide) == 0
    emulate(opened)


KEEP = """window.kept = null;
  navigator.clipboard.write = async ([item]) => {
    const blob = await item.getType("image/png");
    const reader = new FileReader();
    reader.onload = () => { window.kept = reader.result; };
    reader.readAsDataURL(blob);
  };"""


def picture(browser):
    """What "Copy as PNG" puts on the clipboard."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_script(KEEP)
    click(browser, browser.find_element("id", "copy"))
    kept = WebDriverWait(browser, HANG_SECONDS).until(
        lambda b: b.execute_script("return window.kept")
    )
    assert text(browser, "#copied") == "copied"
    return Image.open(io.BytesIO(base64.b64decode(kept.partition(",")[2]))).convert("RGB")


def test_the_item_as_a_picture(opened, runs):
    shown = picture(opened)
    assert shown.width == 2000
    assert 700 < shown.height < 4000
    pixels = np.asarray(shown)
    assert (pixels[-5:] == pixels[0, 0]).all()  # nothing is cut off below
    own = opened.execute_async_script(
        """const image = document.querySelector("#asked img");
           image.decode().then(() => {
             const canvas = document.createElement("canvas");
             [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
             const pen = canvas.getContext("2d");
             pen.drawImage(image, 0, 0);
             arguments[0]([...pen.getImageData(40, 40, 1, 1).data].slice(0, 3));
           })"""
    )
    at = 2 * 32 + int(40.5 * 2 * 260 / 80)
    assert pixels[at, at].tolist() == own
    shaded = len(np.unique(pixels[:, 700:].reshape(-1, 3), axis=0))
    assert shaded > 50
    put(opened, signal="log_prob")
    assert not np.array_equal(np.asarray(picture(opened)), pixels)


def test_a_picture_keeps_its_margins_whoever_picks(opened):
    put(opened, n=1)  # there is one candidate, which all pick
    pixels = np.asarray(picture(opened))
    assert (pixels[:, -60:] == pixels[0, 0]).all()


def test_without_a_clipboard_the_picture_is_a_file(opened, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    opened.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    opened.execute_script("navigator.clipboard.write = () => Promise.reject(new Error('no'))")
    click(opened, opened.find_element("id", "copy"))
    saved = tmp_path / "scenes-caption-test-0.png"
    wait = WebDriverWait(opened, HANG_SECONDS)
    wait.until(lambda _: saved.exists() and saved.stat().st_size)
    wait.until(lambda browser: saved.name in text(browser, "#copied"))
    assert Image.open(saved).size[0] == 2000
    logs(opened)  # the file is a data URI that the page made


def test_an_old_browser_is_told(browser, page, tmp_path):
    whole = browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": "delete window.DecompressionStream"}
    )
    browser.get("about:blank")
    browser.get(page)
    assert "DecompressionStream" in text(browser, "#extent")
    assert not browser.find_element("id", "browser").is_displayed()
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", whole)


def test_a_damaged_block_is_an_error_that_is_seen(browser, runs, tmp_path):
    whole = report(runs, {})
    at = whole.index('id="block-0">') + len('id="block-0">') + 400
    path = tmp_path / "page.html"
    path.write_text(whole[:at] + "AAAAAAAA" + whole[at + 8 :], encoding="utf-8")
    open_page(browser, path.as_uri())
    assert "damaged" in text(browser, "#problem")


NAMELESS = """
  const active = "#items :is(button, input, select, [tabindex], dialog)";
  return [...document.querySelectorAll(active)]
  .filter((e) => !(e.ariaLabel || e.labels?.length || e.textContent.trim()
                   || e.getAttribute("aria-labelledby")))
  .map((e) => e.outerHTML.slice(0, 80))"""

FAINT = """
  const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
  const rgba = (css) => { // as the browser itself mixes it
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = css;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].map((x) => x / 255);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((x, i) => x * a + under[i] * (1 - a));
  const behind = (e) => {
    if (!e) return [1, 1, 1];
    return over(rgba(getComputedStyle(e).backgroundColor), behind(e.parentElement));
  };
  const light = (rgb) => rgb.map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (e) => {
    const back = behind(e);
    const front = over(rgba(getComputedStyle(e).color), back);
    const [x, y] = [light(front), light(back)].sort((a, b) => b - a);
    return (x + 0.05) / (y + 0.05);
  };
  return [...document.querySelectorAll("#items *")]
    .filter((e) => e.checkVisibility() && !e.disabled
      && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
    .map((e) => [contrast(e), e.outerHTML.slice(0, 90)])
    .filter(([x]) => x < 4.5)"""


def test_everything_has_a_name_and_can_be_read(opened):
    assert opened.execute_script(NAMELESS) == []
    for scheme in ("light", "dark"):
        for signal in ("visual_lookback", "log_prob", "self_certainty", "entropy", "qu"):
            emulate(opened, scheme=scheme)
            put(opened, signal=signal)
            assert opened.execute_script(FAINT) == []
    emulate(opened)


def test_the_keyboard_gets_in_and_out(opened):
    from selenium.webdriver.common.keys import Keys

    opened.execute_script("document.getElementById('run').focus()")
    seen = []
    for _ in range(60):
        opened.switch_to.active_element.send_keys(Keys.TAB)
        place = """const e = document.activeElement;
          const line = getComputedStyle(e);
          return [e.id || e.className || e.tagName, e.closest("#items") !== null,
                  line.outlineStyle !== "none" || line.boxShadow !== "none"]"""
        name, inside, visible = opened.execute_script(place)
        if not inside:
            break
        seen.append(name)
        assert visible, name
    else:
        pytest.fail(f"no way out: {seen}")
    assert {"search", "show", "copy", "show-keys", "alpha", "signal", "rank"} <= set(seen)
