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

/** The pieces of a text that fit into a width: most texts are one. */
function pieces(pen, text, width) {
  if (pen.measureText(text).width <= width) return [text];
  const [found, characters] = [[""], [...text.slice(0, 2000)]];
  for (const character of characters) {
    const longer = found.at(-1) + character;
    if (pen.measureText(longer).width > width && found.at(-1)) found.push(character);
    else found[found.length - 1] = longer;
  }
  return found;
}

/** Tokens of one word together, [[text, t], ...] each: lines break before a blank. */
function wordsOf(texts) {
  const words = [];
  texts.forEach((text, t) => {
    if (!words.length || /^\s/.test(text) || /\s$/.test(texts[t - 1])) words.push([]);
    words.at(-1).push([text, t]);
  });
  return words;
}

/** Where each piece of a response goes: {text, t, line, x, width}, and the number of lines. */
function flow(pen, texts, width, most) {
  const placed = [];
  const wide = (text) => pen.measureText(text).width;
  let [x, line] = [0, 0];
  const place = (text, t) => {
    for (const piece of pieces(pen, x ? text : text.trimStart(), width)) {
      if (x + wide(piece) > width && x > 0) [x, line] = [0, line + 1];
      placed.push({ text: piece, t, line, x, width: wide(piece) });
      x += wide(piece);
    }
  };
  for (const word of wordsOf(texts)) {
    const whole = wide(word.map(([text]) => text.trimEnd()).join(""));
    if (x > 0 && x + whole > width && whole <= width) [x, line] = [0, line + 1];
    for (const [text, t] of word) {
      place(text.replaceAll("\n", ""), t);
      if (text.endsWith("\n")) [x, line] = [0, line + 1];
    }
    if (line >= most) break;
  }
  const kept = placed.filter((one) => one.line < most);
  if (kept.length < placed.length) kept.push({ text: "…", t: 0, line: most - 1, x: width, width: 0 });
  return { placed: kept, lines: Math.min(most, line + 1) };
}

/** Draw shaded or plain pieces of text; the height that they take. */
function drawFlow(pen, { texts, strengths, left, top, width, leading, most }, style) {
  const { placed, lines } = flow(pen, texts, width, most);
  const fromRight = /^[^A-Za-z]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(texts.join(""));
  pen.direction = fromRight ? "rtl" : "ltr";
  pen.textAlign = "left";
  for (const { text, t, line, x, width: wide } of placed) {
    const at = fromRight ? left + width - x - wide : left + x;
    const y = top + line * leading;
    if (strengths) {
      pen.globalAlpha = 0.5 * strengths[t];
      pen.fillStyle = style.hue;
      pen.fillRect(at, y + 0.1 * leading, wide, 0.8 * leading);
      pen.globalAlpha = 1;
    }
    pen.fillStyle = style.ink;
    pen.fillText(text, at, y + 0.7 * leading);
  }
  pen.direction = "ltr";
  return lines * leading;
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

/** Put a canvas on the clipboard or, where that is not allowed, into a file; what was done. */
async function giveAway(canvas, name) {
  try {
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    return "copied";
  } catch {
    h("a", { download: name, href: canvas.toDataURL("image/png") }).click();
    return `the clipboard is closed to this page: saved as ${name}`;
  }
}
