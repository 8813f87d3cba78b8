"""One self-contained page: what the runs are, every study, and a browser of items.

The page needs no network and is forbidden to use it: a Content-Security-Policy lets it run its own
script and style, known by their hashes, and show images that it carries.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from lookback.report.data import browser_data
from lookback.report.sections import nav_html, runs_html, study_html
from lookback.runs import Run
from lookback.studies import Result, Runs


def report(runs: Sequence[Run], results: dict[str, Result | str], items: int = 40) -> str:
    """The page, as HTML to be saved as UTF-8.

    Args:
        runs: as the studies were given them.
        results: what each study gave, by its name; a string says why it could not be done.
        items: how many items of each run to put in, the first ones; controls have none of their
            own.
    """
    here = files("lookback.report")
    html, style, maths, page = (
        here.joinpath(name).read_text("utf-8")
        for name in ("page.html", "page.css", "maths.js", "page.js")
    )
    script = f"{maths}\n{page}"
    # "<" is escaped so that no text can end the script element that holds the data; ASCII so that
    # lone surrogates, which no encoding can carry, still arrive.
    data = json.dumps(browser_data(runs, items), allow_nan=False, separators=(",", ":"))
    return Template(html).substitute(
        script_hash=_hash(script),
        style_hash=_hash(style),
        style=style,
        script=script,
        nav=nav_html(results),
        runs=runs_html(Runs(runs)),
        studies="\n".join(study_html(name, result) for name, result in results.items()),
        data=data.replace("<", "\\u003c"),
    )


def _hash(text: str) -> str:
    """As a Content-Security-Policy names an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
