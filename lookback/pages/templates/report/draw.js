/* Drawing an item: what was asked, its candidates in their order, where their tokens looked, means. */

/* The item */

const MAPS = { raw: "attention", tokens: "attention against its other tokens" };

/** The item's picture; with a map over it, and what to do for one, if candidates have looks. */
function pictureWithMap(item, mode) {
  const image = h("img", { src: imageAt(item.image), alt: `The image of item ${item.id}` });
  const looks = item.candidates.filter((c) => c.look);
  if (!looks.length) return [image];
  if (!looks[0].look.pictures[0].placed) {
    return [image, h("p", { class: "caption" }, "Where candidates looked is not known here: the layout of this model’s vision tokens is not.")];
  }
  const choice = h("select", { "aria-label": "What the map shows", id: "map" }, ...options(Object.entries(MAPS)));
  choice.value = mode;
  const names = looks.map((c) => c.index + 1).join(" or ");
  return [
    h("div", { class: "frame" }, image, h("canvas", { "aria-hidden": "true" })),
    h("p", { class: "caption looks" }, `Point at a token of candidate ${names}: where it looked, by `, choice),
  ];
}

/** Show where a token looked; without one, the picture as it is. Where that is out of sight, a small one for the
    tip is returned. */
function drawMap(item, c, t, mode) {
  const frame = $("asked").querySelector(".frame");
  if (!frame) return [];
  const { look } = c ?? {};
  frame.dataset.token = look ? `${c.index} ${t}` : "";
  frame.classList.remove("mapped");
  if (!look?.pictures[0].placed) return [];
  const span = { first: t, stop: t + 1 };
  paintSpan(frame, look, span, mode, 384);
  return smallMap(frame, imageAt(item.image), look, span, mode);
}

function badge(method, methods) {
  const span = h("span", { class: `badge ${method}` }, methods[method].title);
  setHue(span, method);
  return span;
}

function drawAsked(item, picks, methods, map) {
  const { image, reason, question, truth, id, candidates } = item;
  const picture = image === null
    ? [h("p", { class: "no-image" }, h("strong", {}, "No image here."), ` ${reason}`)]
    : pictureWithMap(item, map);
  $("asked").replaceChildren(
    ...picture,
    h("p", { class: "id" }, id),
    h("p", { class: "question", dir: "auto" }, question),
    h("h3", {}, "Truth"),
    h("dl", {}, ...truth.flatMap(([name, text]) => [h("dt", {}, name), h("dd", { dir: "auto" }, text)])),
    h("h3", {}, "Picks"),
    h("table", { class: "picks" }, h("tbody", {}, ...picks.map(([method, place]) => h(
      "tr", { "data-method": method, "data-pick": place },
      h("th", { scope: "row" }, badge(method, methods)),
      h("td", {}, `candidate ${place + 1}`),
      h("td", { class: "num" }, shown(candidates[place].quality, 2)),
    )))),
  );
}

/** The means of picks: a row per run, of numbers or of dots where they are not known yet. */
function drawMeans(table, runs, current, setting, methods) {
  const heads = Object.entries(methods).map(([method, { title }]) =>
    h("th", { scope: "col", class: `num ${method}` }, title));
  table.tHead.replaceChildren(h("tr", {}, h("th", { scope: "col" }, "Run"), ...heads));
  table.tBodies[0].replaceChildren(...runs.map((run) => {
    const means = knownMeans(run, setting);
    return h(
      "tr", run === current ? { "aria-current": "true" } : {}, h("th", { scope: "row" }, run.label),
      ...Object.keys(methods).map((method) => {
        if (means === null) return h("td", { class: `num ${method}` }, "…");
        const value = 100 * (means[method] ?? NaN);
        return h("td", { class: `num ${method}`, "data-value": value }, shown(value, 2));
      }));
  }));
}

/* Its candidates */

function rankButton(index, place, moved) {
  const label = `Candidate ${index + 1}, rank ${place + 1}${moved ? `, ${moved > 0 ? "up" : "down"} ${Math.abs(moved)} from the reported setting` : ""}`;
  return h("button", { type: "button", class: "rank", "aria-label": label, "aria-pressed": "false" },
    String(place + 1), ...(moved ? [h(
      "small", { title: "places from the reported setting", class: moved > 0 ? "up" : "down" },
      `${moved > 0 ? "▲" : "▼"}${Math.abs(moved)}`)] : []));
}

function candidateRow(ranking, index, place, badges) {
  const { quality, tokens, finish, look } = ranking.candidates[index];
  const words = shadedTokens(tokens, ranking.strengths[index], (t) => ({ "data-token": t }));
  const value = ranking.scores[index];
  return h(
    "li", { "data-index": index, "data-rank": place + 1, "data-score": value },
    rankButton(index, place, ranking.before.indexOf(index) - place),
    h("div", { class: "said" },
      h("div", { class: "facts" },
        h("span", { class: "score", title: "score S" }, shown(value, 4)),
        h("span", { class: "quality", title: "quality" }, meter(quality || 0), ` ${shown(quality, 2)}`),
        h("span", {}, `candidate ${index + 1} · ${tokens.length} tokens · ${finish}`), ...badges,
        ...(look ? [h("span", { class: "badge looked", title: "point at its tokens" }, "where it looked")] : [])),
      h("p", { class: "tokens", dir: "auto" }, ...(words.length ? words : [h("em", {}, "empty")]))),
  );
}

function drawCandidates(ranking, state, methods) {
  drawLegend(ranking.scale, state.signal);
  $("candidates").replaceChildren(...ranking.order.map((index, place) => {
    const badges = ranking.picks.filter(([, picked]) => picked === index).map(([method]) => badge(method, methods));
    return candidateRow(ranking, index, place, badges);
  }));
}

/** Mark a candidate as the selected one, and show under it what its controls say. */
function drawSelected(item, index, setting) {
  $("candidates").querySelectorAll(".compare").forEach((panel) => panel.remove());
  for (const row of $("candidates").children) {
    const here = Number(row.dataset.index) === index;
    row.toggleAttribute("data-selected", here);
    row.firstChild.ariaPressed = here;
    const panel = here ? compared(item, item.candidates[index], setting) : null;
    if (panel) row.append(panel);
  }
}

/** What stands beside a token under the pointer: all its numbers, and what more there is. */
function drawTip(token, c, setting, more) {
  const t = Number(token.dataset.token);
  $("tip").replaceChildren(
    h("p", {}, h("code", {}, JSON.stringify(c.tokens[t])), ` ${t + 1} of ${c.tokens.length}`),
    tokenNumbers(c, [t], SHADE_NAMES, setting), ...more);
  placeTip(token);
}

/* One candidate with its own image, with another, and with none: how its tokens' log p falls, and how A
   moves. Controls are runs that scored the same candidates again. */

const IMAGES = { own: "Its own image", random: "Another image", none: "No image" };
const SYMBOLS = { log_prob: "log p", visual_lookback: "A" };

/** Whether there was anything to look at: without, A is 0 for every token and S has no value. */
const looked = (signals) => signals.visual_lookback.some((a) => a > 0);

/** A change with its sign; nothing where one of the two has no value. */
const changeText = (x) => (Number.isFinite(x) ? signed(x, 3) : "");

function summary(signals, setting) {
  return {
    "mean log p": signals.means.log_prob,
    "mean A": signals.means.visual_lookback,
    "score S": looked(signals) ? score(signals, setting.alpha, setting.lam) : NaN,
  };
}

function numbersOf(signals, own, setting) {
  const [here, there] = [summary(signals, setting), summary(own, setting)];
  return h("dl", {}, ...Object.keys(here).flatMap((name) => {
    const moved = signals !== own && (name === "mean log p" || looked(signals));
    const by = moved ? changeText(here[name] - there[name]) : "";
    const change = h("span", { class: `change ${by.startsWith("−") ? "down" : "up"}` }, ` ${by}`);
    return [h("dt", {}, name), h("dd", { "data-value": here[name] }, shown(here[name], 3), ...(by ? [change] : []))];
  }));
}

/** The tokens, shaded by one signal on the scale of all columns. */
function strip(name, tokens, signals, own, strength) {
  const [list, before] = [signals[name], own[name]];
  const title = (t) => `${SHADES[name][0]} ${brief(list[t])}`
    + (list === before ? "" : `, with its own image ${brief(before[t])} (${changeText(list[t] - before[t])})`);
  const part = h("div", { class: "strip", "data-signal": name },
    h("span", { class: "strip-name" }, SYMBOLS[name]),
    h("p", { class: "tokens", dir: "auto" },
      ...shadedTokens(tokens, Array.from(list, strength), (t) => ({ "data-part": t, title: title(t) }))));
  setHue(part, name);
  return part;
}

function pictureOf(image, { image: position, reason, source }) {
  if (image === "none" && !source) return h("p", { class: "no-image" }, "The question alone.");
  if (position === null) return h("p", { class: "no-image" }, reason || "No image here.");
  return h("img", { src: imageAt(position), alt: source ? `The image of item ${source}` : "The item’s image" });
}

function column(image, about, c, signals, setting, scales) {
  const missing = (text) => h("p", { class: "missing" }, text);
  const parts = [h("h4", {}, IMAGES[image]), pictureOf(image, about)];
  if (signals === null) parts.push(missing(`Not here: ${about.missing}.`));
  else {
    const names = looked(signals) ? COMPARED : ["log_prob"];
    parts.push(numbersOf(signals, c, setting));
    if (!looked(signals)) parts.push(missing(
      "Nothing to look at: A is 0 for every token, and S, which needs its logarithm, has no value."));
    parts.push(...names.map((name) => strip(name, c.tokens, signals, c, scales[name].strength)));
  }
  return h("div", { class: "column", "data-image": image }, ...parts);
}

/** Every token's numbers, one row each; no A where there was nothing to look at. */
function tokenTable(c, others) {
  const shownOf = { log_prob: others, visual_lookback: others.filter(([, signals]) => looked(signals)) };
  const heads = COMPARED.flatMap((name) => [SYMBOLS[name],
    ...shownOf[name].flatMap(([image]) => [`${SYMBOLS[name]}, ${IMAGES[image].toLowerCase()}`, "change"])]);
  const cell = (text) => h("td", { class: "num" }, text);
  const row = (token, t) => h("tr", {},
    h("th", { scope: "row", dir: "auto" }, tokenText(token, t).trimStart() || "␣"),
    ...COMPARED.flatMap((name) => [cell(brief(c[name][t])), ...shownOf[name].flatMap(([, signals]) => [
      cell(brief(signals[name][t])), cell(changeText(signals[name][t] - c[name][t]))])]));
  return h("details", {}, h("summary", {}, "Token by token"),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Token by token" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "token"),
        ...heads.map((head) => h("th", { scope: "col", class: "num" }, head)))),
      h("tbody", {}, ...c.tokens.map(row)))));
}

function compared(item, c, setting) {
  const controls = Object.entries(c.controls);
  if (!controls.length) return null;
  if (!c.tokens.length) return h("div", { class: "compare" }, h("p", { class: "missing" }, "An empty response has no tokens to compare."));
  const others = controls.filter(([, signals]) => signals !== null);
  const all = [c, ...others.map(([, signals]) => signals)];
  const seen = { log_prob: all, visual_lookback: all.filter(looked) };
  const scales = Object.fromEntries(COMPARED.map((name) => [name, scale(seen[name].map((s) => s[name]))]));
  return h("div", { class: "compare", role: "group", "aria-label": `Candidate ${c.index + 1} with other images` },
    h("div", { class: "columns" },
      column("own", item, c, c, setting, scales),
      ...controls.map(([image, signals]) => column(image, item.controls[image], c, signals, setting, scales))),
    tokenTable(c, others));
}
