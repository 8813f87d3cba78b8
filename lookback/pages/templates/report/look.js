/* Where a token looked, on the item's picture: of candidates that have a look (`lookback run --look`). */

const MAPS = { raw: "attention", tokens: "attention against its other tokens" };

/** The item's picture; with a map over it, and what to do for one, if candidates have looks. */
function pictureWithMap(item, mode) {
  const image = h("img", { src: imageAt(item.image), alt: `The image of item ${item.id}` });
  const looks = item.candidates.filter((c) => c.look);
  if (!looks.length) return [image];
  const [{ look: { pictures: [picture] } }] = looks;
  const canvas = h("canvas", { "aria-hidden": "true" });
  fitCanvas(canvas, picture, 384);
  const names = looks.map((c) => c.index + 1).join(" or ");
  if (!picture.placed) {
    return [image, h("p", { class: "caption" }, "Where candidates looked is not known here: the layout of this model’s vision tokens is not.")];
  }
  const choice = h("select", { "aria-label": "What the map shows", id: "map" },
    ...Object.entries(MAPS).map(([name, label]) => h("option", { value: name, ...(name === mode ? { selected: "" } : {}) }, label)));
  return [
    h("div", { class: "frame" }, image, canvas),
    h("p", { class: "caption looks" }, `Point at a token of candidate ${names}: where it looked, by `, choice),
  ];
}

/** Show where a token looked; without one, the picture as it is. */
function drawMap(aside, c, t, mode) {
  const frame = aside.querySelector(".frame");
  if (!frame) return;
  const [picture] = c?.look?.pictures ?? [];
  frame.classList.toggle("mapped", Boolean(picture?.placed));
  frame.dataset.token = picture ? `${c.index} ${t}` : "";
  if (picture?.placed) paintToken(frame, c.look, t, mode);
}

function paintToken(frame, look, t, mode) {
  const [picture] = look.pictures;
  frame.style.setProperty("--dim", look.heat.dim);
  const seen = lookedAt(look, picture, { first: t, stop: t + 1 }, mode);
  paintMap(frame.querySelector("canvas"), picture, mapOf(seen, picture), look.heat);
}

/** The same, small, to stand beside the token where the picture itself is out of sight; or nothing. */
function smallMap(aside, item, c, t, mode) {
  const frame = aside.querySelector(".frame");
  if (!frame || !c.look?.pictures[0].placed) return [];
  const { top, bottom } = frame.getBoundingClientRect();
  if (bottom > 0.2 * innerHeight && top < 0.8 * innerHeight) return [];
  const canvas = h("canvas", { "aria-hidden": "true" });
  fitCanvas(canvas, c.look.pictures[0], 384);
  const small = h("div", { class: "frame mapped" }, h("img", { src: imageAt(item.image), alt: "" }), canvas);
  paintToken(small, c.look, t, mode);
  return [small];
}
