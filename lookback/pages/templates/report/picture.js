/* The shown item as a picture: its image, its question, the top of its ranking with its shades. */

const PICTURE = { width: 1000, margin: 32, image: 260, top: 5, scale: 2, lines: 6 };

/** The page's own colours and type, as they are now. */
function styleOf(signal, methods) {
  const root = getComputedStyle(document.documentElement);
  const get = (name) => root.getPropertyValue(`--${name}`).trim();
  const hues = { log_prob: "mean_log_prob", self_certainty: "self_certainty", entropy: "violet", visual_lookback: "visual_lookback" };
  const titles = Object.fromEntries(Object.entries(methods).map(([name, { title }]) => [name, title]));
  return { titles, ink: get("ink"), muted: get("muted"), line: get("line"), card: get("card"), good: get("good"),
    hue: get(hues[signal] ?? "lookback"), sans: getComputedStyle(document.body).fontFamily };
}

function drawCandidate(pen, ranking, place, left, top, width, style) {
  const index = ranking.order[place];
  const { tokens, quality } = ranking.candidates[index];
  pen.fillStyle = style.muted;
  pen.font = `600 20px ${style.sans}`;
  pen.fillText(String(place + 1), left, top + 20);
  pen.font = `14px ${style.sans}`;
  const told = [`S ${shown(ranking.scores[index], 4)}`, `quality ${shown(quality, 2)}`, `candidate ${index + 1}`];
  const names = ranking.picks.filter(([, picked]) => picked === index).map(([method]) => style.titles[method]);
  if (names.length) told.push(`picked by ${names.join(", ")}`);
  const said = drawFlow(pen, {
    texts: told.join("   ").split(/(?<= )/), left: left + 36, top: top + 2, width: width - 36, leading: 20, most: 3,
  }, { ...style, ink: style.muted });
  pen.font = `18px ${style.sans}`;
  const texts = tokens.length ? tokens.map(tokenText) : ["empty"];
  const strengths = Array.from(ranking.shades[index], ranking.scale.strength);
  return 10 + said + drawFlow(pen, {
    texts, strengths: tokens.length ? strengths : null, left: left + 36, top: top + 4 + said,
    width: width - 36, leading: 30, most: PICTURE.lines,
  }, style);
}

/** Draw everything; the height that it takes. */
function paint(pen, image, item, ranking, state, run, style) {
  const { width, margin, top: most } = PICTURE;
  const left = margin + PICTURE.image + margin;
  const space = width - margin - left;
  pen.fillStyle = style.card;
  pen.fillRect(0, 0, width, pen.canvas.height);
  let [side, y] = [margin, margin];
  if (image) {
    const tall = PICTURE.image * Math.min(2, image.naturalHeight / image.naturalWidth);
    const wide = tall * image.naturalWidth / image.naturalHeight;
    pen.imageSmoothingEnabled = !image.src.startsWith("data:image/png");
    pen.drawImage(image, margin, margin, Math.min(wide, PICTURE.image), tall);
    side += tall + 12;
  }
  pen.fillStyle = style.muted;
  pen.font = `13px ${style.sans}`;
  side += drawFlow(pen, { texts: [item.id], left: margin, top: side, width: PICTURE.image, leading: 18, most: 2 }, { ...style, ink: style.muted });
  pen.font = `600 20px ${style.sans}`;
  y += drawFlow(pen, { texts: item.question.slice(0, 600).split(/(?<= )/), left, top: y, width: space, leading: 28, most: 4 }, style) + 12;
  for (let place = 0; place < Math.min(most, ranking.order.length); place++) {
    pen.fillStyle = style.line;
    pen.fillRect(left, y, space, 1);
    y += 10 + drawCandidate(pen, ranking, place, left, y + 8, space, style);
  }
  y = Math.max(side, y) + 12;
  pen.font = `13px ${style.sans}`;
  const told = `${run.label} · LookBack, α = ${state.alpha}, λ = ${state.lam}, ${Math.min(most, ranking.order.length)} of N = ${state.n} · shaded by ${SHADES[state.signal][0]}`;
  y += drawFlow(pen, { texts: told.split(/(?<= )/), left: margin, top: y, width: width - 2 * margin, leading: 20, most: 2 }, { ...style, ink: style.muted });
  return y + margin / 2;
}

/** The item as a PNG. */
async function drawPicture(item, ranking, state, run, methods) {
  const image = item.image === null ? null : h("img", { src: imageAt(item.image) });
  await image?.decode();
  const [canvas, style, { scale: zoom, width }] = [h("canvas"), styleOf(state.signal, methods), PICTURE];
  const pen = canvas.getContext("2d");
  const all = [pen, image, item, ranking, state, run, style];
  const height = paint(...all); // once to know how high it is
  [canvas.width, canvas.height] = [zoom * width, Math.ceil(zoom * height)];
  pen.scale(zoom, zoom);
  paint(...all);
  return canvas;
}
