"""The explorer in other states: photographs, the tour, waiting, stopped, refused, alone."""

import re
import threading

import numpy as np
import pytest
from chromium import emulate, logs, needs_chromium
from PIL import Image
from server.exploring import ask, click, no_complaints, open_page, put, ranking, settle, text, wait
from server.held_engine import HeldEngine, until
from server.serving import asked as asked_for
from server.serving import chat, embedded, serving
from timeouts import HANG_SECONDS

from lookback.server.settings import Limits, Settings

pytestmark = needs_chromium

QUESTION = "Describe the picture."


@pytest.fixture
def opened(browser, client):
    open_page(browser, client)
    yield browser
    emulate(browser)
    no_complaints(browser)


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos") / "photo.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (900, 1600, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path


def test_a_photograph_is_made_smaller_and_the_model_excused(opened, client, photo):
    opened.find_element("id", "file").send_keys(str(photo))
    wait(opened, "$('picture').naturalWidth === 1024")
    assert opened.execute_script("return $('picture').naturalHeight") == 576
    assert "sees suns and cups" in text(opened, "#picture-note")
    assert opened.execute_script("return document.querySelectorAll('.handle').length") == 0
    ask(opened)
    assert "25 answers" in text(opened, "#state-text")
    click(opened, "#copy-link")
    wait(opened, "$('problem-text').textContent.includes('smaller copy of the picture')")
    hash = opened.execute_script("return location.hash")
    assert len(hash) < 30_000
    open_page(opened, client, hash)
    assert "smaller than the one that was asked about" in text(opened, "#problem-text")
    assert "25 answers" in text(opened, "#state-text")


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_pictures_are_pasted_and_dropped(opened, way):
    opened.execute_async_script(
        """const [way, done] = arguments;
           const canvas = document.createElement("canvas");
           [canvas.width, canvas.height] = [200, 100];
           canvas.getContext("2d").fillRect(0, 0, 50, 50);
           canvas.toBlob((blob) => {
             const held = new DataTransfer();
             held.items.add(new File([blob], "mine.png", { type: "image/png" }));
             const ways = { bubbles: true, clipboardData: held, dataTransfer: held };
             const Kind = way === "paste" ? ClipboardEvent : DragEvent;
             document.body.dispatchEvent(new Kind(way, ways));
             done();
           }, "image/png");""",
        way,
    )
    wait(opened, "$('picture').naturalWidth === 200")


CAMERA = """const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [640, 360];
  setInterval(() => { canvas.getContext("2d").fillRect(0, 0, 99 * Math.random(), 99); }, 20);
  window.stream = canvas.captureStream();
  navigator.mediaDevices.getUserMedia = async () => stream;"""


def test_a_photograph_from_the_camera(opened):
    """The camera is a canvas: what a browser does with a stream is the same."""
    opened.execute_script(CAMERA)
    click(opened, "#photograph")
    wait(opened, "$('camera').open && $('video').videoWidth === 640")
    click(opened, "#shoot")
    wait(opened, "$('picture').naturalWidth === 640")
    assert opened.execute_script("return stream.getTracks().every((t) => t.readyState === 'ended')")
    assert not opened.execute_script("return $('camera').open")


def test_a_camera_that_is_not_there_is_said(opened):
    opened.execute_script(
        """navigator.mediaDevices.getUserMedia = () =>
             Promise.reject(new DOMException("none", "NotFoundError"));"""
    )
    click(opened, "#photograph")
    wait(opened, "!$('problem').hidden")
    assert "No photograph from the camera: there is none." in text(opened, "#problem-text")


def test_what_is_no_picture_is_said(opened, tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    opened.find_element("id", "file").send_keys(str(tmp_path / "notes.txt"))
    wait(opened, "!$('problem').hidden")
    assert "“notes.txt” cannot be read as a picture" in text(opened, "#problem-text")
    click(opened, "#dismiss")
    assert opened.execute_script("return $('problem').hidden")


def test_the_tour_has_five_steps_and_goes_by_keyboard(opened):
    opened.execute_script("localStorage.clear()")
    opened.refresh()
    wait(opened, "document.body.dataset.ready")
    assert opened.execute_script("return !$('offer').hidden && $('tour').hidden")
    click(opened, "#take-tour")
    seen = []
    for _ in range(5):
        assert opened.execute_script("return document.activeElement.id") == "tour"
        seen.append((text(opened, "#tour-place"), text(opened, "#tour-title")))
        opened.switch_to.active_element.send_keys("\ue014")
        settle(opened)
    assert [place for place, _ in seen] == [f"{i} of 5" for i in range(1, 6)]
    assert len({title for _, title in seen}) == 5
    assert opened.execute_script("return $('tour').hidden && $('ring').hidden")
    assert opened.execute_script("return document.querySelectorAll('#candidates > li').length") > 5
    assert opened.execute_script("return $('offer').hidden")
    opened.refresh()
    wait(opened, "document.body.dataset.ready")
    assert opened.execute_script("return $('offer').hidden")
    click(opened, "#start-tour")
    opened.switch_to.active_element.send_keys("\ue00c")
    assert opened.execute_script("return $('tour').hidden")
    assert opened.execute_script("return document.activeElement.id") == "start-tour"


@pytest.mark.parametrize("width", [420, 1400])
def test_who_asks_sees_the_answers(opened, width):
    """Where they begin far down, the page goes to them, and stays when they are written."""
    emulate(opened, width)
    assert opened.execute_script("return scrollY") == 0
    put(opened, n=6, question=QUESTION)
    opened.find_element("id", "ask").click()  # it has the focus then
    settle(opened)
    top, row, high, moved = opened.execute_script(
        """const top = (one) => one.getBoundingClientRect().top;
           return [top($("state")), top(document.querySelector("#candidates > li:nth-child(2)")),
                   innerHeight, scrollY]"""
    )
    assert 0 <= top < row < 0.8 * high
    assert (moved > 0) == (width == 420)
    assert opened.execute_script("return document.activeElement.id") == "ask"


def test_it_says_that_pruned_answers_are_not_ranked(opened):
    put(opened, n=9)
    ask(opened, QUESTION)
    found = ranking(opened)
    pruned = sum(len(members) for members, _, score in found if score is None)
    assert 0 < pruned < 9
    assert re.findall(r"\d+", text(opened, "#survivors")) == [str(9 - pruned), "9", str(pruned)]
    put(opened, among=1)
    assert opened.execute_script("return $('survivors').hidden") == (found[-1][0] != [0])
    click(opened, "#prune")
    ask(opened, QUESTION)
    assert opened.execute_script("return $('survivors').hidden")
    assert all(score is not None for _, _, score in ranking(opened))


# Each step of the page waits for a frame, so that all of them are seen, however slow the machine.
WATCH = """window.broken = [];
  window.frames = 0;
  window.glided = 0;
  const [later, animate] = [setTimeout, Element.prototype.animate];
  window.setTimeout = (call, pause) => later(() => requestAnimationFrame(call), pause);
  Element.prototype.animate = function (frames, ...more) {
    glided += frames.some((frame) => frame.transform);
    return animate.call(this, frames, ...more);
  };
  function watch() {
    const rows = [...$("candidates").children];
    const numbers = (name) => rows.map((row) => row.querySelector(name).textContent)
      .filter((text) => text !== "–").map((text) => Number(text.replace("−", "-")));
    const [scores, places] = [numbers(".score"), numbers(".rank")];
    if (places.some((place, i) => place !== i + 1)) broken.push(["places", places]);
    if (scores.some((score, i) => score > scores[i - 1])) broken.push(["scores", scores]);
    const boxes = rows.map((row) => row.getBoundingClientRect());
    const gaps = boxes.slice(1).map((box, i) => box.top - boxes[i].bottom);
    if (gaps.some((gap) => gap < -1 || gap > 16)) broken.push(["gaps", gaps]);
    if (rows.findIndex((row) => row.dataset.chosen !== undefined) > 0) broken.push(["chosen"]);
    frames += rows.length > 0;
    requestAnimationFrame(watch);
  }
  watch();"""


def test_while_answers_are_written_they_stand_in_order_without_gaps(opened):
    features = [{"name": "prefers-reduced-motion", "value": "no-preference"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    opened.execute_script(WATCH)
    ask(opened, QUESTION)
    assert opened.execute_script("return broken.slice(0, 3)") == []
    assert opened.execute_script("return frames") > 3
    assert opened.execute_script("return glided") == 0
    put(opened, scorer="visual_lookback")  # the reader's own doing: rows glide
    assert opened.execute_script("return glided") > 0


def test_every_score_has_a_meaning(opened):
    ask(opened, QUESTION)
    names = opened.execute_script("return [...$('scorer').options].map((one) => one.value)")
    told = []
    for name in names:
        put(opened, scorer=name)
        told.append(text(opened, "#scale"))
        assert "undefined" not in told[-1]
    assert len(set(told)) >= 5  # both log scales have 0 as their best
    assert told[names.index("lookback")] == told[names.index("mean_log_prob")]


@pytest.fixture
def held():
    engine = HeldEngine()
    with serving(engine, Settings(limits=Limits(in_flight=1, queue=1))) as client:
        yield engine, client
        engine.go.set()


def test_who_waits_is_told_how_many_are_before(browser, held):
    engine, client = held
    other = threading.Thread(target=lambda: chat(client, **asked_for("before")))
    other.start()
    until(lambda: engine.begun == ["before"])
    open_page(browser, client)
    put(browser, question="mine")
    click(browser, "#ask")
    wait(browser, "$('state-text').textContent.includes('Waiting: 1 request before this one.')")
    engine.go.set()
    settle(browser)
    other.join()
    assert "answers" in text(browser, "#state-text")
    no_complaints(browser)


def test_stopping_ends_the_servers_work(browser, held):
    engine, client = held
    open_page(browser, client)
    put(browser, question="first")
    click(browser, "#ask")
    until(lambda: engine.begun == ["first"])
    assert browser.execute_script("return $('ask').hidden && !$('stop').hidden")
    click(browser, "#stop")
    until(lambda: engine.given_up == ["first"])  # the server works no more for it
    settle(browser)
    assert text(browser, "#state-text").startswith("Stopped: 0 of ")
    assert browser.execute_script("return document.activeElement.id") == "ask"
    engine.go.set()
    ask(browser, "second")
    assert "answers" in text(browser, "#state-text")
    no_complaints(browser)


def test_a_server_that_goes_away_is_said_and_can_be_tried_again(browser, held):
    engine, client = held
    engine.go.set()
    open_page(browser, client)
    client.server.should_exit = True
    client.thread.join(HANG_SECONDS)
    put(browser, question="anyone?")
    click(browser, "#ask")
    wait(browser, "!$('problem').hidden")
    assert "The server does not answer. Is lookback serve still running?" in text(
        browser, "#problem-text"
    )
    assert text(browser, "#retry") == "Try again"
    assert browser.execute_script("return !$('ask').hidden && !$('empty').hidden")
    no_complaints(browser, "ERR_CONNECTION_REFUSED")


def test_a_key_is_asked_for_and_kept_for_this_tab(browser):
    with serving(embedded(), Settings(api_key="open-sesame")) as client:
        logs(browser)
        browser.get("about:blank")
        browser.get(f"{client.base_url}")
        wait(browser, "$('key-dialog').open")
        put(browser, key="wrong")
        click(browser, "#key-form .strong")
        wait(browser, "$('key-dialog').open && $('key').value === ''")
        put(browser, key="open-sesame")
        click(browser, "#key-form .strong")
        wait(browser, "document.body.dataset.ready")
        put(browser, n=3)
        ask(browser, QUESTION)
        assert len(ranking(browser)) <= 3
        assert text(browser, "#state-text").startswith("3 answers")
        browser.execute_script("sessionStorage.clear()")
        no_complaints(browser, "401")


def test_a_refusal_is_shown_in_the_servers_words(opened):
    put(opened, question="x" * 3900)
    click(opened, "#ask")
    wait(opened, "!$('problem').hidden")
    assert "the model takes 512" in text(opened, "#problem-text")
    ask(opened, QUESTION)
    assert opened.execute_script("return $('problem').hidden")
    logs(opened)  # 400 is in the console: the browser's own line


def test_an_engine_that_cannot_look_says_so(browser):
    engine = HeldEngine()
    engine.abilities = engine.abilities - {"look"}
    engine.go.set()
    with serving(engine) as client:
        open_page(browser, client)
        ask(browser, QUESTION)
        browser.execute_script("document.querySelector('#candidates .word').focus()")
        wait(browser, "document.querySelector('.tip-more')")
        assert "This engine cannot tell where a word looked." in text(browser, "#tip")
        no_complaints(browser)
