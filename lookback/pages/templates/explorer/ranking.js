/* The ranking: a row per answer, in its order, moving when the order does. */

const MOVE = 380; // ms

/** What the list shows: {candidates, scores, order, groups, shades, scale}. */
function rankingOf(candidates, state, merge) {
  const scores = RANKERS[state.scorer](candidates, state);
  const shades = candidates.map((c) => values(c, state.signal, state));
  const order = rank(scores);
  const groups = merge ? grouped(order, candidates) : order.map((i) => [i]);
  return { candidates, scores, order, groups, shades, scale: scaleOf(state.signal, shades.filter((list) => list.length)) };
}

function emptyRow(index) {
  const row = h("li", { "data-index": index },
    h("button", { type: "button", class: "rank" }),
    h("div", { class: "measure" }, h("span", { class: "score" }), h("i", { class: "meter" })),
    h("div", { class: "said" }, h("p", { class: "tokens", dir: "auto" }), h("p", { class: "facts" })));
  const [button, measure, said] = row.children;
  row.parts = { button, score: measure.firstChild, meter: measure.lastChild, tokens: said.firstChild, facts: said.lastChild };
  return row;
}

const ENDS = { end: "", stop: "", length: "cut at the most tokens" };

function factsOf(c, group, writing) {
  const facts = [];
  if (c.finish === "pruned") facts.push(`pruned after ${c.tokens.length} tokens`);
  else if (c.finish === null && !writing) facts.push("stopped");
  else if (ENDS[c.finish]) facts.push(ENDS[c.finish]);
  if (group.length > 1) facts.push(`said ${group.length} times`);
  return facts.join(" · ");
}

/** Its place, and what it is called by it. */
function drawPlace(row, place, value) {
  const { button } = row.parts;
  row.dataset.rank = place + 1;
  button.textContent = Number.isNaN(value) ? "–" : String(place + 1);
  button.ariaLabel = `Answer ${Number(row.dataset.index) + 1}, ${Number.isNaN(value) ? "without a place" : `place ${place + 1}`}`;
}

/** One row as its answer stands now. */
function drawRow(row, ranking, group, [lowest, highest], writing) {
  const index = group[0];
  const c = ranking.candidates[index];
  const { score, meter, tokens, facts } = row.parts;
  const value = ranking.scores[index];
  row.dataset.score = value;
  row.dataset.members = group.join(" ");
  row.classList.toggle("pruned", c.finish === "pruned");
  row.classList.toggle("writing", c.finish === null && writing);
  score.textContent = shown(value, 3);
  meter.style.setProperty("--strength", Number.isNaN(value) ? 0 : (value - lowest) / (highest - lowest || 1));
  drawTokens(tokens, c.tokens, Array.from(ranking.shades[index], ranking.scale.strength));
  const said = c.tokens.length || c.finish === null ? factsOf(c, group, writing) : "empty";
  if (facts.textContent !== said) facts.textContent = said;
}

/** Put rows into their new order. They glide there from where they were, or appear there; those who want no
    motion see them where they are. */
function reorder(list, rows, glides) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const before = new Map([...list.children].map((row, place) => [row, [place, row.getBoundingClientRect().top]]));
  list.replaceChildren(...rows);
  if (calm || document.hidden) return;
  const look = { duration: MOVE, easing: "cubic-bezier(.2,.7,.2,1)" };
  rows.forEach((row, place) => {
    row.getAnimations().forEach((one) => one.cancel());
    if (!before.has(row)) return;
    const [last, top] = before.get(row);
    const by = top - row.getBoundingClientRect().top;
    if (!glides) { if (last !== place) row.animate([{ opacity: 0.3 }, { opacity: 1 }], look); return; }
    if (Math.abs(by) > 1 && Math.abs(by) < 3 * innerHeight) {
      row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], look);
    }
  });
}

/** Draw the list. `glides`: whether rows move to their places, as after a change of the settings. While answers
    are written they change places too often for that: rows on their way would be out of order, with gaps. */
function drawRanking(list, ranking, writing, glides) {
  const known = ranking.scores.filter((s) => !Number.isNaN(s));
  const ends = [Math.min(...known), Math.max(...known)]; // of nothing: no meter is drawn then
  const rows = new Map([...list.children].map((row) => [Number(row.dataset.index), row]));
  const wanted = ranking.groups.map((group) => {
    const row = group.map((i) => rows.get(i)).find(Boolean) ?? emptyRow(group[0]);
    row.dataset.index = group[0];
    return row;
  });
  ranking.groups.forEach((group, i) => drawRow(wanted[i], ranking, group, ends, writing));
  ranking.groups.forEach(([index], i) => drawPlace(wanted[i], ranking.order.indexOf(index), ranking.scores[index]));
  if (wanted.length === list.children.length && wanted.every((row, i) => list.children[i] === row)) return;
  const held = document.activeElement;
  reorder(list, wanted, glides);
  if (held !== document.activeElement && list.contains(held)) held.focus({ preventScroll: true });
}

/** What the lightest and the darkest mean. */
function drawLegend(list, ranking, signal) {
  const { light, dark } = ranking.scale;
  const known = Number.isFinite(light) && Number.isFinite(dark);
  $("lightest").value = known ? brief(light) : "";
  $("darkest").value = known ? brief(dark) : "";
  list.dataset.signal = $("legend").dataset.signal = signal;
}

/** Mark the chosen answer; its words can be reached by the keyboard, and others' not. */
function drawChosen(list, index) {
  for (const row of list.children) {
    const here = row.dataset.members.split(" ").includes(String(index));
    row.toggleAttribute("data-chosen", here);
    row.parts.button.ariaPressed = here;
    reachable(row.parts.tokens, here);
  }
}

const rowOf = (list, index) => [...list.children].find((row) => row.dataset.members.split(" ").includes(String(index)));
