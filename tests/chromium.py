"""A real browser for the tests of pages: Chromium, its driver and Selenium.

Without them these tests are skipped, unless CI_BROWSER=1.
"""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from timeouts import HANG_SECONDS

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
DRIVER = shutil.which("chromedriver") or "/usr/bin/chromedriver"
MISSING = [
    *(f"no {path}" for path in (CHROMIUM, DRIVER) if not Path(path).exists()),
    *(["no selenium"] if find_spec("selenium") is None else []),
]
needs_chromium = pytest.mark.skipif(
    bool(MISSING) and os.environ.get("CI_BROWSER") != "1", reason=", ".join(MISSING) or "all there"
)


def start(profile):
    """A browser with a folder of its own for what it keeps."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-background-networking",
        "disable-dev-shm-usage",
        "no-first-run",
        "force-prefers-reduced-motion",  # scrolling is done when it is asked for
        f"user-data-dir={profile}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(HANG_SECONDS)
    driver.set_window_size(1300, 900)
    return driver


def emulate(browser, width=None, scheme=None):
    """A screen of that width, a reader who likes "light" or "dark"; None for what there was."""
    if width is None:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    else:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [] if scheme is None else [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def logs(browser):
    """The console's entries and the requests' addresses since the last call.

    A `data:` address is the page itself: the browser lists one when it comes to draw that picture.
    """
    events = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    addresses = [params["request"]["url"] for params in sent]
    return browser.get_log("browser"), [a for a in addresses if not a.startswith("data:")]
