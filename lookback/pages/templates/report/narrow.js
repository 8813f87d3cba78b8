/* Which items are shown: by words, and by what LookBack and another method pick. */

/** Which items there are to choose from, by the two picks: [quality, text] each. */
const SHOWS = {
  all: ["all items", () => true],
  differ: ["where the picks differ", (ours, theirs) => ours.text !== theirs.text],
  unequal: ["where their quality differs", (ours, theirs) => ours.quality !== theirs.quality],
  better: ["where LookBack’s is better", (ours, theirs) => ours.quality > theirs.quality],
  worse: ["where LookBack’s is worse", (ours, theirs) => ours.quality < theirs.quality],
};
const OTHERS = Object.keys(METHODS).filter((method) => method !== "lookback");

/** A method's pick, {place, quality, text}; null where the item is still to be loaded. */
function pickOf(run, item, method, setting) {
  const reported = setting.alpha === run.alpha && setting.lam === run.lam && setting.n === run.n;
  if (reported) {
    const [place, quality, text] = item.picks[method];
    return { place, quality: quality ?? NaN, text };
  }
  if (!isLoaded(item)) return null;
  const place = pick(method, item, setting);
  const texts = item.candidates.map((c) => c.tokens.join(""));
  return { place, quality: item.candidates[place].quality, text: texts.indexOf(texts[place]) };
}

/** Whether an item's picks are as asked for; null where it cannot be known yet. */
function hasPicks(run, item, state) {
  if (state.show === "all") return true;
  const [ours, theirs] = ["lookback", state.other].map((m) => pickOf(run, item, m, state));
  if (ours === null) return null;
  const unknown = Number.isNaN(ours.quality) || Number.isNaN(theirs.quality);
  if (unknown && state.show !== "differ") return false;
  return SHOWS[state.show][1](ours, theirs);
}

/** Whether words stand in an item: in its id or question, its truth, its candidates' texts. */
function hasWords(item, words) {
  if (`${item.id}\n${item.question}`.toLowerCase().includes(words)) return true;
  if (!isLoaded(item)) return null;
  item.prose ??= [
    ...item.truth.flat(), ...item.candidates.map((c) => c.tokens.join("")),
  ].join("\n").toLowerCase();
  return item.prose.includes(words);
}

/** The places of the items that fit, and of how many it is not known yet. */
function narrowed(run, state) {
  const words = state.search.trim().toLowerCase();
  const [found, unknown] = [[], []];
  run.items.forEach((item, i) => {
    const said = words ? hasWords(item, words) : true;
    const picked = hasPicks(run, item, state);
    if (said && picked) found.push(i);
    else if (said !== false && picked !== false) unknown.push(i);
  });
  return { found, unknown: unknown.length };
}
