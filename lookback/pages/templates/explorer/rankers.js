/* Scorers that the page can work out by itself: from candidates and a setting to a score each, higher
   is better. Those of one candidate are report/maths.js's; the vote is that of lookback/scores/votes.py. */

const each = (method) => (candidates, setting) => candidates.map((c) => method(c, setting));

/** What an article is, with what Python's \w is around it. */
const ARTICLE = /(?<![\p{L}\p{N}_])(?:a|an|the)(?![\p{L}\p{N}_])/gu;
const SIGNS = /(?<!\p{Nd})[^\p{L}\p{N}_\s]|[^\p{L}\p{N}_\s](?!\p{Nd})/gu;
const blanksOnce = (text) => text.split(/\s+/u).filter(Boolean).join(" ");

/** An answer without case, punctuation, articles and needless blanks. */
function normalised(text) {
  const folded = text.normalize("NFKC").toUpperCase().toLowerCase();
  return blanksOnce(folded.replace(SIGNS, " ").replace(ARTICLE, " ")) || blanksOnce(folded);
}

/** Votes for the same answer; the rest of a score is the place by LookBack. Those without a score,
    the empty and the pruned, have no vote. */
function majority(candidates, setting) {
  const ties = candidates.map((c) => METHODS.lookback(c, setting));
  const voters = [...ties.keys()].filter((i) => !Number.isNaN(ties[i]));
  const votes = new Map();
  for (const i of voters) {
    const answer = normalised(candidates[i].text);
    votes.set(answer, (votes.get(answer) ?? 0) + 1);
  }
  const order = rank(voters.map((i) => ties[i]));
  const scores = candidates.map(() => NaN);
  order.forEach((place, from) => {
    const i = voters[place];
    scores[i] = votes.get(normalised(candidates[i].text)) + (voters.length - from) / (voters.length + 1);
  });
  return scores;
}

const RANKERS = {
  lookback: each(METHODS.lookback),
  mean_log_prob: each(METHODS.mean_log_prob),
  self_certainty: each(METHODS.self_certainty),
  entropy: each(whole((c) => -c.means.entropy)),
  visual_lookback: each(METHODS.visual_lookback),
  majority,
};

/** Those in which α and λ have a part. */
const BY_SETTING = ["lookback", "majority"];

/** Answers of the same tokens together, each group where its best stands: [[index, ...], ...]. */
function grouped(order, candidates) {
  const groups = new Map();
  for (const i of order) {
    const { tokens, finish } = candidates[i];
    const key = JSON.stringify([tokens, finish]);
    groups.set(key, [...(groups.get(key) ?? []), i]);
  }
  return [...groups.values()];
}
