/* The picture of the page: which one it is, what is said about it, what the reader makes of it. */

const NOTES = {
  drawing: "The small model that comes with the package answers here. It knows drawings like this one, and nothing else.",
  photo: "The small model that comes with the package answers here, and it knows drawings only: in every photograph it sees suns and cups. "
    + "The numbers are real; the answers are not worth reading. lookback serve --model MODEL has another answer.",
};
const ANY_PICTURE = ["Describe the picture.", "What is in the foreground?", "How many people are there?", "What is unusual here?"];

const altOf = (scene, places) => `A drawing: ${scene.things.map((thing) => `${nameOfThing(thing)} at ${places[thing.cell]}`).join(", ")}`;

/** The picture, and the questions that fit it. */
function drawPicture(picture, { embedded, world }) {
  const { scene } = picture;
  $("picture").src = picture.uri;
  $("picture").alt = scene ? altOf(scene, world.places) : `Your picture: ${picture.name}`;
  $("picture-hint").textContent = scene
    ? `Drag a thing elsewhere, or click it to change it${embedded ? "." : "; or drop, paste or choose a picture of your own."}` : "Drop or paste another at any time. It goes to this server and nowhere else.";
  $("picture-note").hidden = !embedded;
  $("picture-note").classList.toggle("warn", !scene);
  $("picture-note").textContent = NOTES[scene ? "drawing" : "photo"];
  const questions = scene?.questions ?? ANY_PICTURE;
  $("chips").replaceChildren(...questions.map((text) => h("button", { type: "button", class: "chip", "aria-pressed": "false" }, text)));
  return questions;
}

/** What the reader does to the picture. */
function listenToPictures(app) {
  const { data, state } = app;
  let job = 0; // newer ones win
  const editor = thingEditor(data, edit);

  app.show = (picture, same = false) => {
    app.picture = picture;
    editor.show(picture.scene ?? null, same);
    const questions = drawPicture(picture, data);
    state.question ||= questions[0];
    app.unpoint();
    app.draw();
  };

  async function take(get, tell) {
    const mine = ++job;
    const picture = await app.attempt(get);
    if (picture && mine === job) tell(picture);
  }

  const takeScene = (seed) => take(() => drawnScene(seed), (picture) => {
    state.question = ""; // the questions are about what is there
    app.show(picture);
    app.tell($("picture").alt);
  });

  const takePhoto = (file) => take(() => (file.uri ? file : pictureOfFile(file)), (picture) => {
    app.show(picture);
    app.tell($("picture").alt);
  });

  function edit(things) {
    const { seed, things: before } = app.picture.scene;
    return take(() => editedScene(seed, things), (picture) => {
      app.show(picture, true);
      const moved = things.length === before.length && things.find((thing, i) => thing.cell !== before[i].cell);
      app.tell(moved ? `${nameOfThing(moved)}: ${data.world.places[moved.cell]}` : "The picture has changed.");
    });
  }

  $("another").addEventListener("click", () => takeScene(anySeed()));
  $("chips").addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    if (!chip) return;
    state.question = $("question").value = chip.textContent;
    app.draw();
  });
  listenForPhotos(takePhoto);
  listenForCamera(takePhoto, app.complain);
}
