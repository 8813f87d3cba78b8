"""The demo's page: it ranks as Python does, shades within an answer, fits, and asks for nothing."""

import numpy as np
import pytest
from chromium import emulate, logs, needs_chromium
from demo.made import MEASURED, SAID, make_asked
from strict_html import Page

from lookback.demo.page import demo_page, page_data, wrong_tokens
from lookback.pages.tokens import shades
from lookback.scores.base import best_first, get_scorer
from lookback.scores.formula import relevance, token_scores

NASTY = " </script><script>window.bad=1</script><b>\u202e&amp;\ud800"
SAID_ODDLY = [
    *SAID,
    (NASTY, 0.0, ()),
    (" " + "unbroken" * 40, 0.5, ((1, 4),)),
    *((f" Answer {i} of many with some words in it.", i / 20, ()) for i in range(17)),
]


@pytest.fixture(scope="module")
def asked():
    return make_asked(SAID_ODDLY, question=f"What?{NASTY}")


@pytest.fixture(scope="module")
def page(asked, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "demo.html"
    path.write_text(demo_page(asked, "By a rule.", MEASURED), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, page):
    """The page, freshly loaded; afterwards, nothing was complained about, nothing asked for."""
    emulate(browser)
    logs(browser)
    browser.get(page)
    yield browser
    console, requests = logs(browser)
    assert console == []
    assert requests, "the log of requests does not work"
    assert [url for url in requests if not url.startswith(page)] == []


def put(browser, **values):
    browser.execute_script(
        """for (const [id, value] of Object.entries(arguments[0])) {
             const field = document.getElementById(id);
             field.value = value;
             field.dispatchEvent(new Event("input"));
           }""",
        {name.replace("_", "-"): str(value) for name, value in values.items()},
    )


def rows(browser):
    """[(indices, rank, score, share of the bar)] as they stand."""
    found = browser.execute_script(
        """return [...document.querySelectorAll("#candidates li")].map((li) => [
             li.dataset.indices, li.dataset.rank, li.dataset.score,
             li.querySelector(".bar-of").style.getPropertyValue("--share")])"""
    )
    return [([int(i) for i in a.split()], int(b), float(c), float(d)) for a, b, c, d in found]


def check(browser, asked, alpha, lam):
    scores = asked.candidates.scores("lookback", alpha=alpha, lam=lam)
    order = best_first(scores).tolist()
    shown = rows(browser)
    assert [place for _, place, _, _ in shown] == [order.index(i[0]) + 1 for i, *_ in shown]
    assert shown == sorted(shown, key=lambda row: row[1])
    assert sorted(i for indices, *_ in shown for i in indices) == list(range(len(asked.candidates)))
    wanted = [scores[indices[0]] for indices, *_ in shown]
    np.testing.assert_allclose([score for *_, score, _ in shown], wanted, rtol=1e-12, atol=0)
    shares = (np.array(wanted) - np.nanmin(scores)) / (np.nanmax(scores) - np.nanmin(scores))
    np.testing.assert_allclose([row[3] for row in shown], np.nan_to_num(shares), atol=1e-6)
    pick = browser.execute_script(
        "return document.querySelector('[data-scorer=lookback]').dataset.index"
    )
    assert int(pick) == order[0]


def test_the_page_is_well_formed_whatever_is_said(asked):
    text = demo_page(asked, NASTY, MEASURED)
    assert text.encode("utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in (
        page.elements
    )
    assert page.data() == page_data(asked)
    assert "http" not in text.replace("http-equiv", "")
    assert "69.3 ±2.7" in text
    assert "+0.2 [-0.3, +0.8] over mean log p" in text
    assert f">{asked.greedy}</span>" in text
    assert "other weights" in demo_page(asked, "", "other weights")
    assert "without an image" in demo_page(make_asked(image=False), "", MEASURED)


def test_wrong_words_are_found_among_tokens():
    tokens = (" A", " blue", " fl", "ag", ".", " ")
    assert wrong_tokens(tokens, ((8, 12),)) == [False, False, True, True, False, False]
    assert wrong_tokens(tokens, ((7, 8),)) == [False] * 6  # the blank before it is no word
    assert wrong_tokens(tokens, ()) == [False] * 6


@needs_chromium
@pytest.mark.parametrize(
    ("alpha", "lam"), [(0.5, 2), (0, 0), (0, 3), (8, 0), (8, 3), (0.15, 0.35), (2.7, 1.1)]
)
def test_it_ranks_as_python_does(opened, asked, alpha, lam):
    put(opened, alpha=alpha, lam=lam)
    check(opened, asked, alpha, lam)


@needs_chromium
def test_settings_are_typed_and_come_back(opened, asked):
    check(opened, asked, 0.5, 2)
    put(opened, alpha_number=11.37, lam_number=0.33)  # beyond the slider, between its steps
    check(opened, asked, 11.37, 0.33)
    for half_typed in ("", "-1"):
        put(opened, alpha_number=half_typed)
        check(opened, asked, 11.37, 0.33)
    opened.find_element("id", "general").click()
    check(opened, asked, 0.25, 1.25)
    opened.find_element("id", "own").click()
    check(opened, asked, 0.5, 2)


@needs_chromium
def test_the_keyboard_reaches_sliders_and_signals(opened, asked):
    from selenium.webdriver.common.keys import Keys

    opened.find_element("id", "alpha").send_keys(Keys.ARROW_RIGHT)
    check(opened, asked, 0.55, 2)
    opened.find_element("css selector", "[value=visual_lookback]").send_keys(Keys.ARROW_RIGHT)
    assert opened.execute_script("return document.activeElement.value") == "log_prob"
    assert opened.find_element("id", "darkest").text == "unlikely"


def signal_values(candidate):
    return {
        "visual_lookback": candidate.visual_lookback.astype(np.float64),
        "log_prob": -candidate.log_prob.astype(np.float64),  # what is unlikely is dark
        "self_certainty": candidate.self_certainty.astype(np.float64),
        "u": -token_scores(candidate.log_prob, candidate.visual_lookback, 0.5),
        "q": relevance(candidate.visual_lookback, 2.0),
    }


@needs_chromium
@pytest.mark.parametrize("signal", ["visual_lookback", "log_prob", "self_certainty", "u", "q"])
def test_tokens_are_shaded_within_their_answer(opened, asked, signal):
    opened.find_element("css selector", f"[value={signal}]").find_element("xpath", "..").click()
    found = opened.execute_script(
        """return [...document.querySelectorAll("#candidates li")].map((li) => [
             Number(li.dataset.indices.split(" ")[0]),
             [...li.querySelectorAll("[data-token]")].map((s) =>
               Number(s.style.getPropertyValue("--strength")))])"""
    )
    for index, strengths in found:
        candidate = asked.candidates[index]
        wanted = shades(signal_values(candidate)[signal]) if candidate.tokens else []
        np.testing.assert_allclose(strengths, wanted, atol=1e-5)
    hue = opened.execute_script("return document.documentElement.style.getPropertyValue('--hue')")
    scorer = {"log_prob": "mean_log_prob", "u": "lookback", "q": "lookback"}.get(signal, signal)
    assert hue == get_scorer(scorer).color


@needs_chromium
def test_picks_and_verdicts_are_told(opened, asked):
    told = opened.execute_script(
        """return [...document.querySelectorAll(".pick")].map((one) => [
             one.dataset.scorer, Number(one.dataset.index),
             one.querySelector(".facts").innerText])"""
    )
    assert [scorer for scorer, *_ in told] == list(asked.picks)
    for scorer, index, words in told:
        assert index == asked.picks[scorer].index
        assert asked.verdict(index).words in words
    wrong = opened.execute_script(
        "return [...document.querySelectorAll('#candidates .wrong-word')].map((s) => s.innerText)"
    )
    assert "flag" in wrong
    assert len(wrong) == 2
    assert "drawn 2 times" in opened.find_element("css selector", "[data-indices='0 2']").text
    assert opened.execute_script("return window.bad") is None


@needs_chromium
def test_a_token_tells_its_numbers(opened, asked):
    opened.execute_script(
        """document.querySelector("[data-indices='1'] [data-token='2']")
             .dispatchEvent(new PointerEvent("pointerover", { bubbles: true }))"""
    )
    cells = opened.execute_script(
        "return [...document.querySelectorAll('#tip td')].map((td) => td.textContent)"
    )
    wanted = [abs(values[2]) for values in signal_values(asked.candidates[1]).values()]
    shown = [abs(float(cell.replace("−", "-"))) for cell in cells]
    np.testing.assert_allclose(shown, wanted, atol=6e-4)


@needs_chromium
def test_it_fits_small_screens_and_goes_dark(opened):
    papers = set()
    for scheme in ("light", "dark"):
        emulate(opened, 420, scheme)
        wide, screen, paper = opened.execute_script(
            """const page = document.documentElement;
               return [page.scrollWidth, page.clientWidth,
                       getComputedStyle(document.body).backgroundColor]"""
        )
        assert wide == screen
        assert 380 < screen <= 420
        papers.add(paper)
    assert len(papers) == 2
    emulate(opened)
