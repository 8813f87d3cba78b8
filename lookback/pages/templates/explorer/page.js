/* The page: its state, what the reader does to it, and what follows from that. */

const CALM = 320; // ms between changes of places while answers are written
const QUIET = 250; // ms: browsers refuse an address that changes with every step of a slider
const POINTED = 120; // ms that a word is pointed at before the server is asked about it

function explore(data) {
  const state = {
    question: "", n: data.best_of, temperature: data.temperature, max_tokens: data.max_tokens, seed: 42,
    prune: data.prune && data.prunes, scorer: data.scorer in RANKERS ? data.scorer : "lookback",
    alpha: data.alpha, lam: data.lam, among: null, candidate: null, signal: "visual_lookback", map: "raw",
  };
  let picture = null; // what is shown: {kind, uri, name, scene?, edited?}
  let asked = null; // what was asked last, and its answers
  let ranking = null;
  let pointed = null; // the word that is pointed at, or that has the focus
  let [moved, job, again] = [0, 0, null]; // when places last changed; newer edits win; the way out of a problem
  const list = $("candidates");
  const tell = (text) => { $("told").textContent = text; };
  const isWriting = () => Boolean(asked) && (WRITING.includes(asked.phase) || !asked.allShown);
  const chosen = () => ranking && (state.candidate !== null && state.candidate < ranking.candidates.length ? state.candidate : ranking.order[0]);

  /* From the state to the page */

  function draw() {
    drawSettings(state, data, asked?.candidates.length ?? 0);
    const writing = isWriting();
    $("ask").hidden = writing;
    $("stop").hidden = !writing;
    $("ask").textContent = asked ? "Ask again" : "Ask";
    $("save-picture").disabled = $("save-json").disabled = !asked || writing || asked.phase === "failed";
    $("explorer").ariaBusy = writing;
    $("empty").hidden = Boolean(asked) && asked.phase !== "failed";
    list.hidden = !$("empty").hidden;
    for (const chip of $("chips").children) chip.ariaPressed = chip.textContent === state.question;
    if (asked && asked.phase !== "failed") drawAnswers(writing);
    else drawState([], writing);
    remember();
  }

  function drawAnswers(writing) {
    const count = Math.min(state.among ?? Infinity, asked.candidates.length);
    const candidates = asked.candidates.slice(0, count).map((c) => opened(c, asked.shown, data.floor));
    ranking = rankingOf(candidates, state, !writing);
    const moves = !writing || performance.now() - moved > CALM;
    if (moves) moved = performance.now();
    drawRanking(list, ranking, writing, moves);
    drawLegend(list, ranking, state.signal);
    drawChosen(list, chosen());
    drawPanel(writing);
    drawState(candidates, writing);
  }

  function drawState(candidates, writing) {
    const shownPhase = writing && asked.phase === "done" ? { ...asked, phase: "writing" } : asked;
    const stale = asked && !writing && asked.phase !== "failed" && (picture !== asked.picture || state.question !== asked.question);
    $("state-text").textContent = stateInWords(shownPhase, candidates, ranking)
      + (stale ? ` They are about ${picture !== asked.picture ? "the picture before: ask again to see whether the answer follows." : "the question before."}` : "");
    $("state").classList.toggle("stale", Boolean(stale));
    $("progress").hidden = !writing;
    $("progress").value = candidates.filter((c) => c.finish !== null).length / (candidates.length || 1);
  }

  /** Under the chosen answer: the way to compare it, or what was found. */
  function drawPanel(writing) {
    const row = rowOf(list, chosen());
    list.querySelectorAll(".compare").forEach((panel) => { if (panel.parentElement !== row) panel.remove(); });
    const c = asked.candidates[chosen()];
    if (!row || row.querySelector(".compare") || writing || !c?.tokens.length) return;
    const panel = h("div", { class: "compare" }, h("button", { type: "button", class: "small compare-it" }, "Would it say so without looking?"));
    row.append(panel);
  }

  function drawPicture() {
    const scene = picture.kind === "scene" ? picture.scene : null;
    $("picture").src = picture.uri;
    $("picture").alt = scene ? `A drawing: ${scene.things.map((thing) => `${nameOfThing(thing)} at ${data.world.places[thing.cell]}`).join(", ")}` : `Your picture: ${picture.name}`;
    $("picture-hint").textContent = scene
      ? "Drag things about, or select one and use arrow keys; a click changes its colour and kind."
      : "Drop, paste or choose another at any time. It goes to this server and nowhere else.";
    const known = data.embedded && !scene;
    $("picture-note").hidden = !data.embedded;
    $("picture-note").classList.toggle("warn", known);
    $("picture-note").textContent = known
      ? "This is the small model that comes with the package: it knows drawn scenes only, and sees suns and cups in every photograph. The numbers are real; the answer is not worth reading. Start the server with --model for a model that knows photographs."
      : "The small model that comes with the package answers here. It knows drawings like this one, and nothing else.";
    const questions = scene?.questions ?? ["Describe the picture.", "What is in the picture?", "How many people are there?", "What is unusual here?"];
    $("chips").replaceChildren(...questions.map((text) => h("button", { type: "button", class: "chip", "aria-pressed": text === state.question }, text)));
    if (!state.question) state.question = questions[0];
    unpoint();
  }

  /** What was answered before the change, beside what is answered now. */
  function drawBefore(last) {
    $("before").hidden = !last;
    if (!last) return;
    $("before").replaceChildren(h("img", { src: last.uri, alt: "The picture before" }),
      h("p", {}, h("span", { class: "facts" }, "Before the change, the best was"), h("br"), h("span", { dir: "auto" }, last.text)));
  }

  /* Problems, and the way out of them */

  function complain(error, retry) {
    again = retry ?? null;
    $("problem").hidden = false;
    $("problem-text").textContent = error.message;
    $("retry").hidden = !again;
    $("retry").textContent = error.again ?? "Try again";
  }
  const forgive = () => { $("problem").hidden = true; };

  /** Do what may be refused; what the server says then is shown, with the way to try again. */
  async function attempt(what) {
    forgive();
    try {
      return await what();
    } catch (error) {
      if (error.name !== "AbortError") complain(error, () => attempt(what));
      return undefined;
    }
  }

  /* Pictures */

  const things = thingEditor(data, (next) => edit(next));

  function show(next, same = false) {
    picture = next;
    things.show(next.kind === "scene" ? next.scene : null, same);
    drawPicture();
    draw();
  }

  async function takeScene(seed) {
    const mine = ++job;
    const next = await attempt(() => drawnScene(seed));
    if (!next || mine !== job) return;
    state.question = ""; // the questions are about what is there
    show(next);
    tell(`Another scene: ${$("picture").alt}`);
  }

  async function edit(next) {
    const mine = ++job;
    const changed = await attempt(() => editedScene(picture.scene.seed, next));
    if (!changed || mine !== job) return;
    if (next.length === picture.scene.things.length) {
      next.forEach((thing, i) => {
        const before = picture.scene.things[i];
        if (thing.cell !== before.cell) tell(`${nameOfThing(thing)}: ${data.world.places[thing.cell]}`);
      });
    }
    const kept = state.question;
    show(changed, true);
    state.question = kept;
    draw();
  }

  const takePhoto = (file) => attempt(async () => {
    job += 1;
    show(file.uri ? file : await pictureOfFile(file));
    tell(`Your picture: ${picture.name}`);
  });

  /* Asking */

  async function begin() {
    if (isWriting() || !picture) return;
    state.question = $("question").value.trim();
    if (!state.question) { $("question").focus(); return; }
    forgive();
    unpoint();
    const last = ranking && asked?.phase === "done" && asked.picture !== picture && asked.question === state.question && picture.edited
      ? { uri: asked.picture.uri, text: ranking.candidates[ranking.order[0]].text.trim() } : null;
    drawBefore(last);
    const mine = newAsking(state, picture, data.model);
    asked = mine;
    Object.assign(state, { candidate: mine.candidate ?? state.wanted ?? null, wanted: null });
    if (state.among > state.n) state.among = null;
    mine.looks = lookKeeper(mine);
    list.replaceChildren();
    tell(`Asking: ${state.question}`);
    const known = () => Math.max(0, ...mine.candidates.map((c) => c.tokens.length));
    const isDone = () => !WRITING.includes(mine.phase);
    mine.clock = tokenClock(known, isDone, (shown, all) => {
      if (asked !== mine) return;
      mine.shown = shown;
      if (all && !mine.allShown) finish(mine);
      else draw();
    });
    draw();
    await ask(mine, () => {
      if (asked !== mine) return;
      if (mine.phase === "failed") finish(mine);
      else if (mine.phase !== "writing") draw();
      mine.clock.wake();
    });
  }

  function finish(mine) {
    mine.allShown = true;
    mine.shown = Infinity;
    mine.clock.stop();
    if (mine.phase === "failed") {
      complain(mine.error, begin);
      ranking = null;
      draw();
      return;
    }
    draw();
    tell(endInWords(mine, ranking.candidates, ranking));
  }

  function stop() {
    asked?.abort.abort();
    if (asked && !asked.allShown && !WRITING.includes(asked.phase)) finish(asked); // written, not shown yet
  }

  /* Words, and where they looked */

  function unpoint() {
    pointed?.classList.remove("pointed");
    pointed?.removeAttribute("aria-describedby");
    pointed = null;
    hideTip();
    clearMap();
  }

  function point(word) {
    if (word === pointed) return;
    unpoint();
    if (!word || isWriting()) return;
    pointed = word;
    word.classList.add("pointed");
    word.setAttribute("aria-describedby", "tip");
    const index = Number(word.closest("li").dataset.index);
    showTip(word, ranking.candidates[index], state);
    setTimeout(() => { if (pointed === word) lookAt(word, index); }, asked.looked?.has(index) ? 0 : POINTED);
  }

  async function lookAt(word, index) {
    if (!data.looks) return addToTip(word, h("p", {}, NO_LOOKS));
    const mine = asked;
    let look;
    try {
      look = await mine.looks(mine.candidates[index]);
      (mine.looked ??= new Set()).add(index);
    } catch (error) {
      return pointed === word && addToTip(word, h("p", {}, `Where it looked is not known: ${error.message}`));
    }
    if (pointed !== word || asked !== mine) return undefined;
    if (!look.pictures[0]?.placed) return addToTip(word, h("p", {}, NO_PLACES));
    const span = spanOf(word);
    if (picture === mine.picture) {
      drawMapLegend(look, span, state.map, paintWord($("frame"), look, span, state.map));
      $("frame").dataset.word = `${index} ${span.first}`;
    }
    const small = picture === mine.picture ? smallPicture(mine.picture.uri) : null;
    if (small) paintWord(small, look, span, state.map, 256);
    return addToTip(word, h("p", {}, `looked ${placeInWords(look, span)}`), ...(small ? [small] : []));
  }

  /* Choosing an answer */

  function choose(index, focus) {
    state.candidate = index;
    draw();
    if (focus) rowOf(list, index)?.parts.button.focus();
  }

  function stepAnswer(row, by) {
    const next = by > 0 ? row.nextElementSibling : row.previousElementSibling;
    if (next) choose(Number(next.dataset.index), true);
  }

  async function compareChosen(panel) {
    const index = Number(panel.closest("li").dataset.index);
    const mine = asked;
    try {
      mine.compared.set(index, await compare(panel, mine, opened(mine.candidates[index], Infinity, data.floor), data.floor));
      tell(panel.querySelector(".verdict p").textContent);
    } catch (error) {
      panel.replaceChildren(h("p", { class: "reason" }, error.message),
        h("button", { type: "button", class: "small compare-it" }, "Try again"));
    }
  }

  /* Links and files */

  let timer;
  /** The address says what is shown; a photograph is only in a link that is asked for. */
  function remember() {
    clearTimeout(timer);
    if (!picture || picture.kind !== "scene") return;
    timer = setTimeout(() => history.replaceState(null, "", linkOf(state, picture, null, asked && asked.phase !== "failed")), QUIET);
  }

  async function restore(hash) {
    const given = readLink(hash, data);
    Object.assign(state, { among: null, candidate: null }, given.state);
    state.wanted = given.state.candidate ?? null;
    const next = await attempt(async () => {
      if (given.picture) { await imageOf(given.picture); return { kind: "photo", uri: given.picture, name: "from a link" }; }
      const seed = given.scene ?? 0;
      return given.things ? editedScene(seed, given.things) : drawnScene(seed);
    });
    if (!next) return;
    show(next);
    const notes = [...given.problems.map((one) => `The link is not all right: ${one}.`),
      ...(given.smaller ? ["The picture in this link is smaller than the one that was asked about: answers may differ."] : [])];
    if (given.asked) await begin();
    if (notes.length) complain({ message: notes.join(" ") });
  }

  async function copyLink() {
    const photo = picture.kind === "photo" ? await pictureInLink(picture.uri) : null;
    const lost = picture.kind === "photo" && !photo;
    const hash = linkOf(state, picture, photo, asked && asked.phase !== "failed");
    history.replaceState(null, "", hash);
    const copied = await copyText(location.href);
    const about = lost ? " The picture is too large for a link: it is not in it."
      : photo?.smaller ? " It has a smaller copy of the picture, so answers may differ." : "";
    flash($("copy-link"), copied ? "Copied" : "In the address bar");
    tell(`${copied ? "The link is copied." : "The link is in the address bar."}${about}`);
    if (about) complain({ message: about.trim() });
  }

  function flash(button, text) {
    button.dataset.label ??= button.textContent;
    button.textContent = text;
    setTimeout(() => { button.textContent = button.dataset.label; }, 1600);
  }

  async function savePicture() {
    try {
      const said = await giveAway(await sharedPicture(asked, ranking, state, data), "lookback.png");
      flash($("save-picture"), said === "copied" ? "Copied" : "Saved");
      tell(`The picture is ${said}.`);
    } catch (error) {
      complain({ message: `The picture could not be drawn: ${error.message}` });
    }
  }

  /* What the reader does */

  const wordIn = (event) => event.target.closest?.("#candidates > li > .said .word");
  list.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") point(wordIn(event)); });
  list.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") point(null); });
  list.addEventListener("focusin", (event) => point(wordIn(event)));
  list.addEventListener("focusout", (event) => { if (wordIn(event)) point(null); });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("#candidates > li");
    if (!row) return;
    if (event.target.closest(".compare-it")) { compareChosen(event.target.closest(".compare")); return; }
    if (event.target.closest(".compare")) return;
    const index = Number(row.dataset.index);
    if (index !== chosen()) choose(index);
    const word = wordIn(event);
    if (word && !isWriting()) { word.focus({ preventScroll: true }); point(word); }
  });
  list.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const word = wordIn(event);
    if (event.key === "Escape") { point(null); return; }
    if (!by) return;
    const vertical = event.key === "ArrowDown" || event.key === "ArrowUp";
    if (word && !vertical) { event.preventDefault(); stepWord(word, by); }
    if (event.target.matches(".rank") && vertical) { event.preventDefault(); stepAnswer(event.target.closest("li"), by); }
  });
  $("chips").addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    if (!chip) return;
    Object.assign(state, { question: chip.textContent });
    $("question").value = chip.textContent;
    draw();
  });
  $("form").addEventListener("submit", (event) => { event.preventDefault(); begin(); });
  $("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); begin(); }
  });
  $("stop").addEventListener("click", () => { stop(); $("ask").focus(); });
  $("another").addEventListener("click", () => takeScene(anySeed()));
  $("retry").addEventListener("click", () => { const way = again; forgive(); way?.(); });
  $("dismiss").addEventListener("click", forgive);
  $("copy-link").addEventListener("click", copyLink);
  $("save-picture").addEventListener("click", savePicture);
  $("save-json").addEventListener("click", () => {
    saveText(JSON.stringify(everything(asked, ranking, state, data), null, 1), "lookback.json");
    flash($("save-json"), "Saved");
  });
  $("show-keys").addEventListener("click", () => $("keys").showModal());
  $("close-keys").addEventListener("click", () => $("keys").close());
  addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    if (event.key === "Escape" && isWriting()) { stop(); return; }
    if (event.target.closest?.("input, select, textarea, dialog, #tour")) return;
    if (event.key === "/") { event.preventDefault(); $("question").focus(); $("question").select(); }
    if (event.key === "?") $("keys").showModal();
  });
  addEventListener("scroll", () => { if (!$("tip").hidden && pointed) placeTip(pointed); }, { passive: true });
  addEventListener("hashchange", () => { if (isLink(location.hash)) restore(location.hash); });
  listenToSettings(state, data, (changes) => {
    Object.assign(state, changes);
    if ("map" in changes && pointed) { const word = pointed; unpoint(); point(word); }
    draw();
  });
  listenForPhotos(takePhoto);
  listenForCamera(takePhoto, complain);
  fillSettings(data);
  const guide = tourGuide(tourSteps(begin, () => asked));
  guide.offer();
  drawSettings(state, data, 0);
  restore(isLink(location.hash) ? location.hash : `#scene=${FIRST_SCENE}`).then(() => { document.body.dataset.ready = "yes"; });
}

const FIRST_SCENE = 7;

/** The tour of this page. */
const tourSteps = (begin, asked) => [
  { target: "frame", title: "A picture", text: "Take a drawn scene and drag things about, or drop, paste or photograph a picture of your own." },
  { target: "form", title: "A question", text: "The model answers it many times, each time a little differently. The next step asks." },
  { target: "candidates", title: "The ranking", before: () => { if (!asked()) begin(); },
    text: "Answers appear as they are written. The best supported comes first: likely words, chosen while looking at the picture. Pruned ones end early and fade." },
  { target: "settings", title: "What counts", text: "Move α and λ, or rank by something else: the order follows at once. Words are shaded by the signal that you choose." },
  { target: "candidates", title: "Where it looked", text: "Point at a word, or tap it: the picture shows where the model looked. Below the chosen answer: would it say so without looking?" },
];

explore(JSON.parse($("data").textContent));
