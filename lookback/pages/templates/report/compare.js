/* One candidate with its own image, with another, and with none: how its tokens' log p falls, and
   how A moves. Controls are runs that scored the same candidates again. */

const IMAGES = { own: "Its own image", random: "Another image", none: "No image" };

/** Whether there was anything to look at: without, A is 0 for every token and S has no value. */
const looked = (signals) => signals.visual_lookback.some((a) => a > 0);

/** What the columns say: a mean each of log p and A, and the score. */
function summary(signals, setting) {
  return {
    "mean log p": signals.means.log_prob,
    "mean A": signals.means.visual_lookback,
    "score S": looked(signals) ? score(signals, setting.alpha, setting.lam) : NaN,
  };
}

/** A change with its sign; nothing where one of the two has no value. */
const signed = (x) => (Number.isFinite(x) ? `${x > 0 ? "+" : ""}${shown(x, 3)}` : "");

function numbersOf(signals, own, setting) {
  const [here, there] = [summary(signals, setting), summary(own, setting)];
  return h("dl", {}, ...Object.keys(here).flatMap((name) => {
    const moved = signals !== own && (name === "mean log p" || looked(signals));
    const by = moved ? signed(here[name] - there[name]) : "";
    const sign = by.startsWith("−") ? "down" : "up";
    return [h("dt", {}, name), h("dd", { "data-value": here[name] }, shown(here[name], 3),
      ...(by ? [h("span", { class: `change ${sign}` }, ` ${by}`)] : []))];
  }));
}

/** The tokens, shaded by one signal on the scale of all columns. */
function strip(name, tokens, signals, own, strength) {
  const [list, before] = [signals[name], own[name]];
  const title = (t) => `${SHADES[name][0]} ${brief(list[t])}`
    + (list === before ? "" : `, with its own image ${brief(before[t])} (${signed(list[t] - before[t])})`);
  return h("div", { class: "strip", "data-signal": name },
    h("span", { class: "strip-name" }, name === "log_prob" ? "log p" : "A"),
    h("p", { class: "tokens", dir: "auto" },
      ...shadedTokens(tokens, Array.from(list, strength), (t) => ({ "data-part": t, title: title(t) }))));
}

function pictureOf(image, { image: position, reason, source }) {
  const none = image === "none" && !source;
  if (none) return h("p", { class: "no-image" }, "The question alone.");
  if (position === null) return h("p", { class: "no-image" }, reason || "No image here.");
  return h("img", { src: imageAt(position), alt: source ? `The image of item ${source}` : "The item’s image" });
}

/** A column: an image, what was measured with it, the tokens twice. */
function column(image, about, c, signals, setting, scales) {
  const parts = [h("h4", {}, IMAGES[image]), pictureOf(image, about)];
  if (signals === null) parts.push(h("p", { class: "missing" }, `Not here: ${about.missing}.`));
  else {
    parts.push(numbersOf(signals, c, setting));
    if (!looked(signals)) parts.push(h("p", { class: "missing" },
      "Nothing to look at: A is 0 for every token, and S, which needs its logarithm, has no value."));
    for (const name of COMPARED) {
      if (name === "log_prob" || looked(signals)) {
        parts.push(strip(name, c.tokens, signals, c, scales[name].strength));
      }
    }
  }
  return h("div", { class: "column", "data-image": image }, ...parts);
}

/** Every token's numbers, one row each; no A where there was nothing to look at. */
function tokenTable(c, others) {
  const shownOf = { log_prob: others, visual_lookback: others.filter(([, signals]) => looked(signals)) };
  const heads = COMPARED.flatMap((name) => {
    const symbol = name === "log_prob" ? "log p" : "A";
    return [symbol, ...shownOf[name].flatMap(([image]) =>
      [`${symbol}, ${IMAGES[image].toLowerCase()}`, "change"])];
  });
  const cell = (text) => h("td", { class: "num" }, text);
  const row = (token, t) => h("tr", {},
    h("th", { scope: "row", dir: "auto" }, tokenText(token, t).trimStart() || "␣"),
    ...COMPARED.flatMap((name) => [cell(brief(c[name][t])), ...shownOf[name].flatMap(([, signals]) => [
      cell(brief(signals[name][t])), cell(signed(signals[name][t] - c[name][t]))])]));
  return h("details", {}, h("summary", {}, "Token by token"),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Token by token" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "token"),
        ...heads.map((head) => h("th", { scope: "col", class: "num" }, head)))),
      h("tbody", {}, ...c.tokens.map(row)))));
}

/** The columns of a candidate; null where the run has no controls. */
function compared(item, c, setting) {
  const found = Object.entries(c.controls);
  if (!found.length) return null;
  const others = found.filter(([, signals]) => signals !== null);
  if (!c.tokens.length) return h("div", { class: "compare" }, h("p", { class: "missing" }, "An empty response has no tokens to compare."));
  const all = [c, ...others.map(([, signals]) => signals)];
  const seen = { log_prob: all, visual_lookback: all.filter(looked) };
  const scales = Object.fromEntries(COMPARED.map((name) => [name, scale(seen[name].map((s) => s[name]))]));
  return h("div", { class: "compare", role: "group", "aria-label": `Candidate ${c.index + 1} with other images` },
    h("div", { class: "columns" },
      column("own", item, c, c, setting, scales),
      ...found.map(([image, signals]) => column(image, item.controls[image], c, signals, setting, scales))),
    tokenTable(c, others));
}
