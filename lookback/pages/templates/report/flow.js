/* Text that flows on a canvas, shaded or plain, and giving a canvas away. */

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
