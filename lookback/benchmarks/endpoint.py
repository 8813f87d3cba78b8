"""Where a judge is asked: its URL, its key, and what of both may be shown.

A key can come as a key, in the URL (`https://user:key@host`, `?key=...`), and back in what an
endpoint says. It is hidden in all that is printed or kept.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cached_property
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

OPENAI_URL = "https://api.openai.com/v1"
HIDDEN = "***"
_PORTS = {"http": 80, "https": 443}
SHORTEST = 4
"""Characters of a secret: hiding shorter ones would only garble words."""


class Endpoint:
    """An OpenAI-compatible endpoint.

    Args:
        url: its base URL.
        key: its API key; None where it needs none.

    Raises:
        ValueError: the URL is none, or the key cannot be sent; the message shows no secret.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url.strip()
        self.key = (key or "").strip() or None
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
        except ValueError:
            good = False
        if not good or re.search(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", self.url):
            raise ValueError(
                f"the judge's URL {_without_secrets(self.url, self.key)!r} is none: write "
                f"http://host:port/v1, or {OPENAI_URL}"
            )
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise ValueError(
                "the judge's key has a character that cannot be sent (a line break, a letter with "
                "an accent): give the key alone"
            )

    @cached_property
    def shown(self) -> str:
        """The URL without anything secret; the same for the same endpoint."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
        return self.hide(f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}/")

    def hide(self, text: str) -> str:
        """A text with every spelling of the key, and of what the URL has of one, replaced."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    @cached_property
    def _secrets(self) -> list[str]:
        """Longest first, so that no part of one is left."""
        parts = urlsplit(self.url)
        named = [self.key or "", unquote(parts.password or parts.username or "")]
        named += [value for _, value in parse_qsl(parts.query)]
        if parts.username or parts.password:
            pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            named.append(base64.b64encode(pair.encode()).decode())
        spelled = {
            spelling
            for secret in named
            if len(secret) >= SHORTEST
            for spelling in (
                *(secret, quote(secret, safe=""), quote(secret), quote_plus(secret)),
                *(json.dumps(secret)[1:-1], repr(secret)[1:-1]),
            )
        }
        return sorted(spelled, key=len, reverse=True)


def _without_secrets(url: str, key: str | None) -> str:
    """A URL that may be none: without what stands where a secret could."""
    plain = re.sub(r"^([^/]*//)?[^/]*@", rf"\1{HIDDEN}@", url.partition("?")[0])
    return plain.replace(key, HIDDEN) if key else plain
