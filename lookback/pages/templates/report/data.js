/* Runs and their items (see lookback/report/data.py): a block of items is decoded when one of them is first
   wanted, and kept. Which candidates methods pick, how good picks are, which items fit a search. */

let decoded = 0; // blocks, for those who measure
const COMPARED = ["log_prob", "visual_lookback"];

function candidatesOf(item, cut, floor) {
  const signals = (names, prefix, count) =>
    withMeans(Object.fromEntries(names.map((name) => [name, cut(prefix + name, count)])), floor);
  const candidates = item.candidates.map(([tokens, quality, finish], index) => {
    const c = { index, tokens, finish, quality: quality ?? NaN, controls: {} };
    Object.assign(c, signals(RECORDED, "", tokens.length));
    for (const [image, { scored }] of Object.entries(item.controls)) {
      c.controls[image] = scored[index] ? signals(COMPARED, `${image}.`, tokens.length) : null;
    }
    return c;
  });
  for (const [index, head] of Object.entries(item.looks)) {
    candidates[index].look = openLook(head, (name, count) => cut(`look.${name}`, count));
  }
  return candidates;
}

/** A run whose items get their candidates when `load` is asked for them. */
function openRun(run, { block, floor }) {
  const items = run.items.map(([id, question, picks]) => ({ id, question, picks, candidates: null }));
  const blocks = new Map();
  async function read(number) {
    const { items: loaded, cut } = await unpack($(`block-${run.first + number}`).textContent);
    loaded.forEach((item, i) => Object.assign(
      items[number * block + i], item, { candidates: candidatesOf(item, cut, floor) }));
    $("browser").dataset.decoded = ++decoded;
  }
  function load(index) {
    const number = Math.floor(index / block);
    if (!blocks.has(number)) blocks.set(number, read(number));
    return blocks.get(number);
  }
  return { ...run, items, load };
}

const isLoaded = (item) => item.candidates !== null;

/** Load all items of a run, block by block, as long as `goes(items that are there)` says so. */
async function loadAll(run, goes) {
  for (let i = 0; i < run.items.length; i++) {
    if (isLoaded(run.items[i])) continue;
    await run.load(i);
    if (!goes(run.items.filter(isLoaded).length)) return false;
  }
  return true;
}

/* Picks, and the mean quality of each method's picks. At the settings that runs were reported with the index
   has it; at others the page works it out, when all items of the run are there. */

const first = (item, n) => item.candidates.slice(0, n);

/** The place of the candidate that a method picks among the first n: the first of the highest; NaN loses to
    every number. A loop, not `rank`: a moved slider brings all items here. */
function pick(method, item, setting) {
  const scores = first(item, setting.n).map((c) => METHODS[method](c, setting));
  let best = 0;
  for (let i = 1; i < scores.length; i++) {
    if (scores[i] > scores[best] || (Number.isNaN(scores[best]) && !Number.isNaN(scores[i]))) best = i;
  }
  return best;
}

/** The mean over items of the quality of a method's picks; of "random" and "oracle", too. */
function meanQuality(method, items, setting) {
  return mean(items.map((item) => {
    if (method in METHODS) return item.candidates[pick(method, item, setting)].quality;
    const known = first(item, setting.n).map((c) => c.quality).filter((q) => !Number.isNaN(q));
    return method === "oracle" ? Math.max(...known) : mean(known);
  }));
}

const settingKey = ({ alpha, lam, n }) => [alpha, lam, n].join(" ");

/** Work out the means from the items, which are all loaded; those of the last setting are kept. */
function computeMeans(run, setting, methods) {
  const means = methods.map((method) => [method, meanQuality(method, run.items, setting)]);
  run.computed = { key: settingKey(setting), means: Object.fromEntries(means) };
}

/** The means by method; null where they are still to be worked out. */
function knownMeans(run, setting) {
  if (run.computed?.key === settingKey(setting)) return run.computed.means;
  const n = Math.min(setting.n, run.n);
  if (n < run.least) return {}; // of fewer a pruned run tells nothing
  const row = run.means.find(([alpha, lam, count]) =>
    alpha === setting.alpha && lam === setting.lam && Math.min(count, run.n) === n);
  return row ? row[3] : null;
}

/* Which items fit: by words, and by what LookBack and another method pick */

const SHOWS = {
  all: ["all items", () => true],
  differ: ["where the picks differ", (ours, theirs) => ours.text !== theirs.text],
  unequal: ["where their quality differs", (ours, theirs) => ours.quality !== theirs.quality],
  better: ["where LookBack’s is better", (ours, theirs) => ours.quality > theirs.quality],
  worse: ["where LookBack’s is worse", (ours, theirs) => ours.quality < theirs.quality],
};
const OTHERS = Object.keys(METHODS).filter((method) => method !== "lookback");

/** A method's pick, {quality, text}; null where the item is still to be loaded. */
function pickOf(run, item, method, setting) {
  const reported = setting.alpha === run.alpha && setting.lam === run.lam && setting.n === run.n;
  if (reported) {
    const [, quality, text] = item.picks[method];
    return { quality: quality ?? NaN, text };
  }
  if (!isLoaded(item)) return null;
  const { tokens, quality } = item.candidates[pick(method, item, setting)];
  return { quality, text: tokens.join("") };
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

function matchingItems(run, state) {
  const words = state.search.trim().toLowerCase();
  let [places, unknown] = [[], 0];
  run.items.forEach((item, i) => {
    const [said, picked] = [words ? hasWords(item, words) : true, hasPicks(run, item, state)];
    if (said && picked) places.push(i);
    else if (said !== false && picked !== false) unknown++;
  });
  return { places, unknown };
}
