/* Pointing at words, by mouse, touch or keyboard: their numbers, and where they looked. */

const POINTED = 120; // ms that a word is pointed at before the server is asked about it
const TIP_ROWS = [["log_prob", "log p"], ["visual_lookback", "A"], ["self_certainty", "self-certainty"],
  ["entropy", "entropy"], ["u", "u"], ["q", "q"]];
const NO_PLACES = "How much this model looks at the picture is known, and where is not: the layout of its vision tokens is not known.";
const NO_LOOKS = "This engine cannot tell where a word looked.";
const MODES = { raw: "attention", tokens: "more than its other words" };

/** What /v1/look tells, as the heat map takes it. */
function lookOf(told) {
  const queues = {
    a: [told.a], a_prompt: [told.a_prompt],
    boxes: told.pictures.filter((one) => one.placed).map((one) => one.boxes.flat()),
    weights: told.pictures.map((one) => one.weights.flat()),
    baseline: told.pictures.map((one) => one.baseline?.flat()),
  };
  return openLook({ ...told, tokens: told.count }, (name) => Float32Array.from(queues[name].shift()));
}

/** Looks of one asking, each asked for when it is first wanted, and kept: a promise of that of a candidate. */
function lookKeeper(question, uri) {
  const kept = new Map();
  return (c) => {
    if (!kept.has(c.index)) {
      const body = { messages: messagesOf(question, uri), response: c.token_ids };
      const look = requestJson("v1/look", body).then(lookOf);
      look.catch(() => kept.delete(c.index)); // it may be asked for again
      kept.set(c.index, look);
    }
    return kept.get(c.index);
  };
}

/** Under the picture: which word, and what the colours mean. */
function drawMapLegend(look, span, mode, { picture, seen, map }) {
  const top = map.highest ? amount(seen, picture.boxes, map.highest) : NaN;
  setRamp(look.heat);
  $("map-word").value = `“${span.text}” looked here`;
  $("map-least").value = mode === "raw" ? "0" : "1 ×";
  $("map-most").value = amountText(top, mode, 1);
  $("map-legend").hidden = false;
}

/** The part of the picture, of nine, at which a word looked most, in words for the tip. */
function placeText(look, span, mode, places) {
  const [picture] = look.pictures;
  const seen = lookedAt(look, picture, span, mode);
  const parts = places.map((_, i) => {
    const [left, top] = [(i % 3) / 3, Math.floor(i / 3) / 3];
    return amount(seen, picture.boxes, [left, top, left + 1 / 3, top + 1 / 3]);
  });
  const best = parts.reduce((most, value, i) => (value > parts[most] ? i : most), 0);
  const whole = mass(seen.raw, picture.boxes, EVERYWHERE);
  const much = mode === "raw" ? `${percent(parts[best] / whole, 0)} of its look` : `${amountText(parts[best], mode, 1)} the usual`;
  return `most at the ${places[best]}: ${much}`;
}

function showTip(word, c, setting) {
  const { first, stop, text } = spanOf(word);
  const count = stop - first;
  const places = Array.from({ length: Math.min(4, count) }, (_, i) => first + i);
  $("tip").replaceChildren(
    h("p", { class: "tip-word" }, h("strong", { dir: "auto" }, text), count > 1 ? ` ${count} tokens` : ""),
    tokenNumbers(c, places, TIP_ROWS, setting));
  $("tip").hidden = false;
  placeTip(word);
}

function addToTip(word, text, ...parts) {
  if ($("tip").hidden) return;
  $("tip").querySelector(".tip-more")?.remove();
  $("tip").append(h("div", { class: "tip-more" }, h("p", {}, text), ...parts));
  placeTip(word);
}

function listenToWords(app) {
  const { data, state } = app;
  const list = $("candidates");
  let pointed = null; // the word that is pointed at, or that has the focus

  app.unpoint = () => {
    pointed?.classList.remove("pointed");
    pointed?.removeAttribute("aria-describedby");
    pointed = null;
    $("tip").hidden = $("map-legend").hidden = true;
    $("frame").classList.remove("mapped");
    delete $("frame").dataset.word;
  };

  function point(word) {
    if (word === pointed) return;
    app.unpoint();
    if (!word || app.isWriting()) return;
    pointed = word;
    word.classList.add("pointed");
    word.setAttribute("aria-describedby", "tip");
    const index = Number(word.closest("li").dataset.index);
    showTip(word, app.ranking.candidates[index], state);
    setTimeout(() => { if (pointed === word) lookAt(word, index); }, app.asked.looked.has(index) ? 0 : POINTED);
  }

  /** The look of an answer; a sentence where there is none. */
  async function lookOrReason(asked, index) {
    if (!data.looks) return NO_LOOKS;
    try {
      const look = await asked.looks(asked.candidates[index]);
      asked.looked.add(index);
      return look.pictures[0]?.placed ? look : NO_PLACES;
    } catch (error) {
      return `Where it looked is not known: ${error.message}`;
    }
  }

  async function lookAt(word, index) {
    const { asked } = app;
    const look = await lookOrReason(asked, index);
    if (pointed !== word || app.asked !== asked) return;
    if (typeof look === "string") return void addToTip(word, look);
    const span = spanOf(word);
    if (app.picture === asked.picture) {
      drawMapLegend(look, span, state.map, paintSpan($("frame"), look, span, state.map, 640));
      $("frame").dataset.word = `${index} ${span.first}`;
      $("stage").classList.add("looked");
    }
    addToTip(word, `looked ${placeText(look, span, state.map, data.world.places)}`,
      ...smallMap($("frame"), asked.picture.uri, look, span, state.map));
  }

  app.pointAgain = () => {
    const word = pointed;
    app.unpoint();
    point(word);
  };

  /** Point at the word of the best answer that looked most: what the tour shows. */
  app.showWord = () => {
    const row = app.ranking && !app.isWriting() ? list.firstElementChild : null;
    const words = row ? [...row.querySelectorAll(".said .word")].filter((word) => word.textContent.length > 2) : [];
    const looked = app.ranking?.candidates[row?.dataset.index]?.visual_lookback ?? [];
    words.sort((x, y) => looked[y.dataset.first] - looked[x.dataset.first]);
    if (words.length) point(words[0]);
  };

  const wordAt = (element) => element?.closest?.("#candidates > li > .said .word") ?? null;
  const wordIn = (event) => wordAt(event.target);
  let letGo = null; // by Escape: it has the focus, and is not pointed at
  /** The word that has the focus: it is pointed at again when the mouse is on none. */
  const held = () => (document.activeElement === letGo ? null : wordAt(document.activeElement));
  list.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") point(wordIn(event) ?? held()); });
  list.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") point(held()); });
  list.addEventListener("focusin", (event) => { letGo = null; point(wordIn(event)); });
  list.addEventListener("focusout", (event) => { if (wordIn(event)) point(null); });
  list.addEventListener("click", (event) => {
    const word = wordIn(event);
    if (!word || app.isWriting()) return;
    letGo = null;
    word.focus({ preventScroll: true }); // its answer was chosen by the same click
    point(word);
  });
  list.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const word = wordIn(event);
    if (event.key === "Escape") { letGo = word; point(null); }
    if (!by || !word) return;
    event.preventDefault();
    const words = [...word.parentElement.querySelectorAll(".word")];
    stepFocus(word, words[words.indexOf(word) + by]);
  });
  addEventListener("scroll", () => { if (pointed) placeTip(pointed); }, { passive: true });
}
