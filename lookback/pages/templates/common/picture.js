/* A question and its best answers as one picture, for others: text that flows on a canvas, shaded or plain. */

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

const SHARED = { width: 1000, margin: 32, image: 260, rows: 5, scale: 2 };
const inWords = (text) => text.split(/(?<= )/);

function sharedStyle() {
  const root = getComputedStyle($("candidates"));
  const names = ["ink", "muted", "line", "card", "accent", "hue"];
  const colors = Object.fromEntries(names.map((name) => [name, root.getPropertyValue(`--${name}`).trim()]));
  return { ...colors, sans: root.fontFamily };
}

/** Draw {image, caption, question, rows: [{place, facts, tokens, strengths}], about}; return the height. */
function paintShared(pen, { image, caption, question, rows, about }, style) {
  const { width, margin } = SHARED;
  const left = 2 * margin + SHARED.image;
  const space = width - margin - left;
  const write = (font, ink, flowed) => {
    pen.font = `${font} ${style.sans}`;
    return drawFlow(pen, flowed, { ...style, ink });
  };
  pen.fillStyle = style.card;
  pen.fillRect(0, 0, width, pen.canvas.height);
  let side = margin;
  if (image) {
    const high = SHARED.image * Math.min(2, image.naturalHeight / image.naturalWidth);
    const wide = Math.min(SHARED.image, high * image.naturalWidth / image.naturalHeight);
    pen.imageSmoothingEnabled = !image.src.startsWith("data:image/png");
    pen.drawImage(image, margin, margin, wide, high);
    side += high + 12;
  }
  side += write("13px", style.muted,
    { texts: inWords(caption), left: margin, top: side, width: SHARED.image, leading: 18, most: 3 });
  let y = margin + 12 + write("600 20px", style.ink,
    { texts: inWords(question.slice(0, 600)), left, top: margin, width: space, leading: 28, most: 4 });
  rows.slice(0, SHARED.rows).forEach(({ place, facts, tokens, strengths }, i) => {
    pen.fillStyle = style.line;
    pen.fillRect(left, y, space, 1);
    write("600 20px", i ? style.muted : style.accent,
      { texts: [String(place)], left, top: y + 8, width: 36, leading: 28, most: 1 });
    const column = { left: left + 36, width: space - 36 };
    y += 10 + write("14px", style.muted, { ...column, texts: inWords(facts), top: y + 10, leading: 20, most: 3 });
    const texts = tokens.length ? tokens.map(tokenText) : ["empty"];
    y += 10 + write("18px", style.ink,
      { ...column, texts, strengths: tokens.length ? strengths : null, top: y + 2, leading: 30, most: 6 });
  });
  y = Math.max(side, y) + 12;
  y += write("13px", style.muted,
    { texts: inWords(about), left: margin, top: y, width: width - 2 * margin, leading: 20, most: 2 });
  return y + margin / 2;
}

/** Put the picture on the clipboard or, where that is not allowed, into a file; say what was done. */
async function shareAsPicture(uri, content, name) {
  const image = uri && h("img", { src: uri, alt: "" });
  await image?.decode();
  const canvas = h("canvas");
  const [pen, style] = [canvas.getContext("2d"), sharedStyle()];
  const height = paintShared(pen, { ...content, image }, style); // once to know how high it is
  [canvas.width, canvas.height] = [SHARED.scale * SHARED.width, Math.ceil(SHARED.scale * height)];
  pen.scale(SHARED.scale, SHARED.scale);
  paintShared(pen, { ...content, image }, style);
  try {
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    return "copied";
  } catch {
    save(name, canvas.toDataURL("image/png"));
    return `the clipboard is closed to this page: saved as ${name}`;
  }
}
