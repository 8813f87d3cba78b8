/* The demo's page: reads its data, draws, listens. What it computes is in report/maths.js; what the
   data are, in lookback/demo/page.py. */

const $ = (id) => document.getElementById(id);

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const shown = (x, digits) => (Number.isFinite(x) ? x.toFixed(digits).replace("-", "−") : "–");

/** A variable with its index, as it is typeset. */
const symbol = (letter, index) => h("span", { class: "symbol" }, h("i", {}, letter), h("sub", {}, index));

/** What a token can be shaded by: its name, what it means, what the lightest and the darkest are within
    an answer, its values, and whether the lowest is the darkest. */
const SIGNALS = {
  visual_lookback: {
    name: () => [symbol("A", "t")],
    meaning: "the share of attention on the image when the token was chosen",
    ends: ["looked least", "looked most"],
    values: (c) => c.visual_lookback,
  },
  log_prob: {
    name: () => ["log ", symbol("p", "t")],
    meaning: "how likely the token was",
    ends: ["likely", "unlikely"],
    values: (c) => c.log_prob,
    low: true,
  },
  self_certainty: {
    name: () => ["self-certainty"],
    meaning: "how peaked the distribution was, whichever token was drawn",
    ends: ["unsure", "sure"],
    values: (c) => c.self_certainty,
  },
  u: {
    name: () => [symbol("u", "t")],
    meaning: "log p + α log A, what LookBack adds up",
    ends: ["costs least", "costs most"],
    values: (c, s) => c.logA.map((a, t) => tokenScore(c.log_prob[t], a, s.alpha)),
    low: true,
  },
  q: {
    name: () => ["weight ", h("i", {}, "q"), "(", h("i", {}, "t"), ")"],
    meaning: "how much the token counts: A to the power λ",
    ends: ["counts least", "counts most"],
    values: (c, s) => relevance(c.logA, s.lam),
  },
};

/** From 0 to 1 within one answer, so that answers can be read whatever others do; 0.5 if all equal. */
function strengths(values, low) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return Array.from(values, (x) => {
    if (most === least) return 0.5;
    return low ? (most - x) / (most - least) : (x - least) / (most - least);
  });
}

const array = (values) => Float64Array.from(values);

/** A candidate as maths.js takes it. */
function opened(given, index, floor) {
  const c = { ...given, index };
  for (const name of ["visual_lookback", "log_prob", "self_certainty"]) c[name] = array(given[name]);
  c.means = Object.fromEntries(["visual_lookback", "log_prob", "self_certainty"]
    .map((name) => [name, mean(c[name])]));
  c.logA = c.visual_lookback.map((a) => Math.log(Math.max(a, floor)));
  return c;
}

/** Answers of the same tokens together, each group at the place of its first. */
function merged(order, candidates) {
  const groups = new Map();
  for (const i of order) {
    const key = JSON.stringify(candidates[i].tokens);
    groups.set(key, [...(groups.get(key) ?? []), i]);
  }
  return [...groups.values()];
}

const data = JSON.parse($("data").textContent);
const candidates = data.candidates.map((c, i) => opened(c, i, data.floor));
const state = { ...data.setting, signal: "visual_lookback" };
const scoresAt = (setting) => candidates.map((c) => METHODS.lookback(c, setting));

/* ---------- Drawing ---------- */

function words(c) {
  if (!c.tokens.length) return [h("em", {}, "empty")];
  const { values, low } = SIGNALS[state.signal];
  const shades = strengths(values(c, state), low);
  return c.tokens.flatMap((token, t) => {
    const text = (t ? token : token.trimStart()).replaceAll("\n", "⏎\n");
    const bare = text.trimStart();
    const span = h("span", { "data-token": t, ...(c.wrong[t] ? { class: "wrong-word" } : {}) }, bare || "∅");
    span.style.setProperty("--strength", shades[t]);
    return [text.slice(0, text.length - bare.length), span];
  });
}

function verdict(c) {
  const line = h("span", { class: `verdict ${c.kind}` }, `${c.mark} ${c.verdict}`);
  return c.invented.length ? [line, h("span", {}, `not there: ${c.invented.join(", ")}`)] : [line];
}

const badge = (name) => h("span", { class: `badge ${name}` }, data.scorers[name].title);

function drawPicks(picks) {
  $("picks").replaceChildren(...Object.entries(picks).map(([name, i]) => h(
    "article", { class: "pick", "data-scorer": name, "data-index": i },
    h("div", { class: "facts" }, badge(name), ...verdict(candidates[i])),
    h("p", { class: "tokens", dir: "auto" }, ...words(candidates[i])),
  )));
}

function drawCandidates(scores, picks) {
  const before = rank(scoresAt(data.setting));
  const order = rank(scores);
  const known = scores.filter((s) => !Number.isNaN(s));
  const [lowest, highest] = [Math.min(...known), Math.max(...known)];
  $("extent").textContent = known.length
    ? `Bars: LookBack’s score, from the lowest (${shown(lowest, 2)}) to the highest (${shown(highest, 2)}).` : "";
  $("candidates").replaceChildren(...merged(order, candidates).map((group) => {
    const c = candidates[group[0]];
    const place = order.indexOf(c.index);
    const moved = before.indexOf(c.index) - place;
    const bar = h("i", { class: "bar-of" });
    bar.style.setProperty("--share", (scores[c.index] - lowest) / (highest - lowest || 1) || 0);
    const own = Object.keys(picks).filter((name) => group.includes(picks[name]));
    const count = group.length > 1 ? [h("span", {}, `drawn ${group.length} times`)] : [];
    return h(
      "li", { "data-indices": group.join(" "), "data-rank": place + 1, "data-score": scores[c.index] },
      h("div", { class: "rank" }, String(place + 1), ...(moved ? [h(
        "small", { title: "places from this model’s setting", class: moved > 0 ? "up" : "down" },
        `${moved > 0 ? "▲" : "▼"}${Math.abs(moved)}`)] : [])),
      h("div", { class: "measure" }, h("span", { class: "score" }, shown(scores[c.index], 3)), bar),
      h("div", { class: "said" },
        h("p", { class: "tokens", dir: "auto" }, ...words(c)),
        h("div", { class: "facts" }, ...verdict(c), ...own.map(badge), ...count,
          h("span", { class: "means" }, `log p ${shown(c.means.log_prob, 2)} · A ${shown(c.means.visual_lookback, 2)} · `
            + `self-certainty ${shown(c.means.self_certainty, 2)}`))),
    );
  }));
}

function draw() {
  for (const name of ["alpha", "lam"]) {
    $(name).value = state[name];
    if (document.activeElement !== $(`${name}-number`)) $(`${name}-number`).value = state[name];
  }
  const at = (setting) => state.alpha === setting.alpha && state.lam === setting.lam;
  $("own").ariaPressed = at(data.setting);
  $("general").ariaPressed = at(data.general);
  $("tip").hidden = true;
  const { meaning, ends } = SIGNALS[state.signal];
  [$("meaning").value, $("lightest").value, $("darkest").value] = [meaning, ...ends];
  document.documentElement.style.setProperty("--hue", data.colors[state.signal]);
  const scores = scoresAt(state);
  const picks = { lookback: rank(scores)[0], ...data.picks };
  drawPicks(picks);
  drawCandidates(scores, picks);
}

function tip(event) {
  const token = event.target.closest?.("[data-token]");
  $("tip").hidden = !token;
  if (!token) return;
  const holder = token.closest("[data-indices], [data-index]");
  const c = candidates[(holder.dataset.indices ?? holder.dataset.index).split(" ")[0]];
  const t = Number(token.dataset.token);
  $("tip").replaceChildren(
    h("p", {}, h("code", {}, JSON.stringify(c.tokens[t])), ` ${t + 1} of ${c.tokens.length}`),
    h("table", {}, h("tbody", {}, ...Object.values(SIGNALS).map(({ name, values }) => h(
      "tr", {}, h("th", { scope: "row" }, ...name()), h("td", {}, shown(values(c, state)[t], 3)))))));
  const [box, own] = [token.getBoundingClientRect(), $("tip").getBoundingClientRect()];
  const above = box.bottom + own.height + 12 > innerHeight;
  $("tip").style.top = `${above ? box.top - own.height - 6 : box.bottom + 6}px`;
  $("tip").style.left = `${Math.max(8, Math.min(box.left, document.body.clientWidth - own.width - 8))}px`;
}

/* ---------- What the reader does ---------- */

function set(name, text) {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value) || value < 0) return; // half-typed
  state[name] = value;
  draw();
}

for (const name of ["alpha", "lam"]) {
  for (const input of [$(name), $(`${name}-number`)]) {
    input.addEventListener("input", () => set(name, input.value));
  }
  $(`${name}-number`).addEventListener("blur", draw);
}
const presets = { own: data.setting, general: data.general };
for (const [id, setting] of Object.entries(presets)) {
  $(id).append(` (${setting.alpha}, ${setting.lam})`);
  $(id).addEventListener("click", () => { Object.assign(state, setting); draw(); });
}
$("signals").append(...Object.entries(SIGNALS).map(([name, { name: label }]) => h(
  "label", {},
  h("input", { type: "radio", name: "signal", value: name, ...(name === state.signal ? { checked: "" } : {}) }),
  h("span", {}, ...label()))));
$("signals").addEventListener("change", (event) => { state.signal = event.target.value; draw(); });
for (const part of [$("picks"), $("candidates")]) {
  part.addEventListener("pointerover", tip);
  part.addEventListener("pointerleave", tip);
}
addEventListener("scroll", () => { $("tip").hidden = true; }, { passive: true });
for (const [name, { color }] of Object.entries(data.scorers)) {
  document.documentElement.style.setProperty(`--${name}`, color);
}
$("controls").hidden = false;
draw();
