/* Pictures of the reader's own: from a file, the clipboard or a camera, made small enough to send. */

const LARGEST = 1024; // pixels of the longer side that are sent
const DRAWING = 128; // up to this size a PNG is sent as it is: a small drawing should keep all its pixels

/** A picture that can be drawn on a canvas, as a data URI with at most so many pixels a side. */
function shrunk(source, width, height, largest = LARGEST, quality = 0.9) {
  const share = Math.min(1, largest / Math.max(width, height));
  const canvas = h("canvas");
  canvas.width = Math.max(1, Math.round(width * share));
  canvas.height = Math.max(1, Math.round(height * share));
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff"; // where it is transparent
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(source, 0, 0, canvas.width, canvas.height);
  const small = Math.max(canvas.width, canvas.height) <= DRAWING;
  return canvas.toDataURL(small ? "image/png" : "image/jpeg", quality);
}

/** A file as a picture of the page; an error in words if it is none. */
async function pictureOfFile(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Refusal(`“${file.name || "what was pasted"}” cannot be read as a picture: a JPEG, PNG or WebP can.`, 0, "Choose a picture");
  }
  const uri = shrunk(bitmap, bitmap.width, bitmap.height);
  bitmap.close();
  return { kind: "photo", uri, name: file.name || "pasted picture" };
}

/** A data URI as an image that is there. */
async function imageOf(uri) {
  const image = h("img", { src: uri, alt: "" });
  await image.decode();
  return image;
}

const fileIn = (transfer) => [...(transfer?.files ?? [])].find((file) => file.type.startsWith("image/")) ?? transfer?.files?.[0];

/** Take pictures that are dropped anywhere, pasted, or chosen. */
function listenForPhotos(take) {
  const over = (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    $("frame").classList.add("dropping");
  };
  addEventListener("dragover", over);
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("frame").classList.remove("dropping"); });
  addEventListener("drop", (event) => {
    $("frame").classList.remove("dropping");
    const file = fileIn(event.dataTransfer);
    if (!file) return;
    event.preventDefault();
    take(file);
  });
  addEventListener("paste", (event) => {
    const file = fileIn(event.clipboardData);
    if (!file) return; // text, into a field
    event.preventDefault();
    take(file);
  });
  $("choose").addEventListener("click", () => $("file").click());
  for (const id of ["file", "capture"]) {
    $(id).addEventListener("change", () => {
      const [file] = $(id).files;
      $(id).value = "";
      if (file) take(file);
    });
  }
}
