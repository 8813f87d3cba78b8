/* The data: see lookback/report/data.py and items.py. The index is there at once; a block of items
   is decoded when one of them is first wanted, and kept. */

let decoded = 0; // blocks, for those who measure
const SIGNALS = ["log_prob", "visual_lookback", "self_certainty", "entropy"];
const COMPARED = ["log_prob", "visual_lookback"];

/** Signals by name, with their means and log A. */
function measured(names, prefix, count, cut, floor) {
  const found = Object.fromEntries(names.map((name) => [name, cut(prefix + name, count)]));
  found.means = Object.fromEntries(names.map((name) => [name, mean(found[name])]));
  found.logA = Float64Array.from(found.visual_lookback, (a) => Math.log(Math.max(a, floor)));
  return found;
}

/** An item's candidates, as the maths wants them. */
function candidatesOf(item, cut, floor) {
  const found = item.candidates.map(([tokens, quality, finish], index) => {
    const c = { index, tokens, finish, quality: quality ?? NaN, controls: {} };
    Object.assign(c, measured(SIGNALS, "", tokens.length, cut, floor));
    for (const [image, { scored }] of Object.entries(item.controls)) {
      c.controls[image] = scored[index]
        ? measured(COMPARED, `${image}.`, tokens.length, cut, floor) : null;
    }
    return c;
  });
  for (const [index, head] of Object.entries(item.looks)) {
    found[index].look = openLook(head, (name, count) => cut(`look.${name}`, count));
  }
  return found;
}

/** A run whose items get their candidates when `load` is asked for them. */
function openRun(run, { block, floor }) {
  const items = run.items.map(([id, question, picks]) => ({ id, question, picks, candidates: null }));
  const blocks = new Map();
  async function read(number) {
    const { items: found, cut } = await unpack($(`block-${run.first + number}`).textContent);
    found.forEach((item, i) => Object.assign(
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
const imageAt = (position) => $(`image-${position}`).textContent;

/** Load all items of a run, block by block, as long as `goes(items that are there)` says so. */
async function loadAll(run, goes) {
  for (let i = 0; i < run.items.length; i++) {
    if (isLoaded(run.items[i])) continue;
    await run.load(i);
    if (!goes(run.items.filter(isLoaded).length)) return false;
  }
  return true;
}
