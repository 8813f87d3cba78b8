"""The explorer in a real browser, with the embedded model behind a real server."""

import base64
import io

import numpy as np
import pytest
from chromium import emulate, logs, needs_chromium
from PIL import Image
from server.exploring import (
    ask,
    click,
    exported,
    no_complaints,
    open_page,
    put,
    ranking,
    text,
    wait,
)
from server.serving import embedded

from lookback.looks.heat_map import mass
from lookback.scenes.render import render
from lookback.scenes.scene import sample_scene
from lookback.scenes.world import PLACES
from lookback.scores.base import best_first
from lookback.server.explorer import FIRST, SCORERS

pytestmark = needs_chromium

QUESTION = "Describe the picture."
NINTHS = [(x / 3, y / 3, (x + 1) / 3, (y + 1) / 3) for y in range(3) for x in range(3)]


@pytest.fixture(scope="module")
def drawn():
    """The answers that the page should show: the engine's own, by the page's settings."""
    picture = render(sample_scene(FIRST))
    drawing = {"n": 25, "seed": 42, "temperature": 1.2, "top_p": 0.9, "max_new_tokens": 256}
    return embedded().sample(picture, QUESTION, prune="half", **drawing)


@pytest.fixture
def opened(browser, client):
    open_page(browser, client)
    yield browser
    emulate(browser)
    no_complaints(browser)


@pytest.fixture
def asked(opened):
    ask(opened, QUESTION)
    return opened


def check_order(browser, scores):
    """The rows stand as scores say: alike ones together, those without a score at the end."""
    shown = ranking(browser)
    order = best_first(scores).tolist()
    assert [members[0] for members, _, _ in shown] == [
        i for i in order if any(i == members[0] for members, _, _ in shown)
    ]
    assert sorted(i for members, _, _ in shown for i in members) == sorted(order)
    for members, place, score in shown:
        assert order.index(members[0]) == place - 1
        if score is None:
            assert np.isnan(scores[members]).all()
        else:
            np.testing.assert_allclose(scores[members], score, rtol=1e-4, atol=1e-5)


def test_it_opens_on_a_scene_and_says_what_its_model_knows(opened):
    assert opened.execute_script("return $('picture').naturalWidth") == 80
    assert "knows drawings like this one, and nothing else" in text(opened, "#picture-note")
    assert text(opened, "#empty").startswith("Ask, and watch.")
    assert opened.execute_script("return $('question').value") == "Is there a sun in the picture?"
    names = {t.category for t in sample_scene(FIRST).things}
    things = opened.execute_script(
        "return [...document.querySelectorAll('.handle')].map((b) => b.ariaLabel)"
    )
    assert {label.split()[2].strip(",") for label in things} == names


def test_answers_are_the_engines_and_stand_as_python_ranks_them(asked, drawn):
    check_order(asked, drawn.scores("lookback"))
    saved = exported(asked)
    assert [c["token_ids"] for c in saved["candidates"]] == [c.token_ids.tolist() for c in drawn]
    assert [c["finish"] for c in saved["candidates"]] == [c.finish for c in drawn]
    for name in ("log_prob", "visual_lookback", "self_certainty", "entropy"):
        for one, true in zip(saved["candidates"], drawn, strict=True):
            np.testing.assert_allclose(one[name], getattr(true, name), rtol=1e-4, atol=1e-5)
    assert saved["scene"]["seed"] == FIRST
    assert saved["question"] == QUESTION
    pruned = sum(c.finish == "pruned" for c in drawn)
    assert pruned > 0
    assert f"25 answers, {pruned} pruned" in text(asked, "#state-text")
    assert text(asked, "#told") == f"25 answers, best: {drawn.best('lookback').text}"


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("lookback", {"alpha": 3.5, "lam": 0.0}),
        ("lookback", {"alpha": 0.0, "lam": 3.0}),
        ("mean_log_prob", {}),
        ("self_certainty", {}),
        ("entropy", {}),
        ("visual_lookback", {}),
        ("majority", {}),
    ],
)
def test_settings_rank_in_place(asked, drawn, name, setting):
    logs(asked)
    put(asked, scorer=name, **setting)
    check_order(asked, drawn.scores(name, **setting))
    _, requests = logs(asked)
    assert [url for url in requests if not url.startswith("data:")] == []  # nobody was asked


@pytest.mark.parametrize("name", SCORERS)
def test_every_scorer_can_be_asked_by(opened, name):
    put(opened, scorer=name, n=5)
    ask(opened, QUESTION)
    assert text(opened, "#state-text").startswith("5 answers")
    served = {c["index"]: c["scored"]["rank"] for c in exported(opened)["candidates"]}
    shown = {members[0]: place for members, place, _ in ranking(opened)}
    assert {i: served[i] for i in shown} == shown  # the server ranks as the page does


def test_one_answer_comes_live(opened):
    put(opened, n=1)
    ask(opened, QUESTION)
    picture = render(sample_scene(FIRST))
    drawing = {"seed": 42, "temperature": 1.2, "top_p": 0.9, "max_new_tokens": 256}
    true = embedded().sample(picture, QUESTION, n=1, **drawing)[0]
    [one] = exported(opened)["candidates"]
    assert one["tokens"] == list(true.tokens)
    np.testing.assert_allclose(one["visual_lookback"], true.visual_lookback, rtol=1e-4)
    assert text(opened, "#state-text") == "1 answer."


def test_fewer_of_those_drawn(asked, drawn):
    put(asked, among=6)
    scores = drawn.scores("lookback")[:6]
    check_order(asked, scores)
    assert text(asked, "#among-number") == "6 of 25"


def test_words_are_shaded_by_the_chosen_signal(asked, drawn):
    best = drawn.best("lookback")
    for signal in ("visual_lookback", "log_prob", "entropy"):
        put(asked, signal=signal)
        got = asked.execute_script(
            """return [...document.querySelectorAll("#candidates > li:first-child .said .token")]
                 .map((span) => Number(span.style.getPropertyValue("--strength")))"""
        )
        all_values = np.concatenate([getattr(c, signal) for c in drawn]).astype(float)
        ordered = np.sort(all_values)
        low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.95))
        true = np.clip((getattr(best, signal) - low) / (high - low), 0, 1)
        np.testing.assert_allclose(got, true, atol=2e-3)


def focus_word(browser, row, position):
    """Choose an answer, then one of its words; the numbers of the word's tokens."""
    click(browser, f"#candidates > li:nth-child({row}) > .rank")
    found = browser.execute_script(
        """const chosen = document.querySelector("#candidates > li[data-chosen]");
           const word = chosen.querySelectorAll(".said .word")[arguments[0]];
           word.focus();
           return spanOf(word);""",
        position,
    )
    return found["first"], found["stop"]


@pytest.mark.parametrize("row", [1, 3])
def test_where_a_word_looked_is_painted_on_the_picture(asked, drawn, row):
    put(asked, map_mode="raw")
    first, stop = focus_word(asked, row, 4)
    index = ranking(asked)[row - 1][0][0]
    wait(asked, f"$('frame').dataset.word === '{index} {first}'")
    look = embedded().look(render(sample_scene(FIRST)), QUESTION, drawn[index])
    weights = look.weights[first:stop].mean(0)
    left, top, right, bottom = look.pictures[0].boxes[weights.argmax()].tolist()
    brightest = asked.execute_script(
        """const canvas = $("map");
           const { width, height } = canvas;
           const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
           let [best, at] = [-1, 0];
           for (let i = 3; i < data.length; i += 4) {
             if (data[i] > best) [best, at] = [data[i], i >> 2];
           }
           return [(at % width) / width, Math.floor(at / width) / height];"""
    )
    assert left - 0.01 <= brightest[0] < right
    assert top - 0.01 <= brightest[1] < bottom
    tip = text(asked, "#tip")
    assert f"{drawn[index].visual_lookback[first]:.3f}" in tip
    look_share = [mass(weights, look.pictures[0].boxes, part) for part in NINTHS]
    share = max(look_share) / weights.sum()
    best = PLACES[int(np.argmax(look_share))]
    assert f"looked most at the {best}: {100 * share:.0f} % of its look" in tip
    asked.switch_to.active_element.send_keys("\ue00c")  # Escape
    assert asked.execute_script("return $('tip').hidden && !$('frame').dataset.word")


def test_the_word_with_the_focus_is_shown_when_the_mouse_is_on_none(asked):
    first, _ = focus_word(asked, 1, 3)
    index = ranking(asked)[0][0][0]
    shown = f"$('frame').dataset.word === '{index} {first}'"
    wait(asked, shown)
    hover = """const all = document.querySelectorAll("#candidates > li:first-child .said .word");
      const over = (node) => node.dispatchEvent(
        new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse" }));
      over(%s);"""
    asked.execute_script(hover % "all[5]")
    wait(asked, f"$('frame').dataset.word && !({shown})")
    asked.execute_script(hover % "all[5].closest('li')")
    wait(asked, shown)
    asked.switch_to.active_element.send_keys("\ue00c")
    asked.execute_script(hover % "all[5].closest('li')")
    assert asked.execute_script("return $('frame').dataset.word === undefined")


def test_what_would_be_said_without_looking(asked, drawn):
    click(asked, ".compare-it")
    wait(asked, "document.querySelector('.columns')")
    best = drawn.best("lookback")
    none = embedded().score(None, QUESTION, [best], source="none")[0]
    other = embedded().score(render(sample_scene(FIRST + 1)), QUESTION, [best])[0]
    compared = exported(asked)["compared"][str(best.index)]
    np.testing.assert_allclose(compared["none"], none.log_prob, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(compared["other"], other.log_prob, rtol=1e-4, atol=1e-4)
    falls = (best.log_prob - none.log_prob).astype(float)
    rows = asked.execute_script(
        """return [...document.querySelectorAll(".falls li")]
             .map((li) => [Number(li.dataset.first), Number(li.dataset.fall)])"""
    )
    assert rows
    assert [fall for _, fall in rows] == sorted((fall for _, fall in rows), reverse=True)
    spans = asked.execute_script("return wordSpans(arguments[0])", list(best.tokens))
    true = {span["first"]: falls[span["first"] : span["stop"]].sum() for span in spans}
    for first, fall in rows:
        assert fall == pytest.approx(true[first], abs=1e-3)
        assert fall >= np.log(2)
    kept = text(asked, ".verdict p")
    assert "words would be said without looking" in kept


def things(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('.handle')].map((b) => b.ariaLabel)"
    )


def test_things_are_dragged_and_the_answer_can_follow(asked):
    from selenium.webdriver.common.action_chains import ActionChains

    before = things(asked)
    number = next(i for i, label in enumerate(before) if label.endswith("top center"))
    asked.execute_script("scrollTo(0, 0)")
    thing = asked.find_elements("css selector", ".handle")[number]
    frame = asked.find_element("id", "frame")
    wide, high = frame.size["width"], frame.size["height"]
    pull = ActionChains(asked).click_and_hold(thing)
    pull.move_to_element_with_offset(frame, 5 - wide // 3, high // 3).perform()
    assert asked.execute_script("return !$('grid').hidden && document.querySelector('.hole')")
    ActionChains(asked).release().perform()
    wait(asked, f"document.querySelectorAll('.handle')[{number}].ariaLabel.endsWith('bottom left')")
    assert things(asked)[:number] == before[:number]
    assert "about the picture before: ask again" in text(asked, "#state-text")
    best = text(asked, "#candidates > li:first-child .tokens")
    ask(asked)
    assert text(asked, "#before").endswith(best)
    assert "picture before" not in text(asked, "#state-text")


def test_things_move_and_change_by_keyboard(opened):
    handle = opened.find_elements("css selector", ".handle")[0]
    assert things(opened)[0] == "large orange ball, bottom center"
    handle.send_keys("\ue014")  # to the right
    wait(opened, "document.querySelector('.handle').ariaLabel.endsWith('bottom right')")
    assert opened.execute_script("return document.activeElement.dataset.thing") == "0"
    opened.switch_to.active_element.send_keys("\ue007")  # Enter: it can be changed
    click(opened, "[data-color=blue]")
    wait(opened, "document.querySelector('.handle').ariaLabel.startsWith('large blue')")
    click(opened, "#thing-size")
    wait(opened, "document.querySelector('.handle').ariaLabel.startsWith('small blue')")
    put(opened, thing_category="cup")
    wait(opened, "document.querySelector('.handle').ariaLabel.includes('cup')")
    click(opened, "#thing-remove")
    wait(opened, "document.querySelectorAll('.handle').length === 2")
    assert opened.execute_script("return $('thing').hidden")


def test_a_link_shows_the_same_again(asked, client):
    asked.find_elements("css selector", ".handle")[0].send_keys("\ue014")
    wait(asked, "document.querySelector('.handle').ariaLabel.endsWith('bottom right')")
    put(asked, seed=7, n=9, alpha=1.5, signal="u")
    ask(asked)
    click(asked, "#candidates > li:nth-child(3) > .rank")
    wait(asked, "location.hash.includes('answer=')")
    wait(asked, "location.hash.includes('alpha=1.5')")
    before = (ranking(asked), text(asked, "#candidates"), things(asked))
    chosen = asked.execute_script("return document.querySelector('[data-chosen]').dataset.index")
    open_page(asked, client, asked.execute_script("return location.hash"))
    assert (ranking(asked), text(asked, "#candidates"), things(asked)) == before
    shown = "return document.querySelector('[data-chosen]').dataset.index"
    assert asked.execute_script(shown) == chosen
    assert asked.execute_script("return $('problem').hidden")


def test_a_link_that_is_not_all_right_is_said(opened, client):
    open_page(opened, client, "#scene=3&n=9999&by=nobody")
    said = text(opened, "#problem-text")
    assert "n “9999”: it must be a whole number from 1 to 64" in said
    assert "by “nobody”" in said


def test_answers_and_words_by_keyboard(asked):
    asked.find_element("css selector", "#candidates > li > .rank").send_keys("\ue015")  # down
    assert asked.execute_script("return document.activeElement.closest('li').dataset.rank") == "2"
    words = "document.querySelectorAll('#candidates > li[data-chosen] .said .word')"
    assert asked.execute_script(f"return [...{words}].filter((w) => w.tabIndex === 0).length") == 1
    asked.execute_script(f"{words}[0].focus()")
    asked.switch_to.active_element.send_keys("\ue014")
    assert asked.execute_script(f"return document.activeElement === {words}[1]")
    assert asked.execute_script("return document.querySelectorAll('.word[tabindex]').length") == (
        asked.execute_script(f"return {words}.length")
    )


def test_with_motion_answers_appear_word_by_word_and_rows_glide(opened):
    features = [{"name": "prefers-reduced-motion", "value": "no-preference"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    opened.execute_script(
        """window.seen = { counts: [], moved: 0 };
           new MutationObserver(() => {
             seen.counts.push(document.querySelectorAll("#candidates .token").length);
             seen.moved = Math.max(seen.moved, document.getAnimations()
               .filter((one) => one.effect.target.matches("#candidates > li")).length);
           }).observe($("candidates"), { childList: true, subtree: true });"""
    )
    ask(opened, QUESTION)
    counts, moved = opened.execute_script("return [seen.counts, seen.moved]")
    growing = [n for n, last in zip(counts[1:], counts, strict=False) if n > last]
    assert len(growing) >= 8
    assert moved > 0


def test_the_picture_for_others(asked):
    uri = asked.execute_async_script(
        """const done = arguments[0];
           navigator.clipboard.write = () => Promise.reject(new Error("closed"));
           HTMLAnchorElement.prototype.click = function () { done(this.href); };
           $("save-picture").click();"""
    )
    image = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")
    assert image.width == 2000
    assert image.height > 700
    shown = image.crop((64, 64, 584, 584)).resize((80, 80), Image.Resampling.NEAREST)
    true = np.asarray(render(sample_scene(FIRST))).astype(int)
    assert np.abs(np.asarray(shown).astype(int) - true).mean() < 6
