/* What stands beside a word under the pointer: its tokens' numbers, and where it looked. */

const TOLD = { log_prob: "log p", visual_lookback: "A", self_certainty: "self-certainty", entropy: "entropy", u: "u", q: "q" };

function tipTable(c, span, setting) {
  const places = [...Array(span.stop - span.first).keys()].map((i) => span.first + i).slice(0, 4);
  const several = places.length > 1;
  const rows = Object.entries(TOLD).map(([name, label]) => {
    const list = values(c, name, setting);
    return h("tr", {}, h("th", { scope: "row" }, label), ...places.map((t) => h("td", { class: "num" }, brief(list[t]))));
  });
  const head = several
    ? [h("thead", {}, h("tr", {}, h("td"), ...places.map((t) => h("th", { scope: "col", class: "num" }, tokenText(c.tokens[t], t).trim() || "␣"))))] : [];
  return h("table", {}, ...head, h("tbody", {}, ...rows));
}

/** Where the picture is out of sight, a small one for the tip. */
function smallPicture(uri) {
  const { top, bottom } = $("frame").getBoundingClientRect();
  if (bottom > 0.25 * innerHeight && top < 0.75 * innerHeight) return null;
  return h("div", { class: "frame small" }, h("img", { src: uri, alt: "" }), h("canvas", { "aria-hidden": "true" }));
}

/** Beside a word, and wholly on the screen. */
function placeTip(word) {
  $("tip").style.left = "0"; // so that its width is its own, not what was left beside the word
  const [box, own] = [word.getBoundingClientRect(), $("tip").getBoundingClientRect()];
  const above = box.bottom + own.height + 12 > innerHeight && box.top > own.height + 8;
  $("tip").style.top = `${above ? box.top - own.height - 6 : box.bottom + 6}px`;
  $("tip").style.left = `${Math.max(8, Math.min(box.left, document.body.clientWidth - own.width - 8))}px`;
}

/** The tip of a word; what it can hold besides is added by `addToTip`. */
function showTip(word, c, setting) {
  const span = spanOf(word);
  const count = span.stop - span.first;
  $("tip").replaceChildren(
    h("p", { class: "tip-word" }, h("strong", { dir: "auto" }, span.text), count > 1 ? ` ${count} tokens` : ""),
    tipTable(c, span, setting));
  $("tip").hidden = false;
  placeTip(word);
}

function addToTip(word, ...parts) {
  if ($("tip").hidden) return;
  $("tip").querySelector(".tip-more")?.remove();
  $("tip").append(h("div", { class: "tip-more" }, ...parts));
  placeTip(word);
}

const hideTip = () => { $("tip").hidden = true; };
