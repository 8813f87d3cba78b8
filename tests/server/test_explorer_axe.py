"""The explorer for everybody: axe-core finds nothing, and it fits every screen."""

import pytest
from chromium import emulate, needs_chromium
from node_packages import needs_node, packages
from server.exploring import ask, click, no_complaints, open_page, put, wait

pytestmark = [needs_chromium, needs_node]

RUN = """const done = arguments[0];
  axe.run(document).then(({ violations }) => done(violations.map(
    ({ id, impact, nodes }) => [id, impact, nodes.map((node) => node.html.slice(0, 200))])));"""


def opened(browser):
    pass


def asked(browser):
    ask(browser)


def changed(browser):
    """A thing is chosen and was changed after the asking."""
    ask(browser)
    click(browser, ".handle")
    click(browser, "[data-color=blue]")
    wait(browser, "document.querySelector('.handle').ariaLabel.includes('blue')")


def look(browser):
    ask(browser)
    click(browser, "#candidates > li:first-child .said .word")
    wait(browser, "$('frame').dataset.word")


def compare(browser):
    ask(browser)
    click(browser, ".compare-it")
    wait(browser, "document.querySelector('.columns')")


def tour(browser):
    ask(browser)
    click(browser, "#start-tour")
    for _ in range(2):
        click(browser, "#tour-next")


def failed(browser):
    put(browser, question="x" * 3900)
    click(browser, "#ask")
    wait(browser, "!$('problem').hidden")


def keys(browser):
    click(browser, "#show-keys")


STATES = (opened, asked, changed, look, compare, tour, failed, keys)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_axe_finds_nothing(browser, client, state, scheme):
    open_page(browser, client, width=1400, scheme=scheme)
    state(browser)
    browser.execute_script(
        (packages() / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    )
    assert browser.execute_async_script(RUN) == []
    emulate(browser)
    no_complaints(browser, "400 (Bad Request)")


@pytest.mark.parametrize("width", [360, 420, 700, 900, 1400, 1900])
def test_it_fits_without_scrolling_sideways(browser, client, width):
    for state in (opened, asked, changed, look, compare, tour):
        open_page(browser, client, width=width)
        state(browser)
        wide, has = browser.execute_script(
            "const { scrollWidth, clientWidth } = document.documentElement;"
            "return [scrollWidth, clientWidth];"
        )
        assert wide <= has, state.__name__
    emulate(browser)
