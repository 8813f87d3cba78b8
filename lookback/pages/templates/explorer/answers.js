/* Answers as they come: what is known of each candidate, and how much of it is shown. */

const RECORDED = ["log_prob", "visual_lookback", "self_certainty", "entropy"];
const LISTS = ["tokens", "token_ids", ...RECORDED];

/** A candidate of which nothing is known yet. */
const emptyCandidate = (index) => ({
  index, finish: null, text: "", ...Object.fromEntries(LISTS.map((name) => [name, []])),
});

/** Tokens from `start` on replace what was known from there on. */
function hearCandidate(candidates, told) {
  const c = candidates[told.index];
  if (!c) return;
  for (const name of LISTS) {
    if (told[name]) c[name] = [...c[name].slice(0, told.start), ...told[name]];
  }
  c.finish = told.finish ?? null;
}

/** What a choice says of its candidate, once it is whole. */
function hearChoice(candidates, told) {
  const c = candidates[told.index ?? 0];
  if (!c) return;
  for (const name of LISTS) if (told[name]) c[name] = told[name];
  Object.assign(c, { finish: told.finish, scored: { scorer: told.scorer, score: told.score, rank: told.rank } });
}

/** The first `count` tokens of a candidate as report/maths.js takes them; all its token ids. */
function opened(c, count, floor) {
  const length = Math.min(count, c.tokens.length);
  const whole = length === c.tokens.length;
  const found = { index: c.index, token_ids: c.token_ids, tokens: c.tokens.slice(0, length), finish: whole ? c.finish : null };
  for (const name of RECORDED) found[name] = Float64Array.from(c[name].slice(0, length));
  found.means = Object.fromEntries(RECORDED.map((name) => [name, mean(found[name])]));
  found.logA = found.visual_lookback.map((a) => Math.log(Math.max(a, floor)));
  found.text = found.tokens.join("");
  return found;
}

const PACE = 45; // ms per token at least: faster, nobody could watch
const CATCH_UP = 1200; // ms that what is left may take once all is written

/** A clock of tokens: how many of each candidate are shown. It never runs ahead of what is known; a
    model that writes faster than one can read is shown a little later, and never much. */
function tokenClock(known, isDone, tick) {
  let [shown, timer] = [0, null];
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  function step() {
    timer = null;
    const ahead = known() - shown;
    const by = isDone() ? Math.max(1, Math.ceil(ahead / (CATCH_UP / PACE))) : 1;
    shown = calm || document.hidden ? known() : Math.min(known(), shown + by);
    tick(shown, isDone() && shown >= known());
    wake();
  }
  function wake() {
    if (timer === null && shown < known()) timer = setTimeout(step, PACE);
    else if (timer === null && isDone()) tick(shown, true);
  }
  return { wake, stop: () => { clearTimeout(timer); timer = null; } };
}
