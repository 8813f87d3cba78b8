"""The page without a browser: what it carries, and that nothing in it can break or leave it."""

import base64
import hashlib
import html
import io
import re
import struct
from dataclasses import replace

import numpy as np
import pytest
from made_runs import change_manifest, make_run, write_shard
from markupsafe import escape
from PIL import Image
from strict_html import Page

from lookback.benchmarks import get_benchmark
from lookback.pages import clean, image_uri, render
from lookback.report import report
from lookback.report.data import browser_data, facts
from lookback.report.table import table_view
from lookback.runs import Run
from lookback.scores.base import get_scorer
from lookback.scores.formula import A_FLOOR
from lookback.signals import SIGNALS
from lookback.studies import Cell, Result, StudyError, Table, get_study
from lookback.studies.shared.plots import panels


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    own = make_run(folder / "own", items=12, n=7, failed=(1, 4), empty=((0, 2), (11, 6)))
    return [
        own,
        make_run(folder / "vqa", benchmark="scenes-vqa", items=5, n=3, seed=7),
        make_run(folder / "random", items=12, n=7, image="random", controls=own, failed=(1, 4)),
    ]


def result(**given):
    table = Table([("", "Method"), ("VQA", "N=5")], [["A", Cell("1.50", "best")]], "A caption.")
    return Result(**{"rows": [{"method": "A", "value": 1.5}], "tables": [table]} | given)


def sections(text):
    return dict(re.findall(r'<section id="([^"]+)".*?>(.*?)</section>', text, re.DOTALL))


def links(text):
    """What the download links hold, by file name."""
    found = re.findall(r'<a download="([^"]*)" href="data:[^;]*;base64,([^"]*)"', text)
    return {name: base64.b64decode(content) for name, content in found}


def test_signals_arrive_bit_by_bit(runs):
    data = Page(report(runs, {}, items=6)).data()
    for run, shown in zip(runs, data["runs"], strict=False):
        rows = min(6, len(run.places))
        assert shown["total"] == len(run.places)
        assert len(shown["items"]) == rows
        for name in SIGNALS:
            raw = base64.b64decode(shown["signals"][name])
            got = iter(struct.unpack(f"<{len(raw) // 4}f", raw))
            for row in range(rows):
                candidates = run.candidates(row)
                said = shown["items"][row]["candidates"]
                assert [tuple(tokens) for tokens, _, _ in said] == [c.tokens for c in candidates]
                for c in candidates:
                    assert [next(got) for _ in c.tokens] == getattr(c, name).tolist()
            assert next(got, None) is None


def test_items_are_those_with_candidates_in_order(runs):
    shown = browser_data(runs, 100)["runs"][0]
    quality = runs[0].quality()
    assert [i["id"] for i in shown["items"]] == [
        f"scenes-caption/test/{place}" for place in (0, 2, 3, 5, 6, 7, 8, 9, 10, 11)
    ]
    for row, item in enumerate(shown["items"]):
        assert [q for _, q, _ in item["candidates"]] == quality[row].tolist()
        assert item["question"] == runs[0].questions[row]
        assert item["truth"] == [["categories", "dog"]]
    assert shown["items"][0]["candidates"][2][0] == []  # the empty response is there


def test_controls_are_not_browsed(runs):
    data = browser_data(runs, 3)
    assert [run["label"] for run in data["runs"]] == [
        "made-up · Scenes Caption · seed 42",
        "made-up · Scenes VQA · seed 7",
    ]
    assert browser_data(runs[2:], 3)["runs"] == []
    assert browser_data(runs, 0)["runs"] == []


def test_a_run_of_failures_alone_is_passed_over(tmp_path):
    run = make_run(tmp_path / "run", items=2, n=2, failed=(0, 1))
    assert browser_data([run], 5)["runs"] == []


def test_runs_that_look_alike_are_told_apart_by_their_folder(tmp_path):
    alike = [make_run(tmp_path / name, items=1, n=2) for name in ("one", "two")]
    labels = [run["label"] for run in browser_data(alike, 1)["runs"]]
    assert labels == [f"made-up · Scenes Caption · seed 42 · {name}" for name in ("one", "two")]


def test_constants_are_the_package_own(runs):
    data = browser_data(runs, 1)
    assert data["floor"] == A_FLOOR
    assert data["general"] == {"alpha": 0.25, "lam": 1.25}
    assert (data["runs"][0]["alpha"], data["runs"][0]["lam"]) == (0.5, 1.25)
    assert data["methods"]["self_certainty"] == {"title": "SC", "color": "#2563eb"}
    for name, shown in data["methods"].items():
        assert shown == {"title": get_scorer(name).title, "color": get_scorer(name).color}
    assert "1e-10" not in report(runs, {}, items=0).split("<script>")[1]


def test_images_are_the_items_own_and_shared_between_runs(runs, tmp_path):
    again = make_run(tmp_path / "again", items=3, n=2, seed=1)
    data = browser_data([*runs, again], 3)
    items = get_benchmark("scenes-caption").items("test")
    assert len(data["images"]) == 3 + 3 + 1  # item 1 failed in the first run, not in the last
    for run, places in ((data["runs"][0], (0, 2, 3)), (data["runs"][2], (0, 1, 2))):
        for item, place in zip(run["items"], places, strict=True):
            got = decoded(data["images"][item["image"]])
            assert np.array_equal(np.asarray(got), np.asarray(items[place].image))
            assert item["reason"] == ""


def decoded(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.partition("base64,")[2]))).convert("RGB")


@pytest.mark.parametrize(("size", "becomes"), [((1600, 800), (384, 192)), ((200, 384), (200, 384))])
def test_large_images_are_made_small(size, becomes):
    uri = image_uri(Image.new("RGBA", size, "red"), 384)
    assert uri.startswith("data:image/webp;")
    assert decoded(uri).size == becomes
    assert np.abs(np.asarray(decoded(uri))[5, 5].astype(int) - [255, 0, 0]).max() < 12


def test_a_missing_image_says_why(tmp_path, monkeypatch):
    monkeypatch.delenv("LOOKBACK_DATA", raising=False)
    run = make_run(tmp_path / "run", benchmark="chair", items=2, n=2)
    data = browser_data([run], 2)
    assert data["images"] == []
    for item in data["runs"][0]["items"]:
        assert item["image"] is None
        assert "LOOKBACK_DATA" in item["reason"]


def test_the_image_of_another_item_is_not_shown(runs, tmp_path):
    other = make_run(tmp_path / "other", items=2, n=2)
    rows = other.items.to_pylist()
    rows[1]["id"] = "scenes-caption/test/2"  # as if the benchmark's files had changed since
    write_shard(other.path, "items", 0, rows)
    first, second = browser_data([Run(other.path)], 2)["runs"][0]["items"]
    assert (first["image"], first["reason"]) == (0, "")
    assert second["image"] is None
    assert "scenes-caption/test/1" in second["reason"]


def test_facts_in_words():
    truth = {"answer": "yes", "all": ["a", 2], "things": [{"color": "réd"}], "none": None}
    assert facts(truth) == [
        ["answer", "yes"],
        ["all", "a, 2"],
        ["things", '[{"color": "réd"}]'],
        ["none", "null"],
    ]


def test_quality_that_is_not_known_is_null(runs, monkeypatch):
    monkeypatch.setitem(runs[1].__dict__, "head", unknown_quality(runs[1].head))
    shown = browser_data([runs[1]], 1)["runs"][0]["items"][0]["candidates"]
    assert [quality for _, quality, _ in shown] == [None, None, shown[2][1]]
    assert shown[2][1] is not None


def unknown_quality(head):
    import pyarrow as pa

    quality = head["quality"].to_pylist()
    quality[:2] = [None, float("nan")]
    place = head.column_names.index("quality")
    return head.set_column(place, "quality", pa.array(quality, pa.float64()))


def test_the_page_is_whole_and_forbids_the_network(runs):
    text = report(runs, {"main": get_study("main")(runs)}, items=2)
    page = Page(text)
    policy = next(a["content"] for _, a in page.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none';")
    for kind, tag in (("script", "script"), ("style", "style")):
        digest = hashlib.sha256(page.text(tag).encode()).digest()
        assert f"{kind}-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "action", "poster"):
            target = attributes.get(name)
            assert target is None or target.startswith(("data:", "#")), (tag, target)
        assert not any(name.startswith("on") or name == "style" for name in attributes)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert "url(" not in page.text("style")
    assert "@import" not in page.text("style")


def test_runs_are_described(runs):
    manifest = runs[0].manifest
    changes = {"commit": "0123456789abcdef+", "versions": {"torch": "2.9.1"}}
    runs[0].manifest = replace(manifest, **changes)
    text = sections(report(runs, {}, items=1))["runs"]
    rows = re.findall(r"<tr>(.*?)</tr>", text.partition("<tbody>")[2].partition("</tbody>")[0])
    cells = [[html.unescape(c) for c in re.findall(r"<t[hd][^>]*>(.*?)</t", row)] for row in rows]
    assert cells == [
        [
            "made-up",
            "Scenes Caption",
            "test",
            "12",
            "7",
            "42",
            "own",
            "2",
            "0.5",
            "1.25",
            "01234567+",
        ],
        ["made-up", "Scenes VQA", "test", "5", "3", "7", "own", "0", "0.5", "1.25", "-"],
        ["made-up", "Scenes Caption", "test", "12", "7", "-", "random", "2", "0.5", "1.25", "-"],
    ]
    assert "torch 2.9.1" in text
    with pytest.raises(StudyError, match="no runs"):
        report([], {})


def test_an_unfinished_run_says_how_far_it_is(tmp_path):
    run = make_run(tmp_path / "run", items=4, n=2)
    run = change_manifest(run.path, status="running", done=3)
    assert '>3 <span class="tail">of 4</span><' in report([run], {}, items=1)


def test_a_section_a_study(runs):
    notes = ["First `code` & note.", "Second."]
    text = report(runs, {"main": result(notes=notes), "seeds": "give `--seed` <again>"}, items=1)
    found = sections(text)
    assert list(found) == ["runs", "study-main", "study-seeds", "items"]
    assert "tab:main_results" in found["study-main"]
    assert html.escape(get_study("main").about) in found["study-main"]
    assert "First <code>code</code> &amp; note." in found["study-main"]
    assert "give <code>--seed</code> &lt;again&gt;" in found["study-seeds"]
    assert "<table" not in found["study-seeds"]
    assert re.findall(r'href="(#[^"]*)"', text.partition("<main>")[0])[1:] == [
        "#runs",
        "#study-main",
        "#study-seeds",
        "#items",
    ]


def test_downloads_are_the_study_files(runs):
    rows = [{"a": 'x,"y"', "b": 0.1}, {"a": "é", "b": float("nan")}]
    given = result(rows=rows, files={"more.bin": b"\0\xff", "big.txt": "x" * 500_001})
    text = report(runs, {"main": given}, items=1)
    files = links(text)
    assert list(files) == ["main.csv", "main.tex", "main-more.bin"]
    assert files["main.csv"].decode() == 'a,b\n"x,""y""",0.1\né,nan\n'
    assert files["main.tex"].decode() == given.tables[0].latex()
    assert files["main-more.bin"] == b"\0\xff"
    assert "main-big.txt (500 kB, beside this page)" in text


def test_figures_are_images_by_size(runs):
    few, axes = panels(1, 1, width=3)
    axes[0, 0].plot([1, 2])
    many, axes = panels(1, 1)
    axes[0, 0].plot(*np.random.default_rng(0).random((2, 20_000)), ".")
    text = report(runs, {"main": result(figure=few), "seeds": result(figure=many)}, items=1)
    kinds = re.findall(r'<img alt="[^"]+" width="(\d+)" height="\d+" src="data:([^;]+);', text)
    assert kinds == [("324", "image/svg+xml"), (kinds[1][0], "image/png")]
    assert "<svg" not in text


def test_a_figure_is_described_and_as_wide_as_it_was_made_for(runs):
    figures = {}
    for name, width in (("main", 3.3), ("seeds", 6.9)):
        figure, axes = panels(1, 1, width=width)
        axes[0, 0].plot([1, 2], label="LookBack <b>")
        axes[0, 0].set(title="Scenes VQA\nmodel", xlabel="N", ylabel="per cent")
        axes[0, 0].legend()
        figures[name] = result(figure=figure)
    text = report(runs, figures, items=1)
    assert re.findall(r'<figure class="(\w+)">', text) == ["narrow", "wide"]
    assert text.count("swipe sideways") == 1  # of the wide one alone
    alts = re.findall(r'<img alt="([^"]+)" width="\d+"', text)
    shown = "Panels: Scenes VQA, model: per cent against N. Named in it: LookBack &lt;b&gt;."
    assert all(alt.endswith(shown) for alt in alts)
    assert links(text)["main.pdf"].startswith(b"%PDF")


def table_html(table):
    return render("report/table.html", table=table_view(table))


def test_a_table_knows_its_numbers():
    table = Table(
        [("", "Method"), ("VQA", "N=5"), ("VQA", "gain"), ("Average", ""), ("", "when")],
        [
            ["A", Cell("1,234.50 [1.0, 2.0]", "best"), "−0.5", "1e-05", "2026-01-02"],
            ["B", "-", "+3 %", "7", "2025-01-02"],
        ],
        "Caption.",
        rules=[0, 1],
    )
    page = Page(table_html(table))
    heads = [a for tag, a in page.elements if tag == "th" and a.get("scope") == "col"]
    assert [a.get("class") for a in heads] == [None, "num tailed", "num tailed", "num", None]
    assert [a["aria-sort"] for a in heads] == ["none"] * 5
    names = [a["aria-label"] for tag, a in page.elements if tag == "button"]
    assert names == ["Method", "VQA N=5", "VQA gain", "Average", "when"]
    groups = [a for _, a in page.elements if a.get("scope") == "colgroup"]
    assert [a["colspan"] for a in groups] == ["2"]  # "Average" has no names below it
    body = page.elements[page.elements.index(("tbody", {})) :]
    values = [a.get("data-value") for tag, a in body if tag in ("th", "td")]
    assert values == [None, "1234.50", "-0.5", "1e-05", None, None, "", "3", "7", None]
    assert [a.get("class") for tag, a in body if tag == "tr"] == [None, "rule"]
    text = table_html(table)
    assert '<span class="best">1,234.50</span> <span class="tail">[1.0, 2.0]</span>' in text


def test_a_table_without_rows_or_groups():
    text = table_html(Table([("", "a"), ("", "b")], [], ""))
    assert Page(text)
    assert "colgroup" not in text


NASTY = "</script><script>window.bad = 1</script> & \"'<b> \u2028 \u202e \x00 \U0001f600 \ud800"


def test_no_text_breaks_the_page(tmp_path):
    make_run(tmp_path / "run", items=1, n=2)
    settings = Run(tmp_path / "run").settings
    change_manifest(tmp_path / "run", settings=settings | {"model": NASTY})
    table = Table([(NASTY, NASTY), ("", "b")], [[NASTY, Cell(NASTY, "best")]], NASTY)
    given = {
        "main": Result([{NASTY: NASTY}], [table], None, [NASTY], {NASTY: NASTY}),
        "seeds": NASTY,
    }
    text = report([Run(tmp_path / "run")], given)
    assert text.encode("utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert [tag for tag, _ in page.elements].count("b") == 0
    assert page.data()["runs"][0]["label"].startswith(NASTY)
    assert "window.bad" not in page.text("script")


def test_escaped_keeps_what_can_be_kept():
    assert str(escape(clean("a<\U0001f600>\ud83d"))) == "a&lt;\U0001f600&gt;\ufffd"


def test_the_page_of_four_runs_is_small(tmp_path):
    runs = [
        make_run(tmp_path / str(i), items=40, n=25, length=10, seed=i, benchmark=benchmark)
        for i, benchmark in enumerate(
            ("scenes-vqa", "scenes-caption", "scenes-pairs", "scenes-amber")
        )
    ]
    assert len(report(runs, {}).encode()) < 8_000_000
