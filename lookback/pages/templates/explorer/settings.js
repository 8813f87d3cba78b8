/* The fields of the page and the state that they show. */

const NUMBERS = { n: "n", temperature: "temperature", "max-tokens": "max_tokens", seed: "seed" };
const CHOICES = { scorer: "scorer", signal: "signal", "map-mode": "map" };

const FORMULAS = {
  lookback: "S = Σ q(t) · (log p + α log A) with q(t) ∝ A to the power λ: α weighs looking, λ the words that looked most.",
  majority: "The answer that was given most often; among equals, the one that LookBack puts first.",
};
const LOG = "log scale, 0 is best";
const MEANING = {
  lookback: LOG, mean_log_prob: LOG, self_certainty: "0 is a guess among all words, higher is surer",
  entropy: "minus the entropy, 0 is sure", visual_lookback: "the share of attention on the picture, from 0 to 1",
  majority: "how often the answer was given; the fraction is LookBack’s order among equals",
};

function fillSettings(data) {
  $("scorer").append(...options(Object.entries(data.scorers).map(([name, { title }]) => [name, title])));
  $("signal").append(...options(SHADE_NAMES));
  $("map-mode").append(...options(Object.entries(MODES)));
  $("n").max = data.most;
  $("max-tokens").max = data.longest;
  $("prune-label").hidden = !data.prunes;
  setColors(data.scorers);
}

/** Under the settings: what scores and bars mean, and which answers have none. */
function drawScale({ candidates }, scorer, writing) {
  const pruned = candidates.filter((c) => c.finish === "pruned").length;
  const rest = candidates.length - pruned;
  $("scale").textContent = `Scores: ${MEANING[scorer]}; compare them within one question. Bars go from the worst of these answers to the best.`;
  $("survivors").hidden = writing || !pruned;
  $("survivors").textContent = `These settings rank ${rest} of ${countOf(candidates.length, "answer")}. ${pruned === 1 ? "The other was" : `The other ${pruned} were`} ended early under the settings `
    + "at the time of asking and have no score: to rank all, untick “end the worst early” and ask again.";
}

function drawSettings(state, data, drawn) {
  for (const [id, name] of Object.entries(NUMBERS)) putField(id, state[name]);
  for (const [id, name] of Object.entries(CHOICES)) $(id).value = state[name];
  for (const name of ["alpha", "lam"]) {
    $(name).value = state[name];
    putField(`${name}-number`, state[name]);
    $(name).disabled = $(`${name}-number`).disabled = !BY_SETTING.includes(state.scorer);
  }
  const count = drawn || state.n;
  $("among").max = count;
  $("among").value = Math.min(state.among ?? Infinity, count);
  $("among").disabled = drawn < 2;
  $("among-number").value = `${$("among").value} of ${count}`;
  $("prune").checked = state.prune;
  $("reset").hidden = state.alpha === data.alpha && state.lam === data.lam;
  $("formula").textContent = FORMULAS[state.scorer] ?? data.scorers[state.scorer].about;
  putField("question", state.question);
}

function listenToSettings(data, change) {
  const sliders = ["alpha", "lam"].flatMap((name) => [[name, name], [`${name}-number`, name]]);
  listenToNumbers([...Object.entries(NUMBERS), ...sliders, ["among", "among"]], change, () => change({}));
  for (const [id, name] of Object.entries(CHOICES)) {
    $(id).addEventListener("change", () => change({ [name]: $(id).value }));
  }
  $("prune").addEventListener("change", () => change({ prune: $("prune").checked }));
  $("question").addEventListener("input", () => change({ question: $("question").value }));
  $("reset").addEventListener("click", () => { change({ alpha: data.alpha, lam: data.lam }); $("scorer").focus(); });
  $("reseed").addEventListener("click", () => change({ seed: anySeed() }));
}
