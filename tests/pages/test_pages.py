"""What all pages share: no value breaks a template, images go in, HTML is made here alone."""

import base64
import io
import json
import re
from collections import Counter
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from chromium import emulate, logs, needs_chromium
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from made_runs import make_run, write_shard
from markupsafe import Markup
from PIL import Image
from strict_html import Page

import lookback
from lookback.pages import ENVIRONMENT, clean, data_uri, image_uri, render
from lookback.pages.tokens import Case, Response, tokens_page
from lookback.runs.items import item_images

NASTY = (
    "</p><script>window.bad = 1</script> \"'&amp;<b> \u2028 \u202e שלום \x00\x1b \U0001f600 \ud800"
)
SEEN = NASTY.translate({0: "\ufffd", 0x1B: "\ufffd", 0xD800: "\ufffd"})


def from_text(template, **values):
    return ENVIRONMENT.from_string(template).render(values)


def decoded(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.partition("base64,")[2])))


@pytest.fixture
def picture():
    return Image.effect_noise((40, 30), 80).convert("RGB")


@pytest.fixture
def pages(picture):
    """Every small page, full of texts that try to break out."""
    scores = {"SC": np.array([1.0, 2.0]), "A": np.array([0.1, 0.9]), "LookBack": np.zeros(2)}
    response = Response(NASTY, [f" {NASTY}", NASTY], scores)
    return {
        "tokens": tokens_page([Case(NASTY, NASTY, picture, [response])] * 2),
    }


def test_clean_keeps_what_a_page_can_hold():
    kept = "a\tb\nc\r <>&\"' é \u202e \u2028 \U0001f600"
    assert clean(kept) == kept
    assert clean("a\ud800b\ude00") == "a\ufffdb\ufffd"
    assert clean("\ud83d\ude00") == "\U0001f600"  # two halves that belong together
    assert clean("\x00\x08\x0b\x0c\x1b\x7f\x9f") == "\ufffd" * 7
    assert clean(1.5) == "1.5"


def test_every_value_is_cleaned_and_escaped():
    text = from_text('<p title="{{ x }}">{{ x }}{{ x ~ x }}</p>', x=NASTY)
    page = Page(text)
    assert page.elements == [("p", {"title": SEEN})]
    assert page.text("p") == SEEN * 3
    assert text.encode("utf-8")
    assert from_text("{{ x }}", x=Markup("<i>")) == "<i>"  # this alone goes in as it is


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(UndefinedError, match="'cases' is undefined"):
        render("tokens.html", title="", rule="")


def test_prose_has_code():
    text = from_text("{{ x|prose }}", x="give `--seed <n>` & `a` \ud800`")
    assert text == "give <code>--seed &lt;n&gt;</code> &amp; <code>a</code> \ufffd`"


def test_numbers():
    text = from_text("{% for x in xs %}{{ x|number(2) }} {% endfor %}", xs=[-10.057, 0, 2.344])
    assert text == "−10.06 0.00 2.34 "
    assert from_text("{{ x|number(2) }}", x=None) == "–"
    assert from_text("{{ x|number(2) }}", x=float("nan")) == "–"


def test_data_inside_a_script_cannot_end_it():
    data = {"b": [NASTY, 1.5, None], "a": "\ud83d"}
    text = from_text('<script id="data">{{ x|tojson }}</script>', x=data)
    page = Page(text)
    assert [tag for tag, _ in page.elements] == ["script"]
    assert page.data() == data
    assert list(json.loads(page.text("script", "data"))) == ["b", "a"]
    assert text.isascii()
    with pytest.raises(ValueError):
        from_text("{{ x|tojson }}", x=float("nan"))  # JSON has none


def test_a_data_uri_is_the_file():
    assert data_uri("text/csv", b"\0\xff") == "data:text/csv;base64,AP8="


@pytest.mark.parametrize(
    ("size", "becomes", "form"),
    [
        ((128, 90), (128, 90), "PNG"),
        ((129, 90), (129, 90), "WEBP"),
        ((1600, 800), (512, 256), "WEBP"),
        ((3, 4000), (1, 512), "WEBP"),
    ],
)
def test_images_are_small_and_small_ones_lossless(size, becomes, form):
    image = Image.effect_noise(size, 80)
    got = decoded(image_uri(image))
    assert (got.size, got.format) == (becomes, form)
    if form == "PNG":
        assert np.array_equal(np.asarray(got), np.asarray(image.convert("RGB")))
    assert max(decoded(image_uri(image, 100)).size) == 100


def test_the_images_of_a_run(tmp_path):
    run = make_run(tmp_path / "run", items=2, n=2)
    items = lookback.benchmarks.get_benchmark("scenes-caption").items("test")
    assert np.array_equal(np.asarray(item_images(run)(1)), np.asarray(items[1].image))
    rows = run.items.to_pylist()
    rows[1]["id"] = "another"
    write_shard(run.path, "items", 0, rows)
    shown = item_images(lookback.Run(run.path))(1)
    assert "scenes-caption/test/1 where the run has another" in shown


def test_no_text_breaks_a_page(pages):
    for text in pages.values():
        assert text.encode("utf-8")
        page = Page(text)
        assert "script" not in {tag for tag, _ in page.elements}
        assert "window.bad" not in page.text("script")
        assert "window.bad" in page.text("h1") + page.text("h2")
        for tag, attributes in page.elements:
            assert not any(key.startswith("on") or key == "href" for key in attributes), tag
            assert attributes.get("src", "data:").startswith("data:")
        assert "url(" not in page.text("style")
        assert "@import" not in page.text("style")


@given(st.lists(st.sampled_from(["a" * 499, "b" * 500, "&", " ", "\n", "<", "\U0001f600" * 1200])))
def test_a_text_can_be_broken_everywhere_and_stays_the_same(parts):
    text = "".join(parts)
    pieces = from_text("{{ x|breakable }}", x=text).split("<wbr>")
    assert unescape("".join(pieces)) == text
    assert max(len(run) for piece in pieces for run in re.split(r"\s", unescape(piece))) <= 500
    assert all(re.search(r"\S{500}$", unescape(piece)) for piece in pieces[:-1])


@needs_chromium
def test_pages_fit_small_screens_and_go_dark(browser, pages, tmp_path):
    for name, text in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        logs(browser)
        colors = set()
        for scheme in ("light", "dark"):
            emulate(browser, 420, scheme)
            browser.get(path.as_uri())
            wide, screen, *color = browser.execute_script(
                """const page = document.documentElement, body = getComputedStyle(document.body);
                   return [page.scrollWidth, page.clientWidth, body.color, body.backgroundColor]"""
            )
            assert wide == screen, name
            assert 380 < screen <= 420
            colors.add(tuple(color))
            assert browser.execute_script("return window.bad") is None
        assert len(colors) == 2
        console, requests = logs(browser)
        assert console == []
        assert {url.partition(":")[0] for url in requests} == {"file"}


def test_html_is_made_in_templates_alone():
    package = Path(lookback.__file__).parent
    files = list(package.rglob("*.py"))
    made = re.compile(
        r"html\.escape|^import html$|from string import Template"
        r'|(?<!b")</(?:a|p|b|i|div|span|t[dhr]|table|ul|li|html|body|section|style|script)>',
        re.MULTILINE,
    )
    assert len(files) > 100
    assert [str(path) for path in files if made.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("page", ["annotate", "explorer", "look", "report"])
def test_no_two_scripts_of_a_page_define_the_same_name(page):
    """They share one scope, in which a later function takes the place of an earlier one."""
    template = ENVIRONMENT.loader.get_source(ENVIRONMENT, f"{page}/page.html")[0]
    names = re.findall(r'"(\w+/\w+\.js)"', template)
    assert len(names) > 1
    text = "\n".join(ENVIRONMENT.loader.get_source(ENVIRONMENT, name)[0] for name in names)
    defined = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    assert [name for name, count in Counter(defined).items() if count > 1] == []


def test_every_script_and_style_is_used():
    folder = Path(lookback.__file__).parent / "pages" / "templates"
    sources = {path.relative_to(folder).as_posix() for path in folder.rglob("*.[jc]s*")}
    templates = "".join(path.read_text("utf-8") for path in folder.rglob("*.html"))
    assert sources == set(re.findall(r'"(\w+/\w+\.(?:js|css))"', templates))
