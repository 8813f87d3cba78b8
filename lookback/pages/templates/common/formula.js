"use strict";

/* The paper's formula as in lookback/scores/formula.py, in float64. A candidate has tokens, quality (NaN if
   unknown), its signals (float32; read as float64) and their means by name, and logA. */

const RECORDED = ["log_prob", "visual_lookback", "self_certainty", "entropy"];
const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;

function withMeans(signals, floor) {
  const means = Object.fromEntries(Object.entries(signals).map(([name, values]) => [name, mean(values)]));
  const logA = Float64Array.from(signals.visual_lookback, (a) => Math.log(Math.max(a, floor)));
  return { ...signals, means, logA };
}

/** q(t) ∝ A_t^λ (Eq. 7), from log A; relative to the largest, so that nothing underflows. */
function relevance(logA, lam) {
  // Loops, not map and reduce: a moved slider brings it here a hundred thousand times.
  let [peak, total] = [-Infinity, 0];
  for (let t = 0; t < logA.length; t++) peak = Math.max(peak, logA[t]);
  const q = new Float64Array(logA.length);
  for (let t = 0; t < q.length; t++) total += q[t] = Math.exp(lam * (logA[t] - peak));
  for (let t = 0; t < q.length; t++) q[t] /= total;
  return q;
}

/** u_t = log p_t + α log A_t (Eq. 4). */
const tokenScore = (logP, logA, alpha) => logP + alpha * logA;

/** S = Σ_t q(t) u_t (Eq. 8); NaN for an empty response. */
function score({ log_prob, logA }, alpha, lam) {
  const q = relevance(logA, lam);
  let total = logA.length ? 0 : NaN;
  for (let t = 0; t < q.length; t++) total += q[t] * tokenScore(log_prob[t], logA[t], alpha);
  return total;
}

/** Places from the highest score to the lowest; ties keep their order and NaN comes last. */
function rank(scores) {
  const key = (i) => (Number.isNaN(scores[i]) ? -Infinity : scores[i]);
  return scores.map((_, i) => i).sort((a, b) => key(b) - key(a) || a - b);
}

/** What a pruned candidate says is not all that it would have said: it has no score. */
const whole = (method) => (c, setting) => (c.finish === "pruned" ? NaN : method(c, setting));

/** What each method says of a candidate; higher is better. */
const METHODS = {
  lookback: whole((c, setting) => score(c, setting.alpha, setting.lam)),
  self_certainty: whole((c) => c.means.self_certainty),
  mean_log_prob: whole((c) => c.means.log_prob),
  visual_lookback: whole((c) => c.means.visual_lookback),
};
