"""Would a reader's browser fetch anything from elsewhere? Then the site is not as promised.

Links that a reader may follow are no such thing. `make docs` fails if there is any.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path

SITE = Path(__file__).parents[2] / "build" / "site"


class Fetches(HTMLParser):
    """What a page makes a browser fetch, of other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the addresses that a tag names, but for those that wait for a click."""
        for name, value in attrs:
            waits = tag == "a" or name not in ("src", "href", "srcset", "data", "poster")
            if not waits and (value or "").startswith(("http:", "https:", "//")):
                self.found.append(f"<{tag} {name}={value}>")


def fetches(page: str) -> list[str]:
    """The tags of a page that fetch something from another host."""
    parser = Fetches()
    parser.feed(page)
    return parser.found


def main() -> int:
    """Name them all; 1 if there are any."""
    pages = sorted(SITE.rglob("*.html"))
    found = [
        f"{path.relative_to(SITE)}: {tag}"
        for path in pages
        for tag in fetches(path.read_text(encoding="utf-8"))
    ]
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(pages)} pages, {len(found)} fetch something from elsewhere", file=sys.stderr)
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
