"""What a reader does on the explorer's page, and what it shows then."""

import json

from chromium import emulate, logs
from timeouts import HANG_SECONDS

ABOUT = {
    "model": "some/model",
    "embedded": True,
    "looks": True,
    "prunes": True,
    "best_of": 25,
    "most": 64,
    "scorer": "lookback",
    "alpha": 0.5,
    "lam": 2.0,
    "prune": False,
    "temperature": 1.2,
    "max_tokens": 256,
    "longest": 1024,
}


def wait(browser, condition):
    """Until a condition in JavaScript holds; what it is then."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, HANG_SECONDS, 0.02).until(
        lambda b: b.execute_script(f"return {condition}")
    )


def open_page(browser, client, hash="", width=None, scheme=None):
    """The page, freshly loaded, for somebody who was not here before."""
    logs(browser)
    browser.get("about:blank")
    emulate(browser, width, scheme)
    browser.get(f"{client.base_url}".rstrip("/") + "/" + hash)
    wait(browser, "document.body.dataset.ready")
    settle(browser)


def settle(browser):
    wait(browser, "document.getElementById('explorer').ariaBusy === 'false'")


def ask(browser, question=None):
    """Type a question and ask it; until all answers are there."""
    if question is not None:
        put(browser, question=question)
    click(browser, "#ask")
    settle(browser)


def click(browser, selector):
    element = browser.find_element("css selector", selector)
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
    element.click()


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


def ranking(browser):
    """[(indices of the same answer, rank, score)] as they stand; no score for None."""
    rows = browser.execute_script(
        """return [...document.querySelectorAll("#candidates > li")]
             .map((li) => [li.dataset.members, li.dataset.rank, li.dataset.score])"""
    )
    return [
        ([int(one) for one in members.split()], int(rank), None if s == "NaN" else float(s))
        for members, rank, s in rows
    ]


def text(browser, selector):
    found = browser.execute_script(
        "return document.querySelector(arguments[0])?.textContent", selector
    )
    return None if found is None else " ".join(found.split())


def exported(browser):
    """What the JSON button saves."""
    got = browser.execute_async_script(
        """const done = arguments[0];
           const made = URL.createObjectURL;
           URL.createObjectURL = (blob) => { blob.text().then(done); return "data:,"; };
           HTMLAnchorElement.prototype.click = () => {};
           document.getElementById("save-json").click();
           delete HTMLAnchorElement.prototype.click;
           URL.createObjectURL = made;"""
    )
    return json.loads(got)


def no_complaints(browser, *allowed):
    """Nothing is in the console, but for what was to be expected there."""
    console, _ = logs(browser)
    assert [e for e in console if not any(one in e["message"] for one in allowed)] == []
