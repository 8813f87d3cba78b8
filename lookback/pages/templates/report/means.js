/* The mean quality of each method's picks. At the settings that runs were reported with the index
   has it; at others the page works it out, when all items of the run are there. */

const settingKey = ({ alpha, lam, n }) => [alpha, lam, n].join(" ");

/** By method, as the index has it; null if it has not. */
function meansInIndex(run, setting) {
  const n = Math.min(setting.n, run.n);
  if (n < run.least) return {}; // of fewer a pruned run tells nothing
  const found = run.means.find(([alpha, lam, count]) =>
    alpha === setting.alpha && lam === setting.lam && Math.min(count, run.n) === n);
  return found ? found[3] : null;
}

/** Work out the same from the items, which are all loaded; the last setting's is kept. */
function workOut(run, setting, methods) {
  const found = methods.map((method) => [method, worth(method, run.items, setting)]);
  run.worked = { key: settingKey(setting), means: Object.fromEntries(found) };
}

/** By method; null where it is still to be worked out. */
function knownMeans(run, setting) {
  if (run.worked?.key === settingKey(setting)) return run.worked.means;
  return meansInIndex(run, setting);
}

/** The table: a row per run, of numbers or of dots where they are not known yet. */
function drawMeans(table, runs, current, setting, methods) {
  const heads = Object.entries(methods).map(([method, { title }]) =>
    h("th", { scope: "col", class: `num ${method}` }, title));
  table.tHead.replaceChildren(h("tr", {}, h("th", { scope: "col" }, "Run"), ...heads));
  table.tBodies[0].replaceChildren(...runs.map((run) => {
    const means = knownMeans(run, setting);
    return h(
      "tr", run === current ? { "aria-current": "true" } : {}, h("th", { scope: "row" }, run.label),
      ...Object.keys(methods).map((method) => {
        if (means === null) return h("td", { class: `num ${method}` }, "…");
        const value = 100 * (means[method] ?? NaN);
        return h("td", { class: `num ${method}`, "data-value": value }, shown(value, 2));
      }));
  }));
}
