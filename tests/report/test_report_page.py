"""The page in a real browser: it ranks as Python does, sorts, finds, and asks for nothing.

Needs Chromium, its driver and Selenium; without them these tests are skipped, unless CI_BROWSER=1.
"""

import io
import re

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
from lookback.scores.base import best_first, get_scorer
from lookback.studies import Cell, Result, Table, get_study
from lookback.studies.common.plots import contrast
from lookback.studies.common.selection import outcome, picks

pytestmark = needs_chromium

ODD = [
    " </script><script>window.bad = 1</script>",
    "<b>&amp;",
    "\n",
    "",
    " \U0001f600\u202e",
    "\u2028",
]
TABLE = Table(
    [("", "Method"), ("VQA", "N=5"), ("VQA", "gain")],
    [
        ["beta", Cell("9.50 [9.0, 9.9]", "best"), "−2"],
        ["alpha 10", "-", "1,000"],
        ["alpha 9", "10.25 [9.0, 11.0]", "+3"],
        ["Gamma", "9.50 [8.0, 9.9]", "-"],
    ],
    "A table to sort.",
    rules=[3],
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    own = make_run(folder / "own", items=9, n=25, failed=(1,), empty=((0, 3), (3, 0), (3, 24)))
    change(own, odd)
    own = Run(own.path)
    vqa = make_run(folder / "vqa", benchmark="scenes-vqa", items=6, n=6, seed=7, length=2)
    change(vqa, lambda rows: [r.update(empty()) for r in rows if r["item"] == 2])  # nothing to pick
    files = make_run(folder / "files", benchmark="chair", items=2, n=2)
    control = make_run(folder / "none", items=9, n=25, image="none", controls=own)
    return [own, Run(vqa.path), files, control]


def change(run, how):
    rows = pq.read_table(shard_path(run.path, "candidates", 0)).to_pylist()
    how(rows)
    write_shard(run.path, "candidates", 0, rows)


def odd(rows):
    """Item 0: texts that try to break out. Item 2: three equal responses, and A_t of zero."""
    by_place = {(row["item"], row["index"]): row for row in rows}
    for t, token in enumerate(ODD):
        row = by_place[0, t]
        row["tokens"] = [token, *row["tokens"][1:]] if row["tokens"] else []
    signals = (
        "tokens",
        "token_ids",
        "log_prob",
        "visual_lookback",
        "self_certainty",
        "entropy",
        "length",
    )
    for index in (5, 20):
        by_place[2, index].update({name: by_place[2, 8][name] for name in signals})
    by_place[2, 1]["visual_lookback"][0] = 0.0
    by_place[2, 2]["visual_lookback"] = [0.0] * by_place[2, 2]["length"]


def empty():
    signals = ("tokens", "token_ids", "log_prob", "visual_lookback", "self_certainty", "entropy")
    return {name: [] for name in signals} | {"length": 0, "text": ""}


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    results = {
        "main": Result([{"a": 1}], [TABLE], get_study("main")(runs[:2]).figure),
        "seeds": "no second seed",
    }
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(report(runs, results, items=5), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, page):
    """The page, freshly loaded; afterwards, nothing was complained about, nothing asked for."""
    logs(browser)
    browser.get("about:blank")  # another address of the same page would not load it again
    browser.get(page)
    settle(browser)
    yield browser
    console, requests = logs(browser)
    assert console == []
    assert requests, "the log of requests does not work"
    assert [u for u in requests if not u.startswith((page, "about:blank"))] == []


def check_ranking(browser, run, row, n, alpha, lam):
    scores = run.scores("lookback", n, alpha=alpha, lam=lam)[row]
    shown = ranking(browser)
    assert [index for index, _, _ in shown] == best_first(scores).tolist()
    assert [place for _, place, _ in shown] == list(range(1, len(scores) + 1))
    got = np.array([score for _, _, score in sorted(shown)])
    np.testing.assert_allclose(got, scores, rtol=1e-9, atol=0)


SETTINGS = [(0, 0), (0, 3), (8, 0), (8, 3), (0.05, 0.05), (0.15, 0.35), (2.7, 1.1), (7, 1.5)]


@pytest.mark.parametrize(("alpha", "lam"), SETTINGS)
def test_it_ranks_as_python_does(opened, runs, alpha, lam):
    for place, run in enumerate(runs[:2]):
        put(opened, run=place)
        for n in (1, 5, run.n):
            put(opened, alpha=alpha, lam=lam, n=n)
            for row in range(5):
                put(opened, item=row)
                check_ranking(opened, run, row, n, alpha, lam)


def test_ties_keep_their_order_and_empty_ones_come_last(opened, runs):
    put(opened, item=1, alpha=1.5, lam=1)
    shown = [index for index, _, _ in ranking(opened)]
    at = shown.index(5)
    assert shown[at : at + 3] == [5, 8, 20]
    assert runs[0].ids[2] == "scenes-caption/test/3"
    put(opened, item=2)
    assert [index for index, _, _ in ranking(opened)][-2:] == [0, 24]
    assert text(opened, "#candidates li:last-child .score") == "–"


def test_it_begins_at_the_reported_setting_and_comes_back(opened, runs):
    check_ranking(opened, runs[0], 0, 25, 0.5, 1.25)
    put(opened, alpha_number=11.37, lam_number=0.33)  # beyond the slider, between its steps
    check_ranking(opened, runs[0], 0, 25, 11.37, 0.33)
    click(opened, opened.find_element("id", "general"))
    check_ranking(opened, runs[0], 0, 25, 0.25, 1.25)
    assert "(0.25, 1.25)" in text(opened, "#general")
    click(opened, opened.find_element("id", "reported"))
    check_ranking(opened, runs[0], 0, 25, 0.5, 1.25)
    for half_typed in ("", "-1"):
        put(opened, alpha_number=half_typed, n_number=99)
        check_ranking(opened, runs[0], 0, 25, 0.5, 1.25)


def test_n_stays_within_the_run(opened, runs):
    def shown():
        return [int(opened.find_element("id", i).get_attribute("value")) for i in ("n", "n-number")]

    def asked():
        return text(opened, "#at").rpartition("N = ")[2]

    put(opened, n_number=99)
    opened.execute_script("document.getElementById('n-number').dispatchEvent(new Event('blur'))")
    assert (shown(), asked()) == ([25, 25], "25")
    put(opened, run=1)  # all of its candidates, as before
    assert (shown(), asked()) == ([6, 6], "6")
    put(opened, run=0)
    assert (shown(), asked()) == ([25, 25], "25")
    put(opened, n=10)
    put(opened, run=1)
    assert (shown(), asked()) == ([6, 6], "6")
    put(opened, n=4)
    put(opened, run=0)
    assert (shown(), asked()) == ([4, 4], "4")


def test_it_shows_how_far_candidates_moved(opened, runs):
    put(opened, alpha=6, lam=3)
    before = best_first(runs[0].scores("lookback")[0]).tolist()
    after = best_first(runs[0].scores("lookback", alpha=6, lam=3)[0]).tolist()
    wanted = {
        i: before.index(i) - after.index(i) for i in after if before.index(i) != after.index(i)
    }
    shown = opened.execute_script(
        """return [...document.querySelectorAll(".rank small")].map((small) =>
             [Number(small.closest("li").dataset.index), small.textContent])"""
    )
    signs = {"▲": 1, "▼": -1}
    assert {index: signs[told[0]] * int(told[1:]) for index, told in shown} == wanted
    assert set(np.sign(list(wanted.values()))) == {-1, 1}


@pytest.mark.parametrize(("alpha", "lam", "n"), [(0.5, 1.25, 25), (6, 3, 5), (0, 0, 4)])
def test_the_means_are_those_of_the_studies(opened, runs, alpha, lam, n):
    put(opened, alpha=alpha, lam=lam, n=n)
    rows = opened.execute_script(
        """return [...document.querySelectorAll("#means tbody tr")].map((tr) =>
             [...tr.querySelectorAll("td")].map((td) => [td.classList[1], td.dataset.value]))"""
    )
    assert len(rows) == 3  # all but the control
    for run, row in zip(runs, rows, strict=False):
        names = [name for name, _ in row]
        assert names[0] == "lookback"
        assert set(names[1:]) == {
            "self_certainty",
            "mean_log_prob",
            "visual_lookback",
            "random",
            "oracle",
        }
        for method, value in row:
            params = {"alpha": alpha, "lam": lam} if method == "lookback" else {}
            worth = outcome(run, method, min(n, run.n), **params)[:5]
            assert float(value) == pytest.approx(100 * worth.mean(), rel=1e-12)


PICKING = ["lookback", "self_certainty", "mean_log_prob", "visual_lookback"]


@pytest.mark.parametrize("n", [25, 3])
def test_it_says_what_each_method_picks(opened, runs, n):
    """A line per method beside the question, and a badge of it on the candidate it picks."""
    for row in range(5):
        put(opened, item=row, n=n, alpha=2)
        params = {"lookback": {"alpha": 2}}
        picked = {
            method: int(picks(runs[0].scores(method, n, **params.get(method, {})))[row])
            for method in PICKING
        }
        quality = runs[0].quality()[row]
        lines = opened.execute_script(
            """const texts = (tr) => [...tr.cells].map((cell) => cell.textContent);
               return [...document.querySelectorAll("#asked .picks tr")]
                 .map((tr) => [tr.dataset.method, tr.dataset.pick, ...texts(tr)])"""
        )
        assert lines == [
            [m, str(i), get_scorer(m).title, f"candidate {i + 1}", f"{quality[i]:.2f}"]
            for m, i in picked.items()
        ]
        badges = opened.execute_script(
            """return [...document.querySelectorAll("#candidates .badge")].map((b) =>
                 [b.className, b.textContent, Number(b.closest("li").dataset.index)])"""
        )
        wanted = [(f"badge {m}", get_scorer(m).title, i) for m, i in picked.items()]
        assert sorted(map(tuple, badges)) == sorted(wanted)


def test_tokens_are_shaded_and_named_as_they_are(opened, runs):
    signals = runs[0].candidates(0)[4].signals
    a = signals.visual_lookback.astype(np.float64)
    u = signals.log_prob + 2 * np.log(a)
    q = a**1.5 / (a**1.5).sum()
    wanted = {
        "visual_lookback": a,
        "log_prob": signals.log_prob,
        "self_certainty": signals.self_certainty,
        "entropy": signals.entropy,
        "u": u,
        "q": q,
        "qu": -(q * u),  # there, the darkest is the lowest
    }
    put(opened, alpha=2, lam=1.5)
    strengths = {}
    for name, values in wanted.items():
        put(opened, signal=name)
        strengths[name] = opened.execute_script(
            """return [...document.querySelectorAll('[data-index="4"] [data-token]')]
                 .map((s) => Number(s.style.getPropertyValue("--strength")))"""
        )
        inside = [(v, s) for v, s in zip(values, strengths[name], strict=True) if 0 < s < 1]
        assert [s for _, s in sorted(inside)] == sorted(s for _, s in inside)
        assert max(strengths[name]) > min(strengths[name])
    assert len({str(s) for s in strengths.values()}) == 7
    opened.execute_script(
        """document.querySelector('[data-index="4"] [data-token="1"]')
             .dispatchEvent(new PointerEvent("pointerover", { bubbles: true }))"""
    )
    told = opened.execute_script(
        """return [...document.querySelectorAll("#tip td")].map((td) => td.textContent)"""
    )
    shown = [abs(float(value.replace("−", "-"))) for value in told]
    assert shown == pytest.approx([abs(values[1]) for values in wanted.values()], abs=6e-4)


def test_a_method_has_the_color_of_its_scorer(opened):
    for name in ("lookback", "self_certainty", "mean_log_prob", "visual_lookback"):
        shown = opened.execute_script(
            """const badge = document.querySelector(arguments[0]);
               return getComputedStyle(badge).getPropertyValue("--hue")""",
            f"#asked .badge.{name}",
        )
        assert shown == get_scorer(name).color


def test_no_token_breaks_out(opened, runs):
    assert opened.execute_script("return window.bad") is None
    for index, token in enumerate(ODD):
        if index == 3:  # empty
            continue
        shown = opened.execute_script(
            """return [...document.querySelectorAll(`[data-index="${arguments[0]}"] [data-token]`)]
                 .map((s) => s.textContent)""",
            index,
        )
        rest = list(runs[0].candidates(0)[index].tokens[1:])
        assert shown == [token.removeprefix(" ").replace("\n", "⏎\n") or "∅", *rest]
    assert opened.execute_script("return document.querySelectorAll('#candidates b').length") == 0


def test_items_are_stepped_through_and_searched(opened):
    from selenium.webdriver.common.keys import Keys

    def here():
        return text(opened, "#asked .id")

    body = opened.find_element("css selector", "body")
    assert text(opened, "#place") == "item 1 · 5 of 8 here"
    assert not opened.find_element("id", "previous").is_enabled()
    body.send_keys(Keys.ARROW_RIGHT)
    assert here() == "scenes-caption/test/2"
    click(opened, opened.find_element("id", "next"))
    assert here() == "scenes-caption/test/3"
    body.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert here() == "scenes-caption/test/0"
    opened.find_element("id", "alpha").send_keys(Keys.ARROW_RIGHT)  # moves the slider
    assert here() == "scenes-caption/test/0"
    assert float(opened.find_element("id", "alpha-number").get_attribute("value")) == 0.55
    search = opened.find_element("id", "search")
    search.send_keys("TEST/4")
    assert here() == "scenes-caption/test/4"
    assert text(opened, "#place") == "item 4 · 5 of 8 here · 1 match"
    assert not opened.find_element("id", "next").is_enabled()
    search.send_keys("nothing")
    assert "none match" in text(opened, "#place")
    put(opened, search="describe the")
    assert text(opened, "#place") == "item 1 · 5 of 8 here"


def test_pictures_and_what_stands_for_them(opened):
    shown = "return document.querySelector('#asked img')?.naturalWidth"
    opened.execute_async_script(
        "document.querySelector('#asked img').decode().then(arguments[0], arguments[0])"
    )
    assert opened.execute_script(shown) == 80
    put(opened, run=2)
    assert opened.execute_script(shown) is None
    assert "LOOKBACK_DATA" in text(opened, "#asked .no-image")


def column(browser, place):
    return browser.execute_script(
        """return [...document.querySelectorAll("#study-main tbody tr")]
             .map((tr) => tr.cells[arguments[0]].textContent)""",
        place,
    )


def sorts(browser):
    heads = browser.find_elements("css selector", "#study-main th[aria-sort]")
    return [head.get_attribute("aria-sort") for head in heads]


def test_tables_sort(opened):
    from selenium.webdriver.common.keys import Keys

    method, n5, gain = opened.find_elements("css selector", "#study-main thead button")
    given = ["beta", "alpha 10", "alpha 9", "Gamma"]
    assert column(opened, 0) == given
    click(opened, n5)  # numbers: the highest first, ties as they stood, missing ones last
    assert column(opened, 0) == ["alpha 9", "beta", "Gamma", "alpha 10"]
    assert sorts(opened) == ["none", "descending", "none"]
    click(opened, n5)
    assert column(opened, 0) == ["beta", "Gamma", "alpha 9", "alpha 10"]
    assert sorts(opened) == ["none", "ascending", "none"]
    click(opened, n5)
    assert column(opened, 0) == given
    assert sorts(opened) == ["none"] * 3
    gain.send_keys(Keys.ENTER)  # 1,000 and +3 and −2 are numbers
    assert column(opened, 2) == ["1,000", "+3", "−2", "-"]
    gain.send_keys(Keys.SPACE)
    assert column(opened, 2) == ["−2", "+3", "1,000", "-"]
    click(opened, method)  # words, and the numbers in them
    assert column(opened, 0) == ["alpha 9", "alpha 10", "beta", "Gamma"]
    assert sorts(opened) == ["ascending", "none", "none"]
    click(opened, n5)  # ties keep the order of the column before: beta, Gamma
    click(opened, method)
    click(opened, method)
    assert column(opened, 0) == ["Gamma", "beta", "alpha 10", "alpha 9"]
    click(opened, n5)
    assert column(opened, 0) == ["alpha 9", "Gamma", "beta", "alpha 10"]


def test_it_fits_small_screens_and_goes_dark(opened):
    emulate(opened, width=420)
    wide, screen = opened.execute_script(
        "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    )
    assert wide == screen
    assert 380 < screen <= 420
    paper = "return getComputedStyle(document.body).backgroundColor"
    seen = set()
    for scheme in ("light", "dark"):
        emulate(opened, scheme=scheme)
        seen.add(opened.execute_script(paper))
    assert len(seen) == 2
    emulate(opened)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400])
def test_a_figure_fills_its_section_and_has_the_pages_scheme(opened, width, scheme):
    """It was made for one column of a paper: small screens show it so, others drawn wider."""
    from selenium.webdriver.support.ui import WebDriverWait

    emulate(opened, width, scheme)
    image = opened.find_element("css selector", "#study-main figure img")
    small = "return arguments[0].currentSrc === arguments[0].previousElementSibling?.srcset"
    WebDriverWait(
        opened, HANG_SECONDS, 0.01
    ).until(  # the browser loads the other one when it is due
        lambda browser: browser.execute_script(small, image) == (width == 420)
    )
    room, has, card = opened.execute_script(
        """const image = arguments[0];
           return [image.closest("section").clientWidth, image.getBoundingClientRect().width,
                   getComputedStyle(image).backgroundColor]""",
        image,
    )
    assert has == pytest.approx(room, abs=2)
    opened.execute_script("$('items').hidden = true")  # what is above changes with scrolling
    opened.execute_script("arguments[0].scrollIntoView({ block: 'center' })", image)
    picture = Image.open(io.BytesIO(image.screenshot_as_png)).convert("RGB")
    counts = dict(reversed(pair) for pair in picture.getcolors(picture.width * picture.height))
    paper = np.array([int(part) for part in re.findall(r"\d+", card)]) / 255
    assert np.array(max(counts, key=counts.get)) / 255 == pytest.approx(paper, abs=0.01)
    assert max(contrast(np.array(color) / 255, paper) for color in counts) > 7  # letters
    emulate(opened)


def test_the_network_is_forbidden(browser, page):
    browser.get(page)
    logs(browser)
    blocked = browser.execute_async_script(
        """const [done, found] = [arguments[0], []];
           addEventListener("securitypolicyviolation", (event) => {
             found.push(event.effectiveDirective);
             if (found.length === 3) done(found.sort());
           });
           new Image().src = "http://127.0.0.1:9/a.png";
           fetch("http://127.0.0.1:9/b").catch(() => {});
           const script = document.createElement("script");
           script.textContent = "window.bad = 1";
           document.body.append(script);"""
    )
    assert blocked == ["connect-src", "img-src", "script-src-elem"]
    assert browser.execute_script("return window.bad") is None
    console, requests = logs(browser)
    assert len(console) >= 3  # a page that tried would be found out
    assert set(requests) <= {"http://127.0.0.1:9/a.png", "http://127.0.0.1:9/b"}  # then blocked


def test_a_page_of_controls_says_so(browser, runs, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(report(runs[3:], {}), encoding="utf-8")
    browser.get(path.as_uri())
    assert "no control" in text(browser, "#extent")
    assert not browser.find_element("id", "browser").is_displayed()
