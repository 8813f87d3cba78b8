/* What can be taken away: a picture for others, and everything as JSON. */

const SHARED = { width: 1000, margin: 36, image: 280, top: 5, lines: 4, scale: 2 };

/** The page's own colours and type, as they are now. */
function sharedStyle() {
  const root = getComputedStyle($("candidates"));
  const get = (name) => root.getPropertyValue(`--${name}`).trim();
  return { ink: get("ink"), muted: get("muted"), line: get("line"), card: get("card"), accent: get("accent"), hue: get("hue"),
    sans: getComputedStyle(document.body).fontFamily };
}

const inWords = (text) => text.split(/(?<= )/);

/** One answer of the picture; the height that it takes. */
function shareAnswer(pen, ranking, group, place, left, top, width, style) {
  const c = ranking.candidates[group[0]];
  pen.font = `650 ${place ? 19 : 24}px ${style.sans}`;
  pen.fillStyle = place ? style.muted : style.accent;
  pen.fillText(String(ranking.order.indexOf(group[0]) + 1), left, top + 24);
  pen.font = `14px ${style.sans}`;
  pen.fillStyle = style.muted;
  pen.fillText(shown(ranking.scores[group[0]], 3) + (group.length > 1 ? `   said ${group.length} times` : ""), left + 40, top + 18);
  pen.font = `${place ? 17 : 21}px ${style.sans}`;
  const leading = place ? 28 : 34;
  return 26 + drawFlow(pen, {
    texts: c.tokens.length ? c.tokens.map(tokenText) : ["empty"], left: left + 40, top: top + 24, width: width - 40, leading,
    strengths: c.tokens.length ? Array.from(ranking.shades[group[0]], ranking.scale.strength) : null, most: SHARED.lines,
  }, style);
}

/** Draw everything; the height that it takes. */
function sharePaint(pen, image, asked, ranking, state, data, style) {
  const { width, margin } = SHARED;
  const left = margin + SHARED.image + margin;
  const space = width - margin - left;
  pen.fillStyle = style.card;
  pen.fillRect(0, 0, width, pen.canvas.height);
  const tall = SHARED.image * Math.min(1.6, image.naturalHeight / image.naturalWidth);
  const wide = Math.min(SHARED.image, tall * image.naturalWidth / image.naturalHeight);
  pen.imageSmoothingEnabled = image.naturalWidth > DRAWING;
  pen.drawImage(image, margin, margin, wide, tall);
  const small = { ...style, ink: style.muted };
  pen.font = `13px ${style.sans}`;
  const side = margin + tall + 12 + drawFlow(pen, {
    texts: inWords(`${data.model} · best of ${ranking.candidates.length}`), left: margin, top: margin + tall + 8, width: SHARED.image, leading: 19, most: 3,
  }, small);
  pen.font = `650 22px ${style.sans}`;
  let y = margin - 4 + drawFlow(pen, { texts: inWords(asked.question.slice(0, 400)), left, top: margin - 4, width: space, leading: 30, most: 3 }, style) + 10;
  for (const [place, group] of ranking.groups.slice(0, SHARED.top).entries()) {
    pen.fillStyle = style.line;
    pen.fillRect(left, y, space, 1);
    y += 14 + shareAnswer(pen, ranking, group, place, left, y + 8, space, style);
  }
  y = Math.max(side, y) + 8;
  pen.font = `13px ${style.sans}`;
  const setting = BY_SETTING.includes(state.scorer) ? `, α = ${state.alpha}, λ = ${state.lam}` : "";
  y += drawFlow(pen, {
    texts: inWords(`Ranked by ${data.scorers[state.scorer].title}${setting}; words shaded by ${SHADES[state.signal][0]} · LookBack`),
    left: margin, top: y, width: width - 2 * margin, leading: 20, most: 2,
  }, small);
  return y + margin / 2;
}

/** The picture, the question and the best answers as a canvas. */
async function sharedPicture(asked, ranking, state, data) {
  const all = [await imageOf(asked.picture.uri), asked, ranking, state, data, sharedStyle()];
  const canvas = h("canvas");
  const pen = canvas.getContext("2d");
  const height = sharePaint(pen, ...all); // once to know how high it is
  [canvas.width, canvas.height] = [SHARED.scale * SHARED.width, Math.ceil(SHARED.scale * height)];
  pen.scale(SHARED.scale, SHARED.scale);
  sharePaint(pen, ...all);
  return canvas;
}

/** Everything that was asked and answered. */
function everything(asked, ranking, state, data) {
  const { picture, question, body, compared } = asked;
  const { scene } = picture;
  return {
    lookback: "explorer", model: data.model, question,
    picture: picture.uri, ...(scene ? { scene: { seed: scene.seed, things: scene.things.map(bare) } } : {}),
    asked: { ...body, messages: undefined },
    ranked: { scorer: state.scorer, alpha: state.alpha, lam: state.lam, among: ranking.candidates.length, order: ranking.order },
    candidates: asked.candidates.map((c, i) => ({
      ...c, text: c.tokens.join(""), score: Number.isFinite(ranking.scores[i]) ? ranking.scores[i] : null,
    })),
    compared: Object.fromEntries([...compared].map(([index, { none, other, otherPicture }]) => [index, {
      none: Array.from(none.log_prob), other: Array.from(other.log_prob), other_picture: otherPicture,
    }])),
  };
}

/** A text as a file. */
function saveText(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { download: name, href: url }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Put a text on the clipboard; whether that was allowed. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
