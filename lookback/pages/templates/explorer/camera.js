/* A photograph: a phone's own camera, or one that the browser may use. */

const isPhone = () => matchMedia("(pointer: coarse)").matches;
const hasCamera = () => Boolean(navigator.mediaDevices?.getUserMedia);

/** Show the camera until a photograph is taken; null if none is. */
async function photographed() {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1280 } } });
  } catch (error) {
    const why = error.name === "NotFoundError" ? "there is none" : "the browser does not allow it";
    throw new Refusal(`No photograph from the camera: ${why}. Choose a picture instead.`, 0, "Choose a picture");
  }
  const video = $("video");
  video.srcObject = stream;
  await video.play();
  $("camera").showModal();
  return new Promise((done) => {
    let uri = null;
    $("shoot").onclick = () => {
      uri = shrunk(video, video.videoWidth, video.videoHeight);
      $("camera").close();
    };
    $("camera-cancel").onclick = () => $("camera").close();
    $("camera").addEventListener("close", () => {
      stream.getTracks().forEach((track) => track.stop());
      video.srcObject = null;
      done(uri && { kind: "photo", uri, name: "photograph" });
    }, { once: true });
  });
}

/** The button, where there is a camera to be had. */
function listenForCamera(take, complain) {
  $("photograph").hidden = !isPhone() && !hasCamera();
  $("photograph").addEventListener("click", async () => {
    if (isPhone()) return $("capture").click();
    try {
      const picture = await photographed();
      if (picture) take(picture);
    } catch (error) {
      complain(error);
    }
    return undefined;
  });
}
