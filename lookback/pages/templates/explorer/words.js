/* An answer on the page: words that can be pointed at, of tokens that are shaded. */

const isWordlike = (text) => /[\p{L}\p{N}]/u.test(text);

/** Whether a token begins a word, after the one before it. */
const begins = (before, token) => before === undefined || /^\s/.test(token) || /\s$/.test(before)
  || isWordlike(before) !== isWordlike(token);

/** The words of tokens: {first, stop}. What is no word, a full stop say, stands alone. */
function wordSpans(tokens) {
  const found = [];
  tokens.forEach((token, t) => {
    if (begins(tokens[t - 1], token)) found.push({ first: t, stop: t + 1 });
    else found.at(-1).stop = t + 1;
  });
  return found;
}

/** Add tokens to a paragraph that has those before them. */
function addTokens(holder, tokens, from) {
  for (let t = from; t < tokens.length; t++) {
    const text = tokenText(tokens[t], t);
    const bare = text.trimStart();
    if (begins(tokens[t - 1], tokens[t])) {
      holder.append(text.slice(0, text.length - bare.length), h("span", { class: "word", "data-first": t }));
    }
    const word = holder.lastElementChild;
    word.dataset.stop = t + 1;
    word.append(h("span", { class: "token", "data-token": t }, bare || "∅"));
  }
}

/** Make a paragraph show these tokens with these strengths, with as little work as it can. */
function drawTokens(holder, tokens, strengths) {
  const had = holder.tokens ?? [];
  const goesOn = had.length <= tokens.length && had.every((token, t) => token === tokens[t]);
  if (!goesOn) holder.replaceChildren();
  if (!goesOn || had.length < tokens.length) addTokens(holder, tokens, goesOn ? had.length : 0);
  holder.tokens = tokens;
  holder.querySelectorAll(".token").forEach((span, t) => span.style.setProperty("--strength", strengths[t].toFixed(3)));
}

/** Words that can be reached by the keyboard, one of them in the order of tabs; or not. */
function reachable(holder, yes) {
  const words = [...holder.querySelectorAll(".word")];
  const had = words.find((word) => word.tabIndex === 0);
  for (const word of words) {
    if (yes) {
      word.setAttribute("role", "button");
      word.tabIndex = word === (had ?? words[0]) ? 0 : -1;
    } else {
      word.removeAttribute("role");
      word.removeAttribute("tabindex");
    }
  }
}

/** From a word to the one beside it. */
function stepWord(word, by) {
  const words = [...word.parentElement.querySelectorAll(".word")];
  const next = words[words.indexOf(word) + by];
  if (!next) return;
  word.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

const spanOf = (word) => ({ first: Number(word.dataset.first), stop: Number(word.dataset.stop), text: word.textContent });
