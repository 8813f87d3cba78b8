"""What a reader does on the report's page, and what it shows then."""

from timeouts import HANG_SECONDS


def settle(browser):
    """Wait until the page has loaded and drawn what it was asked for."""
    from selenium.webdriver.support.ui import WebDriverWait

    busy = "return document.getElementById('browser').ariaBusy"
    WebDriverWait(browser, HANG_SECONDS, 0.01).until(lambda b: b.execute_script(busy) == "false")


def put(browser, **values):
    """Move sliders, choose from lists, type: as a reader does, each with its event."""
    browser.execute_script(
        """for (const [id, value] of Object.entries(arguments[0])) {
             const field = document.getElementById(id);
             field.value = value;
             field.dispatchEvent(new Event(field.tagName === "SELECT" ? "change" : "input"));
           }""",
        {name.replace("_", "-"): str(value) for name, value in values.items()},
    )
    settle(browser)


def ranking(browser):
    """[(index, rank, score)] of the candidates as they stand."""
    rows = browser.execute_script(
        """return [...document.querySelectorAll("#candidates li")]
             .map((li) => [li.dataset.index, li.dataset.rank, li.dataset.score])"""
    )
    return [(int(index), int(place), float(score)) for index, place, score in rows]


def click(browser, element):
    """From where nothing that stays on top can cover it."""
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
    element.click()
    settle(browser)


def text(browser, selector):
    return browser.execute_script(
        "return document.querySelector(arguments[0]).textContent", selector
    )
