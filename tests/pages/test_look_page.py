"""The look page: it shows the numbers that Python has, to pointer, keys and touch, and fits."""

import numpy as np
import pytest
from chromium import emulate, logs, needs_chromium
from made_looks import TOKENS, make_look, make_picture, make_tiled, scene
from strict_html import Page
from timeouts import HANG_SECONDS

from lookback.looks.heat_map import COLORS, STRONGEST, find_place, mass
from lookback.looks.look import BITS, Picture, rounded
from lookback.pages.look import look_head, look_numbers, look_page, pieces, save

NASTY = ' </script><script>window.bad=1</script><b onclick="x">\u202e&amp;'
CLOSE = 2.0 ** -(BITS + 1)  # what rounding leaves of a weight
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def show(browser, tmp_path):
    """Open the page of a look; afterwards, nothing was complained about, nothing asked for."""
    emulate(browser)
    logs(browser)
    opened = []

    def show(look, **settings):
        path = tmp_path / f"look-{len(opened)}.html"
        path.write_text(look_page(look, **settings), encoding="utf-8")
        opened.append(path.as_uri())
        browser.get(opened[-1])
        settle(browser)
        return browser

    yield show
    console, requests = logs(browser)
    assert console == []
    assert requests, "the log of requests does not work"
    assert [u for u in requests if not u.startswith(tuple(opened))] == []
    emulate(browser)


def settle(browser):
    from selenium.webdriver.support.ui import WebDriverWait

    ready = "return document.getElementById('look').ariaBusy"
    WebDriverWait(browser, HANG_SECONDS, 0.01).until(lambda b: b.execute_script(ready) == "false")


def word(browser, number):
    return browser.find_element("css selector", f'.word[data-word="{number}"]')


def hover(browser, element):
    from selenium.webdriver import ActionChains

    ActionChains(browser).move_to_element(element).perform()


def choose_mode(browser, mode):
    browser.execute_script(f"document.querySelector('input[value={mode}]').click()")


def cells(browser, centres):
    """What the page says of each place under the pointer: shares of the picture in, numbers out."""
    return browser.execute_script(
        """const frame = document.getElementById("frame");
           const box = document.getElementById("map").getBoundingClientRect();
           return arguments[0].map(([x, y]) => {
             frame.dispatchEvent(new PointerEvent("pointermove", {
               clientX: box.left + x * box.width, clientY: box.top + y * box.height}));
             return Number(document.getElementById("tip").dataset.value);
           });""",
        np.asarray(centres).tolist(),
    )


def centres(boxes):
    return (boxes[:, :2] + boxes[:, 2:]) / 2


def press(browser, element, *keys):
    from selenium.webdriver.common.keys import Keys

    element.send_keys(*(getattr(Keys, key) for key in keys))


def test_rounding_keeps_all_but_a_thousandth_and_zero():
    values = np.random.default_rng(0).exponential(0.01, 10_000).astype(np.float32)
    values = np.concatenate([values, [0.0, 1.0, 1e-30]]).astype(np.float32)
    off = np.abs(rounded(values).astype(float) - values)
    assert (off <= CLOSE * values).all()
    assert off.max() > 0
    assert len(np.unique(rounded(values).view(np.uint32) & ((1 << (23 - BITS)) - 1))) == 1


def test_pieces_joined_are_what_the_model_wrote():
    look = make_look()
    found = pieces(look)
    assert "".join(text for text, *_ in found) == look.text
    words = [(text, first, stop, content) for text, first, stop, content in found if first >= 0]
    assert words[4] == ("beside", 4, 6, False)
    assert words[6] == ("tree", 7, 8, True)


def test_the_page_is_strict_html_without_anything_of_the_texts_in_it():
    tokens = (*TOKENS, NASTY, " \ud800", " 猫", " 🐈")
    look = make_look("".join(tokens), tokens)
    text = look_page(look, question=f"What?{NASTY}")
    page = Page(text)
    assert page.text("h1") == "Where each word looked"
    assert "window.bad=1</script>" not in text.replace("&lt;/script&gt;", "")
    [policy] = [a["content"] for t, a in page.elements if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'")


def test_relative_maps_are_offered_only_where_there_are_any():
    assert look_head(make_look())["relative"] == ["tokens"]
    assert look_head(make_look(baseline=True))["relative"] == ["tokens", "prompt"]
    assert "baseline" not in look_numbers(make_look())


@needs_chromium
def test_each_cell_has_the_number_that_python_has(show):
    look = make_look()
    browser = show(look)
    at = centres(look.pictures[0].boxes)
    for number, (_, tokens, _) in enumerate(look.words()):
        hover(browser, word(browser, number))
        expected = np.mean([look.grid(t)[0] for t in range(tokens.start, tokens.stop)], axis=0)
        np.testing.assert_allclose(cells(browser, at), expected.ravel(), rtol=2 * CLOSE)
    browser.find_element("id", "whole").click()
    mean = np.mean([look.grid(t)[0] for t in range(len(look.tokens))], axis=0)
    np.testing.assert_allclose(cells(browser, at), mean.ravel(), rtol=2 * CLOSE)


@needs_chromium
@pytest.mark.parametrize("mode", ["tokens", "prompt"])
def test_relative_cells_are_those_of_the_relative_map(show, mode):
    # Columns that are no picture's count in the mean that is added to both sides.
    look = make_look(baseline=True, total=160)
    browser = show(look)
    choose_mode(browser, mode)
    for number in (2, 4):
        tokens = look.words()[number].tokens
        word(browser, number).click()
        heat = look.heatmap(tokens, relative=mode)
        at = centres(look.pictures[0].boxes)
        rows, columns = (at[:, ::-1] * heat.shape).astype(int).T
        np.testing.assert_allclose(cells(browser, at), heat[rows, columns], rtol=4 * CLOSE)


@needs_chromium
@pytest.mark.parametrize(
    ("relative", "mode"), [(False, "raw"), (True, "tokens"), ("prompt", "prompt")]
)
def test_the_page_begins_with_the_map_that_was_asked_for(show, relative, mode):
    browser = show(make_look(baseline=True), relative=relative)
    checked = browser.find_element("css selector", "#modes input:checked")
    assert checked.get_attribute("value") == mode


@needs_chromium
def test_tiles_and_thumbnail_add_up_as_in_the_heat_map(show):
    look = make_look(pictures=[make_tiled()])
    browser = show(look)
    picture, tokens = look.pictures[0], look.words()[2].tokens
    word(browser, 2).click()
    row = look.weights[tokens].mean(0)
    small = picture.boxes[:64]
    expected = [mass(row, picture.boxes, tuple(box)) for box in small]
    np.testing.assert_allclose(cells(browser, centres(small)), expected, rtol=2 * CLOSE)
    heat = look.heatmap(tokens)
    height, width = heat.shape
    part = heat[: height // 8, : width // 8].sum()  # the first cell: the scene has 80 pixels
    assert expected[0] == pytest.approx(part, rel=1e-5)
    said = browser.find_element("id", "about").text
    place = find_place(row, picture.boxes)
    assert f"{place.part}, {100 * place.share:.0f} %" in said
    assert "without a place" in said


@needs_chromium
def test_the_brightest_cell_is_painted_brightest(show):
    look = make_look()
    browser = show(look)
    word(browser, 7).click()
    top = int(np.argmax(look.weights[look.words()[7].tokens].mean(0)))
    x, y = centres(look.pictures[0].boxes)[top]
    pixel = browser.execute_script(
        """const map = document.getElementById("map");
           const [x, y] = arguments[0];
           const pen = map.getContext("2d");
           return [...pen.getImageData(x * map.width, y * map.height, 1, 1).data];""",
        [float(x), float(y)],
    )
    np.testing.assert_allclose(pixel[:3], COLORS[-1], atol=2)
    assert pixel[3] == pytest.approx(STRONGEST * 255, abs=2)


@needs_chromium
def test_a_click_on_a_cell_shades_the_words_by_their_weight_there(show):
    look = make_look()
    browser = show(look)
    before = [w.get_attribute("data-value") for w in browser.find_elements("css selector", ".word")]
    a = look.weights.sum(1, dtype=float)
    expected = [a[one.tokens].mean() for one in look.words()]
    np.testing.assert_allclose(np.array(before, dtype=float), expected, rtol=1e-6)

    from selenium.webdriver import ActionChains

    frame = browser.find_element("id", "frame")
    width, height = frame.size["width"], frame.size["height"]
    column = 37  # row 3, column 7
    offset = int((0.75 - 0.5) * width), int((0.35 - 0.5) * height)
    ActionChains(browser).move_to_element_with_offset(frame, *offset).click().perform()
    found = browser.find_elements("css selector", ".word")
    values = [float(one.get_attribute("data-value")) for one in found]
    weights = [look.weights[one.tokens, column].mean() for one in look.words()]
    np.testing.assert_allclose(values, weights, rtol=2 * CLOSE)
    listed = browser.find_elements("css selector", "#here li")
    assert [int(one.get_attribute("data-word")) for one in listed] == list(
        np.argsort(weights)[::-1][:6]
    )
    strength = "return arguments[0].style.getPropertyValue('--strength')"
    darkest = max(found, key=lambda one: float(browser.execute_script(strength, one)))
    assert darkest.text == look.words()[int(np.argmax(weights))].text
    browser.find_element("id", "let-go").click()
    assert not browser.find_elements("css selector", "#here li")


@needs_chromium
def test_keys_step_through_words_and_cells(show):
    look = make_look()
    browser = show(look)
    press(browser, word(browser, 0), "ARROW_RIGHT", "ARROW_RIGHT")
    assert browser.switch_to.active_element.text == "car"
    assert browser.find_element("id", "frame").get_attribute("data-word") == "2"
    assert "“car”" in browser.find_element("id", "about").text
    tabs = browser.find_elements("css selector", '.word[tabindex="0"]')
    assert [one.text for one in tabs] == ["car"]
    press(browser, word(browser, 2), "ESCAPE")
    assert "The whole response" in browser.find_element("id", "about").text

    frame = browser.find_element("id", "frame")
    press(browser, frame, "ARROW_DOWN")  # the brightest
    top = int(np.argmax(look.weights.mean(0)))
    [row, column] = divmod(top, 10)
    press(browser, frame, "ARROW_DOWN", "ARROW_RIGHT")
    style = browser.find_element("id", "cell").get_attribute("style")
    assert f"left: {10 * (column + 1)}%" in style.replace(".0", "")
    assert f"top: {10 * (row + 1)}%" in style.replace(".0", "")
    press(browser, frame, "ESCAPE")
    assert not browser.find_element("id", "cell").is_displayed()


@needs_chromium
def test_pictures_are_chosen_from_a_row_with_what_each_has(show):
    pictures = [make_picture(), make_picture("image:1", scene(1), 6, 8, first=100)]
    look = make_look(pictures=pictures)
    browser = show(look)
    word(browser, 7).click()
    row = look.weights[look.words()[7].tokens].mean(0)
    film = browser.find_elements("css selector", "#film button")
    assert [one.text.split("\n") for one in film] == [
        [one.name, f"{100 * row[one.columns].sum():.1f} %"] for one in pictures
    ]
    film[1].click()
    at = centres(pictures[1].boxes)
    np.testing.assert_allclose(cells(browser, at), row[pictures[1].columns], rtol=2 * CLOSE)


@needs_chromium
def test_without_places_the_page_says_so_and_tells_the_flat_facts(show):
    known = make_picture()
    look = make_look(pictures=[Picture("image:0", known.image, known.columns)])
    browser = show(look)
    word(browser, 7).click()
    assert "not known" in browser.find_element("id", "unplaced").text
    assert not browser.find_element("id", "map").is_displayed()
    assert not browser.find_element("id", "legend").is_displayed()
    row = look.weights[look.words()[7].tokens].mean(0)
    top = int(np.argmax(row))
    assert f"token {top + 1} ({100 * row[top]:.2f} %)" in browser.find_element("id", "about").text


@needs_chromium
@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(show, browser, width, scheme):
    tokens = (*TOKENS, " " + "unbroken" * 40, *(f" word{i}" for i in range(70)))
    emulate(browser, width, scheme)
    show(make_look("".join(tokens), tokens, baseline=True), question="What?" * 60)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    contrast = browser.execute_script(
        """const light = (color) => {
             const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((c) => c / 255)
               .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
             return 0.2126 * r + 0.7152 * g + 0.0722 * b;
           };
           const canvas = document.createElement("canvas");
           const pen = canvas.getContext("2d", {willReadFrequently: true});
           const over = (colors) => {
             pen.clearRect(0, 0, 1, 1);
             for (const c of colors) { pen.fillStyle = c; pen.fillRect(0, 0, 1, 1); }
             return `rgb(${[...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).join()})`;
           };
           const paper = getComputedStyle(document.body).backgroundColor;
           return Math.min(...[...document.querySelectorAll(".word")].map((word) => {
             const { color, backgroundColor } = getComputedStyle(word);
             const [a, b] = [light(color), light(over([paper, backgroundColor]))];
             return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
           }));"""
    )
    assert contrast > 4.5


@needs_chromium
def test_nothing_that_a_model_says_is_run(show):
    tokens = (*TOKENS, NASTY, " 猫", " 🐈‍⬛", "\u0000")
    browser = show(make_look("".join(tokens), tokens), question=f"What?{NASTY}")
    assert browser.execute_script("return window.bad") is None
    assert "window.bad=1" in browser.find_element("id", "words").text


def test_save_says_which_suffixes_there_are(tmp_path):
    with pytest.raises(ValueError, match=r"\.html .*\.png"):
        save(make_look(), tmp_path / "look.jpg")
    with pytest.raises(FileNotFoundError, match="no folder"):
        save(make_look(), tmp_path / "none" / "look.html")
    with pytest.raises(ValueError, match="no picture"):
        save(make_look(pictures=[], total=4), tmp_path / "look.html")
    make_look().save(tmp_path / "look.HTML")
    assert Page((tmp_path / "look.HTML").read_text()).text("title").startswith("LookBack")
