"""A page as a strict reader sees it."""

import json
from html.parser import HTMLParser

VOID = {"meta", "input", "img", "br", "hr", "link", "wbr", "source"}


class Page(HTMLParser):
    """Reads a page strictly: every element is closed, in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.texts, self.order = [], [], {}, []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag):
        assert [name for name, _ in self.open[-1:]] == [tag], f"</{tag}> inside {self.open}"
        self.open.pop()

    def handle_data(self, text):
        self.order.append(text)
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(text)

    def text(self, tag, name=None):
        return "".join(self.texts.get((tag, name), []))

    def data(self):
        return json.loads(self.text("script", "data"))
