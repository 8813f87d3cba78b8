"""The raters' page in a real browser: as a file, and served; what it shows, keeps and hides."""

import json
import threading

import pytest
from chromium import emulate, logs, needs_chromium
from made_cases import make_cases, make_folder
from strict_html import Page
from timeouts import HANG_SECONDS

from lookback.annotation.server import Server, file_page, served_page
from lookback.annotation.votes import VoteFile, is_swapped, read_sqlite
from lookback.studies.human import human

NASTY = "</script><script>window.bad = 1</script> \"'&amp;<b> \u2028 \u202e שלום \x1b {} {}"
pytestmark = [needs_chromium, pytest.mark.filterwarnings("error")]


def settle(browser, shown="case"):
    """Wait until the page has done what it was asked, and shows this part."""
    from selenium.webdriver.support.ui import WebDriverWait

    ready = f"""return document.getElementById('main').ariaBusy === 'false' &&
                !document.getElementById('{shown}').hidden"""
    WebDriverWait(browser, HANG_SECONDS, 0.01).until(lambda b: b.execute_script(ready))


def enter(browser, rater, set_=None, shown="case"):
    settle(browser, "entry")
    browser.find_element("id", "rater").send_keys(rater)
    if set_:
        browser.find_element("css selector", f"[name=set][value='{set_}']").click()
    browser.find_element("css selector", "#form button").click()
    settle(browser, shown)


def press(browser, keys, shown="case"):
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()
        settle(browser, shown if key == keys[-1] else "case")


def texts(browser, *ids):
    script = "return arguments[0].map((id) => document.getElementById(id).textContent)"
    return browser.execute_script(script, list(ids))


def sides(browser):
    return tuple(texts(browser, "a", "b"))


def ordered(cases, rater, place):
    case = next(case for case in cases.cases if case.place == place)
    return case.answers[::-1] if is_swapped(cases.study, rater, *place) else case.answers


@pytest.fixture
def show(browser, tmp_path):
    """Open a page as a file; afterwards, nothing was complained about, nothing asked for."""
    emulate(browser)
    logs(browser)
    opened = []

    def show(cases, **settings):
        path = tmp_path / f"page-{len(opened)}.html"
        path.write_text(file_page(cases, **settings), encoding="utf-8")
        opened.append(path.as_uri())
        browser.get(opened[-1])
        return browser

    yield show
    console, requests = logs(browser)
    assert console == []
    assert requests, "the log of requests does not work"
    allowed = (*opened, "blob:")
    assert [url for url in requests if not url.startswith(allowed)] == []
    emulate(browser)


@pytest.fixture
def serve(browser, tmp_path):
    """Serve cases from another thread, and open the page."""
    started = []

    def serve(cases, **settings):
        server = Server(VoteFile(tmp_path / "votes.sqlite", cases, **settings))
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        started.append((server, thread))
        browser.get(server.url)
        return server

    yield serve
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


def lines(browser):
    """The file that "Save" would hand over."""
    return [
        json.loads(line) for line in browser.execute_script("return store.lines()").splitlines()
    ]


def test_a_rater_goes_through_a_set_with_keys(show):
    cases = make_cases((4, 2))
    browser = show(cases)
    enter(browser, " Anna ", 1)
    for number, key in enumerate(("1", "b", "3", "A"), 1):
        assert texts(browser, "place") == [f"Case {number} of 4"]
        assert texts(browser, "question") == [f"What is in picture 1.{number}?"]
        assert sides(browser) == ordered(cases, "anna", (1, number))
        press(browser, key, "case" if number < 4 else "done")
    votes = lines(browser)
    assert [vote["choice"] for vote in votes] == ["A", "B", "tie", "A"]
    assert [vote["swapped"] for vote in votes] == [
        is_swapped(cases.study, "anna", 1, case) for case in (1, 2, 3, 4)
    ]


def test_undo_resume_and_another_rater(show):
    cases = make_cases((5, 2))
    browser = show(cases)
    enter(browser, "ben", 1)
    press(browser, "123")
    assert texts(browser, "place", "kept") == ["Case 4 of 5", "3 of 5 judged, kept in this browser"]
    press(browser, "uu")
    assert texts(browser, "place") == ["Case 2 of 5"]
    press(browser, "t")
    browser.refresh()
    enter(browser, "BEN", 1)
    assert texts(browser, "place") == ["Case 3 of 5"]
    assert [vote["choice"] for vote in lines(browser)] == ["A", "tie"]
    browser.find_element("id", "leave").click()
    enter(browser, "carl", 1)
    assert texts(browser, "place") == ["Case 1 of 5"]
    assert not browser.find_element("id", "undo").is_enabled()


def test_the_same_sides_as_in_python(show):
    browser = show(make_cases())
    names = [("0f3a", f"r{i}@x.y-z_", i % 3, i) for i in range(300)]
    found = browser.execute_script("return arguments[0].map((one) => isSwapped(...one))", names)
    assert found == [is_swapped(*one) for one in names]
    assert 100 < sum(found) < 200
    codes = ["Anna", " b ", "a b", "", "ä", "x" * 41, "a.b_c@d-1", "\u212a"]
    kept = browser.execute_script("return arguments[0].map(raterCode)", codes)
    assert kept == ["anna", "b", None, None, None, None, "a.b_c@d-1", "k"]


def test_buttons_saved_file_and_the_study(show, tmp_path):
    cases = make_cases((2,))
    folder = make_folder(tmp_path / "cases", cases)
    browser = show(cases)
    assert not browser.find_element("id", "sets").is_displayed()  # one set: nothing to choose
    enter(browser, "dora")
    for number in (1, 2):  # for LookBack's, wherever it stands
        here = is_swapped(cases.study, "dora", 1, number) ^ ((1 + number) % 2)
        browser.find_element("css selector", f"[data-choice={'AB'[here]}]").click()
        settle(browser, "case" if number == 1 else "done")
    name, saved = browser.execute_async_script(
        """const [done, made] = [arguments[0], URL.createObjectURL];
           let blob;
           URL.createObjectURL = (one) => { blob = one; return made(one); };
           HTMLAnchorElement.prototype.click = function () {
             blob.text().then((text) => done([this.download, text])); };
           document.getElementById("save").click();"""
    )
    assert name == "votes-dora-set1.jsonl"
    (folder / name).write_text(saved, encoding="utf-8")
    assert [row["first"] for row in human([str(folder)]).rows] == [1, 1]


def test_listed_raters(show):
    browser = show(make_cases((3, 2)), raters=["One", "two"])
    enter(browser, "nobody", shown="entry")
    assert "Nobody here has the code" in texts(browser, "problem")[0]
    browser.find_element("id", "rater").clear()
    enter(browser, "two")
    assert texts(browser, "who", "place") == ["two, set 2", "Case 1 of 2"]


def test_keys_that_are_no_votes(show):
    from selenium.webdriver import ActionChains, Keys

    browser = show(make_cases((3,)))
    settle(browser, "entry")
    browser.find_element("id", "rater").send_keys("1ab2t")  # a code, no votes
    browser.find_element("css selector", "#form button").click()
    settle(browser)
    ActionChains(browser).key_down(Keys.CONTROL).send_keys("b").key_up(Keys.CONTROL).perform()
    press(browser, "x5u")
    browser.execute_script(
        """for (let i = 0; i < 5; i++) document.body.dispatchEvent(
             new KeyboardEvent("keydown", { key: "a", repeat: true, bubbles: true }))"""
    )
    settle(browser)
    assert lines(browser) == []


def test_the_picture_is_enlarged(show):
    from selenium.webdriver import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    browser = show(make_cases((2,)))
    enter(browser, "eve")
    width = "return document.getElementById('enlarged').getBoundingClientRect().width"
    scale = "return document.getElementById('scale').textContent"
    opened = "return document.getElementById('zoom').open"
    press(browser, "z")
    WebDriverWait(browser, HANG_SECONDS, 0.01).until(lambda b: b.execute_script(scale) == "100 %")
    fit = browser.execute_script(width)
    press(browser, "++")
    assert browser.execute_script(scale) == "200 %"
    assert browser.execute_script(width) == pytest.approx(2 * fit, rel=0.01)
    press(browser, "-1")  # no vote while it is open
    assert browser.execute_script(scale) == "150 %"
    assert lines(browser) == []
    press(browser, [Keys.ESCAPE])
    assert not browser.execute_script(opened)


def test_texts_cannot_break_it_and_long_ones_can_be_broken(show):
    cases = make_cases((1,), texts=(NASTY, "x" * 1700), image=False)
    browser = show(cases)
    enter(browser, "f")
    assert set(sides(browser)) == set(cases.cases[0].answers)
    assert browser.execute_script("return window.bad") is None
    wbrs = browser.execute_script("return document.querySelectorAll('.answer wbr').length")
    assert wbrs == 3
    assert not browser.find_element("id", "picture").is_displayed()
    assert browser.find_element("id", "no-image").is_displayed()


def test_the_direction_of_an_answer_is_found_once(show):
    """`unicode-bidi: plaintext` looks for it in every line, through all of the text."""
    browser = show(make_cases((1,), texts=("שלום", "hello")))
    enter(browser, "h")
    styles = browser.execute_script(
        """return [...document.querySelectorAll("body, body *")].map((one) => {
             const style = getComputedStyle(one);
             return [one.matches(".answer p"), style.direction, style.unicodeBidi]; });"""
    )
    assert sorted(way for answer, way, _ in styles if answer) == ["ltr", "rtl"]
    assert "plaintext" not in {bidi for *_, bidi in styles}


def test_it_fits_goes_dark_and_everything_has_a_name(show):
    browser = show(make_cases((2, 2), texts=(NASTY, "long" * 99)))
    colors = set()
    for width in (420, 1400):
        for scheme in ("light", "dark"):
            emulate(browser, width, scheme)
            browser.refresh()
            enter(browser, f"g{width}{scheme}", 1)
            sizes = "return [document.documentElement.scrollWidth, innerWidth]"
            assert browser.execute_script(sizes)[0] <= width
            colors.add(browser.execute_script("return getComputedStyle(document.body).color"))
    assert len(colors) == 2
    for element in browser.find_elements("css selector", "button, input, progress, img, dialog"):
        if element.is_displayed():
            assert element.accessible_name, element.get_attribute("outerHTML")
    assert browser.execute_script("return document.activeElement.id") == "question"


BOXES = """const box = (one) => { const { left, top, right, bottom } = one.getBoundingClientRect();
    return [left, top, right, bottom]; };
  const found = [...document.querySelectorAll(arguments[0])];
  const name = (one) => one.dataset.choice ?? one.getAttribute("aria-labelledby");
  return [found.map(box), found.map(name)];"""


@pytest.mark.parametrize("text", ["a cup", "a cup on a table, and beside it a ball. " * 60])
@pytest.mark.parametrize("width", [420, 1024, 1400])
def test_each_vote_is_inside_the_answer_that_it_is_for(show, width, text):
    browser = show(make_cases((1,), texts=(text, "a ball")))
    emulate(browser, width)
    enter(browser, "kim")
    votes, choices = browser.execute_script(BOXES, "[data-choice]")
    cards, names = browser.execute_script(BOXES, ".answer")
    assert (choices, names) == (["A", "B", "tie"], ["name-a", "name-b"])  # as keys 1, 2, 3 and Tab
    for number, (left, top, right, bottom) in enumerate(votes):
        within = [
            card[0] <= left and card[1] <= top and right <= card[2] and bottom <= card[3]
            for card in cards
        ]
        assert within == [number == 0, number == 1], choices[number]
    (a, b), tie = cards, votes[2]
    assert tie[0] + tie[2] == pytest.approx(min(a[0], b[0]) + max(a[2], b[2]), abs=2)  # between
    assert votes[0][2] - votes[0][0] == pytest.approx(votes[1][2] - votes[1][0], abs=0.5)
    if width > 420:  # side by side: no vote is nearer to the eye, and none needs scrolling
        assert votes[0][1] == pytest.approx(votes[1][1], abs=0.5)
        assert max(bottom for *_, bottom in votes) <= 900
    read = browser.execute_script(
        """return [...document.querySelectorAll("#a, #b, [data-choice]")]
             .map((one) => one.id || one.dataset.choice)"""
    )
    assert read == ["a", "A", "b", "B", "tie"]


def test_no_page_names_a_scorer_and_html_is_strict():
    cases = make_cases(texts=(NASTY, "b {} {}"))
    for page in (served_page(), file_page(cases), file_page(cases, 2, ["a"])):
        for secret in ("ookback", "ookBack", "ertainty", "quality", "scorer", "http:", "https:"):
            assert secret not in page
        assert Page(page).data()["served"] == (page == served_page())
    with pytest.raises(ValueError, match="set 3: these cases have the sets 1, 2"):
        file_page(cases, 3)
    assert {case["set"] for case in Page(file_page(cases, 2)).data()["cases"]} == {2}


def test_served_a_vote_is_kept_before_the_next_case_shows(browser, serve, monkeypatch):
    server = serve(make_cases((3, 3)))
    let_go, put = threading.Event(), server.votes.put
    monkeypatch.setattr(server.votes, "put", lambda *vote: (let_go.wait(HANG_SECONDS), put(*vote)))
    enter(browser, "hal")
    browser.execute_script("document.querySelector('[data-choice=tie]').click()")
    busy = "return document.getElementById('main').ariaBusy"
    assert browser.execute_script(busy) == "true"
    press_again = "document.querySelector('[data-choice=A]').click(); vote('A')"
    browser.execute_script(press_again)  # nothing, while it is busy
    assert texts(browser, "place") == ["Case 1 of 3"]
    assert read_sqlite(server.votes.path) == []
    let_go.set()
    settle(browser)
    assert texts(browser, "place") == ["Case 2 of 3"]
    assert [(v.case, v.choice) for v in read_sqlite(server.votes.path)] == [(1, "tie")]


def test_served_undo_resume_and_failure(browser, serve, monkeypatch):
    cases = make_cases((3, 3))
    server = serve(cases)
    enter(browser, "ida")
    assert sides(browser) == ordered(cases, "ida", (1, 1))
    press(browser, "12u")
    assert texts(browser, "place", "kept") == ["Case 2 of 3", "1 of 3 judged, kept by the server"]
    browser.refresh()
    enter(browser, "ida")
    assert texts(browser, "place") == ["Case 2 of 3"]

    def fail(*vote):
        raise ValueError("cannot keep votes: disk full")

    with monkeypatch.context() as patch:
        patch.setattr(server.votes, "put", fail)
        press(browser, "1")
        assert texts(browser, "problem", "place") == ["cannot keep votes: disk full", "Case 2 of 3"]
    press(browser, "13", "done")
    assert not browser.find_element("id", "problem").is_displayed()
    assert [v.choice for v in read_sqlite(server.votes.path)] == ["A", "A", "tie"]
    browser.find_element("id", "undo").click()
    settle(browser)
    assert texts(browser, "place") == ["Case 3 of 3"]
