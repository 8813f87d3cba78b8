/* Would the model have said it without looking? The chosen answer with its own picture, with none, and
   with another: the same tokens, scored again. */

const WITHOUT = { own: "With its picture", none: "Without a picture", other: "With another picture" };
const LARGE = 3; // a fall by this, e^3 = 20 times less likely, has the strongest shade
const HALF = Math.log(2); // a word that falls by less would still be said
const strengthOfFall = (fall) => Math.max(0, Math.min(1, fall / LARGE));

/** Signals of the same tokens with another picture, or with none (null). */
async function scoredWith(asked, c, uri, floor) {
  const body = {
    messages: messagesOf(asked.question, uri), responses: [c.token_ids],
    lookback: { signals: true, ...(uri ? {} : { source: "none" }) },
  };
  const { scores: [told] } = await requestJson("v1/score", body);
  if (told.token_ids.length !== c.tokens.length) {
    throw new Refusal(`${told.token_ids.length} tokens were scored of ${c.tokens.length}: they cannot be compared.`);
  }
  return opened({ ...emptyCandidate(c.index), ...told, finish: c.finish }, Infinity, floor);
}

/** By how much each word's log p falls when the picture is another: [{text, fall, first}]; what is no word has none. */
function falls(c, other) {
  const words = wordSpans(c.tokens).map(({ first, stop }) => ({
    first, text: c.tokens.slice(first, stop).join("").trim(),
    fall: sum(c.log_prob.slice(first, stop)) - sum(other.log_prob.slice(first, stop)),
  }));
  return words.filter(({ text }) => isWordlike(text));
}

/** A word's fall in words that need no logarithm. */
function likelihoodText(fall) {
  const times = Math.exp(Math.abs(fall));
  const size = times >= 100 ? Math.round(times).toLocaleString("en") : shown(times, times < 10 ? 1 : 0);
  return times < 1.1 ? "as likely" : `${size} × ${fall > 0 ? "less" : "more"} likely`;
}

function comparedColumn(kind, c, other, picture) {
  const own = other === c;
  const list = own ? c.visual_lookback : c.log_prob.map((value, t) => value - other.log_prob[t]);
  const title = (t) => (own ? `A ${brief(list[t])}` : `log p ${brief(other.log_prob[t])}, with its picture ${brief(c.log_prob[t])}`);
  const tokens = h("p", { class: "tokens", dir: "auto" });
  drawTokens(tokens, c.tokens, Array.from(list, own ? scale([list]).strength : strengthOfFall));
  tokens.querySelectorAll(".token").forEach((span, t) => { span.title = title(t); });
  const by = h("span", { class: "fall" }, ` ${signed(other.means.log_prob - c.means.log_prob, 2)}`);
  return h("div", { class: "column", "data-with": kind },
    h("h2", {}, WITHOUT[kind]), picture,
    h("p", { class: "facts" }, `mean log p ${shown(other.means.log_prob, 2)}`, ...(own ? [] : [by])),
    tokens,
    h("p", { class: "facts" }, own ? "shaded by A" : "shaded by how much less likely a word is"));
}

function verdict(words) {
  const leaning = words.filter(({ fall }) => fall >= HALF).sort((a, b) => b.fall - a.fall);
  const kept = words.length - leaning.length;
  const said = `${kept} of its ${words.length} words would be said without looking, at least half as likely with no picture at all.`;
  const row = ({ text, fall, first }) => h("li", { "data-first": first, "data-fall": fall },
    h("span", { dir: "auto" }, text), meter(strengthOfFall(fall)), h("span", {}, likelihoodText(fall)));
  return h("div", { class: "verdict" },
    h("p", {}, leaning.length ? `${said} These lean on the picture most:` : said),
    h("ol", { class: "falls" }, ...leaning.slice(0, 6).map(row)));
}

/** Ask for both and show them; errors are thrown. */
async function compare(holder, asked, c, floor) {
  holder.ariaBusy = true;
  holder.replaceChildren(h("p", { class: "hint" }, "Asking how likely the same words are without the picture…"));
  try {
    asked.other ??= (await drawnScene(((asked.picture.scene?.seed ?? 0) + 1) % SEEDS)).uri;
    const none = await scoredWith(asked, c, null, floor);
    const other = await scoredWith(asked, c, asked.other, floor);
    holder.replaceChildren(
      h("div", { class: "columns" },
        comparedColumn("own", c, c, h("img", { src: asked.picture.uri, alt: "The picture that was asked about" })),
        comparedColumn("none", c, none, h("p", { class: "no-picture" }, "the question alone")),
        comparedColumn("other", c, other, h("img", { src: asked.other, alt: "Another picture" }))),
      verdict(falls(c, none)));
    return { none, other, otherPicture: asked.other };
  } finally {
    holder.ariaBusy = false;
  }
}
