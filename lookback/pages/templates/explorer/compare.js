/* Would the model have said it without looking? The chosen answer with its own picture, with none, and
   with another: the same tokens, scored again. */

const WITHOUT = { own: "With its picture", none: "Without a picture", other: "With another picture" };

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

/** By how much each word's log p falls when the picture is another: [{text, fall, first, stop}]. */
function falls(c, other) {
  return wordSpans(c.tokens).map(({ first, stop }) => {
    let fall = 0;
    for (let t = first; t < stop; t++) fall += c.log_prob[t] - other.log_prob[t];
    return { first, stop, fall, text: c.tokens.slice(first, stop).join("").trim() };
  });
}

const LARGE = 3; // a fall by this, e^3 = 20 times less likely, has the strongest shade
const strengthOfFall = (fall) => Math.max(0, Math.min(1, fall / LARGE));
const signed = (x) => (Number.isFinite(x) ? `${x > 0 ? "+" : ""}${shown(x, 2)}` : "–");

/** A word's fall in words that need no logarithm. */
function timesLess(fall) {
  const times = Math.exp(Math.abs(fall));
  const size = times >= 100 ? Math.round(times).toLocaleString("en") : shown(times, times < 10 ? 1 : 0);
  return times < 1.1 ? "as likely" : `${size} × ${fall > 0 ? "less" : "more"} likely`;
}

function comparedTokens(c, strengths, title) {
  const holder = h("p", { class: "tokens", dir: "auto" });
  drawTokens(holder, c.tokens, strengths);
  holder.querySelectorAll(".token").forEach((span, t) => { span.title = title(t); });
  return holder;
}

function comparedColumn(kind, c, other, shownPicture) {
  const own = other === c;
  const gone = c.log_prob.map((value, t) => value - other.log_prob[t]);
  const strengths = own ? scale([c.visual_lookback]).strength : strengthOfFall;
  const tokens = comparedTokens(c, Array.from(own ? c.visual_lookback : gone, strengths),
    (t) => (own ? `A ${brief(c.visual_lookback[t])}` : `log p ${brief(other.log_prob[t])}, with its picture ${brief(c.log_prob[t])}`));
  const by = own ? [] : [h("span", { class: "fall" }, ` ${signed(other.means.log_prob - c.means.log_prob)}`)];
  return h("div", { class: "column", "data-with": kind },
    h("h2", {}, WITHOUT[kind]), shownPicture,
    h("p", { class: "facts" }, `mean log p ${shown(other.means.log_prob, 2)}`, ...by),
    tokens,
    h("p", { class: "facts" }, own ? "shaded by A" : "shaded by how much less likely a word is"));
}

const HALF = Math.log(2); // a word that falls by less would still be said

/** The words that lean on the picture most. */
function fallList(found) {
  const words = found.filter(({ text, fall }) => isWordlike(text) && fall >= HALF).sort((a, b) => b.fall - a.fall);
  const row = ({ text, fall, first }) => {
    const bar = h("i", { class: "meter" });
    bar.style.setProperty("--strength", strengthOfFall(fall));
    return h("li", { "data-first": first, "data-fall": fall }, h("span", { dir: "auto" }, text), bar, h("span", {}, timesLess(fall)));
  };
  return h("ol", { class: "falls" }, ...words.slice(0, 6).map(row));
}

/** In a sentence: what would have been said anyway. */
function verdictOf(found) {
  const words = found.filter(({ text }) => isWordlike(text));
  const kept = words.filter(({ fall }) => fall < HALF).length;
  const said = `${kept} of its ${words.length} words would be said without looking, at least half as likely with no picture at all.`;
  return kept < words.length ? `${said} These lean on the picture most:` : said;
}

function drawCompared(holder, c, found, pictures) {
  const fallen = falls(c, found.none);
  const picture = (uri, alt) => h("img", { src: uri, alt });
  holder.replaceChildren(
    h("div", { class: "columns" },
      comparedColumn("own", c, c, picture(pictures.own, "The picture that was asked about")),
      comparedColumn("none", c, found.none, h("p", { class: "no-picture" }, "the question alone")),
      comparedColumn("other", c, found.other, picture(pictures.other, "Another picture"))),
    h("div", { class: "verdict" }, h("p", {}, verdictOf(fallen)), fallList(fallen)));
}

/** Ask for both and show them; errors are thrown. */
async function compare(holder, asked, c, floor) {
  holder.ariaBusy = true;
  holder.replaceChildren(h("p", { class: "hint" }, "Asking how likely the same words are without the picture…"));
  try {
    asked.other ??= (await drawnScene(((asked.picture.scene?.seed ?? 0) + 1) % SEEDS)).uri;
    const { other } = asked;
    const [none, random] = [await scoredWith(asked, c, null, floor), await scoredWith(asked, c, other, floor)];
    drawCompared(holder, c, { none, other: random }, { own: asked.picture.uri, other });
    return { none, other: random, otherPicture: other };
  } finally {
    holder.ariaBusy = false;
  }
}
