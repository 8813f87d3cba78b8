/* Editing a scene: things are dragged, moved by arrow keys, and changed. */

/** The handles over the picture. `edit(things, index)` gets what the reader makes of them. */
function thingEditor(data, edit) {
  const { categories, colors, places, fewest } = data.world;
  let [scene, chosen, drag] = [null, null, null];

  function handle(thing, i) {
    const button = h("button", { type: "button", class: "handle", "data-thing": i, "aria-pressed": i === chosen,
      "aria-label": `${nameOfThing(thing)}, ${places[thing.cell]}` },
      h("img", { src: thing.sprite, alt: "", draggable: "false" }));
    const [left, top, right, bottom] = thing.box.map((edge) => 100 * edge / scene.size);
    Object.assign(button.style, { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` });
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
    const [left, top, right, bottom] = thing.box.map((edge, i) => edge + (i < 2 ? -1 : 1)); // and what rounding lets out
    const cover = h("canvas", { class: "hole" });
    [cover.width, cover.height] = [right - left, bottom - top];
    imageOf(scene.behind).then((image) => cover.getContext("2d").drawImage(image, -left, -top));
    Object.assign(cover.style, Object.fromEntries([["left", left], ["top", top], ["width", right - left], ["height", bottom - top]]
      .map(([name, size]) => [name, `${100 * size / scene.size}%`])));
    return cover;
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
    if (event.type === "pointerup" && cell !== scene.things[i].cell) edit(movedTo(scene.things, i, cell), i);
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
    if (cell !== null) edit(movedTo(scene.things, i, cell), i);
  }

  $("grid").append(...places.map(() => h("i")));
  $("thing-category").append(...categories.map((name) => h("option", { value: name }, name)));
  $("thing-colors").append(...Object.entries(colors).map(([name, color]) => {
    const swatch = h("button", { type: "button", class: "swatch", "data-color": name, "aria-label": name, title: name });
    swatch.style.setProperty("--color", color);
    return swatch;
  }));
  $("things").addEventListener("pointerdown", begin);
  $("things").addEventListener("pointermove", move);
  $("things").addEventListener("pointerup", end);
  $("things").addEventListener("pointercancel", end);
  $("things").addEventListener("click", press);
  $("things").addEventListener("keydown", key);
  const change = (changes) => edit(changedTo(scene.things, chosen, changes), chosen);
  $("thing-category").addEventListener("change", () => change({ category: $("thing-category").value }));
  $("thing-colors").addEventListener("click", (event) => {
    const swatch = event.target.closest(".swatch");
    if (swatch) change({ color: swatch.dataset.color });
  });
  $("thing-size").addEventListener("click", () => change({ size: scene.things[chosen].size === "small" ? "large" : "small" }));
  $("thing-remove").addEventListener("click", () => { const gone = chosen; choose(null); edit(without(scene.things, gone), null); });
  $("thing-done").addEventListener("click", () => { const last = chosen; choose(null); $("things").children[last]?.focus(); });

  return { show: (next, same) => { scene = next; if (!same) chosen = null; draw(); } };
}
