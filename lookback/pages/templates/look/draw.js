/* Drawing a look: words, facts, the film. What is shown is a `view`: {look, picture, place (of the
   picture), word, seen, mode, cell}. */

const amountIn = (value, mode) => amountText(value, mode, 2);

const attention = (look, { first, stop }) => mean(look.a.subarray(first, stop));

function drawWords(holder, look) {
  let count = 0;
  holder.replaceChildren(...look.text.map(([text, first]) => {
    if (first < 0) return document.createTextNode(text);
    const number = count++;
    return h("button", { type: "button", class: "word", "data-word": number, tabindex: number ? -1 : 0 }, text);
  }));
  holder.closest("#look").classList.toggle("long", look.words.length > 60);
}

function shadeWords(holder, { look, picture, mode, cell }) {
  const values = look.words.map((word) => (cell
    ? amount(lookedAt(look, picture, word, mode), picture.boxes, cell) : attention(look, word)));
  const known = values.filter(Number.isFinite);
  const [low, high] = [cell ? 0 : Math.min(...known), Math.max(...known)];
  holder.querySelectorAll(".word").forEach((button, i) => {
    const strength = high > low ? (values[i] - low) / (high - low) : 0.5;
    button.style.setProperty("--strength", Number.isFinite(strength) ? strength : 0);
    button.dataset.value = values[i];
  });
  $("look").classList.toggle("by-cell", cell !== null);
  $("shaded-by").textContent = cell
    ? "Words are shaded by how much they looked at the chosen cell:" : "Words are shaded by A, their attention on all of the source:";
  const ends = cell ? [amountIn(low, mode), amountIn(high, mode)] : [shown(low, 2), shown(high, 2)];
  [$("lightest").value, $("darkest").value] = known.length ? ends : ["", ""];
  return values;
}

/** Where a word looked in a picture whose tokens have places, as rows for a list. */
function placesOf({ picture, seen, mode }, { highest }) {
  const placed = mass(seen.raw, picture.boxes, EVERYWHERE);
  const rows = [];
  const part = placeOf(seen.raw, picture.boxes);
  if (part) rows.push(["mostly", `${part[0]}, ${percent(part[1], 0)} of that within this quarter`]);
  if (highest) rows.push(["brightest cell", amountIn(amount(seen, picture.boxes, highest), mode)]);
  const lost = sum(seen.raw) - placed;
  if (lost > 1e-6 + 1e-3 * placed) rows.push(["on tokens without a place", percent(lost, 2)]);
  return rows;
}

/** The same where no places are known: the tokens by their numbers. */
function flatOf({ seen, picture, mode }) {
  const value = (k) => seen.values[k] / (seen.base ? seen.base[k] : 1);
  const order = [...seen.values.keys()].sort((i, j) => value(j) - value(i)).slice(0, 5);
  return [
    ["its tokens", `${picture.tokens}, whose places are not known`],
    ["most on", order.map((k) => `token ${k + 1} (${amountIn(value(k), mode)})`).join(", ")],
  ];
}

function drawAbout(holder, view, map) {
  const { look, picture, word, seen } = view;
  const a = attention(look, word);
  const here = sum(seen.raw);
  const rows = [["A", `${shown(a, 3)}, the share of its attention on the source`]];
  if (look.pictures.length > 1 || Math.abs(here - a) > 0.001) {
    rows.push([`on ${picture.name}`, `${shown(here, 3)}, ${percent(a > 0 ? here / a : 0, 0)} of A`]);
  }
  rows.push(...(map ? placesOf(view, map) : flatOf(view)));
  const title = word === look.whole ? "The whole response" : `“${word.text}”`;
  const list = h("dl", {}, ...rows.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
  holder.replaceChildren(h("h2", { dir: "auto" }, title), list);
}

function drawHere(holder, { look, cell, mode }, values, most = 6) {
  if (!cell) return holder.replaceChildren();
  const order = [...values.keys()].filter((i) => Number.isFinite(values[i]))
    .sort((i, j) => values[j] - values[i]).slice(0, most);
  const highest = values[order[0]];
  holder.replaceChildren(
    h("button", { type: "button", id: "let-go" }, "let go"),
    h("h2", {}, "Words that looked at this cell most"),
    h("ol", {}, ...order.map((i) => h("li", { "data-word": i, "data-value": values[i] },
      h("span", { dir: "auto" }, look.words[i].text),
      meter(highest > 0 ? values[i] / highest : 0),
      h("span", {}, amountIn(values[i], mode))))));
}

/** The pictures in a row, with the share of the word's attention that each has. */
function drawFilm(holder, { look, place, word }) {
  if (look.pictures.length < 2) return;
  if (!holder.children.length) {
    holder.append(...look.pictures.map((picture, i) => h("button", { type: "button", "data-picture": i },
      h("img", { src: imageAt(i), alt: "", loading: "lazy" }), meter(0), h("span", {}, picture.name), h("output", {}))));
  }
  const on = look.pictures.map((picture) => sum(meanRows(picture.weights, picture.tokens, word)));
  const highest = Math.max(...on);
  [...holder.children].forEach((button, i) => {
    button.ariaPressed = i === place;
    button.children[1].style.setProperty("--strength", highest > 0 ? on[i] / highest : 0);
    button.lastChild.value = percent(on[i], 1);
  });
}

const MEANINGS = {
  raw: "The attention itself: what share of all its attention a word paid to each place.",
  tokens: "How many times as much as the mean over all tokens of this response: places that draw every "
    + "word’s attention are taken out. The whole response is 1 × everywhere.",
  prompt: "How many times as much as the same word paid after the other prompt.",
};

function drawMapLegend({ picture, seen, mode }, map) {
  $("legend").hidden = !map;
  if (!map) return;
  const top = map.highest ? amount(seen, picture.boxes, map.highest) : NaN;
  const flat = mode !== "raw" && !(top > 1);
  $("least").value = mode === "raw" ? "0" : "1 × or less";
  $("most").value = flat ? "nowhere more than usual"
    : `${amountIn(top, mode)}${mode === "raw" ? " of its attention in one cell" : " of the usual"}`;
}
