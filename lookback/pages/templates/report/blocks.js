/* The data: see lookback/report/data.py and blocks.py. The index is there at once; a block of items
   is decoded when one of them is first wanted, and kept. */

const CAN_DECODE = typeof DecompressionStream === "function";
let decoded = 0; // blocks, for those who measure

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const raw = atob(base64);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Float32, little-endian as every machine that a browser runs on, from bytes in shuffled order. */
function unshuffle(bytes, count) {
  const plain = new Uint8Array(4 * count);
  for (let byte = 0, at = 0; byte < 4; byte++) {
    for (let i = 0; i < count; i++) plain[4 * i + byte] = bytes[at++];
  }
  return new Float32Array(plain.buffer);
}

/** A block's items, and a function that cuts the next numbers from those of a name. */
async function unpack(base64) {
  const bytes = await inflate(bytesOf(base64));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const { items, numbers } = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const values = {};
  let at = 4 + length;
  for (const [name, count] of numbers) {
    values[name] = { all: unshuffle(bytes.subarray(at, at + 4 * count), count), next: 0 };
    at += 4 * count;
  }
  const cut = (name, count) => {
    const own = values[name];
    return own.all.subarray(own.next, (own.next += count));
  };
  return { items, cut };
}

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
  return item.candidates.map(([tokens, quality, finish], index) => {
    const c = { index, tokens, finish, quality: quality ?? NaN, controls: {} };
    Object.assign(c, measured(SIGNALS, "", tokens.length, cut, floor));
    for (const [image, { scored }] of Object.entries(item.controls)) {
      c.controls[image] = scored[index]
        ? measured(COMPARED, `${image}.`, tokens.length, cut, floor) : null;
    }
    return c;
  });
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
