/* Where a response looked: what a look is stands in lookback/pages/look.py, and the sums are those of
   lookback/looks/heat_map.py. Places are shares of a picture's width and height. */

const PARTS = {
  "top left": [0, 0, 0.5, 0.5], "top right": [0.5, 0, 1, 0.5],
  "bottom left": [0, 0.5, 0.5, 1], "bottom right": [0.5, 0.5, 1, 1],
  middle: [0.25, 0.25, 0.75, 0.75],
};
const EVERYWHERE = [0, 0, 1, 1];
const SAME = 1e-4; // edges that are closer are one: shares of a width are not whole numbers

/** A look, from what there is of it beside numbers and a function that cuts the next of its numbers. */
function openLook(head, cut) {
  const { tokens, pictures } = head;
  const prompt = head.relative.includes("prompt");
  const a = cut("a", tokens);
  const aPrompt = prompt ? cut("a_prompt", tokens) : null;
  const boxes = pictures.map((p) => (p.placed ? cut("boxes", 4 * p.tokens) : null));
  const weights = pictures.map((p) => cut("weights", tokens * p.tokens));
  const baseline = pictures.map((p) => (prompt ? cut("baseline", tokens * p.tokens) : null));
  const words = head.text.filter(([, first]) => first >= 0)
    .map(([text, first, stop, content]) => ({ text, first, stop, content }));
  const whole = { text: "the whole response", first: 0, stop: tokens, content: true };
  const opened = pictures.map((p, i) => ({
    ...p, boxes: boxes[i], weights: weights[i], baseline: baseline[i],
    edges: boxes[i] && edgesOf(boxes[i]),
  }));
  return { ...head, a, aPrompt, words, whole, pictures: opened };
}

/** (K,): the mean over the tokens of a word of a matrix with K columns. */
function meanRows(matrix, columns, { first, stop }) {
  const found = new Float64Array(columns);
  for (let t = first; t < stop; t++) {
    for (let k = 0; k < columns; k++) found[k] += matrix[t * columns + k];
  }
  return found.map((value) => value / (stop - first));
}

/** What a word looked at in a picture: {raw, values, base}. A relative map is divided by that of `base`: the
    mean over all tokens ("tokens"), or the word's own after another prompt ("prompt"). To both sides is
    added a little of the mean over the source, as in lookback/looks/look.py. */
function lookedAt(look, picture, word, mode) {
  const { weights, baseline, tokens } = picture;
  const raw = meanRows(weights, tokens, word);
  if (mode === "raw") return { raw, values: raw, base: null };
  const [matrix, sums, over] = mode === "tokens"
    ? [weights, look.a, look.whole] : [baseline, look.aPrompt, word];
  const base = meanRows(matrix, tokens, over);
  const faint = look.faint * mean(sums.subarray(over.first, over.stop)) / look.source || 1;
  return { raw, values: raw.map((x) => x + faint), base: base.map((x) => x + faint) };
}

/** The weight that lies in a region: the map's integral over it. */
function mass(values, boxes, [left, top, right, bottom]) {
  let total = 0;
  for (let k = 0, b = 0; k < values.length; k++, b += 4) {
    const area = (boxes[b + 2] - boxes[b]) * (boxes[b + 3] - boxes[b + 1]);
    if (!(area > 0)) continue; // it has no place
    const wide = Math.min(boxes[b + 2], right) - Math.max(boxes[b], left);
    const high = Math.min(boxes[b + 3], bottom) - Math.max(boxes[b + 1], top);
    if (wide > 0 && high > 0) total += values[k] * wide * high / area;
  }
  return total;
}

/** The same, divided by that of the base if there is one. */
const amount = ({ values, base }, boxes, region) =>
  mass(values, boxes, region) / (base ? mass(base, boxes, region) : 1);
const amountText = (value, mode, digits) =>
  (mode === "raw" ? percent(value, digits) : `${shown(value, digits)} ×`);

/** The part of the picture with the most of it, [name, share]; null where there is none. */
function placeOf(values, boxes) {
  const whole = mass(values, boxes, EVERYWHERE);
  if (!(whole > 0)) return null;
  const shares = Object.entries(PARTS).map(([name, part]) => [name, mass(values, boxes, part) / whole]);
  return shares.reduce((best, one) => (one[1] > best[1] ? one : best));
}

/** Between which lines every map of these boxes is even: {xs, ys}. */
function edgesOf(boxes) {
  const lines = (offset) => {
    const all = [];
    for (let b = offset; b < boxes.length; b += 4) {
      if (!Number.isNaN(boxes[b])) all.push(boxes[b], boxes[b + 2]);
    }
    return all.sort((x, y) => x - y).filter((x, i, sorted) => i === 0 || x - sorted[i - 1] > SAME);
  };
  return { xs: lines(0), ys: lines(1) };
}

/** How dense it is between the lines, row by row: weight per share of the picture. */
function densityOf(values, boxes, { xs, ys }) {
  const columns = xs.length - 1;
  const found = new Float64Array(Math.max(0, columns * (ys.length - 1)));
  const line = (edges, at) => { // the first that is not before it
    let [low, high] = [0, edges.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (edges[middle] < at - SAME) low = middle + 1; else high = middle;
    }
    return low;
  };
  for (let k = 0, b = 0; k < values.length; k++, b += 4) {
    const area = (boxes[b + 2] - boxes[b]) * (boxes[b + 3] - boxes[b + 1]);
    if (!(area > 0)) continue;
    const [x0, x1] = [line(xs, boxes[b]), line(xs, boxes[b + 2])];
    const [y0, y1] = [line(ys, boxes[b + 1]), line(ys, boxes[b + 3])];
    for (let y = y0; y < y1; y++) {
      for (let x = x0; x < x1; x++) found[y * columns + x] += values[k] / area;
    }
  }
  return found;
}

/** The smallest box around a point, as a region; null where no token saw it. */
function cellAt(boxes, x, y) {
  let [found, least] = [null, Infinity];
  for (let b = 0; b < boxes.length; b += 4) {
    const [left, top, right, bottom] = boxes.subarray(b, b + 4);
    const area = (right - left) * (bottom - top);
    const around = left <= x && x < right && top <= y && y < bottom;
    if (around && area < least) [found, least] = [[left, top, right, bottom], area];
  }
  return found;
}

/** What a map shows: {density, strength, highest}. Raw, the strongest is the densest place and nothing
    is 0; relative, what is no more than usual counts as nothing. */
function mapOf(seen, picture) {
  const density = densityOf(seen.values, picture.boxes, picture.edges);
  if (seen.base) {
    const usual = densityOf(seen.base, picture.boxes, picture.edges);
    for (let i = 0; i < density.length; i++) density[i] = usual[i] > 0 ? density[i] / usual[i] : 0;
  }
  const [xs, ys] = [picture.edges.xs, picture.edges.ys];
  let place = -1;
  for (let i = 0; i < density.length; i++) if (density[i] > (density[place] ?? -Infinity)) place = i;
  const low = seen.base ? 1 : 0;
  const span = (density[place] ?? low) - low;
  const strength = (value) => (span > 0 ? Math.max(0, Math.min(1, (value - low) / span)) || 0 : 0);
  const [row, column] = [Math.floor(place / (xs.length - 1)), place % (xs.length - 1)];
  const highest = place < 0 ? null
    : cellAt(picture.boxes, (xs[column] + xs[column + 1]) / 2, (ys[row] + ys[row + 1]) / 2);
  return { density, strength, highest };
}

function heatColor(colors, strength) {
  const at = strength * (colors.length - 1);
  const low = Math.min(Math.floor(at), colors.length - 2);
  return colors[low].map((part, i) => Math.round(part + (at - low) * (colors[low + 1][i] - part)));
}

/** Paint a map for a picture that is dimmed below it, as lookback/looks/heat_map.py does. */
function paintMap(canvas, picture, { density, strength }, { colors, strongest }) {
  const pen = canvas.getContext("2d");
  const { xs, ys } = picture.edges;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const [px, py] = [[xs, canvas.width], [ys, canvas.height]]
    .map(([edges, size]) => edges.map((at) => Math.round(at * size)));
  for (let y = 0, at = 0; y < ys.length - 1; y++) {
    for (let x = 0; x < xs.length - 1; x++, at++) {
      const s = strength(density[at]);
      if (!s) continue;
      pen.fillStyle = `rgb(${heatColor(colors, s).join(" ")} / ${strongest * Math.sqrt(s)})`;
      pen.fillRect(px[x], py[y], px[x + 1] - px[x], py[y + 1] - py[y]);
    }
  }
}

/** A canvas as large as it will be seen, with the picture's shape. */
function fitCanvas(canvas, { width, height }, largest) {
  const share = largest / Math.max(width, height);
  canvas.width = Math.max(1, Math.round(width * share));
  canvas.height = Math.max(1, Math.round(height * share));
}

/** Put an element over a box of a picture, of which `size` is the whole. */
function cover(element, [left, top, right, bottom], size) {
  const sides = { left, top, width: right - left, height: bottom - top };
  for (const [name, pixels] of Object.entries(sides)) element.style[name] = `${100 * pixels / size}%`;
}

/** Paint where a span of tokens looked over the picture of a frame. */
function paintSpan(frame, look, span, mode, largest) {
  const [picture] = look.pictures;
  const canvas = frame.querySelector("canvas");
  fitCanvas(canvas, picture, largest);
  frame.style.setProperty("--dim", look.heat.dim);
  const seen = lookedAt(look, picture, span, mode);
  const map = mapOf(seen, picture);
  paintMap(canvas, picture, map, look.heat);
  frame.classList.add("mapped");
  return { picture, seen, map };
}

/** The same, small, for the tip, where the frame itself is out of sight; or nothing. */
function smallMap(frame, uri, look, span, mode) {
  const { top, bottom } = frame.getBoundingClientRect();
  if (bottom > 0.25 * innerHeight && top < 0.75 * innerHeight) return [];
  const small = h("div", { class: "frame" }, h("img", { src: uri, alt: "" }), h("canvas", { "aria-hidden": "true" }));
  paintSpan(small, look, span, mode, 384);
  return [small];
}

/** Let CSS know the colours of the map, as --ramp. */
function setRamp({ colors }) {
  const ramp = colors.map((color) => `rgb(${color.join(" ")})`).join(", ");
  document.documentElement.style.setProperty("--ramp", `linear-gradient(90deg, ${ramp})`);
}
