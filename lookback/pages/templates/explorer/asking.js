/* One asking: what is sent, what is heard, and how far it is. */

const WRITING = ["asking", "queued", "writing"];

/** What is sent. Only some scorers have α and λ; a schedule of the server's own comes before the usual one. */
function bodyOf(state, picture, data) {
  const setting = BY_SETTING.includes(state.scorer) ? { alpha: state.alpha, lam: state.lam } : {};
  const usual = data.prune ? {} : { prune: "half" };
  return {
    model: data.model, messages: messagesOf(state.question, picture.uri), stream: true, n: state.n,
    temperature: state.temperature, max_tokens: state.max_tokens, seed: state.seed,
    lookback: {
      best_of: state.n, scorer: state.scorer, ...setting, ...(state.prune ? usual : { prune: null }), signals: true, watch: true,
    },
  };
}

function newAsking(state, picture, data) {
  const { question } = state;
  return {
    question, picture, body: bodyOf(state, picture, data), phase: "asking", ahead: 0, shown: 0,
    candidates: [...Array(state.n).keys()].map(emptyCandidate), abort: new AbortController(),
    allShown: false, compared: new Map(), looked: new Set(), looks: lookKeeper(question, picture.uri),
  };
}

function handleEvent(asked, kind, value) {
  const hear = (told) => {
    asked.phase = "writing";
    updateCandidate(asked.candidates, { index: 0, ...told });
  };
  if (kind === "comment" && value.event === "queued") Object.assign(asked, { phase: "queued", ahead: value.ahead });
  if (kind === "comment" && value.event === "candidates") value.candidates.forEach(hear);
  if (kind !== "data") return;
  if (value.error) throw new Refusal(value.error.message);
  for (const { lookback: told } of value.choices ?? []) {
    if (told?.start !== undefined) hear(told);
    else if (told) completeCandidate(asked.candidates, told);
  }
}

/** Ask, and tell `change` whenever more is known. The phase it ends in: done, stopped or failed. */
async function ask(asked, change) {
  try {
    const response = await request("v1/chat/completions", asked.body, asked.abort.signal);
    let ended = false;
    await readEvents(response, (kind, value) => {
      ended ||= kind === "done";
      handleEvent(asked, kind, value);
      change();
    });
    if (!ended) throw new Refusal("The answer broke off: the server ended it before it was whole.");
    asked.phase = "done";
  } catch (error) {
    if (error.name === "AbortError") asked.phase = "stopped";
    else Object.assign(asked, { phase: "failed", error });
  }
  change();
}

const countOf = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** How far it is, in words. `cs`: the candidates as they are shown. */
function stateText(asked, cs, ranking) {
  if (!asked) return "";
  const pruned = cs.filter((c) => c.finish === "pruned").length;
  const ended = cs.filter((c) => c.finish !== null).length - pruned;
  const also = pruned ? `, ${pruned} pruned` : "";
  const told = {
    asking: () => "Asking…",
    queued: () => (asked.ahead ? `Waiting: ${countOf(asked.ahead, "request")} before this one.` : "It is this one’s turn."),
    writing: () => `Writing ${countOf(cs.length, "answer")}: ${ended} ended${also}.`,
    done: () => `${countOf(cs.length, "answer")}${also}${cs.length > 1 ? `, ${ranking.groups.length} different` : ""}.`,
    stopped: () => `Stopped: ${ended} of ${cs.length} had ended.`,
    failed: () => "",
  };
  return told[asked.phase]();
}

function endText(asked, cs, ranking) {
  if (asked.phase !== "done") return stateText(asked, cs, ranking);
  const best = ranking.candidates[ranking.order[0]];
  return `${countOf(cs.length, "answer")}, best: ${best.text.trim() || "an empty one"}`;
}

/** Why the answers are not about what is shown now; nothing if they are. */
function staleText(asked, picture, question) {
  if (picture !== asked.picture) return "They are about the picture before: ask again, and see whether the answer follows.";
  return question.trim() === asked.question ? "" : "They answer the question before.";
}

/** The best answer to the same question before the scene was changed; null where nothing was. */
function lastBest({ asked, ranking, picture, state }) {
  const follows = asked?.phase === "done" && picture.edited && asked.picture !== picture
    && asked.picture.scene?.seed === picture.scene.seed && asked.question === state.question;
  return follows ? { uri: asked.picture.uri, text: ranking.candidates[ranking.order[0]].text.trim() } : null;
}

function drawBefore(last) {
  $("before").hidden = !last;
  if (!last) return;
  $("before").replaceChildren(h("img", { src: last.uri, alt: "The picture before" }),
    h("p", {}, h("span", { class: "facts" }, "Before the change the best was"), h("br"), h("span", { dir: "auto" }, last.text)));
}
