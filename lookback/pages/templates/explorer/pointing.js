/* Pointing at words, by mouse, touch or keyboard: their numbers, and where they looked. */

const POINTED = 120; // ms that a word is pointed at before the server is asked about it

function listenToWords(app) {
  const { data, state } = app;
  const list = $("candidates");
  let pointed = null; // the word that is pointed at, or that has the focus

  app.unpoint = () => {
    pointed?.classList.remove("pointed");
    pointed?.removeAttribute("aria-describedby");
    pointed = null;
    hideTip();
    clearMap();
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
    if (typeof look === "string") return void addToTip(word, h("p", {}, look));
    const span = spanOf(word);
    const more = [h("p", {}, `looked ${placeInWords(look, span, state.map, data.world.places)}`)];
    if (app.picture === asked.picture) {
      drawMapLegend(look, span, state.map, paintWord($("frame"), look, span, state.map));
      $("frame").dataset.word = `${index} ${span.first}`;
      $("stage").classList.add("looked");
    }
    const small = smallPicture(asked.picture.uri);
    if (small) {
      paintWord(small, look, span, state.map, 256);
      more.push(small);
    }
    addToTip(word, ...more);
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
    stepWord(word, by);
  });
  addEventListener("scroll", () => { if (pointed) placeTip(pointed); }, { passive: true });
}
