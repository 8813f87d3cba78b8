/* Drawing an item: what was asked, and its candidates in their order. */

/** What was asked, the truth, and the picks, [[method, place]]. */
function drawAsked(aside, item, picks, methods, map) {
  const { image, reason, question, truth, id, candidates } = item;
  const picture = image === null
    ? [h("p", { class: "no-image" }, h("strong", {}, "No image here."), ` ${reason}`)]
    : pictureWithMap(item, map);
  aside.replaceChildren(
    ...picture,
    h("p", { class: "id" }, id),
    h("p", { class: "question", dir: "auto" }, question),
    h("h3", {}, "Truth"),
    h("dl", {}, ...truth.flatMap(([name, text]) => [h("dt", {}, name), h("dd", { dir: "auto" }, text)])),
    h("h3", {}, "Picks"),
    h("table", { class: "picks" }, h("tbody", {}, ...picks.map(([method, place]) => h(
      "tr", { "data-method": method, "data-pick": place },
      h("th", { scope: "row" }, h("span", { class: `badge ${method}` }, methods[method].title)),
      h("td", {}, `candidate ${place + 1}`),
      h("td", { class: "num" }, shown(candidates[place].quality, 2)),
    )))),
  );
}

/** What the list of candidates shows: {scores, order, before, shades, scale}. */
function rankingOf(item, state, reported) {
  const candidates = first(item, state.n);
  const scores = candidates.map((c) => METHODS.lookback(c, state));
  const shades = candidates.map((c) => values(c, state.signal, state));
  return {
    candidates, scores, shades,
    order: rank(scores),
    before: rank(candidates.map((c) => METHODS.lookback(c, reported))),
    scale: scaleOf(state.signal, shades),
  };
}

function rankButton(index, place, moved) {
  const label = `Candidate ${index + 1}, rank ${place + 1}${moved ? `, ${moved > 0 ? "up" : "down"} ${Math.abs(moved)} from the reported setting` : ""}`;
  return h("button", { type: "button", class: "rank", "aria-label": label, "aria-pressed": "false" },
    String(place + 1), ...(moved ? [h(
      "small", { title: "places from the reported setting", class: moved > 0 ? "up" : "down" },
      `${moved > 0 ? "▲" : "▼"}${Math.abs(moved)}`)] : []));
}

/** One candidate of a ranking, with the badges of the methods that pick it. */
function candidateRow(ranking, index, place, badges) {
  const { quality, tokens, finish, look } = ranking.candidates[index];
  const strengths = Array.from(ranking.shades[index], ranking.scale.strength);
  const words = shadedTokens(tokens, strengths, (t) => ({ "data-token": t }));
  const bar = h("i", { class: "meter" });
  bar.style.setProperty("--strength", quality || 0);
  const score = ranking.scores[index];
  return h(
    "li", { "data-index": index, "data-rank": place + 1, "data-score": score },
    rankButton(index, place, ranking.before.indexOf(index) - place),
    h("div", { class: "said" },
      h("div", { class: "facts" },
        h("span", { class: "score", title: "score S" }, shown(score, 4)),
        h("span", { class: "quality", title: "quality" }, bar, ` ${shown(quality, 2)}`),
        h("span", {}, `candidate ${index + 1} · ${tokens.length} tokens · ${finish}`), ...badges,
        ...(look ? [h("span", { class: "badge looked", title: "point at its tokens" }, "where it looked")] : [])),
      h("p", { class: "tokens", dir: "auto" }, ...(words.length ? words : [h("em", {}, "empty")]))),
  );
}

/** The list, and the legend of its shades. */
function drawCandidates(list, ranking, picks, state, methods) {
  const { light, dark } = ranking.scale;
  $("lightest").value = `${light > dark ? "≥" : "≤"} ${brief(light)}`;
  $("darkest").value = `${light > dark ? "≤" : "≥"} ${brief(dark)}`;
  list.dataset.signal = $("legend").dataset.signal = state.signal;
  list.replaceChildren(...ranking.order.map((index, place) => candidateRow(
    ranking, index, place,
    picks.filter(([, picked]) => picked === index)
      .map(([method]) => h("span", { class: `badge ${method}` }, methods[method].title)))));
}

/** Mark a candidate as the selected one, and show under it what its controls say. */
function drawSelected(list, item, index, setting) {
  list.querySelectorAll(".compare").forEach((panel) => panel.remove());
  for (const row of list.children) {
    const here = Number(row.dataset.index) === index;
    row.toggleAttribute("data-selected", here);
    row.firstChild.ariaPressed = here;
    const panel = here ? compared(item, item.candidates[index], setting) : null;
    if (panel) row.append(panel);
  }
}

/** What stands beside a token under the pointer: all its numbers, and what more there is. */
function drawTip(token, c, setting, more) {
  const t = Number(token.dataset.token);
  const rows = Object.keys(SHADES).map((name) => h("tr", {},
    h("th", {}, SHADES[name][0]), h("td", { class: "num" }, brief(values(c, name, setting)[t]))));
  $("tip").replaceChildren(
    h("p", {}, h("code", {}, JSON.stringify(c.tokens[t])), ` ${t + 1} of ${c.tokens.length}`),
    h("table", {}, h("tbody", {}, ...rows)), ...more);
  const [box, own] = [token.getBoundingClientRect(), $("tip").getBoundingClientRect()];
  const above = box.bottom + own.height + 12 > innerHeight;
  $("tip").style.top = `${above ? box.top - own.height - 6 : box.bottom + 6}px`;
  $("tip").style.left = `${Math.max(8, Math.min(box.left, document.body.clientWidth - own.width - 8))}px`;
}
