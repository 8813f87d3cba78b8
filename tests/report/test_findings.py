"""The sentences of a report: wins, ties and losses, and what is missing."""

import json
import re
from html import unescape

import numpy as np
import pytest
from made_runs import make_run

import lookback
from lookback.report import report
from lookback.report.findings import find
from lookback.report.wording import FEWEST, Difference, compare
from lookback.scores.base import SCORERS
from lookback.studies import STUDIES, Result, Runs, get_study

NAN = float("nan")


def main_rows(values, behind=(1.0, 3.0), lead=(1.0, 3.0), model="m", items=40, benchmarks=("B",)):
    """Rows as of the main study: {method: value}, with intervals as wide around each number.

    Args:
        behind: how far the ends of `behind` are below and above it.
        lead: the same of `lead`.
    """
    leader = max(values, key=lambda method: values[method])
    ours, rows = values.get("lookback", NAN), []
    for method, value in values.items():
        labels = {"model": model, "method": method, "value": value, "low": NAN, "high": NAN}
        empty = dict.fromkeys(("lead", "lead_low", "lead_high", "behind", "behind_low"), NAN)
        for name in benchmarks:
            row = labels | empty | {"behind_high": NAN, "leader": ""}
            rows.append(row | {"benchmark": name, "N": 8, "items": items})
        numbers = {"lead": ours - value, "behind": values[leader] - value}
        for name, (below, above) in (("lead", lead), ("behind", behind)):
            numbers |= {f"{name}_low": numbers[name] - below, f"{name}_high": numbers[name] + above}
        rows += [
            labels | numbers | {"benchmark": "Average", "N": n, "items": 0, "leader": leader}
            for n in (8, 0)
        ]
    return rows


def texts(**results):
    given = {name.replace("_", "-"): Result(rows) for name, rows in results.items()}
    return [finding.text for finding in find(given)]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.5, 2.5), "leads X by 1.50 points [0.50, 2.50]"),
        ((-0.5, 3.5), "cannot be told apart from X (1.50 points [-0.50, 3.50])"),
        ((0.0, 3.0), "cannot be told apart from X (1.50 points [0.00, 3.00])"),
        ((0.004, 3.0), "cannot be told apart from X (1.50 points [0.00, 3.00])"),  # as printed
        ((NAN, NAN), "is 1.50 points above X (no interval)"),
    ],
)
def test_a_difference_says_what_its_interval_allows(ends, expected):
    assert compare(Difference(1.5, *ends, items=40), "X") == expected
    low, high = ends
    other = compare(Difference(-1.5, -high, -low, items=40), "X")
    if expected.startswith("leads"):
        assert other == "loses to X by 1.50 points [0.50, 2.50]"
    elif "no interval" in expected:
        assert other == "is 1.50 points below X (no interval)"
    else:
        assert other.startswith("cannot be told apart from X (-1.50 points [")


@pytest.mark.parametrize("items", [1, 2, FEWEST - 1, FEWEST])
def test_few_items_have_no_interval(items):
    """All of one item's bootstrap samples are the same: their interval has no width."""
    text = compare(Difference(100.0, 100.0, 100.0, items), "X")
    if items < FEWEST:
        count = "1 item" if items == 1 else f"{items} items"
        assert text == f"is 100.00 points above X ({count}: too few for an interval)"
    else:
        assert text == "leads X by 100.00 points [100.00, 100.00]"


def test_a_clear_leader_is_the_best():
    values = {"lookback": 70.0, "mean_log_prob": 66.0, "self_certainty": 60.0, "random": 50.0}
    first, second = texts(main=main_rows(values))
    assert first == (
        "LookBack has the best outcome of 4 methods, 70.00 per cent on B at N = 8. It leads "
        "mean log p, which comes next, by 4.00 points [3.00, 7.00]. Each interval is of two "
        "methods, and not corrected for the choice among 4."
    )
    assert second == (
        "LookBack leads self-certainty by 10.00 points [9.00, 13.00] and leads random selection by "
        "20.00 points [19.00, 23.00]."
    )


def test_a_leader_that_is_not_clear_is_the_highest():
    values = {"lookback": 70.0, "self_certainty": 69.5, "random": 50.0}
    first, second = texts(main=main_rows(values, benchmarks=("B", "C")))
    assert first.startswith("LookBack has the highest outcome of 3 methods, 70.00 per cent over 2 ")
    tie = (
        "It cannot be told apart from self-certainty, which comes next (0.50 points [-0.50, 3.50])"
    )
    assert tie in first
    assert "best" not in first
    assert second == "LookBack leads random selection by 20.00 points [19.00, 23.00]."


@pytest.mark.parametrize("leader", ["mean_log_prob", "self_certainty", "cautious"])
def test_another_that_leads_is_named(leader, own_scorer):
    values = {"random": 50.0, "lookback": 60.0, leader: 75.0, "entropy": 74.9}
    names = {"mean_log_prob": "mean log p", "self_certainty": "self-certainty"}
    name = names.get(leader, "Cautious pick")
    first, second = texts(main=main_rows(values))
    assert first.startswith(f"{name[0].upper()}{name[1:]} has the highest outcome of 4 methods")
    assert second == (
        f"LookBack loses to {name} by 15.00 points [12.00, 16.00] and leads random selection by "
        "10.00 points [9.00, 13.00]."
    )


def test_the_lead_over_log_p_and_greedy_decoding_is_always_told():
    values = {"consensus": 80.0, "lookback": 70.0, "mean_log_prob": 69.0, "greedy": 68.0}
    _, second = texts(main=main_rows(values))
    assert "mean log p (1.00 points" in second
    assert "greedy decoding by 2.00 points" in second


@pytest.fixture
def own_scorer(monkeypatch):
    monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))

    @lookback.scorer("cautious", title="Cautious pick")
    def cautious(batch):
        return -batch.mean(batch.entropy)


def test_who_knows_the_truth_is_no_rival():
    rows = main_rows({"lookback": 70.0, "random": 50.0, "oracle": 99.0})
    for row in rows:
        row["leader"] = row["leader"] and "lookback"
        if row["method"] == "random":
            row |= {"behind": 20.0, "behind_low": 19.0, "behind_high": 21.0}
    (text,) = texts(main=rows)
    assert text == (
        "LookBack has the best outcome of 2 methods, 70.00 per cent on B at N = 8. It leads "
        "random selection, which comes next, by 20.00 points [19.00, 21.00]."
    )


def test_one_item_claims_nothing():
    first, second = texts(
        main=main_rows({"lookback": 100.0, "entropy": 50.0, "random": 0.0}, items=1)
    )
    assert "highest" in first
    for text in (first, second):
        assert not re.search(r"best|leads|loses|told apart|\[", text)
    assert "is 50.00 points above Entropy, which comes next (1 item: too few" in first


def test_what_is_not_a_number_is_left_out():
    assert texts(main=main_rows({"lookback": NAN, "random": NAN})) == []
    assert texts(main=main_rows({"lookback": 60.0})) == []  # nothing to compare
    (text,) = texts(main=main_rows({"random": 50.0, "entropy": 60.0, "lookback": NAN}))
    assert text.startswith("Entropy has the best outcome of 2 methods")


def replaced(drop, low, high, benchmark="B", method="lookback", items=40):
    row = {"model": "m", "benchmark": benchmark, "method": method, "items": items, "N": 8}
    row |= {"drop": drop, "low": low, "high": high}
    return row | {"original": 70.0, "replaced": 70.0 - drop, "random": 58.5}


def test_a_random_image():
    rows = [
        replaced(9.0, 4.0, 12.0),
        replaced(1.0, -1.0, 2.0, "C"),
        replaced(-3.0, -5.0, -1.0, "D"),
    ]
    rows += [replaced(5.0, 5.0, 5.0, "E", items=2), replaced(NAN, NAN, NAN, "F")]
    (text,) = texts(random_image=rows)
    assert text == (
        "Scored with a random image at N = 8, LookBack loses 9.00 points [4.00, 12.00] on B (it "
        "was 11.50 above random selection), cannot be told apart from what it was (-1.00 points "
        "[-2.00, 1.00]) on C, gains 3.00 points [1.00, 5.00] on D and is 5.00 points below what it "
        "was (2 items: too few for an interval) on E."
    )
    (*_, text) = texts(
        main=main_rows({"mean_log_prob": 70.0, "lookback": 60.0}),
        random_image=[replaced(9, 4, 12), replaced(2, 1, 3, method="mean_log_prob")],
    )
    assert "; mean log p loses 2.00 points [1.00, 3.00] on B" in text


def agreement(first, share, low, high, items=40, chance=0.125, benchmark="B"):
    row = {"model": "m", "benchmark": benchmark, "first": first, "second": "without image", "N": 8}
    return row | {"agreement": share, "low": low, "high": high, "items": items, "chance": chance}


def test_no_image():
    rows = [agreement("lookback", 0.3, 0.2, 0.5), agreement("self_certainty", 0.9, 0.8, 1.0)]
    (text,) = texts(image_sensitivity=rows)
    assert text == (
        "Without an image LookBack's pick at N = 8 changes for this share of the items: 70 % "
        "[50, 80] on B; self-certainty's for 10 % [0, 20] on B; a pick by lot would for 88 %."
    )
    rows = [agreement("lookback", 0.0, 0.0, 0.0, items=1), agreement("lookback", NAN, NAN, NAN)]
    (text,) = texts(image_sensitivity=rows)
    assert "100 % on B; a pick by lot would for 88 %." in text
    assert texts(image_sensitivity=rows[1:]) == []


def swapped(log_p, a, more, items=40):
    """Rows of the decomposition: (value, low, high) of the losses and of their difference."""
    rows = []
    for what, drop, over in (("log p", log_p, more), ("A", a, (0.0, 0.0, 0.0))):
        row = {"model": "m", "benchmark": "B", "N": 25, "items": items, "measure": "outcome"}
        row["what"] = what
        row |= dict(zip(("drop", "drop_low", "drop_high"), drop, strict=True))
        rows.append(row | dict(zip(("over_a", "over_a_low", "over_a_high"), over, strict=True)))
    return rows


WIN, TIE, LOSS = (5.0, 2.0, 8.0), (0.5, -1.0, 2.0), (-5.0, -8.0, -2.0)


@pytest.mark.parametrize(
    ("log_p", "a", "more", "expected"),
    [
        (WIN, TIE, WIN, "log p carries more than A"),
        (TIE, WIN, LOSS, "A carries more than log p"),
        (WIN, WIN, TIE, "log p and A cannot be told apart"),
        (TIE, TIE, TIE, "neither loss can be told from none"),
        (TIE, LOSS, WIN, "neither loss can be told from none"),  # A alone harms: nothing carries
    ],
)
def test_the_factor_that_carries_it(log_p, a, more, expected):
    (text,) = texts(decomposition=swapped(log_p, a, more))
    start = (
        f"Of LookBack's two factors, at N = 25, {expected} on B (a random image for log p costs "
    )
    assert text.startswith(start)
    assert f"{start}{Difference(*log_p, items=40)}, for A {Difference(*a, items=40)})" in text
    (few,) = texts(decomposition=swapped(log_p, a, more, items=3))
    assert "neither can be judged (3 items: too few for an interval) on B" in few


def test_many_benchmarks_are_told_by_their_ends():
    rows = [replaced(d, d - 1, d + 1, name) for d, name in ((9, "B"), (4, "C"), (6, "D"))]
    (text,) = texts(random_image=[*rows, replaced(0.5, -1.0, 2.0, "E")])
    assert text == (
        "Scored with a random image at N = 8, LookBack loses from 4.00 points [3.00, 5.00] on C to "
        "9.00 points [8.00, 10.00] on B on 3 of 4 benchmarks and cannot be told apart from what "
        "it was (-0.50 points [-2.00, 1.00]) on E."
    )
    shares = ((0.3, "B"), (0.5, "C"), (0.2, "D"))
    rows = [agreement("lookback", s, s - 0.1, s + 0.1, benchmark=name) for s, name in shares]
    (text,) = texts(image_sensitivity=rows)
    assert "items: from 50 % [40, 60] on C to 80 % [70, 90] on D; a pick" in text
    rows = [row | {"benchmark": name} for name in "BCD" for row in swapped(WIN, TIE, WIN)]
    rows += [row | {"benchmark": "E"} for row in swapped(TIE, WIN, LOSS)]
    (text,) = texts(decomposition=rows)
    assert text == (
        "Of LookBack's two factors, at N = 25, log p carries more than A on B, C and D (a random "
        "image for log p costs 5.00 to 5.00 points, for A 0.50 to 0.50); A carries more than log "
        "p on E (a random image for log p costs 0.50 points [-1.00, 2.00], for A 5.00 "
        "points [2.00, 8.00])."
    )


def test_how_long_it_took():
    row = {"model": "m", "benchmark": "B", "scorer": "lookback", "source": "measured now"}
    rows = [row | {"ms": 0.0123}, row | {"ms": 0.0144, "benchmark": "C"}]
    start = "Scoring a response with LookBack took 0.012 to 0.014 ms after generation"
    assert texts(overhead=rows) == [f"{start}."]
    rows.append(row | {"scorer": "judge@5", "source": "recorded", "ms": 66.5})
    rows.append(row | {"scorer": "vauq", "source": "recorded", "ms": 11.0})
    told = "; with Judge at N = 5, the dearest that was recorded, 66 ms."
    assert texts(overhead=rows) == [start + told]
    assert texts(overhead=[row | {"ms": NAN}]) == []


def pair_rows(gains, benchmark="B", n=8, items=40, width=1.0):
    """Rows as of the study combine: {(first, second): what a mix adds}."""
    return [
        {"model": "m", "benchmark": benchmark, "N": n, "first": a, "second": b, "items": items}
        | {"mix_gain": gain, "mix_gain_low": gain - width, "mix_gain_high": gain + width}
        for (a, b), gain in gains.items()
    ]


def test_pairs_that_add_and_pairs_that_do_not():
    gains = {("lookback", "consensus"): 0.5, ("lookback", "self_certainty"): -2.0}
    start = "Of 2 pairs of scorers, each mixed as other items like it best, at N = 8"
    none = "none adds to the better of the two alone; highest is LookBack with consensus"
    assert texts(combine=pair_rows(gains)) == [f"{start} {none} (0.50 points [-0.50, 1.50])."]
    gains["lookback", "consensus"] = 1.5
    told = "1 adds to the better of the two alone, most LookBack with consensus"
    chance = "of so many, chance lets about 0.05 seem to"
    assert texts(combine=pair_rows(gains)) == [
        f"{start} {told} (1.50 points [0.50, 2.50]); {chance}."
    ]
    # The average speaks for all benchmarks, at the largest N.
    several = pair_rows(gains) + pair_rows(gains, "C")
    assert texts(combine=several) == []
    several += pair_rows(gains, "Average", items=0)
    assert texts(combine=several) == texts(combine=pair_rows(gains))
    larger = dict.fromkeys(gains, -1.0)
    (text,) = texts(combine=several + pair_rows(larger, "Average", n=25, items=0))
    assert "at N = 25 none adds" in text
    assert texts(combine=pair_rows(gains, items=FEWEST - 1)) == []
    assert texts(combine=pair_rows(dict([*gains.items()][:1]))) == []


def test_studies_that_could_not_be_done_have_no_sentence():
    assert find({"main": "no quality", "random-image": "no control"}) == []
    found = find({"main": "no quality", "random-image": Result([replaced(9.0, 4.0, 12.0)])})
    assert [finding.study for finding in found] == ["random-image"]


def test_several_models_are_named():
    rows = main_rows({"lookback": 70.0, "random": 50.0}, model="first")
    rows += main_rows({"lookback": 40.0, "random": 50.0}, model="second")
    found = texts(main=rows)
    assert [text.partition(": ")[0] for text in found] == ["first", "second"]
    assert "second: Random selection has the best outcome of 2 methods" in found[1]
    one = main_rows({"lookback": 70.0, "random": 50.0})
    (text,) = texts(main=one, mine=[{"model": "x"}, {"model": ["y"]}])  # a user's own study
    assert text.startswith("LookBack has the best")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of made-up signals and its controls, all that `find` reads, and the page."""
    folder = tmp_path_factory.mktemp("findings")
    own = make_run(folder / "own", items=30, n=8, recorded=("vauq",))
    runs = [own]
    for image in ("none", "random"):
        runs.append(make_run(folder / image, items=30, n=8, image=image, controls=own))
    names = ("main", "image-sensitivity", "random-image", "decomposition", "overhead", "seeds")
    results = {}
    for name in names:
        try:
            results[name] = get_study(name)(Runs(runs))
        except ValueError as error:
            results[name] = str(error)
    return runs, results, report(runs, results, items=1)


def test_the_page_opens_with_findings_that_link_to_their_sections(made):
    _, results, page = made
    found = find(results)
    assert 3 <= len(found) <= 6
    start = page.index('<ol class="findings">')
    shown = re.findall(r"<li>(.*?) <a href=\"#(.*?)\">", page[start : page.index("</ol>", start)])
    assert [unescape(re.sub("<.*?>", "", text)) for text, _ in shown] == [one.text for one in found]
    for _, target in shown:
        assert f'<section id="{target}"' in page
    assert "N = 8: of each item&#39;s candidates the first N." in page[start:]
    order = [page.index(f'id="{one}"') for one in ("findings", "items", "study-main", "runs")]
    assert order == sorted(order)
    assert page.index("<h1>") < start


def test_numbers_of_sentences_are_those_of_the_tables(made):
    """Read back from the text: the leader's lead is what the main study's own tables print."""
    _, results, _ = made
    text = find(results)[0].text
    values = {r["method"]: r for r in results["main"].rows if r["benchmark"] == "Scenes Caption"}
    rivals = {method: r["value"] for method, r in values.items() if method != "oracle"}
    rivals = {method: value for method, value in rivals.items() if np.isfinite(value)}
    first, second = sorted(rivals.values(), reverse=True)[:2]
    assert f" of {len(rivals)} methods, {first:.2f} " in text
    assert f"{first - second:.2f} points" in text


def test_all_studies_print_findings(made, command, tmp_path, monkeypatch):
    runs, results, _ = made
    few = {name: get_study(name) for name in ("main", "seeds")}
    monkeypatch.setattr(STUDIES, "all", lambda: few)
    folder = runs[0].path.parent
    expected = [one for one in find(results) if one.study == "main"]
    status, out, _ = command("study", "all", folder, "--out", tmp_path / "a", "--items", 1)
    assert status == 0
    page = str(tmp_path / "a" / "report.html")
    assert out.splitlines()[0] == page
    assert out.split() == [page, *" ".join(f"- {one.text}" for one in expected).split()]
    status, out, _ = command("study", "all", folder, "--out", tmp_path / "a", "--json")
    told = json.loads(out)
    assert told["findings"] == [one._asdict() for one in expected]
    assert told["report"] == str(tmp_path / "a" / "report.html")
    assert list(told["not_done"]) == ["seeds"]


def test_no_findings_say_so(made):
    runs, *_ = made
    page = report(runs, {"main": "no quality"}, items=1)
    assert "No findings: the studies below say what they lack." in page
