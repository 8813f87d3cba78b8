/* Answers as they come: what is known of each candidate, how much of it is shown, and how it is scored. */

const LISTS = ["tokens", "token_ids", ...RECORDED];

const emptyCandidate = (index) => ({
  index, finish: null, text: "", ...Object.fromEntries(LISTS.map((name) => [name, []])),
});

/** Tokens from `start` on replace what was known from there on. */
function updateCandidate(candidates, told) {
  const c = candidates[told.index];
  if (!c) return;
  for (const name of LISTS) {
    if (told[name]) c[name] = [...c[name].slice(0, told.start), ...told[name]];
  }
  c.finish = told.finish ?? null;
}

function completeCandidate(candidates, told) {
  const c = candidates[told.index ?? 0];
  if (!c) return;
  for (const name of LISTS) if (told[name]) c[name] = told[name];
  Object.assign(c, { finish: told.finish, scored: { scorer: told.scorer, score: told.score, rank: told.rank } });
}

/** The first `count` tokens of a candidate as the formula takes them; all its token ids. */
function opened(c, count, floor) {
  const tokens = c.tokens.slice(0, count);
  const signals = RECORDED.map((name) => [name, Float64Array.from(c[name].slice(0, tokens.length))]);
  return {
    index: c.index, token_ids: c.token_ids, tokens, text: tokens.join(""),
    finish: tokens.length === c.tokens.length ? c.finish : null, ...withMeans(Object.fromEntries(signals), floor),
  };
}

const PACE = 45; // ms per token at least: faster, nobody could watch
const CATCH_UP = 1200; // ms that what is left may take once all is written

/** A clock of tokens: how many of each candidate are shown. It never runs ahead of what is known; a
    model that writes faster than one can read is shown a little later, and never much. */
function tokenClock(known, isDone, tick) {
  let [shownNow, timer] = [0, null];
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  function step() {
    timer = null;
    const ahead = known() - shownNow;
    const by = isDone() ? Math.max(1, Math.ceil(ahead / (CATCH_UP / PACE))) : 1;
    shownNow = calm || document.hidden ? known() : Math.min(known(), shownNow + by);
    tick(shownNow, isDone() && shownNow >= known());
    wake();
  }
  function wake() {
    if (timer === null && shownNow < known()) timer = setTimeout(step, PACE);
    else if (timer === null && isDone()) tick(shownNow, true);
  }
  return { wake, stop: () => { clearTimeout(timer); timer = null; } };
}

/* Scorers that the page can work out by itself: from candidates and a setting to a score each, higher is
   better. The vote is that of lookback/scores/votes.py. */

const each = (method) => (candidates, setting) => candidates.map((c) => method(c, setting));

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
  const voters = rank(ties).filter((i) => !Number.isNaN(ties[i]));
  const answers = candidates.map((c) => normalised(c.text));
  const scores = candidates.map(() => NaN);
  voters.forEach((i, place) => {
    const votes = voters.filter((j) => answers[j] === answers[i]).length;
    scores[i] = votes + (voters.length - place) / (voters.length + 1);
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
