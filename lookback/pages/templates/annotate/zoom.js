/* The picture as large as one likes: 100 % is as large as the window lets it be. */

const SCALES = [1, 1.5, 2, 3, 4, 6, 8];

function setUpZoom() {
  const [dialog, pane, image] = ["zoom", "pane", "enlarged"].map($);
  let step = 0;
  const show = (next) => {
    step = Math.min(SCALES.length - 1, Math.max(0, next));
    const [x, y] = [pane.scrollLeft + pane.clientWidth / 2, pane.scrollTop + pane.clientHeight / 2]
      .map((middle, axis) => middle / Math.max(1, axis ? image.height : image.width));
    // Of the pane without scroll bars, which come and go with the size.
    const fit = Math.min(pane.offsetWidth, (pane.offsetHeight * image.naturalWidth) / image.naturalHeight);
    image.style.width = `${Math.floor(fit) * SCALES[step]}px`;
    pane.scrollTo(x * image.width - pane.clientWidth / 2, y * image.height - pane.clientHeight / 2);
    $("scale").textContent = `${100 * SCALES[step]} %`;
    $("smaller").disabled = step === 0;
    $("larger").disabled = step === SCALES.length - 1;
  };
  $("picture").addEventListener("click", async () => {
    image.src = $("image").src;
    dialog.showModal();
    await image.decode().catch(() => {});
    show(0);
    pane.focus();
  });
  $("larger").addEventListener("click", () => show(step + 1));
  $("smaller").addEventListener("click", () => show(step - 1));
  image.addEventListener("click", () => show(step === SCALES.length - 1 ? 0 : step + 1));
  $("close").addEventListener("click", () => dialog.close());
  addEventListener("resize", () => dialog.open && show(step));
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") show(step + 1);
    else if (event.key === "-") show(step - 1);
    else if (event.key === "z") dialog.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
