/* Links: the picture, the question and all settings as `#scene=7&q=...`, and back. The server draws the
   same answers again from the same seed, so a link has none of them. */

const FITS = 20_000; // characters of a picture that a link may carry
const isLink = (hash) => hash.includes("=");
const linkable = (text) => text.toWellFormed?.() ?? text;

const thingInLink = (thing) => PARTS_OF_THING.map((name) => thing[name]).join(".");

/** The things of a link; undefined if it is none. What they may be, the server says. */
function thingsFromLink(text) {
  const things = text.split(",").map((one) => {
    const [category, color, size, cell, look] = one.split(".");
    return { category, color, size, cell: Number(cell), look: Number(look) };
  });
  return things.every(({ cell, look }) => Number.isInteger(cell) && Number.isInteger(look)) ? things : undefined;
}

/** A photograph as a link can carry it: {uri, smaller}; null if even a small one does not fit. */
async function pictureInLink(uri) {
  if (uri.length <= FITS) return { uri, smaller: false };
  const image = await imageOf(uri);
  for (const size of [384, 256, 192, 128]) {
    const small = shrunk(image, image.naturalWidth, image.naturalHeight, size, 0.7);
    if (small.length <= FITS) return { uri: small, smaller: true };
  }
  return null;
}

/** The hash of a state; `photo` is what `pictureInLink` gave. */
function linkOf(state, picture, photo, asked) {
  const scene = picture?.kind === "scene" ? picture.scene : null;
  const named = {
    scene: scene ? scene.seed : "",
    things: scene && picture.edited ? scene.things.map(thingInLink).join(",") : "",
    picture: photo?.uri ?? "", smaller: photo?.smaller ? 1 : "",
    q: state.question, n: state.n, temperature: state.temperature, max: state.max_tokens, seed: state.seed,
    prune: state.prune ? 1 : 0, by: state.scorer, alpha: state.alpha, lam: state.lam,
    among: state.among ?? "", answer: state.candidate === null ? "" : state.candidate + 1, shade: state.signal,
    map: state.map, asked: asked ? 1 : 0,
  };
  const kept = Object.entries(named).filter(([, value]) => value !== "")
    .map(([name, value]) => [name, linkable(String(value))]);
  return `#${new URLSearchParams(kept)}`;
}

/** What a hash says: {state, scene, things, picture, smaller, asked}, and a sentence about each thing in it
    that cannot be. */
function readLink(hash, data) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const [problems, state] = [[], {}];
  const read = (name, find, wanted) => {
    if (!given.has(name)) return undefined;
    const value = find(given.get(name));
    if (value === undefined) problems.push(`${name} “${given.get(name).slice(0, 60)}”: ${wanted}`);
    return value;
  };
  const set = (field, value) => { if (value !== undefined) state[field] = value; };
  const number = (low, high, whole) => (text) => {
    const x = text.trim() === "" ? NaN : Number(text);
    return x >= low && x <= high && (!whole || Number.isInteger(x)) ? x : undefined;
  };
  const range = (field, name, low, high, whole = true) => set(field,
    read(name, number(low, high, whole), `it must be ${whole ? "a whole number" : "a number"} from ${low} to ${high}`));
  const one = (field, name, names) => set(field,
    read(name, (text) => (names.includes(text) ? text : undefined), `it must be one of ${names.join(", ")}`));

  set("question", read("q", (text) => text.slice(0, 4000)));
  range("n", "n", 1, data.most);
  range("temperature", "temperature", 0, 2, false);
  range("max_tokens", "max", 1, data.longest);
  range("seed", "seed", 0, 2 ** 31 - 1);
  range("alpha", "alpha", 0, 100, false);
  range("lam", "lam", 0, 100, false);
  range("among", "among", 1, state.n ?? data.most);
  set("prune", read("prune", (text) => ({ 0: false, 1: true })[text], "it must be 0 or 1"));
  one("scorer", "by", Object.keys(data.scorers));
  one("signal", "shade", Object.keys(SHADES));
  one("map", "map", Object.keys(MODES));
  const answer = read("answer", number(1, state.n ?? data.most, true), `it must be from 1 to ${state.n ?? data.most}`);
  set("candidate", answer && answer - 1);
  return {
    state, problems,
    scene: read("scene", number(0, SEEDS - 1, true), `it must be a whole number from 0 to ${SEEDS - 1}`),
    things: read("things", thingsFromLink, "it does not name things"),
    picture: read("picture", (uri) => (/^data:image\/(png|jpeg|webp);base64,/.test(uri) ? uri : undefined), "it is no picture"),
    smaller: given.get("smaller") === "1", asked: given.get("asked") === "1",
  };
}
