/* What a token can be shaded by, and how strongly. */

/** By name: what it is called, and its values for one candidate. */
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

/** The ends of a scale, and a function from a value to its strength from 0 to 1.
    The middle 90 % span the shades: a token far out would leave the others pale. */
function scale(lists, downwards = false) {
  const sorted = Float64Array.from(lists.flatMap((list) => [...list])).sort();
  const [low, high] = [0.05, 0.95].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
  const [light, dark] = downwards ? [high, low] : [low, high];
  const strength = (x) => Math.min(1, Math.max(0, (x - light) / (dark - light || 1)));
  return { light, dark, strength };
}

/** The scale of what is shown of candidates. What a token adds to the score is mostly below 0:
    there, the darkest costs most. */
const scaleOf = (signal, lists) => scale(lists, signal === "qu");

/** A token's text as it stands in a response. */
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
