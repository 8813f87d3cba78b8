"""Shades: how strong, in which colour, and that text on them can be read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strict_html import Page

from lookback.pages import ENVIRONMENT
from lookback.pages.tokens import STRONGEST, color, shaded, shades
from lookback.scores.base import get_scorer

AMBER = "#f59e0b"


def spans(tokens):
    macros = ENVIRONMENT.get_template("macros.html").module
    return str(macros.shaded(tokens))


def test_nothing_has_no_shades():
    assert shades([]).tolist() == []


def test_the_color_is_the_scorer_own():
    white = np.array([255, 255, 255])
    for signal, scorer in (("SC", "self_certainty"), ("A", "visual_lookback")):
        full = np.array(list(bytes.fromhex(get_scorer(scorer).color[1:])))
        got = np.array(list(bytes.fromhex(color(signal, 1)[1:])))
        np.testing.assert_allclose(got, white + STRONGEST * (full - white), atol=0.5)


def test_a_token_has_its_value_and_its_shade():
    got = shaded([" a", "b", "\n\tc "], [0.25, 1.0, 0.001234], AMBER)
    assert [one.blanks for one in got] == [" ", "", "\n\t"]
    assert [one.text for one in got] == ["a", "b", "c "]
    assert [one.title for one in got] == ["0.25", "1", "0.00123"]
    assert [one.background for one in got] == [f"{AMBER}20", f"{AMBER}80", f"{AMBER}00"]
    with pytest.raises(ValueError, match="longer"):
        shaded(["a"], [1.0, 2.0], AMBER)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=4), min_size=1))
def test_spans_say_what_the_tokens_say(tokens):
    text = f"<p>{spans(shaded(tokens, np.arange(len(tokens)), AMBER))}</p>"
    page = Page(text)
    assert "".join(page.order) == "".join(tokens)
    inside = [token.lstrip() for token in tokens if token.strip()]
    assert page.texts.get(("span", None), []) == inside


def luminance(rgb):
    parts = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb / 255]
    return float(np.dot([0.2126, 0.7152, 0.0722], parts))


@pytest.mark.parametrize(
    ("paper", "ink"), [("fbfaf7", "22252a"), ("15171a", "e4e3df")], ids=["light", "dark"]
)
def test_text_can_be_read_on_the_strongest_shade(paper, ink):
    """WCAG's contrast for text, with the colours of base.css."""
    css = ENVIRONMENT.loader.get_source(ENVIRONMENT, "common/base.css")[0]
    assert f"--paper: #{paper}" in css
    assert f"--ink: #{ink}" in css
    below, text = (np.array(list(bytes.fromhex(c))) for c in (paper, ink))
    for name in ("lookback", "self_certainty", "visual_lookback", "mean_log_prob"):
        full = np.array(list(bytes.fromhex(get_scorer(name).color[1:])))
        behind = below + STRONGEST * (full - below)
        low, high = sorted((luminance(behind), luminance(text)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name
