/* Drawn scenes: the server draws them; what is in one are things at the nine places of a grid, which the reader
   drags, moves by arrow keys, and changes. */

const SEEDS = 2 ** 32;
const PARTS_OF_THING = ["category", "color", "size", "cell", "look"];
const bare = (thing) => Object.fromEntries(PARTS_OF_THING.map((name) => [name, thing[name]]));

const pictureOfScene = (scene, edited) => ({ kind: "scene", uri: scene.image, scene, edited, name: `scene ${scene.seed}` });
const drawnScene = async (seed) => pictureOfScene(await requestJson(`explorer/scene?seed=${seed}`), false);
const editedScene = async (seed, things) =>
  pictureOfScene(await requestJson("explorer/scene", { seed, things: things.map(bare) }), true);

const anySeed = () => Math.floor(Math.random() * 2 ** 20);
const nameOfThing = (thing) => `${thing.size} ${thing.color} ${thing.category}`;

/** The things with one at another place; whoever stood there takes its. */
function movedTo(things, i, cell) {
  return things.map((thing, j) => {
    if (j === i) return { ...thing, cell };
    return thing.cell === cell ? { ...thing, cell: things[i].cell } : thing;
  });
}

/** The cell beside a cell; null at the edge. */
function cellBeside(cell, key) {
  const [dx, dy] = STEPS[key];
  const [x, y] = [(cell % 3) + dx, Math.floor(cell / 3) + dy];
  return x >= 0 && x < 3 && y >= 0 && y < 3 ? 3 * y + x : null;
}

/** The handles over the picture. `edit(things)` gets what the reader makes of them. */
function thingEditor(data, edit) {
  const { categories, colors, places, fewest } = data.world;
  let [scene, chosen, drag] = [null, null, null];

  function handle(thing, i) {
    const button = h("button", { type: "button", class: "handle", "data-thing": i, "aria-pressed": i === chosen,
      "aria-label": `${nameOfThing(thing)}, ${places[thing.cell]}` },
      h("img", { src: thing.sprite, alt: "", draggable: "false" }));
    cover(button, thing.box, scene.size);
    return button;
  }

  function draw() {
    const held = document.activeElement?.closest?.(".handle")?.dataset.thing;
    const things = scene?.things ?? [];
    if (chosen !== null && chosen >= things.length) chosen = null;
    $("things").replaceChildren(...things.map(handle));
    if (held !== undefined) $("things").children[held]?.focus({ preventScroll: true });
    drawToolbar();
  }

  function drawToolbar() {
    $("thing").hidden = chosen === null;
    if (chosen === null) return;
    const thing = scene.things[chosen];
    $("thing-category").value = thing.category;
    $("thing-size").textContent = thing.size === "small" ? "make it large" : "make it small";
    $("thing-remove").disabled = scene.things.length <= fewest;
    for (const swatch of $("thing-colors").children) swatch.ariaPressed = swatch.dataset.color === thing.color;
  }

  function choose(i) {
    chosen = i;
    [...$("things").children].forEach((one, j) => { one.ariaPressed = j === i; });
    drawToolbar();
  }

  /* Dragging */

  function cellUnder(event) {
    const box = $("frame").getBoundingClientRect();
    const at = (value, start, size) => Math.max(0, Math.min(2, Math.floor(3 * (value - start) / size)));
    return 3 * at(event.clientY, box.top, box.height) + at(event.clientX, box.left, box.width);
  }

  function begin(event) {
    const button = event.target.closest(".handle");
    if (!button || event.button !== 0) return;
    drag = { button, i: Number(button.dataset.thing), x: event.clientX, y: event.clientY, moving: false };
    button.setPointerCapture(event.pointerId);
  }

  /** Cover the place that a thing leaves with what is behind it. */
  function hole(thing) {
    const box = thing.box.map((edge, i) => edge + (i < 2 ? -1 : 1)); // and what rounding lets out
    const canvas = h("canvas", { class: "hole" });
    [canvas.width, canvas.height] = [box[2] - box[0], box[3] - box[1]];
    imageOf(scene.behind).then((image) => canvas.getContext("2d").drawImage(image, -box[0], -box[1]));
    cover(canvas, box, scene.size);
    return canvas;
  }

  function move(event) {
    if (!drag) return;
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.moving && Math.hypot(dx, dy) < 5) return;
    if (!drag.moving) {
      drag.moving = true;
      drag.hole = hole(scene.things[drag.i]);
      $("things").prepend(drag.hole);
      drag.button.classList.add("dragged");
      $("grid").hidden = false;
    }
    drag.button.style.transform = `translate(${dx}px, ${dy}px) scale(1.12)`;
    const cell = cellUnder(event);
    [...$("grid").children].forEach((one, i) => one.classList.toggle("under", i === cell));
  }

  function end(event) {
    if (!drag) return;
    const { i, moving, button } = drag;
    const cell = cellUnder(event);
    drag.hole?.remove();
    drag = null;
    $("grid").hidden = true;
    button.style.transform = "";
    button.classList.remove("dragged");
    if (!moving) return;
    button.dataset.dragged = "yes"; // the click that follows is none
    if (event.type === "pointerup" && cell !== scene.things[i].cell) edit(movedTo(scene.things, i, cell));
  }

  function press(event) {
    const button = event.target.closest(".handle");
    if (!button) return;
    if (button.dataset.dragged) return void delete button.dataset.dragged;
    const i = Number(button.dataset.thing);
    choose(chosen === i ? null : i);
  }

  function key(event) {
    const button = event.target.closest(".handle");
    if (!button) return;
    if (event.key === "Escape") return void choose(null);
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    const i = Number(button.dataset.thing);
    const cell = cellBeside(scene.things[i].cell, event.key);
    if (cell !== null) edit(movedTo(scene.things, i, cell));
  }

  $("grid").append(...places.map(() => h("i")));
  $("thing-category").append(...categories.map((name) => h("option", { value: name }, name)));
  $("thing-colors").append(...Object.entries(colors).map(([name, color]) => {
    const swatch = h("button", { type: "button", class: "swatch", "data-color": name, "aria-label": name, title: name });
    swatch.style.setProperty("--color", color);
    return swatch;
  }));
  const listeners = { pointerdown: begin, pointermove: move, pointerup: end, pointercancel: end, click: press, keydown: key };
  for (const [kind, listener] of Object.entries(listeners)) $("things").addEventListener(kind, listener);
  const change = (changes) => edit(scene.things.map((thing, i) => (i === chosen ? { ...thing, ...changes } : thing)));
  $("thing-category").addEventListener("change", () => change({ category: $("thing-category").value }));
  $("thing-colors").addEventListener("click", (event) => {
    const swatch = event.target.closest(".swatch");
    if (swatch) change({ color: swatch.dataset.color });
  });
  $("thing-size").addEventListener("click", () => change({ size: scene.things[chosen].size === "small" ? "large" : "small" }));
  $("thing-remove").addEventListener("click", () => {
    const rest = scene.things.filter((_, i) => i !== chosen);
    choose(null);
    edit(rest);
  });
  $("thing-done").addEventListener("click", () => {
    const last = $("things").children[chosen];
    choose(null);
    last?.focus();
  });

  return { show: (next, same) => { scene = next; if (!same) chosen = null; draw(); } };
}
