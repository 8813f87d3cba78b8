/* Links: what the page shows, as `#run=...&item=...&alpha=...`, and back. */

/** A text as a link can hold it: half a character cannot be written there. */
const linkable = (text) => text.toWellFormed?.() ?? text;
const isLink = (hash) => hash.includes("=");

/** The hash of a state; what is as it is by default is left out, but for what every link names. */
function linkOf(state, run) {
  const named = {
    run: run.key, item: run.items[state.item].id, alpha: state.alpha, lam: state.lam, n: state.n,
    candidate: state.candidate === null ? "" : state.candidate + 1, signal: state.signal,
    search: state.search, show: state.show === "all" ? "" : state.show,
    other: state.show === "all" ? "" : state.other,
  };
  const kept = Object.entries(named).filter(([, value]) => value !== "")
    .map(([name, value]) => [name, linkable(String(value))]);
  return `#${new URLSearchParams(kept)}`.replaceAll("%2F", "/");
}

/** A state from a hash, and a sentence about each thing in it that this page has not. */
function readLink(hash, runs, usual) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const problems = [];
  const read = (name, find, wanted) => {
    if (!given.has(name)) return undefined;
    const value = find(given.get(name));
    if (value === undefined) problems.push(`${name} “${given.get(name)}”: ${wanted}`);
    return value;
  };
  const place = (list, test) => { const i = list.findIndex(test); return i < 0 ? undefined : i; };
  const number = (fits) => (text) =>
    (text.trim() !== "" && fits(Number(text)) ? Number(text) : undefined);
  const state = { ...usual() };
  const set = (name, value) => { if (value !== undefined) state[name] = value; };

  set("run", read("run", (key) => place(runs, (run) => linkable(run.key) === key),
    `there is no such run here; there are: ${runs.map((run) => run.key).join(", ")}`));
  const run = runs[state.run];
  Object.assign(state, { alpha: run.alpha, lam: run.lam, n: run.n });
  set("item", read("item", (id) => place(run.items, (item) => linkable(item.id) === id),
    `there is no such item here; the page has ${run.items.length} of the ${run.total} of ${run.key}`));
  const positive = number((x) => Number.isFinite(x) && x >= 0);
  for (const name of ["alpha", "lam"]) set(name, read(name, positive, "it must be 0 or more"));
  const count = (least, most) => number((x) => Number.isInteger(x) && x >= least && x <= most);
  set("n", read("n", count(run.least, run.n), `it must be from ${run.least} to ${run.n}`));
  const candidate = read("candidate", count(1, state.n), `it must be from 1 to ${state.n}`);
  set("candidate", candidate && candidate - 1);
  const one = (names) => (name) => (names.includes(name) ? name : undefined);
  const choices = { signal: Object.keys(SHADES), show: Object.keys(SHOWS), other: OTHERS };
  for (const [name, names] of Object.entries(choices)) {
    set(name, read(name, one(names), `it must be one of ${names.join(", ")}`));
  }
  set("search", read("search", (words) => words));
  return { state, problems };
}
