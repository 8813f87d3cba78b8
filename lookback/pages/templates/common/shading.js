/* What a token can be shaded by, how strongly, and the numbers beside it. */

/** By name: its label, and its values for one candidate. */
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
const HUES = { log_prob: "mean_log_prob", entropy: "violet", u: "lookback", q: "lookback", qu: "lookback" };
const setHue = (element, name) => element.style.setProperty("--hue", `var(--${HUES[name] ?? name})`);
const SHADE_NAMES = Object.entries(SHADES).map(([name, [label]]) => [name, label]);
const values = (c, name, setting) => (c.tokens.length ? SHADES[name][1](c, setting) : []);

/** The ends of a scale, and a function from a value to its strength from 0 to 1.
    The middle 90 % span the shades: a token far out would leave the others pale. */
function scale(lists, downwards = false) {
  const sorted = Float64Array.from(lists.flatMap((list) => [...list])).sort();
  const [low, high] = [0.05, 0.95].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
  const [light, dark] = downwards ? [high, low] : [low, high];
  const strength = (x) => Math.min(1, Math.max(0, (x - light) / (dark - light || 1)));
  return { light, dark, strength };
}

/** The order of candidates and their shades: {candidates, scores, order, strengths, scale}. */
function rankedAndShaded(candidates, scores, state) {
  const shades = candidates.map((c) => values(c, state.signal, state));
  // What a token adds to the score is mostly below 0: there, the darkest costs most.
  const shadeScale = scale(shades, state.signal === "qu");
  const strengths = shades.map((list) => Array.from(list, shadeScale.strength));
  return { candidates, scores, order: rank(scores), strengths, scale: shadeScale };
}

/** What the lightest and the darkest mean. */
function drawLegend({ light, dark }, signal) {
  const [low, high] = light > dark ? ["≥", "≤"] : ["≤", "≥"];
  $("lightest").value = Number.isFinite(light) ? `${low} ${brief(light)}` : "";
  $("darkest").value = Number.isFinite(dark) ? `${high} ${brief(dark)}` : "";
  for (const element of [$("candidates"), $("legend")]) setHue(element, signal);
}

const tokenText = (token, t) =>
  (t ? token : token.replace(/^ /, "")).replaceAll("\n", "⏎\n") || "∅";

/** Tokens as shaded spans; `attributes` gives those of the t-th. */
function shadedTokens(tokens, strengths, attributes) {
  return tokens.map((token, t) => {
    const span = h("span", attributes(t), tokenText(token, t));
    span.style.setProperty("--strength", strengths[t]);
    return span;
  });
}

/** The numbers of a candidate's tokens at `places`: a row per label, a column per token. */
function tokenNumbers(c, places, labels, setting) {
  const cells = (tag, attributes, texts) => texts.map((text) => h(tag, { ...attributes, class: "num" }, text));
  const rows = labels.map(([name, label]) => {
    const list = values(c, name, setting);
    return h("tr", {}, h("th", { scope: "row" }, label), ...cells("td", {}, places.map((t) => brief(list[t]))));
  });
  const texts = places.map((t) => tokenText(c.tokens[t], t).trim() || "␣");
  const head = h("thead", {}, h("tr", {}, h("td"), ...cells("th", { scope: "col" }, texts)));
  return h("table", {}, ...(places.length > 1 ? [head] : []), h("tbody", {}, ...rows));
}

/** Let CSS know the scorers' colours, as --lookback and so on. */
function setColors(scorers) {
  for (const [name, { color }] of Object.entries(scorers)) {
    document.documentElement.style.setProperty(`--${name}`, color);
  }
}
