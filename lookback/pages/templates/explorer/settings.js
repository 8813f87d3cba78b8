/* The fields of the page and the state that they show. */

const FIELDS = { n: "n", temperature: "temperature", max_tokens: "max-tokens", seed: "seed" };

/** What a field may hold, or undefined while it is half-typed. */
function fieldValue(input, whole) {
  const x = input.value.trim() === "" ? NaN : Number(input.value);
  const fits = Number.isFinite(x) && x >= Number(input.min) && (input.max === "" || x <= Number(input.max));
  return fits && (!whole || Number.isInteger(x)) ? x : undefined;
}

/** Choices that do not change. */
function fillSettings(data) {
  const options = (entries) => entries.map(([value, label]) => h("option", { value }, label));
  $("scorer").append(...options(Object.entries(data.scorers).map(([name, { title }]) => [name, title])));
  $("signal").append(...options(Object.entries(SHADES).map(([name, [label]]) => [name, label])));
  $("map-mode").append(...options(Object.entries(MODES).map(([name, [label]]) => [name, label])));
  $("n").max = data.most;
  $("max-tokens").max = data.longest;
  $("prune-label").hidden = !data.prunes;
  for (const [name, { color }] of Object.entries(data.scorers)) {
    document.documentElement.style.setProperty(`--${name}`, color);
  }
}

const FORMULAS = {
  lookback: "S = Σ q(t) · (log p + α log A) with q(t) ∝ A to the power λ: α weighs looking, λ the words that looked most.",
  majority: "The answer that was given most often; among equals, the one that LookBack puts first.",
};

const LOG = "log scale, 0 is best";
/** What a scorer's numbers mean. */
const MEANING = {
  lookback: LOG, mean_log_prob: LOG, self_certainty: "0 is a guess among all words, higher is surer",
  entropy: "minus the entropy, 0 is sure", visual_lookback: "the share of attention on the picture, from 0 to 1",
  majority: "how often the answer was given; the fraction is LookBack’s order among equals",
};

/** Under the settings: what scores and bars mean, and which answers have none. */
function drawScale({ candidates }, scorer, writing) {
  const pruned = candidates.filter((c) => c.finish === "pruned").length;
  const rest = candidates.length - pruned;
  $("scale").textContent = `Scores: ${MEANING[scorer]}; compare them within one question. Bars go from the worst of these answers to the best.`;
  $("survivors").hidden = writing || !pruned;
  $("survivors").textContent = `These settings rank ${rest} of ${countOf(candidates.length, "answer")}. ${pruned === 1 ? "The other was" : `The other ${pruned} were`} ended early under the settings `
    + "at the time of asking and have no score: to rank all, untick “end the worst early” and ask again.";
}

/** Show the state in the fields; one that is being typed in is left alone. */
function drawSettings(state, data, drawn) {
  const put = (id, value) => { if (document.activeElement !== $(id) && $(id).value !== String(value)) $(id).value = value; };
  for (const [name, id] of Object.entries(FIELDS)) put(id, state[name]);
  for (const name of ["alpha", "lam"]) {
    $(name).value = state[name];
    put(`${name}-number`, state[name]);
    $(name).disabled = $(`${name}-number`).disabled = !BY_SETTING.includes(state.scorer);
  }
  $("among").max = drawn || state.n;
  $("among").value = Math.min(state.among ?? Infinity, drawn || state.n);
  $("among").disabled = drawn < 2;
  $("among-number").value = `${$("among").value} of ${drawn || state.n}`;
  $("scorer").value = state.scorer;
  $("signal").value = state.signal;
  $("map-mode").value = state.map;
  $("prune").checked = state.prune;
  $("reset").hidden = state.alpha === data.alpha && state.lam === data.lam;
  $("formula").textContent = FORMULAS[state.scorer] ?? `${data.scorers[state.scorer].about}`;
  if (document.activeElement !== $("question") && $("question").value !== state.question) $("question").value = state.question;
}

/** Tell `change` of what the reader does to the fields. */
function listenToSettings(state, data, change) {
  for (const [name, id] of Object.entries(FIELDS)) {
    $(id).addEventListener("input", () => {
      const value = fieldValue($(id), name !== "temperature");
      if (value !== undefined) change({ [name]: value });
    });
    $(id).addEventListener("blur", () => change({}));
  }
  for (const name of ["alpha", "lam"]) {
    for (const input of [$(name), $(`${name}-number`)]) {
      input.addEventListener("input", () => {
        const value = fieldValue(input, false);
        if (value !== undefined) change({ [name]: value });
      });
      input.addEventListener("blur", () => change({}));
    }
  }
  $("among").addEventListener("input", () => change({ among: Number($("among").value) }));
  $("scorer").addEventListener("change", () => change({ scorer: $("scorer").value }));
  $("signal").addEventListener("change", () => change({ signal: $("signal").value }));
  $("map-mode").addEventListener("change", () => change({ map: $("map-mode").value }));
  $("prune").addEventListener("change", () => change({ prune: $("prune").checked }));
  $("question").addEventListener("input", () => change({ question: $("question").value }));
  $("reset").addEventListener("click", () => { change({ alpha: data.alpha, lam: data.lam }); $("scorer").focus(); });
  $("reseed").addEventListener("click", () => change({ seed: anySeed() }));
}
