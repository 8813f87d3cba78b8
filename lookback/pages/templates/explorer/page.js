/* The page: its state, from the state to what is shown, and asking. */

const CALM = 700; // ms between changes of places while answers are written

/** What the parts of the page share: the state, what is shown, and what can be done. */
function openPage(data) {
  const state = {
    question: "", n: data.best_of, temperature: data.temperature, max_tokens: data.max_tokens, seed: 42,
    prune: data.prunes, scorer: data.scorer in RANKERS ? data.scorer : "lookback",
    alpha: data.alpha, lam: data.lam, among: null, candidate: null, signal: "visual_lookback", map: "tokens",
  };
  const list = $("candidates");
  let standing = null; // the ranking whose places are shown, of which asking and settings, and since when
  const app = { data, state, picture: null, asked: null, ranking: null };

  app.announce = (text) => { $("told").textContent = text; };
  app.isWriting = () => Boolean(app.asked) && (WRITING.includes(app.asked.phase) || !app.asked.allShown);
  const hasAnswers = () => Boolean(app.asked) && app.asked.phase !== "failed";

  /** The index of the chosen answer; the best one as long as nobody chooses. */
  app.chosen = () => (state.candidate !== null && state.candidate < app.ranking.candidates.length
    ? state.candidate : app.ranking.order[0]);

  app.draw = () => {
    const writing = app.isWriting();
    drawSettings(state, data, app.asked?.candidates.length ?? 0);
    replaceButton(...(writing ? [$("ask"), $("stop")] : [$("stop"), $("ask")]));
    $("ask").textContent = hasAnswers() ? "Ask again" : "Ask";
    $("save-picture").disabled = $("save-json").disabled = !hasAnswers() || writing;
    $("explorer").ariaBusy = writing;
    [$("empty").hidden, $("results").hidden] = [hasAnswers(), !hasAnswers()];
    for (const chip of $("chips").children) chip.ariaPressed = chip.textContent === state.question;
    if (hasAnswers()) drawAnswers(writing);
    app.remember();
  };

  function drawAnswers(writing) {
    const { asked } = app;
    const count = Math.min(state.among ?? Infinity, asked.candidates.length);
    const candidates = asked.candidates.slice(0, count).map((c) => opened(c, asked.shown, data.floor));
    const ranking = rankingOf(candidates, state, !writing);
    const by = [count, state.scorer, state.alpha, state.lam].join();
    const stays = writing && standing?.asked === asked && standing.by === by && performance.now() - standing.since < CALM;
    // Scores, places and the chosen one change together: what is shown is in order at any time.
    const { scores, order, groups } = ranking;
    if (!stays) standing = { asked, by, since: performance.now(), places: { scores, order, groups } };
    app.ranking = { ...ranking, ...standing.places };
    drawRanking(list, app.ranking, writing, !writing && asked.settled);
    asked.settled = !writing;
    drawScale(app.ranking, state.scorer, writing);
    drawLegend(app.ranking.scale, state.signal);
    drawChosen(list, app.chosen());
    drawPanel(list, asked, app.chosen(), writing);
    drawState(candidates, writing);
  }

  function drawState(candidates, writing) {
    const { asked, picture } = app;
    const shownNow = writing && !WRITING.includes(asked.phase) ? { ...asked, phase: "writing" } : asked;
    const stale = writing ? "" : staleText(asked, picture, state.question);
    $("state-text").textContent = `${stateText(shownNow, candidates, app.ranking)} ${stale}`;
    $("state").classList.toggle("stale", stale !== "");
    $("progress").hidden = !writing;
    $("progress").value = candidates.filter((c) => c.finish !== null).length / candidates.length;
  }

  /* Problems, and the way out of them */

  let way = null;
  app.showProblem = (error, retry = null) => {
    way = retry;
    $("problem").hidden = false;
    $("problem-text").textContent = error.message;
    $("retry").hidden = !retry;
    $("retry").textContent = error.again ?? "Try again";
  };
  app.hideProblem = () => { $("problem").hidden = true; };

  /** Do what may be refused; what is said then is shown, with the way to try again. */
  app.attempt = async (what, retry = null) => {
    app.hideProblem();
    try {
      return await what();
    } catch (error) {
      app.showProblem(error, retry ?? (error.status === undefined ? null : () => app.attempt(what)));
      return undefined;
    }
  };
  listenToClicks({ retry: () => { app.hideProblem(); way?.(); }, dismiss: app.hideProblem });

  return app;
}

function replaceButton(last, next) {
  const held = document.activeElement === last;
  [next.hidden, last.hidden] = [false, true];
  if (held) next.focus({ preventScroll: true }); // the reader may be elsewhere by now
}

function listenToAsking(app) {
  const { data, state } = app;

  function finish(mine) {
    Object.assign(mine, { allShown: true, shown: Infinity });
    mine.clock.stop();
    if (mine.phase === "failed") app.showProblem(mine.error, () => app.begin());
    app.draw();
    if (mine.phase !== "failed") app.announce(endText(mine, app.ranking.candidates, app.ranking));
  }

  /** Ask what stands there; `candidate` is the answer to be chosen then, if not the best. */
  app.begin = async (candidate = null) => {
    if (app.isWriting() || !app.picture) return;
    state.question = $("question").value.trim();
    if (!state.question) return void $("question").focus();
    app.hideProblem();
    app.unpoint();
    drawBefore(lastBest(app));
    const mine = newAsking(state, app.picture, data);
    app.asked = mine;
    state.candidate = candidate;
    if (state.among > state.n) state.among = null;
    $("candidates").replaceChildren();
    app.announce(`Asking: ${state.question}`);
    const known = () => Math.max(0, ...mine.candidates.map((c) => c.tokens.length));
    const isDone = () => !WRITING.includes(mine.phase);
    mine.clock = tokenClock(known, isDone, (shownNow, all) => {
      if (app.asked !== mine || mine.allShown) return;
      mine.shown = shownNow;
      if (all) finish(mine);
      else app.draw();
    });
    app.draw();
    await ask(mine, () => {
      if (app.asked !== mine) return;
      if (mine.phase === "failed") return void finish(mine);
      if (mine.phase !== "writing") app.draw();
      mine.clock.wake();
    });
  };

  /** End the asking; what was written, but not shown yet, is shown at once. */
  app.stop = () => {
    const { asked } = app;
    if (!app.isWriting()) return;
    asked.abort.abort();
    if (!WRITING.includes(asked.phase)) finish(asked);
  };

  /** Ask, and go to the answers where they begin far down the screen. */
  function askAndGo() {
    app.begin();
    if (app.isWriting() && $("candidates").getBoundingClientRect().top > 0.7 * innerHeight) $("state").scrollIntoView();
  }
  $("form").addEventListener("submit", (event) => { event.preventDefault(); askAndGo(); });
  $("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    askAndGo();
  });
  $("stop").addEventListener("click", app.stop);
}

function listenToAnswers(app) {
  const { data, state } = app;
  const list = $("candidates");

  function choose(index) {
    state.candidate = index;
    app.draw();
  }

  async function compareChosen(panel) {
    const index = Number(panel.closest("li").dataset.index);
    const { asked } = app;
    try {
      const c = opened(asked.candidates[index], Infinity, data.floor);
      asked.compared.set(index, await compare(panel, asked, c, data.floor));
      app.announce(panel.querySelector(".verdict p").textContent);
    } catch (error) {
      panel.replaceChildren(h("p", { class: "reason" }, error.message),
        h("button", { type: "button", class: "small compare-it" }, "Try again"));
    }
  }

  list.addEventListener("click", (event) => {
    const row = event.target.closest("#candidates > li");
    const panel = event.target.closest(".compare");
    if (event.target.closest(".compare-it")) compareChosen(panel);
    else if (row && !panel && Number(row.dataset.index) !== app.chosen()) choose(Number(row.dataset.index));
  });
  list.addEventListener("keydown", (event) => {
    const by = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!by || !event.target.matches(".rank")) return;
    event.preventDefault();
    const next = event.target.closest("li")[by];
    if (!next) return;
    choose(Number(next.dataset.index));
    next.parts.button.focus();
  });
}

async function explore(data) {
  const app = openPage(data);
  listenToWords(app);
  listenToSharing(app);
  listenToPictures(app);
  listenToAsking(app);
  listenToAnswers(app);
  listenToKeys({ "/": () => goTo("question"), "?": showKeys }, "input, select, textarea, dialog, #tour");
  addEventListener("keydown", (event) => { if (event.key === "Escape" && !event.defaultPrevented) app.stop(); });
  listenToSettings(data, (changes) => {
    Object.assign(app.state, changes);
    if ("map" in changes) app.pointAgain();
    app.draw();
  });
  fillSettings(data);
  tourGuide(tourSteps(app)).offer();
  await app.restore(isLink(location.hash) ? location.hash : "");
  document.body.dataset.ready = "yes";
}

explore(JSON.parse($("data").textContent));
