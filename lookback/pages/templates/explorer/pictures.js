/* The picture of the page: a drawn scene, or one of the reader's own from a file, the clipboard or a camera, made
   small enough to send. */

const LARGEST = 1024; // pixels of the longer side that are sent
const DRAWING = 128; // up to this size a PNG is sent as it is: a small drawing should keep all its pixels
const NOTES = {
  drawing: "The small model that comes with the package answers here. It knows drawings like this one, and nothing else.",
  photo: "The small model that comes with the package answers here, and it knows drawings only: in every photograph it sees suns and cups. "
    + "The numbers are real; the answers are not worth reading. lookback serve --model MODEL has another answer.",
};
const ANY_PICTURE = ["Describe the picture.", "What is in the foreground?", "How many people are there?", "What is unusual here?"];

/** A picture that can be drawn on a canvas, as a data URI with at most so many pixels a side. */
function shrink(source, width, height, largest = LARGEST, quality = 0.9) {
  const canvas = h("canvas");
  fitCanvas(canvas, { width, height }, Math.min(largest, Math.max(width, height)));
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff"; // where it is transparent
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(source, 0, 0, canvas.width, canvas.height);
  const small = Math.max(canvas.width, canvas.height) <= DRAWING;
  return canvas.toDataURL(small ? "image/png" : "image/jpeg", quality);
}

async function pictureOfFile(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Refusal(`“${file.name || "what was pasted"}” cannot be read as a picture: a JPEG, PNG or WebP can.`, 0, "Choose a picture");
  }
  const uri = shrink(bitmap, bitmap.width, bitmap.height);
  bitmap.close();
  return { kind: "photo", uri, name: file.name || "pasted picture" };
}

async function imageOf(uri) {
  const image = h("img", { src: uri, alt: "" });
  await image.decode();
  return image;
}

/** Show the camera until a photograph is taken; null if none is. */
async function takePhotograph() {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1280 } } });
  } catch (error) {
    const why = error.name === "NotFoundError" ? "there is none" : "the browser does not allow it";
    throw new Refusal(`No photograph from the camera: ${why}. Choose a picture instead.`, 0, "Choose a picture");
  }
  const [dialog, video] = [$("camera"), $("video")];
  video.srcObject = stream;
  await video.play();
  dialog.showModal();
  return new Promise((done) => {
    let uri = null;
    $("shoot").onclick = () => {
      uri = shrink(video, video.videoWidth, video.videoHeight);
      dialog.close();
    };
    $("camera-cancel").onclick = () => dialog.close();
    dialog.addEventListener("close", () => {
      stream.getTracks().forEach((track) => track.stop());
      video.srcObject = null;
      done(uri && { kind: "photo", uri, name: "photograph" });
    }, { once: true });
  });
}

/** Take pictures that are dropped anywhere, pasted, chosen or takePhotograph; `take` gets a file or a picture. */
function listenForPhotos(take, showProblem) {
  const takeFrom = (event, transfer) => {
    const files = [...(transfer?.files ?? [])];
    if (!files.length) return; // text, into a field
    event.preventDefault();
    take(files.find((file) => file.type.startsWith("image/")) ?? files[0]);
  };
  const drops = (yes) => $("frame").classList.toggle("dropping", yes);
  addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    drops(true);
  });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) drops(false); });
  addEventListener("drop", (event) => { drops(false); takeFrom(event, event.dataTransfer); });
  addEventListener("paste", (event) => takeFrom(event, event.clipboardData));
  $("choose").addEventListener("click", () => $("file").click());
  for (const input of [$("file"), $("capture")]) {
    input.addEventListener("change", () => {
      const [file] = input.files;
      input.value = "";
      if (file) take(file);
    });
  }
  const isPhone = () => matchMedia("(pointer: coarse)").matches; // it has a camera of its own
  $("photograph").hidden = !isPhone() && !navigator.mediaDevices?.getUserMedia;
  $("photograph").addEventListener("click", async () => {
    if (isPhone()) return $("capture").click();
    const picture = await takePhotograph().catch(showProblem);
    return picture && take(picture);
  });
}

function drawPicture(picture, { embedded, world }) {
  const { scene } = picture;
  const things = scene?.things.map((thing) => `${nameOfThing(thing)} at ${world.places[thing.cell]}`);
  $("picture").src = picture.uri;
  $("picture").alt = scene ? `A drawing: ${things.join(", ")}` : `Your picture: ${picture.name}`;
  $("picture-hint").textContent = scene
    ? `Drag a thing elsewhere, or click it to change it${embedded ? "." : "; or drop, paste or choose a picture of your own."}` : "Drop or paste another at any time. It goes to this server and nowhere else.";
  $("picture-note").hidden = !embedded;
  $("picture-note").classList.toggle("warn", !scene);
  $("picture-note").textContent = NOTES[scene ? "drawing" : "photo"];
  const questions = scene?.questions ?? ANY_PICTURE;
  $("chips").replaceChildren(...questions.map((text) => h("button", { type: "button", class: "chip", "aria-pressed": "false" }, text)));
  return questions;
}

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

  /** Show the picture that `get` promises, unless another was asked for meanwhile. */
  async function take(get, show = app.show) {
    const mine = ++job;
    const picture = await app.attempt(get);
    if (!picture || mine !== job) return;
    app.announce(show(picture) ?? $("picture").alt);
  }

  const takePhoto = (file) => take(() => (file.uri ? file : pictureOfFile(file)));
  const takeScene = (seed) => take(() => drawnScene(seed), (picture) => {
    state.question = ""; // the questions are about what is there
    app.show(picture);
  });

  function edit(things) {
    const { seed, things: before } = app.picture.scene;
    return take(() => editedScene(seed, things), (picture) => {
      app.show(picture, true);
      const moved = things.length === before.length && things.find((thing, i) => thing.cell !== before[i].cell);
      return moved ? `${nameOfThing(moved)}: ${data.world.places[moved.cell]}` : "The picture has changed.";
    });
  }

  $("another").addEventListener("click", () => takeScene(anySeed()));
  $("chips").addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    if (!chip) return;
    state.question = $("question").value = chip.textContent;
    app.draw();
  });
  listenForPhotos(takePhoto, app.showProblem);
}
