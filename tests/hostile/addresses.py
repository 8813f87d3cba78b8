"""Addresses: a server that misbehaves, and URLs that are none."""

import json

from hostile.case import FAST, Case
from hostile.server import BEHAVIOURS
from hostile.values import TEXTS

URLS = (
    *("http://", "http:///a.png", "http://127.0.0.1:99999/", "http://127.0.0.1:b/", "http://[::1/"),
    *(
        "http://a b/",
        "http://a\tb\n/",
        "http://127.0.0.1:1/x.png",
        "http://..../",
        "http://\udc80/",
    ),
    *("ftp://127.0.0.1/x.png", "file:///etc/passwd", "gopher://127.0.0.1/", "javascript://x"),
    *("https://127.0.0.1:1/", "http://user:secret@127.0.0.1/", "http://" + "a" * 300 + "/"),
    *("HTTP://127.0.0.1:1/", "http://127.0.0.1:0/", "http://127.0.0.1:-1/", "http://%00/", "://x"),
    *(
        "http://[fe80::1%25lo]/",
        "http://0/",
        "http://xn--a/",
        "http://ａ％/",
        "data:,",
        "http:x.png",
    ),
)
SECONDS = "1"
"""For one URL: what drips would take half a minute otherwise."""


def make(rng, place):
    """A picture by its address."""
    if rng.random() < 0.6:
        behaviour = rng.choice(tuple(BEHAVIOURS))
        about, url = behaviour, f"{place.url}/{behaviour}/{rng.randrange(1000)}"
    elif rng.random() < 0.2:
        about, url = "odd path", f"{place.url}/{rng.choice(TEXTS)[:3000]}"
    else:
        url = rng.choice(URLS)
        about = url[:30]
    environment = {"LOOKBACK_MAX_FETCH_SECONDS": SECONDS, "LOOKBACK_MAX_IMAGE_MIB": "4"}
    if rng.random() < 0.1:
        environment["LOOKBACK_FETCH"] = rng.choice(("public", "nope", ""))
    if rng.random() < 0.1:
        environment["LOOKBACK_MAX_IMAGE_MIB"] = rng.choice(("0", "-1", "x", "1.5", "9" * 30))
    if rng.random() < 0.2:
        line = {"question": "What is it?", "image": url, "answers": "cup"}
        (place.folder / "own.jsonl").write_text(json.dumps(line))
        argv = ["run", "--data", "own.jsonl", "--out", "out", "-n", "2", *FAST]
        return Case(tuple(argv), f"{about} in own data", ("out",), environment=environment)
    argv = ("ask", url, "What is it?", "-n", "2", *FAST)
    return Case(argv, about, environment=environment)
