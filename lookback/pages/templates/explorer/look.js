/* Where a word looked, on the picture. It is asked for when a word is first pointed at, and kept. */

/** What /v1/look tells, as look/maps.js takes it. */
function lookOf(told) {
  const queues = {
    a: [told.a], a_prompt: [told.a_prompt],
    boxes: told.pictures.filter((one) => one.placed).map((one) => one.boxes.flat()),
    weights: told.pictures.map((one) => one.weights.flat()),
    baseline: told.pictures.map((one) => one.baseline?.flat()),
  };
  return openLook({ ...told, tokens: told.count }, (name) => Float32Array.from(queues[name].shift()));
}

const NO_PLACES = "How much this model looks at the picture is known, and where is not: the layout of its vision tokens is not known.";
const NO_LOOKS = "This engine cannot tell where a word looked.";

/** Looks of one asking: `of(candidate)` gives a promise of one. */
function lookKeeper(asked) {
  const kept = new Map();
  return (c) => {
    if (!kept.has(c.index)) {
      const body = { messages: messagesOf(asked.question, asked.picture.uri), response: c.token_ids };
      const found = requestJson("v1/look", body).then(lookOf);
      found.catch(() => kept.delete(c.index)); // it may be asked for again
      kept.set(c.index, found);
    }
    return kept.get(c.index);
  };
}

const MODES = {
  raw: ["attention", (value) => `${shown(100 * value, 1)} %`, "0"],
  tokens: ["more than its other words", (value) => `${shown(value, 1)} ×`, "1 ×"],
};

/** Paint where a word looked over a frame's picture. */
function paintWord(frame, look, span, mode, largest = 640) {
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

/** Under the picture: which word, and what the colours mean. */
function drawMapLegend(look, span, mode, { picture, seen, map }) {
  const [, said, least] = MODES[mode];
  const top = map.highest ? amount(seen, picture.boxes, map.highest) : NaN;
  const ramp = look.heat.colors.map((color) => `rgb(${color.join(" ")})`).join(", ");
  document.documentElement.style.setProperty("--ramp", `linear-gradient(90deg, ${ramp})`);
  $("map-word").value = `“${span.text}” looked here`;
  $("map-least").value = least;
  $("map-most").value = said(top);
  $("map-legend").hidden = false;
}

function clearMap() {
  $("frame").classList.remove("mapped");
  delete $("frame").dataset.word;
  $("map-legend").hidden = true;
}

/** The part of the picture, of nine, at which a word looked most, in words for the tip. */
function placeInWords(look, span, mode, places) {
  const [picture] = look.pictures;
  const seen = lookedAt(look, picture, span, mode);
  const parts = places.map((_, i) => [i % 3, Math.floor(i / 3)].flatMap((at) => at / 3))
    .map(([left, top]) => amount(seen, picture.boxes, [left, top, left + 1 / 3, top + 1 / 3]));
  const best = parts.reduce((found, value, i) => (value > parts[found] ? i : found), 0);
  const whole = mass(seen.raw, picture.boxes, EVERYWHERE);
  const much = mode === "raw" ? `${shown(100 * parts[best] / whole, 0)} % of its look` : `${shown(parts[best], 1)} × the usual`;
  return `most at the ${places[best]}: ${much}`;
}
