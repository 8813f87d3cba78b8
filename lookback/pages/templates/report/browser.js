/* The browser of items: its state, what the reader does to it, and what follows from that. */

const PATIENCE = 60; // ms: a slider on its way comes before the means of all items

function browse(index) {
  const runs = index.runs.map((run) => openRun(run, index));
  const usual = () => ({
    run: 0, item: 0, alpha: runs[0].alpha, lam: runs[0].lam, n: runs[0].n, candidate: null,
    signal: "visual_lookback", search: "", show: "all", other: OTHERS[0], map: "raw",
  });
  const state = usual();
  let found = []; // the places of the items that fit
  let ranking = null; // of the item that is drawn
  let job = 0; // what is done later stops when something newer was asked for
  const run = () => runs[state.run];
  const item = () => run().items[state.item];
  const reported = () => ({ alpha: run().alpha, lam: run().lam });
  const at = (setting) => state.alpha === setting.alpha && state.lam === setting.lam;
  const selected = () => state.candidate ?? ranking.order[0];

  /* From the state to the page */

  /** Draw what is known at once, then load what else is needed and draw again. */
  async function update() {
    const mine = ++job;
    const current = () => mine === job;
    $("browser").ariaBusy = true;
    try {
      narrow();
      if (!isLoaded(item())) await run().load(state.item);
      if (!current()) return;
      draw();
      await loadMatches(current);
      await loadMeans(current);
    } catch (error) {
      complain([`This page is damaged: its items cannot be read (${error.message})`]);
    }
    if (current()) $("browser").ariaBusy = false;
  }

  /** The list of items that fit; where the shown one does not, the first that does is shown. */
  function narrow() {
    const { found: now, unknown } = narrowed(run(), state);
    if ($("item").dataset.run !== run().key || now.join() !== found.join()) {
      $("item").replaceChildren(...now.map((i) => {
        const { id, question } = run().items[i];
        return h("option", { value: i }, `${id}  ${question.slice(0, 60)}`);
      }));
    }
    $("item").dataset.run = run().key;
    found = now;
    const settled = found.length > 0 || !unknown;
    if (settled && !found.includes(state.item)) {
      Object.assign(state, { item: found[0] ?? 0, candidate: null });
    }
    const { items, total } = run();
    const matches = found.length < items.length ? ` · ${found.length || "none"} match` : "";
    const place = found.indexOf(state.item);
    $("item").value = state.item;
    $("place").value = `item ${state.item + 1} · ${items.length} of ${total} here${matches}`;
    $("loading").textContent = unknown ? `looking through ${unknown} more…` : "";
    $("previous").disabled = place <= 0;
    $("next").disabled = place < 0 || place === found.length - 1;
    return unknown;
  }

  async function loadMatches(current) {
    if (!narrow()) return;
    const before = state.item;
    let last = performance.now();
    await loadAll(run(), () => {
      if (current() && performance.now() - last > 250) { narrow(); last = performance.now(); }
      return current();
    });
    if (!current()) return;
    narrow();
    await run().load(state.item);
    if (current() && (state.item !== before || ranking.item !== item())) draw();
  }

  /** Means that are known are drawn at once; others once they are worked out, all together. */
  async function loadMeans(current) {
    const unknown = runs.filter((one) => !knownMeans(one, state));
    for (const one of unknown) {
      const whole = await loadAll(one, (count) => {
        if (current()) $("loading").textContent = `${one.label}: ${count} of ${one.items.length} items read`;
        return current();
      });
      if (whole) await new Promise((go) => setTimeout(go, PATIENCE));
      if (!whole || !current()) return;
      workOut(one, state, Object.keys(index.methods));
    }
    $("loading").textContent = "";
    if (unknown.length) drawAllMeans();
  }

  function drawAllMeans() {
    $("at").textContent =
      "Mean quality of the pick over the items of this page, per cent, at " +
      `α = ${state.alpha}, λ = ${state.lam}, N = ${state.n}`;
    drawMeans($("means"), runs, run(), state, index.methods);
    $("means").classList.remove("old");
  }

  /** Numbers that are still to be worked out: until then the last ones stay, and look so. */
  function drawMeansIfKnown() {
    const drawn = $("means").tBodies[0].rows.length > 0;
    if (!drawn || runs.every((one) => knownMeans(one, state))) drawAllMeans();
    else $("means").classList.add("old");
  }

  function drawFields() {
    $("n").max = $("n-number").max = run().n;
    $("n").min = $("n-number").min = run().least;
    for (const name of ["alpha", "lam", "n"]) {
      $(name).value = state[name];
      if (document.activeElement !== $(`${name}-number`)) $(`${name}-number`).value = state[name];
    }
    for (const name of ["run", "signal", "show", "other", "search"]) {
      if ($(name).value !== String(state[name])) $(name).value = state[name];
    }
    $("other").disabled = state.show === "all";
    $("reported").ariaPressed = at(reported());
    $("general").ariaPressed = at(index.general);
  }

  function draw() {
    if (state.candidate >= first(item(), state.n).length) state.candidate = null; // it has fewer
    drawFields();
    $("tip").hidden = true;
    const picks = Object.keys(METHODS).map((method) => [method, pick(method, item(), state)]);
    ranking = { ...rankingOf(item(), state, reported()), item: item(), picks };
    const held = document.activeElement?.matches("#candidates .rank");
    drawMeansIfKnown();
    drawAsked($("asked"), item(), picks, index.methods, state.map);
    drawCandidates($("candidates"), ranking, picks, state, index.methods);
    $("no-controls").hidden = Object.keys(run().controls).length > 0;
    drawSelected($("candidates"), item(), selected(), state);
    if (held) button(selected()).focus({ preventScroll: true });
  }

  const button = (index) => $("candidates").querySelector(`[data-index="${index}"] > .rank`);

  /* What the reader does */

  const remember = remembered(() => ({ hash: linkOf(state, run()), item: `${state.run} ${state.item}` }));

  function change(changes) {
    Object.assign(state, changes);
    if (state.candidate !== null && state.candidate >= state.n) state.candidate = null;
    complain([]);
    update();
    remember();
  }

  function chooseRun(number) {
    const next = runs[number];
    const followed = at(reported()); // then the next run's reported setting, too
    const n = state.n === run().n ? next.n : Math.max(next.least, Math.min(state.n, next.n));
    const setting = followed ? { alpha: next.alpha, lam: next.lam } : {};
    const same = Math.min(state.item, next.items.length - 1);
    change({ run: number, item: same, candidate: null, n, ...setting });
  }

  const chooseItem = (place) => change({ item: place, candidate: null });

  function step(by) {
    const next = found[found.indexOf(state.item) + by];
    if (next !== undefined) chooseItem(next);
  }

  function select(candidate) {
    state.candidate = candidate;
    drawSelected($("candidates"), item(), candidate, state);
    remember();
  }

  /** Select the next candidate of the ranking; whether there is one. */
  function stepCandidate(by) {
    const next = ranking?.order[ranking.order.indexOf(selected()) + by];
    if (next === undefined) return false;
    select(next);
    button(next).focus({ preventScroll: true });
    button(next).closest("li").scrollIntoView({ block: "nearest" });
    return true;
  }

  function set(name, text) {
    const value = Number(text);
    const fits = name === "n"
      ? Number.isInteger(value) && value >= run().least && value <= run().n
      : Number.isFinite(value) && value >= 0;
    if (text.trim() !== "" && fits) change({ [name]: value }); // else it is half-typed
  }

  /** Show what a link says; what it names that is not here is said. */
  async function restore(hash) {
    const { state: read, problems } = readLink(hash, runs, usual);
    Object.assign(state, read);
    complain(problems);
    remember.begin();
    await update();
    if (state.run !== read.run || state.search !== read.search) return; // the reader went on
    const { id, candidates } = runs[read.run].items[read.item];
    if (!found.includes(read.item)) {
      complain([...problems, `item “${id}” is not among those that the link’s search and filter find`]);
    } else if (read.candidate >= candidates?.length) {
      complain([...problems, `candidate “${read.candidate + 1}”: item “${id}” has ${candidates.length}`]);
    }
  }

  function tip(event) {
    const token = event.target.closest("[data-token]");
    $("tip").hidden = !token;
    const c = token && item().candidates[token.closest("li").dataset.index];
    const t = Number(token?.dataset.token);
    if (token) drawTip(token, c, state, smallMap($("asked"), item(), c, t, state.map));
    drawMap($("asked"), c, t, state.map);
  }

  async function copy() {
    const one = ranking?.item;
    if (!one) return;
    $("copied").value = "drawing…";
    try {
      const canvas = await drawPicture(one, ranking, state, run(), index.methods);
      $("copied").value = await giveAway(canvas, `${one.id.replaceAll(/[^\w.-]+/g, "-")}.png`);
    } catch (error) {
      $("copied").value = `it could not be drawn: ${error.message}`;
    }
  }

  for (const name of ["alpha", "lam", "n"]) {
    for (const input of [$(name), $(`${name}-number`)]) {
      input.addEventListener("input", () => set(name, input.value));
    }
    $(`${name}-number`).addEventListener("blur", drawFields);
  }
  $("reported").addEventListener("click", () => change(reported()));
  $("general").addEventListener("click", () => change({ ...index.general }));
  $("run").addEventListener("change", () => chooseRun(Number($("run").value)));
  $("item").addEventListener("change", () => chooseItem(Number($("item").value)));
  $("search").addEventListener("input", () => change({ search: $("search").value }));
  for (const name of ["signal", "show", "other"]) {
    $(name).addEventListener("change", () => change({ [name]: $(name).value }));
  }
  $("asked").addEventListener("change", (event) => { state.map = event.target.value; });
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  $("copy").addEventListener("click", copy);
  $("candidates").addEventListener("click", (event) => {
    const row = event.target.closest("li");
    if (row && !event.target.closest(".compare")) select(Number(row.dataset.index));
  });
  $("candidates").addEventListener("pointerover", tip);
  $("candidates").addEventListener("pointerleave", tip);
  addEventListener("scroll", () => { $("tip").hidden = true; }, { passive: true });
  listenToKeys(step, stepCandidate);
  addEventListener("popstate", () => {
    if (location.hash === "" || isLink(location.hash)) restore(location.hash);
  });

  fill(runs, index);
  $("browser").hidden = false;
  restore(isLink(location.hash) ? location.hash : "").then(() => {
    if (isLink(location.hash)) $("items").scrollIntoView();
  });
}

/** The choices that do not change. */
function fill(runs, index) {
  const options = (entries) => entries.map(([value, label]) => h("option", { value }, label));
  $("run").append(...options(runs.map((run, i) => [i, run.label])));
  $("signal").append(...options(Object.entries(SHADES).map(([name, [label]]) => [name, label])));
  $("show").append(...options(Object.entries(SHOWS).map(([name, [label]]) => [name, label])));
  $("other").append(...options(OTHERS.map((name) => [name, index.methods[name].title])));
  $("general").append(` (${index.general.alpha}, ${index.general.lam})`);
  for (const [method, { color }] of Object.entries(index.methods)) {
    document.documentElement.style.setProperty(`--${method}`, color);
  }
}

/** Say what is wrong, or nothing. */
function complain(problems) {
  $("problem").hidden = !problems.length;
  $("problem").textContent = problems.join(". ");
}
