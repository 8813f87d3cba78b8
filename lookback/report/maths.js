"use strict";

/* The maths, without the page: the paper's formula as in lookback/scores/formula.py, in float64.
   A candidate has tokens, quality (NaN if unknown), its signals by name, and logA. */

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;

/** q(t) ∝ A_t^λ (Eq. 7), from log A; relative to the largest, so that nothing underflows. */
function relevance(logA, lam) {
  const peak = Math.max(...logA);
  const weight = logA.map((x) => Math.exp(lam * (x - peak)));
  const total = sum(weight);
  return weight.map((w) => w / total);
}

/** u_t = log p_t + α log A_t (Eq. 4). */
function tokenScores(logP, logA, alpha) {
  return logA.map((x, t) => logP[t] + alpha * x);
}

/** S = Σ_t q(t) u_t (Eq. 8); NaN for an empty response. */
function score(candidate, alpha, lam) {
  if (!candidate.tokens.length) return NaN;
  const q = relevance(candidate.logA, lam);
  const u = tokenScores(candidate.log_prob, candidate.logA, alpha);
  return sum(q.map((weight, t) => weight * u[t]));
}

/** Places from the highest score to the lowest; ties keep their order and NaN comes last. */
function rank(scores) {
  const key = (i) => (Number.isNaN(scores[i]) ? -Infinity : scores[i]);
  return scores.map((_, i) => i).sort((a, b) => key(b) - key(a) || a - b);
}

/** What each method says of a candidate; higher is better. */
const METHODS = {
  lookback: (c, setting) => score(c, setting.alpha, setting.lam),
  self_certainty: (c) => mean(c.self_certainty),
  mean_log_prob: (c) => mean(c.log_prob),
  visual_lookback: (c) => mean(c.lookback),
};

/** The place of the candidate that a method picks among the first n. */
function pick(method, item, setting) {
  return rank(first(item, setting.n).map((c) => METHODS[method](c, setting)))[0];
}

/** The mean over items of the quality of a method's picks; of "random" and "oracle", too. */
function worth(method, items, setting) {
  return mean(items.map((item) => {
    if (method in METHODS) return item.candidates[pick(method, item, setting)].quality;
    const known = first(item, setting.n).map((c) => c.quality).filter((q) => !Number.isNaN(q));
    return method === "oracle" ? Math.max(...known) : mean(known);
  }));
}

const first = (item, n) => item.candidates.slice(0, n);
