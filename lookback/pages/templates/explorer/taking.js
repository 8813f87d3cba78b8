/* What can be taken away, and links that bring it back. */

const QUIET = 250; // ms: browsers refuse an address that changes with every step of a slider

/** A button says for a moment what it has done. */
function flash(button, text) {
  button.dataset.label ??= button.textContent;
  button.textContent = text;
  setTimeout(() => { button.textContent = button.dataset.label; }, 1600);
}

function listenToLinks(app) {
  const { data, state } = app;
  const isAsked = () => Boolean(app.asked) && app.asked.phase !== "failed";
  let timer;

  /** The address says what is shown; a photograph is only in a link that is asked for. */
  app.remember = () => {
    clearTimeout(timer);
    if (app.picture?.kind !== "scene") return;
    timer = setTimeout(() => history.replaceState(null, "", linkOf(state, app.picture, null, isAsked())), QUIET);
  };

  async function pictureOfLink(given) {
    if (given.picture) {
      await imageOf(given.picture).catch(() => { throw new Refusal("The picture in this link cannot be read."); });
      return { kind: "photo", uri: given.picture, name: "from a link" };
    }
    const seed = given.scene ?? data.first;
    return given.things ? editedScene(seed, given.things) : drawnScene(seed);
  }

  /** Show what a link says, and ask again what it asked. */
  app.restore = async (hash) => {
    const given = readLink(hash, data);
    Object.assign(state, { question: "", among: null, candidate: null }, given.state);
    const picture = await app.attempt(() => pictureOfLink(given), () => app.restore(hash));
    if (!picture) return;
    app.show(picture);
    if (given.asked) await app.begin(given.state.candidate ?? null);
    const notes = given.problems.map((one) => `The link is not all right: ${one}.`);
    if (given.smaller) notes.push("The picture in this link is smaller than the one that was asked about: answers may differ.");
    if (notes.length) app.complain({ message: notes.join(" ") });
  };

  async function copyLink() {
    const { picture } = app;
    const photo = picture.scene ? null : await pictureInLink(picture.uri);
    history.replaceState(null, "", linkOf(state, picture, photo, isAsked()));
    const copied = await copyText(location.href);
    const lost = picture.scene || photo ? "" : "The picture is too large for a link, and is not in it.";
    const about = photo?.smaller ? "The link has a smaller copy of the picture: answers may differ." : lost;
    flash($("copy-link"), copied ? "Copied" : "In the address");
    app.tell(`The link is ${copied ? "copied" : "in the address bar"}. ${about}`);
    if (about) app.complain({ message: about });
  }

  async function savePicture() {
    try {
      const said = await giveAway(await sharedPicture(app.asked, app.ranking, state, data), "lookback.png");
      flash($("save-picture"), said === "copied" ? "Copied" : "Saved");
      app.tell(`The picture is ${said}.`);
    } catch (error) {
      app.complain({ message: `The picture could not be drawn: ${error.message}` });
    }
  }

  $("copy-link").addEventListener("click", copyLink);
  $("save-picture").addEventListener("click", savePicture);
  $("save-json").addEventListener("click", () => {
    saveText(JSON.stringify(everything(app.asked, app.ranking, state, data), null, 1), "lookback.json");
    flash($("save-json"), "Saved");
  });
  addEventListener("hashchange", () => { if (isLink(location.hash)) app.restore(location.hash); });
}
