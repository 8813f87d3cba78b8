/* The ranking: a row per answer, in its order, moving when the order does. Its words can be pointed at. */

/* Words, of tokens that are shaded */

const isWordlike = (text) => /[\p{L}\p{N}]/u.test(text);

/** Whether a token begins a word, after the one before it. */
const begins = (before, token) => before === undefined || /^\s/.test(token) || /\s$/.test(before)
  || isWordlike(before) !== isWordlike(token);

/** The words of tokens: {first, stop}. What is no word, a full stop say, stands alone. */
function wordSpans(tokens) {
  const spans = [];
  tokens.forEach((token, t) => {
    if (begins(tokens[t - 1], token)) spans.push({ first: t, stop: t + 1 });
    else spans.at(-1).stop = t + 1;
  });
  return spans;
}

const spanOf = (word) => ({ first: Number(word.dataset.first), stop: Number(word.dataset.stop), text: word.textContent });

function addTokens(holder, tokens, from) {
  for (let t = from; t < tokens.length; t++) {
    const text = tokenText(tokens[t], t);
    const bare = text.trimStart();
    if (begins(tokens[t - 1], tokens[t])) {
      holder.append(text.slice(0, text.length - bare.length), h("span", { class: "word", "data-first": t }));
    }
    const word = holder.lastElementChild;
    word.dataset.stop = t + 1;
    word.append(h("span", { class: "token", "data-token": t }, bare || "∅"));
  }
}

/** Make a paragraph show these tokens with these strengths, with as little work as it can. */
function drawTokens(holder, tokens, strengths) {
  const had = holder.tokens ?? [];
  const goesOn = had.length <= tokens.length && had.every((token, t) => token === tokens[t]);
  if (!goesOn) holder.replaceChildren();
  if (!goesOn || had.length < tokens.length) addTokens(holder, tokens, goesOn ? had.length : 0);
  holder.tokens = tokens;
  holder.querySelectorAll(".token").forEach((span, t) => span.style.setProperty("--strength", strengths[t].toFixed(3)));
}

/** Words that can be reached by the keyboard, one of them in the order of tabs; or not. */
function makeReachable(holder, yes) {
  const words = [...holder.querySelectorAll(".word")];
  const first = words.find((word) => word.tabIndex === 0) ?? words[0];
  for (const word of words) {
    if (yes) {
      word.setAttribute("role", "button");
      word.tabIndex = word === first ? 0 : -1;
    } else {
      word.removeAttribute("role");
      word.removeAttribute("tabindex");
    }
  }
}

/* Rows */

const MOVE = 380; // ms

/** What the list shows; `groups` are answers of the same tokens, each where its best stands: [[index, ...], ...]. */
function rankingOf(candidates, state, merge) {
  const ranking = rankedAndShaded(candidates, RANKERS[state.scorer](candidates, state), state);
  const groups = new Map();
  for (const i of ranking.order) {
    const key = merge ? JSON.stringify([candidates[i].tokens, candidates[i].finish]) : i;
    groups.set(key, [...(groups.get(key) ?? []), i]);
  }
  return { ...ranking, groups: [...groups.values()] };
}

function emptyRow(index) {
  const parts = {
    button: h("button", { type: "button", class: "rank" }),
    score: h("span", { class: "score" }), meter: meter(0),
    tokens: h("p", { class: "tokens", dir: "auto" }), facts: h("p", { class: "facts" }),
  };
  const row = h("li", { "data-index": index }, parts.button,
    h("div", { class: "measure" }, parts.score, parts.meter), h("div", { class: "said" }, parts.tokens, parts.facts));
  return Object.assign(row, { parts });
}

function factsOf(c, group, writing) {
  if (!c.tokens.length && c.finish !== null) return "empty";
  const facts = [];
  if (c.finish === "pruned") facts.push(`pruned after ${c.tokens.length} tokens`);
  if (c.finish === "length") facts.push("cut at the most tokens");
  if (c.finish === null && !writing) facts.push("stopped");
  if (group.length > 1) facts.push(`said ${group.length} times`);
  return facts.join(" · ");
}

function drawRow(row, ranking, group, [lowest, highest], writing) {
  const index = group[0];
  const c = ranking.candidates[index];
  const { button, score, meter: bar, tokens, facts } = row.parts;
  const [value, place] = [ranking.scores[index], ranking.order.indexOf(index) + 1];
  const unknown = Number.isNaN(value);
  Object.assign(row.dataset, { rank: place, score: value, members: group.join(" ") });
  row.classList.toggle("pruned", c.finish === "pruned");
  row.classList.toggle("writing", c.finish === null && writing);
  button.textContent = unknown ? "–" : String(place);
  button.ariaLabel = `Answer ${index + 1}, ${unknown ? "without a place" : `place ${place}`}`;
  score.textContent = shown(value, 3);
  bar.style.setProperty("--strength", unknown ? 0 : (value - lowest) / (highest - lowest || 1));
  drawTokens(tokens, c.tokens, ranking.strengths[index]);
  const said = factsOf(c, group, writing);
  if (facts.textContent !== said) facts.textContent = said;
}

/** Put rows into their new order. They glide there from where they were, or appear there; those who want no
    motion see them where they are. */
function reorder(list, rows, glides) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const before = new Map([...list.children].map((row, place) => [row, [place, row.getBoundingClientRect().top]]));
  list.replaceChildren(...rows);
  if (calm || document.hidden) return;
  const timing = { duration: MOVE, easing: "cubic-bezier(.2,.7,.2,1)" };
  rows.forEach((row, place) => {
    row.getAnimations().forEach((one) => one.cancel());
    if (!before.has(row)) return;
    const [last, top] = before.get(row);
    const by = top - row.getBoundingClientRect().top;
    if (!glides && last !== place) row.animate([{ opacity: 0.3 }, { opacity: 1 }], timing);
    if (glides && Math.abs(by) > 1 && Math.abs(by) < 3 * innerHeight) {
      row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], timing);
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
  if (wanted.length === list.children.length && wanted.every((row, i) => list.children[i] === row)) return;
  const held = document.activeElement;
  reorder(list, wanted, glides);
  if (held !== document.activeElement && list.contains(held)) held.focus({ preventScroll: true });
}

const hasMember = (row, index) => row.dataset.members.split(" ").includes(String(index));

/** Mark the chosen answer; its words can be reached by the keyboard, and others' not. */
function drawChosen(list, index) {
  for (const row of list.children) {
    const here = hasMember(row, index);
    row.toggleAttribute("data-chosen", here);
    row.parts.button.ariaPressed = here;
    makeReachable(row.parts.tokens, here);
  }
}

function drawPanel(list, asked, chosen, writing) {
  const row = [...list.children].find((one) => hasMember(one, chosen));
  list.querySelectorAll(".compare").forEach((panel) => { if (panel.parentElement !== row) panel.remove(); });
  if (!row || row.querySelector(".compare") || writing || !asked.candidates[chosen].tokens.length) return;
  row.append(h("div", { class: "compare" },
    h("button", { type: "button", class: "small compare-it" }, "Would it say so without looking?")));
}
