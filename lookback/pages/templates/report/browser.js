/* The browser of items: its state, links to it, what the reader does to it, and what follows from that. */

const SLIDERS = ["alpha", "lam", "n"];
const PATIENCE = 60; // ms: a slider on its way comes before the means of all items

/** The hash of a state; what is as it is by default is left out, but for what every link names. */
function linkOf(state, run) {
  const all = state.show === "all";
  return hashOf({
    run: run.key, item: run.items[state.item].id, alpha: state.alpha, lam: state.lam, n: state.n,
    candidate: state.candidate === null ? "" : state.candidate + 1, signal: state.signal,
    search: state.search, show: all ? "" : state.show, other: all ? "" : state.other,
  });
}

/** A state from a hash, and a sentence about each thing in it that this page has not. */
function readLink(hash, runs, usual) {
  const { problems, read, number, choice } = hashReader(hash);
  const state = { ...usual() };
  const set = (name, value) => { if (value !== undefined) state[name] = value; };
  const place = (list, test) => { const i = list.findIndex(test); return i < 0 ? undefined : i; };

  set("run", read("run", (key) => place(runs, (run) => linkable(run.key) === key),
    `there is no such run here; there are: ${runs.map((run) => run.key).join(", ")}`));
  const run = runs[state.run];
  Object.assign(state, { alpha: run.alpha, lam: run.lam, n: run.n });
  set("item", read("item", (id) => place(run.items, (item) => linkable(item.id) === id),
    `there is no such item here; the page has ${run.items.length} of the ${run.total} of ${run.key}`));
  for (const name of ["alpha", "lam"]) {
    set(name, read(name, number(0, Number.MAX_VALUE, false), "it must be 0 or more"));
  }
  set("n", read("n", number(run.least, run.n), `it must be from ${run.least} to ${run.n}`));
  const candidate = read("candidate", number(1, state.n), `it must be from 1 to ${state.n}`);
  set("candidate", candidate && candidate - 1);
  const choices = { signal: Object.keys(SHADES), show: Object.keys(SHOWS), other: OTHERS };
  for (const [name, names] of Object.entries(choices)) set(name, choice(name, names));
  set("search", read("search", (words) => words));
  return { state, problems };
}

/** A function that writes the address once things are quiet: another item is another entry of the
    history, anything else changes the entry. `begin` says that the address is as the state is. */
function addressWriter(look) {
  let timer, entry;
  const write = () => {
    const { hash, item } = look();
    history[item === entry ? "replaceState" : "pushState"](null, "", hash);
    entry = item;
  };
  const remember = () => {
    clearTimeout(timer);
    timer = setTimeout(write, QUIET);
  };
  remember.begin = () => {
    clearTimeout(timer);
    entry = look().item;
  };
  return remember;
}

function isInView(list) {
  const { top, bottom } = list.getBoundingClientRect();
  return top < 0.6 * innerHeight && bottom > 0.4 * innerHeight;
}

function browse(index) {
  const { methods, general } = index;
  const runs = index.runs.map((run) => openRun(run, index));
  const usual = () => ({
    run: 0, item: 0, alpha: runs[0].alpha, lam: runs[0].lam, n: runs[0].n, candidate: null,
    signal: "visual_lookback", search: "", show: "all", other: OTHERS[0], map: "raw",
  });
  const state = usual();
  let matches = []; // the places of the items that fit
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
      listItems();
      if (!isLoaded(item())) await run().load(state.item);
      if (!current()) return;
      draw();
      await loadMatches(current);
      await loadMeans(current);
    } catch (error) {
      showProblems([`This page is damaged: its items cannot be read (${error.message})`]);
    }
    if (current()) $("browser").ariaBusy = false;
  }

  /** The list of items that fit; where the shown one does not, the first that does is shown. */
  function listItems() {
    const { places, unknown } = matchingItems(run(), state);
    if ($("item").dataset.run !== run().key || places.join() !== matches.join()) {
      $("item").replaceChildren(...options(places.map((i) => {
        const { id, question } = run().items[i];
        return [i, `${id}  ${question.slice(0, 60)}`];
      })));
    }
    $("item").dataset.run = run().key;
    matches = places;
    const settled = matches.length > 0 || !unknown;
    if (settled && !matches.includes(state.item)) {
      Object.assign(state, { item: matches[0] ?? 0, candidate: null });
    }
    const { items, total } = run();
    const count = matches.length < items.length ? ` · ${matches.length || "none"} match` : "";
    const place = matches.indexOf(state.item);
    $("item").value = state.item;
    $("place").value = `item ${state.item + 1} · ${items.length} of ${total} here${count}`;
    $("loading").textContent = unknown ? `looking through ${unknown} more…` : "";
    $("previous").disabled = place <= 0;
    $("next").disabled = place < 0 || place === matches.length - 1;
    return unknown;
  }

  async function loadMatches(current) {
    if (!listItems()) return;
    const before = state.item;
    let last = performance.now();
    await loadAll(run(), () => {
      if (current() && performance.now() - last > 250) { listItems(); last = performance.now(); }
      return current();
    });
    if (!current()) return;
    listItems();
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
      computeMeans(one, state, Object.keys(methods));
    }
    $("loading").textContent = "";
    if (unknown.length) drawAllMeans();
  }

  function drawAllMeans() {
    $("at").textContent =
      "Mean quality of the pick over the items of this page, per cent, at " +
      `α = ${state.alpha}, λ = ${state.lam}, N = ${state.n}`;
    drawMeans($("means"), runs, run(), state, methods);
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
    for (const name of SLIDERS) {
      $(name).value = state[name];
      putField(`${name}-number`, state[name]);
    }
    for (const name of ["run", "signal", "show", "other", "search"]) {
      if ($(name).value !== String(state[name])) $(name).value = state[name];
    }
    $("other").disabled = state.show === "all";
    $("reported").ariaPressed = at(reported());
    $("general").ariaPressed = at(general);
  }

  function draw() {
    if (state.candidate >= first(item(), state.n).length) state.candidate = null; // it has fewer
    drawFields();
    $("tip").hidden = true;
    const picks = Object.keys(METHODS).map((method) => [method, pick(method, item(), state)]);
    const candidates = first(item(), state.n);
    const [scores, before] = [state, reported()]
      .map((setting) => candidates.map((c) => METHODS.lookback(c, setting)));
    ranking = { ...rankedAndShaded(candidates, scores, state), before: rank(before), item: item(), picks };
    const held = document.activeElement?.matches("#candidates .rank");
    drawMeansIfKnown();
    drawAsked(item(), picks, methods, state.map);
    drawCandidates(ranking, state, methods);
    $("no-controls").hidden = Object.keys(run().controls).length > 0;
    drawSelected(item(), selected(), state);
    if (held) button(selected()).focus({ preventScroll: true });
  }

  const button = (index) => $("candidates").querySelector(`[data-index="${index}"] > .rank`);

  /* What the reader does */

  const remember = addressWriter(() => ({ hash: linkOf(state, run()), item: `${state.run} ${state.item}` }));

  function change(changes) {
    Object.assign(state, changes);
    if (state.candidate !== null && state.candidate >= state.n) state.candidate = null;
    showProblems([]);
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
    const next = matches[matches.indexOf(state.item) + by];
    if (next !== undefined) chooseItem(next);
    return true;
  }

  function select(candidate) {
    state.candidate = candidate;
    drawSelected(item(), candidate, state);
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

  /** Show what a link says; what it names that is not here is said. */
  async function restore(hash) {
    const { state: read, problems } = readLink(hash, runs, usual);
    Object.assign(state, read);
    showProblems(problems);
    remember.begin();
    await update();
    if (state.run !== read.run || state.search !== read.search) return; // the reader went on
    const { id, candidates } = runs[read.run].items[read.item];
    if (!matches.includes(read.item)) {
      showProblems([...problems, `item “${id}” is not among those that the link’s search and filter find`]);
    } else if (read.candidate >= candidates?.length) {
      showProblems([...problems, `candidate “${read.candidate + 1}”: item “${id}” has ${candidates.length}`]);
    }
  }

  function tip(event) {
    const token = event.target.closest("[data-token]");
    $("tip").hidden = !token;
    const c = token && item().candidates[token.closest("li").dataset.index];
    const small = drawMap(item(), c, Number(token?.dataset.token), state.map);
    if (token) drawTip(token, c, state, small);
  }

  function shared() {
    const rows = ranking.order.map((index, place) => {
      const { tokens, quality } = ranking.candidates[index];
      const facts = [`S ${shown(ranking.scores[index], 4)}`, `quality ${shown(quality, 2)}`, `candidate ${index + 1}`];
      const names = ranking.picks.filter(([, picked]) => picked === index).map(([method]) => methods[method].title);
      if (names.length) facts.push(`picked by ${names.join(", ")}`);
      return { place: place + 1, facts: facts.join("   "), tokens, strengths: ranking.strengths[index] };
    });
    const { id, question } = ranking.item;
    const about = `${run().label} · LookBack, α = ${state.alpha}, λ = ${state.lam}, `
      + `${Math.min(SHARED.rows, rows.length)} of N = ${state.n} · shaded by ${SHADES[state.signal][0]}`;
    return { caption: id, question, rows, about };
  }

  async function copy() {
    if (!ranking) return;
    const { id, image } = ranking.item;
    $("copied").value = "drawing…";
    try {
      const name = `${id.replaceAll(/[^\w.-]+/g, "-")}.png`;
      $("copied").value = await shareAsPicture(image === null ? null : imageAt(image), shared(), name);
    } catch (error) {
      $("copied").value = `it could not be drawn: ${error.message}`;
    }
  }

  listenToNumbers(SLIDERS.flatMap((name) => [[name, name], [`${name}-number`, name]]), change, drawFields);
  listenToClicks({
    reported: () => change(reported()), general: () => change({ ...general }),
    previous: () => step(-1), next: () => step(1), copy,
  });
  $("run").addEventListener("change", () => chooseRun(Number($("run").value)));
  $("item").addEventListener("change", () => chooseItem(Number($("item").value)));
  $("search").addEventListener("input", () => change({ search: $("search").value }));
  for (const name of ["signal", "show", "other"]) {
    $(name).addEventListener("change", () => change({ [name]: $(name).value }));
  }
  $("asked").addEventListener("change", (event) => { state.map = event.target.value; });
  $("candidates").addEventListener("click", (event) => {
    const row = event.target.closest("li");
    if (row && !event.target.closest(".compare")) select(Number(row.dataset.index));
  });
  $("candidates").addEventListener("pointerover", tip);
  $("candidates").addEventListener("pointerleave", tip);
  addEventListener("scroll", () => { $("tip").hidden = true; }, { passive: true });
  // Where there is no next candidate, or the list is out of sight, up and down scroll as ever.
  listenToKeys({
    ArrowLeft: () => step(-1), ArrowRight: () => step(1),
    ArrowUp: () => isInView($("candidates")) && stepCandidate(-1),
    ArrowDown: () => isInView($("candidates")) && stepCandidate(1),
    "/": () => goTo("search"), "?": showKeys,
  }, "input, select, textarea, dialog, .scroll");
  addEventListener("popstate", () => {
    if (location.hash === "" || isLink(location.hash)) restore(location.hash);
  });

  fill(runs, index);
  $("browser").hidden = false;
  restore(isLink(location.hash) ? location.hash : "").then(() => {
    if (isLink(location.hash)) $("items").scrollIntoView();
  });
}

function fill(runs, { methods, general }) {
  $("run").append(...options(runs.map((run, i) => [i, run.label])));
  $("signal").append(...options(SHADE_NAMES));
  $("show").append(...options(Object.entries(SHOWS).map(([name, [label]]) => [name, label])));
  $("other").append(...options(OTHERS.map((name) => [name, methods[name].title])));
  $("general").append(` (${general.alpha}, ${general.lam})`);
  setColors(methods);
}

function showProblems(problems) {
  $("problem").hidden = !problems.length;
  $("problem").textContent = problems.join(". ");
}
