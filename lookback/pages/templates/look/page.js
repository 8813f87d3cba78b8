/* The look page: its state, and what the reader does to it. */

const NO_PLACES = "The layout of this model’s vision tokens is not known, so there is no map of this picture: how much "
  + "each word looked at it is known, and where is not.";

function show(look) {
  const state = { word: null, pointed: null, cell: null, mode: document.querySelector("main").dataset.mode, picture: 0 };
  const words = $("words");

  /** What is shown now. The word under the pointer comes before the chosen one. */
  function view() {
    const number = state.pointed ?? state.word;
    const word = number === null ? look.whole : look.words[number];
    const picture = look.pictures[state.picture];
    const seen = lookedAt(look, picture, word, state.mode);
    return { look, number, word, picture, seen, mode: state.mode, cell: state.cell, place: state.picture };
  }

  function drawPicture() {
    const picture = look.pictures[state.picture];
    $("picture").src = imageAt(state.picture);
    $("picture").alt = `The picture ${picture.name}`;
    const shape = picture.width / picture.height;
    $("frame").style.setProperty("--widest", `${Math.round(66 * shape)}vh`);
    $("frame").style.setProperty("--widest-small", `${Math.round(38 * shape)}vh`);
    $("frame").classList.toggle("mapped", picture.placed);
    $("unplaced").hidden = picture.placed;
    $("unplaced").textContent = NO_PLACES;
    fitCanvas($("map"), picture, 1024);
  }

  function drawLook() {
    const now = view();
    const map = now.picture.placed ? mapOf(now.seen, now.picture) : null;
    if (map) paintMap($("map"), now.picture, map, look.heat);
    drawAbout($("about"), now, map);
    drawMapLegend(now, map);
    drawFilm($("film"), now);
    $("frame").dataset.word = now.number ?? "";
    $("whole").ariaPressed = now.number === null;
    words.querySelectorAll(".word").forEach((button, i) => {
      button.classList.toggle("current", i === now.number);
      button.ariaPressed = i === state.word;
    });
  }

  function drawCell() {
    const now = view();
    const values = shadeWords(words, now);
    drawHere($("here"), now, values);
    $("cell").hidden = !now.cell;
    if (!now.cell) return;
    cover($("cell"), now.cell, 1);
  }

  function draw() {
    $("meaning").textContent = MEANINGS[state.mode];
    drawPicture();
    drawLook();
    drawCell();
  }

  /* What the reader does */

  function choose(word) {
    Object.assign(state, { word, pointed: null });
    drawLook();
  }

  function point(number) {
    if (state.pointed === number) return;
    state.pointed = number;
    drawLook();
  }

  function chooseCell(cell) {
    state.cell = cell;
    drawCell();
  }

  function choosePicture(place) {
    Object.assign(state, { picture: place, cell: null });
    draw();
  }

  const numberOf = (event) => {
    const word = event.target.closest?.("[data-word]");
    return word ? Number(word.dataset.word) : null;
  };

  function placeOfEvent(event) {
    const box = $("map").getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  function tip(event) {
    const { picture, seen, mode, word } = view();
    const cell = picture.placed && event.type !== "pointerleave" ? cellAt(picture.boxes, ...placeOfEvent(event)) : null;
    $("tip").hidden = !cell;
    if (!cell) return;
    const value = amount(seen, picture.boxes, cell);
    $("tip").dataset.value = value;
    $("tip").textContent = `${word === look.whole ? "the response" : `“${word.text}”`}: ${amountIn(value, mode)}${mode === "raw" ? " here" : " of the usual here"}`;
    const own = $("tip").getBoundingClientRect();
    $("tip").style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - own.width - 8))}px`;
    $("tip").style.top = `${event.clientY + 18 + own.height > innerHeight ? event.clientY - own.height - 12 : event.clientY + 18}px`;
  }

  function clickPicture(event) {
    const { picture } = view();
    if (!picture.placed) return;
    const cell = cellAt(picture.boxes, ...placeOfEvent(event));
    chooseCell(cell && state.cell?.join() === cell.join() ? null : cell);
  }

  /** From the chosen cell to the one beside it; the first is the brightest. */
  function stepCell(event) {
    const { picture, seen } = view();
    if (event.key === "Escape") return chooseCell(null);
    if (!picture.placed || !(event.key in STEPS)) return undefined;
    event.preventDefault();
    if (!state.cell) return chooseCell(mapOf(seen, picture).highest);
    const [left, top, right, bottom] = state.cell;
    const [dx, dy] = STEPS[event.key];
    const next = cellAt(picture.boxes, (left + right) / 2 + dx * (right - left), (top + bottom) / 2 + dy * (bottom - top));
    return next && chooseCell(next);
  }

  /** Arrows go from word to word; one of them is in the order of tabs. */
  function stepWord(event) {
    const number = numberOf(event);
    if (event.key === "Escape") return choose(null);
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = by && number !== null ? words.querySelector(`[data-word="${number + by}"]`) : null;
    if (!next) return undefined;
    event.preventDefault();
    return stepFocus(event.target, next);
  }

  words.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") point(numberOf(event)); });
  words.addEventListener("pointerleave", () => point(null));
  words.addEventListener("focusin", (event) => choose(numberOf(event)));
  words.addEventListener("click", (event) => { if (numberOf(event) !== null) choose(numberOf(event)); });
  words.addEventListener("keydown", stepWord);
  $("whole").addEventListener("click", () => choose(null));
  $("frame").addEventListener("pointermove", tip);
  $("frame").addEventListener("pointerleave", tip);
  $("frame").addEventListener("click", clickPicture);
  $("frame").addEventListener("keydown", stepCell);
  $("here").addEventListener("click", (event) => { if (event.target.id === "let-go") chooseCell(null); });
  $("film").addEventListener("click", (event) => {
    const button = event.target.closest("[data-picture]");
    if (button) choosePicture(Number(button.dataset.picture));
  });
  const names = { raw: "attention", tokens: "against its other words", prompt: "against the other prompt" };
  $("modes").append(...["raw", ...look.relative].map((mode) => h("label", {},
    h("input", { type: "radio", name: "mode", value: mode, ...(mode === state.mode ? { checked: "" } : {}) }),
    h("span", {}, names[mode]))));
  $("modes").addEventListener("change", (event) => { state.mode = event.target.value; draw(); });
  setRamp(look.heat);
  $("frame").style.setProperty("--dim", look.heat.dim);
  drawWords(words, look);
  draw();
  $("look").ariaBusy = false;
}

function showProblem(text) {
  $("problem").hidden = false;
  $("problem").textContent = text;
}

document.documentElement.style.setProperty("--hue", document.querySelector("main").dataset.hue);
if (!CAN_DECODE) {
  showProblem("This browser cannot unpack this page (it has no DecompressionStream): open it in Chrome or Edge 80, "
    + "Firefox 113, Safari 16.4 or later.");
} else {
  unpack($("block").textContent).then(({ items: [head], cut }) => show(openLook(head, cut)))
    .catch((error) => showProblem(`This page is damaged: it cannot be read (${error.message})`));
}
