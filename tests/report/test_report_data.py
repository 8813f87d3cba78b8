"""The page without a browser: what it carries, and that nothing in it can break or leave it."""

import base64
import hashlib
import html
import io
import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_runs import change_manifest, make_run, write_shard
from markupsafe import escape
from matplotlib.colors import to_hex, to_rgb
from page_blocks import items_of, unpack
from PIL import Image
from strict_html import Page

from lookback.benchmarks import get_benchmark
from lookback.io.json_values import facts
from lookback.pages import clean, image_uri, render
from lookback.report import report
from lookback.report.browser import BUDGET, browser_data
from lookback.report.figures import CARD, dark, with_dark_scheme
from lookback.report.tables import table_view
from lookback.runs import Run
from lookback.runs.layout import shard_path
from lookback.scores.base import get_scorer, scorers
from lookback.scores.formula import A_FLOOR
from lookback.signals import SIGNALS
from lookback.studies import Cell, Result, StudyError, Table, get_study
from lookback.studies.common.plots import GRID, INK, PALE, contrast, figure_bytes, panels, readable
from lookback.studies.common.selection import outcome, picks


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
    page = Page(report(runs, {}, items=6))
    for run, shown in zip(runs, page.data()["runs"], strict=False):
        rows = min(6, len(run.places))
        assert shown["total"] == len(run.places)
        items, numbers = unpack(page.text("script", f"block-{shown['first']}"))
        assert len(items) == len(shown["items"]) == rows
        for name in SIGNALS:
            got = iter(numbers[name])
            for row in range(rows):
                candidates = run.candidates(row)
                said = items[row]["candidates"]
                assert [tuple(tokens) for tokens, _, _ in said] == [c.tokens for c in candidates]
                for c in candidates:
                    assert [next(got) for _ in c.tokens] == getattr(c, name).tolist()
            assert next(got, None) is None


def test_items_are_those_with_candidates_in_order(runs):
    items = items_of(browser_data(runs, 100), 0)
    quality = runs[0].quality()
    assert [i["id"] for i in items] == [
        f"scenes-caption/test/{place}" for place in (0, 2, 3, 5, 6, 7, 8, 9, 10, 11)
    ]
    for row, item in enumerate(items):
        assert [q for _, q, _ in item["candidates"]] == quality[row].tolist()
        assert item["question"] == runs[0].questions[row]
        assert item["truth"] == [["categories", "dog"]]
    assert items[0]["candidates"][2][0] == []  # the empty response is there


def test_controls_are_not_browsed(runs):
    data = browser_data(runs, 3).index
    assert [run["label"] for run in data["runs"]] == [
        "made-up · Scenes Caption · seed 42",
        "made-up · Scenes VQA · seed 7",
    ]
    assert browser_data(runs[2:], 3).index["runs"] == []
    assert browser_data(runs, 0).index["runs"] == []


def test_a_run_of_failures_alone_is_passed_over(tmp_path):
    run = make_run(tmp_path / "run", items=2, n=2, failed=(0, 1))
    assert browser_data([run], 5).index["runs"] == []


def test_runs_that_look_alike_are_told_apart_by_their_folder(tmp_path):
    alike = [make_run(tmp_path / name, items=1, n=2) for name in ("one", "two")]
    labels = [run["label"] for run in browser_data(alike, 1).index["runs"]]
    assert labels == [f"made-up · Scenes Caption · seed 42 · {name}" for name in ("one", "two")]


def test_constants_are_the_package_own(runs):
    data = browser_data(runs, 1).index
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
    assert len(data.images) == 3 + 3 + 1  # item 1 failed in the first run, not in the last
    for run, places in ((0, (0, 2, 3)), (2, (0, 1, 2))):
        for item, place in zip(items_of(data, run), places, strict=True):
            got = decoded(data.images[item["image"]])
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
    assert data.images == []
    for item in items_of(data, 0):
        assert item["image"] is None
        assert "LOOKBACK_DATA" in item["reason"]


def test_the_image_of_another_item_is_not_shown(runs, tmp_path):
    other = make_run(tmp_path / "other", items=2, n=2)
    rows = other.items.to_pylist()
    rows[1]["id"] = "scenes-caption/test/2"  # as if the benchmark's files had changed since
    write_shard(other.path, "items", 0, rows)
    first, second = items_of(browser_data([Run(other.path)], 2), 0)
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
    shown = items_of(browser_data([runs[1]], 1), 0)[0]["candidates"]
    assert [quality for _, quality, _ in shown] == [None, None, shown[2][1]]
    assert shown[2][1] is not None


def unknown_quality(head, count=2):
    import pyarrow as pa

    quality = head["quality"].to_pylist()
    quality[:count] = [None, float("nan"), None][:count]
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
    assert list(found) == ["differences", "items", "study-main", "study-seeds", "runs"]
    assert "tab:main_results" in found["study-main"]
    assert html.escape(get_study("main").about) in found["study-main"]
    assert "First <code>code</code> &amp; note." in found["study-main"]
    assert "give <code>--seed</code> &lt;again&gt;" in found["study-seeds"]
    assert "<table" not in found["study-seeds"]
    assert re.findall(r'href="(#[^"]*)"', text.partition("<main>")[0])[1:] == [
        "#differences",
        "#items",
        "#study-main",
        "#study-seeds",
        "#runs",
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
    assert kinds == [("745", "image/svg+xml"), ("745", "image/png")]
    assert re.findall(r'srcset="data:([^;]+);', text) == ["image/svg+xml", "image/png"]
    assert "<svg" not in text
    assert few.get_figwidth() == 3  # as it was, for the files


def test_colours_of_a_figure_have_a_dark_scheme_and_those_of_a_heat_map_do_not():
    figure, axes = panels(1, 2)
    axes[0, 0].bar([1], [1], color="#2563eb", hatch="//", edgecolor="#94a3b8")
    axes[0, 1].pcolormesh([[0.0, 1.0], [2.0, 3.0]], cmap="viridis")
    plain = figure_bytes(figure, "svg").decode()
    themed = with_dark_scheme(plain)
    mesh = re.search(r'<g id="QuadMesh_1">.*?</g>', plain, re.DOTALL)[0]
    assert "#440154" in mesh
    assert mesh in themed
    head, _, rest = themed.partition("</style>")
    assert set(re.findall("#[0-9a-f]{6}", rest)) == set(re.findall("#[0-9a-f]{6}", mesh))
    light, dark_ones = (
        dict(re.findall(r"--c([0-9a-f]{6}):(#[0-9a-f]{6})", part))
        for part in head.partition("@media")[::2]
    )
    assert light == {name: f"#{name}" for name in dark_ones}
    assert dark_ones["ffffff"] == to_hex(CARD)
    assert {"2563eb", "94a3b8", INK[1:]} <= set(light)


def test_dark_colours_can_be_read_and_tints_stay_tints():
    for scorer in scorers().values():
        for color in (scorer.color, readable(scorer.color)):
            least = min(4.4, contrast(to_rgb(color)))  # a grey need not be more than it was
            assert contrast(to_rgb(dark(color)), CARD) >= 0.98 * least, color
    assert contrast(to_rgb(dark(INK)), CARD) > 12
    for tint in ("#face85", "#c7d7fa", GRID, PALE):  # text of the page's ink is on them
        assert contrast(to_rgb(dark(tint)), CARD) == pytest.approx(contrast(to_rgb(tint)), rel=0.1)


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
    kinds = [a.get("type") for tag, a in page.elements if tag == "script"]
    carried = ["application/octet-stream", "text/uri-list"]  # one block, one picture
    assert kinds == ["application/json", *carried, None]
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


def test_a_page_of_many_long_candidates_has_few_bytes_for_each(tmp_path):
    """Without blocks a page of 1,000 x 25 had 1,154 per candidate, pictures not counted."""
    run = make_run(tmp_path / "run", items=40, n=25, length=40)
    data = browser_data([run])
    text = report([run], {}, items=40)
    rest = len(text) - sum(map(len, data.blocks)) - sum(map(len, data.images))
    assert len(data.blocks) == 2
    assert sum(map(len, data.blocks)) < 850 * 40 * 25
    assert rest < 105_000  # the index, the script, the style, a table of differences
    assert len(report([run], {}, items=0)) < rest < 1.2 * len(report([run], {}, items=0))


def test_all_items_as_far_as_the_budget_goes(tmp_path, monkeypatch):
    runs = [make_run(tmp_path / str(i), items=70, n=3, seed=i) for i in range(2)]
    assert [len(run["items"]) for run in browser_data(runs).index["runs"]] == [70, 70]
    data = browser_data(runs, 45)
    assert [len(run["items"]) for run in data.index["runs"]] == [45, 45]
    assert [run["first"] for run in data.index["runs"]] == [0, 3]
    one = browser_data(runs[:1], 20)
    block = len(one.blocks[0]) + sum(map(len, one.images))
    monkeypatch.setattr("lookback.report.browser.BUDGET", 2 * round(1.5 * block))
    # Two blocks pass the first one's half. Their pictures are there for the second, which has room.
    assert [len(run["items"]) for run in browser_data(runs).index["runs"]] == [40, 70]
    assert [run["total"] for run in browser_data(runs).index["runs"]] == [70, 70]
    assert BUDGET > 10_000_000


def test_the_index_says_what_methods_pick_as_the_studies_do(runs):
    data = browser_data(runs, 5).index
    for run, shown in zip(runs, data["runs"], strict=False):
        texts = [[c.text for c in run.candidates(row)] for row in range(5)]
        for method in ("lookback", "self_certainty", "mean_log_prob", "visual_lookback"):
            picked = picks(run.scores(method))[:5].tolist()
            got = [item[2][method] for item in shown["items"]]
            assert [place for place, _, _ in got] == picked
            worth = run.quality()[range(5), picked].tolist()
            assert [quality for _, quality, _ in got] == worth
            said = [t.index(t[p]) for t, p in zip(texts, picked, strict=True)]
            assert [text for _, _, text in got] == said
        for (alpha, lam, n, means), of in zip(shown["means"], runs, strict=False):
            assert (alpha, lam, n) == (of.defaults["alpha"], of.defaults["lam"], of.n)
            for method, mean in means.items():
                params = {"alpha": alpha, "lam": lam} if method == "lookback" else {}
                values = outcome(run, method, min(n, run.n), **params)[:5]
                assert mean == pytest.approx(values.mean(), rel=1e-12)
            assert len(means) == 6


def test_quality_that_is_not_known_has_no_mean(runs, monkeypatch):
    monkeypatch.setitem(runs[1].__dict__, "head", unknown_quality(runs[1].head, 3))
    (_, _, _, means), *_ = browser_data([runs[1]], 2).index["runs"][0]["means"]
    assert set(means.values()) == {None}


def test_a_control_has_the_same_tokens_and_its_own_numbers(tmp_path):
    own = make_run(tmp_path / "own", items=5, n=7, failed=(1, 4), empty=((0, 2),))
    same = {"items": 5, "n": 7, "controls": own, "empty": ((0, 2),)}
    other = make_run(tmp_path / "random", image="random", failed=(1, 4), **same)
    blind = make_run(tmp_path / "none", image="none", failed=(0, 1, 4), **same)
    alone = make_run(tmp_path / "alone", benchmark="scenes-vqa", items=2, n=2)
    data = browser_data([own, alone, other, blind], 3)
    assert data.index["runs"][0]["controls"] == {"random": "another image", "none": "no image"}
    assert data.index["runs"][1]["controls"] == {}
    _, numbers = unpack(data.blocks[0])
    for control, rows in ((other, (0, 1, 2)), (blind, (1, 2))):
        for name in ("log_prob", "visual_lookback"):
            wanted = []
            for row in rows:
                place = int(own.places[row])
                wanted += [v for c in control.candidates_at(place) for v in getattr(c, name)]
            assert list(numbers[f"{control.image}.{name}"]) == wanted
    assert len(numbers) == 8
    first, second, _ = items_of(data, 0)
    assert first["controls"]["none"]["scored"] == [False] * 7
    assert first["controls"]["none"]["missing"] == "ValueError: broken image"
    assert second["controls"]["none"]["scored"] == [True] * 7
    shown = data.images[second["controls"]["random"]["image"]]
    assert second["controls"]["random"]["source"] == "scenes-caption/test/2"
    wanted = get_benchmark("scenes-caption").items("test")[2].image
    assert np.array_equal(np.asarray(decoded(shown)), np.asarray(wanted))


def test_a_control_with_other_tokens_is_not_compared(runs, tmp_path):
    own = make_run(tmp_path / "own", items=2, n=2)
    other = make_run(tmp_path / "random", items=2, n=2, image="random", controls=own)
    rows = pq.read_table(shard_path(other.path, "candidates", 0)).to_pylist()
    rows[1]["token_ids"][0] += 1
    write_shard(other.path, "candidates", 0, rows[:3])  # the last is lost
    first, second = items_of(browser_data([own, Run(other.path)]), 0)
    assert first["controls"]["random"]["scored"] == [True, False]
    assert "other tokens" in first["controls"]["random"]["missing"]
    assert second["controls"]["random"]["scored"] == [True, False]


def test_links_tell_runs_apart(tmp_path):
    folders = ("a/run", "b/run", "b/run~2")
    runs = [make_run(tmp_path / name, items=1, n=2) for name in folders]
    keys = [run["key"] for run in browser_data(runs).index["runs"]]
    assert keys == ["run", "run~2", "run~2~2"]
