"""What a notebook shows of candidates: a ranking, the best one's shades, nothing that runs."""

import math
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import make_candidates
from strict_html import Page

from lookback.pages.tokens import MOST
from lookback.signals import Candidate, Candidates, Signals

NASTY = [
    "</td></script><script>window.bad = 1</script>",
    "\"'><img src=x onerror='window.bad=1'>&amp;",
    "half \ud83d a pair, \x00 \x1b[31m \x7f",
    "\u202eright to left \u202b שלום \u2067",
    "two\nlines\tand a tab",
    "{{ 7 * 7 }}{% raw %}{# #}",
]
ELEMENTS = {"div", "style", "p", "i", "table", "thead", "tbody", "tr", "th", "td", "span"}
CONTROLS = str.maketrans(dict.fromkeys([0, 0x1B, 0x7F, 0xD83D], "\ufffd"))


class Rows(HTMLParser):
    """The cells of a table, row by row, and what is in elements of a class."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.classes, self._open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._open.append((tag, dict(attrs).get("class")))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._open.pop()

    def handle_data(self, data):
        if any(tag in ("td", "th") for tag, _ in self._open):
            self.rows[-1][-1] += data
        for _, name in self._open:
            self.classes[name] = self.classes.get(name, "") + data


def slow_score(log_prob, a, alpha, lam):
    """Eq. 8, token by token."""
    weights = [float(x) ** lam for x in a]
    u = [float(p) + alpha * math.log(float(x)) for p, x in zip(log_prob, a, strict=True)]
    return sum(w * x for w, x in zip(weights, u, strict=True)) / sum(weights)


def number(text):
    return math.nan if text == "–" else float(text.replace("−", "-"))


def check_safe(text):
    """It is well-formed, runs nothing and asks for nothing."""
    assert text.encode("utf-8")
    page = Page(text)
    for tag, attributes in page.elements:
        assert tag in ELEMENTS
        assert set(attributes) <= {"class", "dir", "style", "title"}
    assert "url(" not in page.text("style")
    assert "@import" not in page.text("style")
    return page


def said(texts):
    """Candidates with these texts, each a token, and two plain ones behind it."""
    items = [
        Candidate(i, text, Signals([1, 2, 3], [f" {text}", " a", "b"], *signals(i)))
        for i, text in enumerate(texts)
    ]
    return Candidates(tuple(items), texts[0], np.arange(2), model=texts[0], source=list(texts[:2]))


def signals(seed):
    rng = np.random.default_rng(seed)
    return -rng.exponential(size=3), *rng.uniform(0.1, 0.9, (3, 3))


def test_the_ranking_is_that_of_the_formula():
    cands = make_candidates(lengths=(3, 0, 7, 1, 5))
    head, *rows = Rows(cands._repr_html_()).rows
    assert head == ["rank", "index", "score", "mean log p", "mean A", "tokens", "answer"]
    filled = [c for c in cands if len(c.tokens)]
    scores = {c.index: slow_score(c.log_prob, c.visual_lookback, 7.0, 1.5) for c in filled}
    order = sorted(scores, key=scores.get, reverse=True)
    assert [int(row[0]) for row in rows] == [1, 2, 3, 4, 5]
    assert [int(row[1]) for row in rows] == [*order, 1]
    for row in rows[:-1]:
        c = cands[int(row[1])]
        means = [np.mean(c.log_prob), np.mean(c.visual_lookback)]
        shown = [number(text) for text in row[2:5]]
        assert shown == pytest.approx([scores[c.index], *means], abs=6e-4)
        assert (int(row[5]), row[6]) == (len(c.tokens), c.text)
    assert rows[-1][2:] == ["–", "–", "–", "0", "text 1"]


def test_the_best_one_is_shaded_within_itself():
    cands = make_candidates(lengths=(3, 6))
    best = cands.best()
    page = check_safe(cands._repr_html_())
    shown = [a for tag, a in page.elements if tag == "span"]
    strengths = [int(a["style"][-2:], 16) for a in shown]
    a = best.visual_lookback
    assert strengths == [round(127.5 * (x - a.min()) / (a.max() - a.min())) for x in a.tolist()]
    assert [float(span["title"]) for span in shown] == pytest.approx(a.tolist(), rel=6e-3)
    assert page.text("span") == "".join(best.tokens)
    alone = check_safe(best._repr_html_())
    assert [a for tag, a in alone.elements if tag == "span"] == shown
    assert f"score {best.score:.3f}".replace("-", "−") in alone.text("p")
    assert "score" not in check_safe(cands[0]._repr_html_()).text("p")


def test_nasty_texts_are_only_shown():
    cands = said(NASTY)
    text = cands._repr_html_()
    check_safe(text)
    found = Rows(text)
    assert sorted(row[6] for row in found.rows[1:]) == sorted(t.translate(CONTROLS) for t in NASTY)
    assert found.classes["asked"] == NASTY[0]
    for one in cands:
        html = one._repr_html_()
        check_safe(html)
        wanted = "".join(one.tokens).translate(CONTROLS)
        assert Rows(html).classes["tokens"] == wanted


def test_what_was_looked_at_is_named():
    assert "attention the model paid to the image" in make_candidates()._repr_html_()
    about = Rows(said(["image:1", "video"])._repr_html_()).classes["about"]
    assert "attention the model paid to image:1, video when" in about


def test_no_candidates():
    page = check_safe(make_candidates()[:0]._repr_html_())
    assert "There are no candidates." in page.text("p")
    assert "what?" in page.text("p")


def test_candidates_without_a_score():
    cands = make_candidates(lengths=(0, 0))
    page = check_safe(cands._repr_html_())
    assert "All answers are empty" in page.text("p")
    assert [row[6] for row in Rows(cands._repr_html_()).rows[1:]] == ["text 0", "text 1"]
    assert check_safe(cands[0]._repr_html_()).text("i") == "empty"
    assert check_safe(cands.rank()[0]._repr_html_()).text("i") == "empty"  # its score is NaN


def test_of_very_many_the_first_are_shown():
    found = Rows(make_candidates(lengths=[2] * (MOST + 7))._repr_html_())
    assert len(found.rows) == 1 + MOST
    assert "and 7 more" in found.classes["about"]
    assert "more" not in Rows(make_candidates()._repr_html_()).rows[-1][-1]


def test_settings_that_were_used_are_told():
    assert "(α = 7.0, λ = 1.5)" in make_candidates()._repr_html_()
    assert "(α = 0.25, λ = 1.25)" in make_candidates(defaults={})._repr_html_()
