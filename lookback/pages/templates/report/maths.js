"use strict";

/* The maths, without the page: the paper's formula as in lookback/scores/formula.py, in float64.
   A candidate has tokens, quality (NaN if unknown), its signals (float32; read as float64) and
   their means by name, and logA. */

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;

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

/** The place of the first of the highest scores; NaN loses to every number. */
function highest(scores) {
  let best = 0;
  for (let i = 1; i < scores.length; i++) {
    if (scores[i] > scores[best] || (Number.isNaN(scores[best]) && !Number.isNaN(scores[i]))) best = i;
  }
  return best;
}

/** The place of the candidate that a method picks among the first n. */
const pick = (method, item, setting) =>
  highest(first(item, setting.n).map((c) => METHODS[method](c, setting)));

/** The mean over items of the quality of a method's picks; of "random" and "oracle", too. */
function worth(method, items, setting) {
  return mean(items.map((item) => {
    if (method in METHODS) return item.candidates[pick(method, item, setting)].quality;
    const known = first(item, setting.n).map((c) => c.quality).filter((q) => !Number.isNaN(q));
    return method === "oracle" ? Math.max(...known) : mean(known);
  }));
}

const first = (item, n) => item.candidates.slice(0, n);
