/* Drawn scenes: the server draws them; what is in one are things at the nine places of a grid. */

const SEEDS = 2 ** 32;
const PARTS_OF_THING = ["category", "color", "size", "cell", "look"];
const bare = (thing) => Object.fromEntries(PARTS_OF_THING.map((name) => [name, thing[name]]));

const pictureOfScene = (scene, edited) => ({ kind: "scene", uri: scene.image, scene, edited, name: `scene ${scene.seed}` });
const drawnScene = async (seed) => pictureOfScene(await requestJson(`explorer/scene?seed=${seed}`), false);
const editedScene = async (seed, things) =>
  pictureOfScene(await requestJson("explorer/scene", { seed, things: things.map(bare) }), true);

const anySeed = (below = 2 ** 20) => Math.floor(Math.random() * below);

/** The things with one at another place; whoever stood there takes its. */
function movedTo(things, i, cell) {
  return things.map((thing, j) => {
    if (j === i) return { ...thing, cell };
    return thing.cell === cell ? { ...thing, cell: things[i].cell } : thing;
  });
}

const changedTo = (things, i, changes) => things.map((thing, j) => (j === i ? { ...thing, ...changes } : thing));
const without = (things, i) => things.filter((_, j) => j !== i);

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The cell beside a cell; null at the edge. */
function cellBeside(cell, key) {
  const [dx, dy] = STEPS[key];
  const [x, y] = [(cell % 3) + dx, Math.floor(cell / 3) + dy];
  return x >= 0 && x < 3 && y >= 0 && y < 3 ? 3 * y + x : null;
}

const nameOfThing = (thing) => `${thing.size} ${thing.color} ${thing.category}`;
