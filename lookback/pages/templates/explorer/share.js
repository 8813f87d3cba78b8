/* What can be taken away: a link that shows all this again, a picture for others, everything as JSON. A link has the
   picture, the question and all settings: the server draws the same answers again from the same seed. */

const FITS = 20_000; // characters of a picture that a link may carry

/** The things of a link; undefined if it is none. What they may be, the server says. */
function thingsFromLink(text) {
  const things = text.split(",").map((one) => {
    const [category, color, size, cell, look] = one.split(".");
    return { category, color, size, cell: Number(cell), look: Number(look) };
  });
  return things.every(({ cell, look }) => Number.isInteger(cell) && Number.isInteger(look)) ? things : undefined;
}

/** A photograph as a link can carry it: {uri, smaller}; null if even a small one does not fit. */
async function pictureInLink(uri) {
  if (uri.length <= FITS) return { uri, smaller: false };
  const image = await imageOf(uri);
  for (const size of [384, 256, 192, 128]) {
    const small = shrink(image, image.naturalWidth, image.naturalHeight, size, 0.7);
    if (small.length <= FITS) return { uri: small, smaller: true };
  }
  return null;
}

/** The hash of a state; `photo` is what `pictureInLink` gave. */
function linkOf(state, picture, photo, asked) {
  const scene = picture?.kind === "scene" ? picture.scene : null;
  const things = scene?.things.map((thing) => PARTS_OF_THING.map((name) => thing[name]).join("."));
  return hashOf({
    scene: scene ? scene.seed : "", things: scene && picture.edited ? things.join(",") : "",
    picture: photo?.uri ?? "", smaller: photo?.smaller ? 1 : "",
    q: state.question, n: state.n, temperature: state.temperature, max: state.max_tokens, seed: state.seed,
    prune: state.prune ? 1 : 0, by: state.scorer, alpha: state.alpha, lam: state.lam,
    among: state.among ?? "", answer: state.candidate === null ? "" : state.candidate + 1, shade: state.signal,
    map: state.map, asked: asked ? 1 : 0,
  });
}

/** What a hash says: {state, scene, things, picture, smaller, asked}, and a sentence about each thing in it
    that cannot be. */
function readLink(hash, data) {
  const { problems, read, number, choice } = hashReader(hash);
  const range = (name, low, high, whole = true) =>
    read(name, number(low, high, whole), `it must be ${whole ? "a whole number" : "a number"} from ${low} to ${high}`);
  const flag = (name) => read(name, (text) => ({ 0: false, 1: true })[text], "it must be 0 or 1");

  const n = range("n", 1, data.most);
  const answer = range("answer", 1, n ?? data.most);
  const state = {
    n, question: read("q", (text) => text.slice(0, 4000)), temperature: range("temperature", 0, 2, false),
    max_tokens: range("max", 1, data.longest), seed: range("seed", 0, 2 ** 31 - 1),
    alpha: range("alpha", 0, 100, false), lam: range("lam", 0, 100, false), among: range("among", 1, n ?? data.most),
    prune: flag("prune"), scorer: choice("by", Object.keys(data.scorers)), signal: choice("shade", Object.keys(SHADES)),
    map: choice("map", Object.keys(MODES)), candidate: answer && answer - 1,
  };
  const isPicture = (uri) => /^data:image\/(png|jpeg|webp);base64,/.test(uri);
  return {
    state: Object.fromEntries(Object.entries(state).filter(([, value]) => value !== undefined)), problems,
    scene: range("scene", 0, SEEDS - 1), things: read("things", thingsFromLink, "it does not name things"),
    picture: read("picture", (uri) => (isPicture(uri) ? uri : undefined), "it is no picture"),
    smaller: flag("smaller") ?? false, asked: flag("asked") ?? false,
  };
}

function sharedAnswers(asked, ranking, state, data) {
  const rows = ranking.groups.map((group) => {
    const [index] = group;
    const facts = shown(ranking.scores[index], 3) + (group.length > 1 ? `   said ${group.length} times` : "");
    const { tokens } = ranking.candidates[index];
    return { place: ranking.order.indexOf(index) + 1, facts, tokens, strengths: ranking.strengths[index] };
  });
  const setting = BY_SETTING.includes(state.scorer) ? `, α = ${state.alpha}, λ = ${state.lam}` : "";
  return {
    caption: `${data.model} · best of ${ranking.candidates.length}`, question: asked.question, rows,
    about: `Ranked by ${data.scorers[state.scorer].title}${setting}; words shaded by ${SHADES[state.signal][0]} · LookBack`,
  };
}

function everything(asked, ranking, state, data) {
  const { picture, question, body, compared } = asked;
  const { scene } = picture;
  return {
    lookback: "explorer", model: data.model, question,
    picture: picture.uri, ...(scene ? { scene: { seed: scene.seed, things: scene.things.map(bare) } } : {}),
    asked: { ...body, messages: undefined },
    ranked: { scorer: state.scorer, alpha: state.alpha, lam: state.lam, among: ranking.candidates.length, order: ranking.order },
    candidates: asked.candidates.map((c, i) => ({
      ...c, text: c.tokens.join(""), score: Number.isFinite(ranking.scores[i]) ? ranking.scores[i] : null,
    })),
    compared: Object.fromEntries([...compared].map(([index, { none, other, otherPicture }]) => [index, {
      none: Array.from(none.log_prob), other: Array.from(other.log_prob), other_picture: otherPicture,
    }])),
  };
}

function flash(button, text) {
  button.dataset.label ??= button.textContent;
  button.textContent = text;
  setTimeout(() => { button.textContent = button.dataset.label; }, 1600);
}

function listenToSharing(app) {
  const { data, state } = app;
  const isAsked = () => Boolean(app.asked) && app.asked.phase !== "failed";
  let timer;

  /** The address says what is shown; a photograph is only in a link that is asked for. */
  app.remember = () => {
    clearTimeout(timer);
    if (app.picture?.kind !== "scene") return;
    timer = setTimeout(() => history.replaceState(null, "", linkOf(state, app.picture, null, isAsked())), QUIET);
  };

  async function pictureOfLink(link) {
    if (link.picture) {
      await imageOf(link.picture).catch(() => { throw new Refusal("The picture in this link cannot be read."); });
      return { kind: "photo", uri: link.picture, name: "from a link" };
    }
    const seed = link.scene ?? data.first;
    return link.things ? editedScene(seed, link.things) : drawnScene(seed);
  }

  app.restore = async (hash) => {
    const link = readLink(hash, data);
    Object.assign(state, { question: "", among: null, candidate: null }, link.state);
    const picture = await app.attempt(() => pictureOfLink(link), () => app.restore(hash));
    if (!picture) return;
    app.show(picture);
    if (link.asked) await app.begin(link.state.candidate ?? null);
    const notes = link.problems.map((one) => `The link is not all right: ${one}.`);
    if (link.smaller) notes.push("The picture in this link is smaller than the one that was asked about: answers may differ.");
    if (notes.length) app.showProblem({ message: notes.join(" ") });
  };

  async function copyLink() {
    const { picture } = app;
    const photo = picture.scene ? null : await pictureInLink(picture.uri);
    history.replaceState(null, "", linkOf(state, picture, photo, isAsked()));
    const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    const lost = picture.scene || photo ? "" : "The picture is too large for a link, and is not in it.";
    const about = photo?.smaller ? "The link has a smaller copy of the picture: answers may differ." : lost;
    flash($("copy-link"), copied ? "Copied" : "In the address");
    app.announce(`The link is ${copied ? "copied" : "in the address bar"}. ${about}`);
    if (about) app.showProblem({ message: about });
  }

  async function savePicture() {
    try {
      const content = sharedAnswers(app.asked, app.ranking, state, data);
      const said = await shareAsPicture(app.asked.picture.uri, content, "lookback.png");
      flash($("save-picture"), said === "copied" ? "Copied" : "Saved");
      app.announce(`The picture is ${said}.`);
    } catch (error) {
      app.showProblem({ message: `The picture could not be drawn: ${error.message}` });
    }
  }

  function saveJson() {
    const text = JSON.stringify(everything(app.asked, app.ranking, state, data), null, 1);
    saveText("lookback.json", text, "application/json");
    flash($("save-json"), "Saved");
  }

  listenToClicks({ "copy-link": copyLink, "save-picture": savePicture, "save-json": saveJson });
  addEventListener("hashchange", () => { if (isLink(location.hash)) app.restore(location.hash); });
}
