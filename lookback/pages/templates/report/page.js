/* The page: reads its data, draws, listens. What it computes is in maths.js.

   ---------- The data: see lookback/report/data.py ---------- */

/** Float32, little-endian as every machine that a browser runs on; arithmetic is in float64. */
function floats(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return Float64Array.from(new Float32Array(bytes.buffer));
}

/** A run whose candidates have their signals with them. */
function opened(run, floor) {
  const signals = Object.entries(run.signals).map(([name, text]) => [name, floats(text)]);
  let start = 0;
  const candidate = ([tokens, quality, finish], index) => {
    const end = start + tokens.length;
    const own = signals.map(([name, values]) => [name, values.subarray(start, end)]);
    start = end;
    const c = { index, tokens, finish, quality: quality ?? NaN, ...Object.fromEntries(own) };
    c.means = Object.fromEntries(own.map(([name, tokenwise]) => [name, mean(tokenwise)]));
    c.logA = c.visual_lookback.map((a) => Math.log(Math.max(a, floor)));
    return c;
  };
  const items = run.items.map((item) => ({ ...item, candidates: item.candidates.map(candidate) }));
  return { ...run, items };
}

/* ---------- Small things for the page ---------- */

const $ = (id) => document.getElementById(id);

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const shown = (x, digits) => (Number.isFinite(x) ? x.toFixed(digits).replace("-", "−") : "–");
const brief = (x) =>
  Math.abs(x) < 0.001 && x !== 0 ? x.toExponential(1).replaceAll("-", "−") : shown(x, 3);

/* ---------- Tables that sort ---------- */

function sortable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const heads = [...table.tHead.rows].at(-1).cells;
  const words = new Intl.Collator("en", { numeric: true });
  [...heads].forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const numeric = head.classList.contains("num");
    const cycle = [...(numeric ? ["descending", "ascending"] : ["ascending", "descending"]), "none"];
    const order = cycle[(cycle.indexOf(head.ariaSort) + 1) % 3];
    for (const other of heads) other.ariaSort = "none";
    head.ariaSort = order;
    const sign = order === "descending" ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      const missing = (x.dataset.value === "") - (y.dataset.value === "");
      if (missing) return missing; // last, whichever way
      return sign * (numeric
        ? Number(x.dataset.value) - Number(y.dataset.value)
        : words.compare(x.textContent, y.textContent));
    };
    // From the rows as they stand, so that ties keep the order of the column sorted before.
    body.append(...(order === "none" ? original : [...body.rows].sort(compare)));
    table.classList.toggle("sorted", order !== "none");
  }));
}

/* ---------- Where the reader is ---------- */

function followed(links) {
  const seen = new Map(links.map((link) => [document.querySelector(link.hash), link]));
  const observer = new IntersectionObserver((entries) => {
    const entry = entries.find((e) => e.isIntersecting);
    if (!entry) return;
    for (const link of links) link.removeAttribute("aria-current");
    const link = seen.get(entry.target);
    link.setAttribute("aria-current", "true");
    const list = link.closest("ul");
    list.scrollTo({ left: link.offsetLeft - list.offsetLeft - 60 }); // on small screens it is a row
  }, { rootMargin: "-20% 0px -79% 0px" });
  for (const section of seen.keys()) observer.observe(section);
}

/* ---------- The browser of items ---------- */

/** What a token can be shaded by: its name, and its values for one candidate. */
const SHADES = {
  visual_lookback: ["visual lookback A", (c) => c.visual_lookback],
  log_prob: ["log p", (c) => c.log_prob],
  self_certainty: ["self-certainty", (c) => c.self_certainty],
  entropy: ["entropy", (c) => c.entropy],
  u: ["u = log p + α log A", (c, s) => c.logA.map((a, t) => tokenScore(c.log_prob[t], a, s.alpha))],
  q: ["relevance q", (c, s) => relevance(c.logA, s.lam)],
  qu: ["contribution q · u", (c, s) => {
    const u = SHADES.u[1](c, s);
    return SHADES.q[1](c, s).map((q, t) => q * u[t]);
  }],
};
const values = (c, name, setting) => (c.tokens.length ? SHADES[name][1](c, setting) : []);

function browse(data) {
  const runs = data.runs.map((run) => opened(run, data.floor));
  const state = { run: 0, item: 0, alpha: 0, lam: 0, n: 0, signal: "visual_lookback", found: [] };
  const run = () => runs[state.run];
  const item = () => run().items[state.item];
  const reported = () => ({ alpha: run().alpha, lam: run().lam });
  const at = (setting) => state.alpha === setting.alpha && state.lam === setting.lam;

  /* Choosing a run and an item */

  function chooseRun(index) {
    const followed = !state.n || at(reported()); // then the next run's reported setting, too
    const whole = !state.n || state.n === run().n;
    state.run = index;
    if (followed) Object.assign(state, reported());
    state.n = whole ? run().n : Math.min(state.n, run().n);
    $("n").max = $("n-number").max = run().n;
    search();
  }

  function search() {
    const words = $("search").value.trim().toLowerCase();
    const fits = ({ id, question }) => `${id}\n${question}`.toLowerCase().includes(words);
    state.found = run().items.flatMap((one, i) => (fits(one) ? [i] : []));
    $("item").replaceChildren(...state.found.map((i) => {
      const { id, question } = run().items[i];
      return h("option", { value: i }, `${id}  ${question.slice(0, 60)}`);
    }));
    chooseItem(state.found.includes(state.item) ? state.item : state.found[0] ?? 0);
  }

  function chooseItem(index) {
    state.item = index;
    $("item").value = index;
    const { items, total } = run();
    const place = state.found.indexOf(index);
    const matches = state.found.length < items.length ? ` · ${state.found.length || "none"} match` : "";
    $("place").value = `item ${index + 1} · ${items.length} of ${total} here${matches}`;
    $("previous").disabled = place <= 0;
    $("next").disabled = place < 0 || place === state.found.length - 1;
    render();
  }

  function step(by) {
    const next = state.found[state.found.indexOf(state.item) + by];
    if (next !== undefined) chooseItem(next);
  }

  /* Drawing */

  function render() {
    for (const name of ["alpha", "lam", "n"]) {
      $(name).value = state[name];
      if (document.activeElement !== $(`${name}-number`)) $(`${name}-number`).value = state[name];
    }
    $("tip").hidden = true;
    $("reported").ariaPressed = at(reported());
    $("general").ariaPressed = at(data.general);
    const picks = Object.keys(METHODS).map((method) => [method, pick(method, item(), state)]);
    drawMeans();
    drawAsked(picks);
    drawCandidates(picks);
  }

  function drawMeans() {
    $("at").textContent =
      "Mean quality of the pick over the items of this page, per cent, at " +
      `α = ${state.alpha}, λ = ${state.lam}, N = ${state.n}`;
    const heads = Object.entries(data.methods).map(([method, { title }]) =>
      h("th", { scope: "col", class: `num ${method}` }, title));
    $("means").tHead.replaceChildren(h("tr", {}, h("th", { scope: "col" }, "Run"), ...heads));
    $("means").tBodies[0].replaceChildren(...runs.map((one, i) => h(
      "tr", i === state.run ? { "aria-current": "true" } : {}, h("th", { scope: "row" }, one.label),
      ...Object.keys(data.methods).map((method) => {
        const value = 100 * worth(method, one.items, state);
        return h("td", { class: `num ${method}`, "data-value": value }, shown(value, 2));
      }),
    )));
  }

  function drawAsked(picks) {
    const { image, reason, question, truth, id, candidates } = item();
    const picture = image === null
      ? h("p", { class: "no-image" }, h("strong", {}, "No image here."), ` ${reason}`)
      : h("img", { src: data.images[image], alt: `The image of item ${id}` });
    $("asked").replaceChildren(
      picture,
      h("p", { class: "id" }, id),
      h("p", { class: "question" }, question),
      h("h3", {}, "Truth"),
      h("dl", {}, ...truth.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
      h("h3", {}, "Picks"),
      h("table", { class: "picks" }, h("tbody", {}, ...picks.map(([method, place]) => h(
        "tr", { "data-method": method, "data-pick": place },
        h("th", { scope: "row" }, h("span", { class: `badge ${method}` }, data.methods[method].title)),
        h("td", {}, `candidate ${place + 1}`),
        h("td", { class: "num" }, shown(candidates[place].quality, 2)),
      )))),
    );
  }

  function drawCandidates(picks) {
    const candidates = first(item(), state.n);
    const scores = candidates.map((c) => METHODS.lookback(c, state));
    const before = rank(candidates.map((c) => METHODS.lookback(c, reported())));
    const shades = candidates.map((c) => values(c, state.signal, state));
    // The middle 90 % span the shades: a token far out would leave the others pale.
    const sorted = Float64Array.from(shades.flatMap((s) => [...s])).sort();
    const [low, high] = [0.05, 0.95].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
    // What a token adds to the score is mostly below 0: there, the darkest costs most.
    const [light, dark] = state.signal === "qu" ? [high, low] : [low, high];
    const strength = (x) => Math.min(1, Math.max(0, (x - light) / (dark - light || 1)));
    $("lightest").value = `${light > dark ? "≥" : "≤"} ${brief(light)}`;
    $("darkest").value = `${light > dark ? "≤" : "≥"} ${brief(dark)}`;
    $("candidates").dataset.signal = $("legend").dataset.signal = state.signal;
    $("candidates").replaceChildren(...rank(scores).map((i, place) => {
      const { quality, tokens, finish } = candidates[i];
      const badges = picks.filter(([, picked]) => picked === i)
        .map(([method]) => h("span", { class: `badge ${method}` }, data.methods[method].title));
      const moved = before.indexOf(i) - place;
      const words = tokens.map((token, t) => {
        const text = (t ? token : token.replace(/^ /, "")).replaceAll("\n", "⏎\n");
        const span = h("span", { "data-token": t }, text || "∅");
        span.style.setProperty("--strength", strength(shades[i][t]));
        return span;
      });
      const bar = h("i", { class: "meter" });
      bar.style.setProperty("--strength", quality || 0);
      return h(
        "li", { "data-index": i, "data-rank": place + 1, "data-score": scores[i] },
        h("div", { class: "rank" }, String(place + 1), ...(moved ? [h(
          "small", { title: "places from the reported setting", class: moved > 0 ? "up" : "down" },
          `${moved > 0 ? "▲" : "▼"}${Math.abs(moved)}`)] : [])),
        h("div", {},
          h("div", { class: "facts" },
            h("span", { class: "score", title: "score S" }, shown(scores[i], 4)),
            h("span", { class: "quality", title: "quality" }, bar, ` ${shown(quality, 2)}`),
            h("span", {}, `candidate ${i + 1} · ${tokens.length} tokens · ${finish}`), ...badges),
          h("p", { class: "tokens", dir: "auto" }, ...(words.length ? words : [h("em", {}, "empty")]))),
      );
    }));
  }

  function tip(event) {
    const token = event.target.closest("[data-token]");
    $("tip").hidden = !token;
    if (!token) return;
    const c = item().candidates[token.closest("li").dataset.index];
    const t = Number(token.dataset.token);
    const rows = Object.keys(SHADES).map((name) => h("tr", {},
      h("th", {}, SHADES[name][0]), h("td", { class: "num" }, brief(values(c, name, state)[t]))));
    $("tip").replaceChildren(
      h("p", {}, h("code", {}, JSON.stringify(c.tokens[t])), ` ${t + 1} of ${c.tokens.length}`),
      h("table", {}, h("tbody", {}, ...rows)));
    const [box, own] = [token.getBoundingClientRect(), $("tip").getBoundingClientRect()];
    const above = box.bottom + own.height + 12 > innerHeight;
    $("tip").style.top = `${above ? box.top - own.height - 6 : box.bottom + 6}px`;
    $("tip").style.left = `${Math.max(8, Math.min(box.left, document.body.clientWidth - own.width - 8))}px`;
  }

  /* What the reader does */

  function set(name, text) {
    const value = Number(text);
    const fits = name === "n"
      ? Number.isInteger(value) && value >= 1 && value <= run().n
      : Number.isFinite(value) && value >= 0;
    if (text.trim() === "" || !fits) return; // half-typed
    state[name] = value;
    render();
  }

  for (const name of ["alpha", "lam", "n"]) {
    for (const input of [$(name), $(`${name}-number`)]) {
      input.addEventListener("input", () => set(name, input.value));
    }
    $(`${name}-number`).addEventListener("blur", render);
  }
  const apply = (setting) => { Object.assign(state, setting); render(); };
  $("reported").addEventListener("click", () => apply(reported()));
  $("general").addEventListener("click", () => apply(data.general));
  $("general").append(` (${data.general.alpha}, ${data.general.lam})`);
  $("run").addEventListener("change", () => chooseRun(Number($("run").value)));
  $("item").addEventListener("change", () => chooseItem(Number($("item").value)));
  $("search").addEventListener("input", search);
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  $("signal").addEventListener("change", () => { state.signal = $("signal").value; render(); });
  $("candidates").addEventListener("pointerover", tip);
  $("candidates").addEventListener("pointerleave", tip);
  addEventListener("scroll", () => { $("tip").hidden = true; }, { passive: true });
  addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const other = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    if (!by || other || event.target.closest?.("input, select, .scroll")) return;
    event.preventDefault();
    step(by);
  });

  $("run").append(...runs.map((one, i) => h("option", { value: i }, one.label)));
  $("signal").append(...Object.entries(SHADES).map(([name, [label]]) =>
    h("option", { value: name }, label)));
  for (const [method, { color }] of Object.entries(data.methods)) {
    document.documentElement.style.setProperty(`--${method}`, color);
  }
  $("browser").hidden = false;
  chooseRun(0);
}

document.querySelectorAll("table.sortable").forEach(sortable);
followed([...document.querySelectorAll("nav li a")]);
const data = JSON.parse($("data").textContent);
if (data.runs.length) browse(data);
else $("extent").textContent = "None of these runs has items to show: give one that is no control.";
