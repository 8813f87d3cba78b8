/* Which answer stands on which side: the same as annotation/sides.py. */

function isSwapped(study, rater, set, number) {
  let state = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(`${study}\n${rater}\n${set}\n${number}`))
    state = Math.imul(state ^ byte, 0x01000193);
  state = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
  state = Math.imul(state ^ (state >>> 13), 0xc2b2ae35);
  return ((state ^ (state >>> 16)) & 1) === 1;
}

/** A rater's code as it is kept; null if it is none. */
function raterCode(given) {
  const code = given.trim().toLowerCase();
  return /^[a-z0-9._@-]{1,40}$/.test(code) ? code : null;
}
