/* What every page needs: elements, numbers as text, fields, keys, links, files. */

const $ = (id) => document.getElementById(id);

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const imageAt = (position) => $(`image-${position}`).textContent;
const options = (entries) => entries.map(([value, label]) => h("option", { value }, label));

function listenToClicks(listeners) {
  for (const [id, listener] of Object.entries(listeners)) $(id).addEventListener("click", listener);
}

function meter(strength) {
  const bar = h("i", { class: "meter" });
  bar.style.setProperty("--strength", strength);
  return bar;
}

/* Numbers */

const shown = (x, digits) => (Number.isFinite(x) ? x.toFixed(digits).replace("-", "−") : "–");
const brief = (x) =>
  Math.abs(x) < 0.001 && x !== 0 ? x.toExponential(1).replaceAll("-", "−") : shown(x, 3);
const signed = (x, digits) => `${x > 0 ? "+" : ""}${shown(x, digits)}`;
const percent = (share, digits) => `${shown(100 * share, digits)} %`;

/* Fields, the keyboard, the tip */

/** The number in a field; undefined while it is half-typed or not allowed. */
function fieldValue({ value, min, max, step }) {
  const x = value.trim() === "" ? NaN : Number(value);
  const fits = Number.isFinite(x) && x >= Number(min) && (max === "" || x <= Number(max));
  return fits && (step !== "1" || Number.isInteger(x)) ? x : undefined;
}

function putField(id, value) {
  if (document.activeElement !== $(id) && $(id).value !== String(value)) $(id).value = value;
}

/** Call `change({name: value})` when a field gets a number that it may hold, and `show` when it is left. */
function listenToNumbers(fields, change, show) {
  for (const [id, name] of fields) {
    $(id).addEventListener("input", () => {
      const value = fieldValue($(id));
      if (value !== undefined) change({ [name]: value });
    });
    $(id).addEventListener("blur", show);
  }
}

/** Call the function of a key unless the reader types; it returns whether it used the key. */
function listenToKeys(keys, typing) {
  addEventListener("keydown", (event) => {
    const selects = event.shiftKey && event.key.startsWith("Arrow");
    if (event.altKey || event.ctrlKey || event.metaKey || selects || event.defaultPrevented) return;
    if (!(event.key in keys) || event.target.closest?.(typing)) return;
    if (keys[event.key]()) event.preventDefault();
  });
  listenToClicks({ "show-keys": showKeys, "close-keys": () => $("keys").close() });
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const showKeys = () => { $("keys").showModal(); return true; };
const goTo = (id) => { $(id).focus(); $(id).select(); return true; };

/** Move the focus within a group of which one element is in the order of tabs. */
function stepFocus(from, to) {
  if (!to) return;
  from.parentElement.querySelectorAll('[tabindex="0"]').forEach((one) => { one.tabIndex = -1; });
  to.tabIndex = 0;
  to.focus();
}

/** Put the tip below an element, or above it where there is no room, and wholly on the screen. */
function placeTip(element) {
  const tip = $("tip");
  tip.style.left = "0"; // so that its width is its own, not what is left beside the element
  const [box, own] = [element.getBoundingClientRect(), tip.getBoundingClientRect()];
  const above = box.bottom + own.height + 12 > innerHeight && box.top > own.height + 8;
  tip.style.top = `${above ? box.top - own.height - 6 : box.bottom + 6}px`;
  tip.style.left = `${Math.max(8, Math.min(box.left, document.body.clientWidth - own.width - 8))}px`;
}

/* Links: what the page shows, as `#name=value&...`, and back */

const QUIET = 200; // ms: browsers refuse an address that changes with every step of a slider
const isLink = (hash) => hash.includes("=");
/** A text as a link can hold it: half a character cannot be written there. */
const linkable = (text) => text.toWellFormed?.() ?? text;

/** The hash of named values; empty ones are left out. */
function hashOf(named) {
  const kept = Object.entries(named).filter(([, value]) => value !== "")
    .map(([name, value]) => [name, linkable(String(value))]);
  return `#${new URLSearchParams(kept)}`.replaceAll("%2F", "/");
}

/** Read a hash: `read(name, find, wanted)` returns what `find` makes of a value. Undefined: there is none, or
    it cannot be; then a sentence about it is in `problems`. */
function hashReader(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const problems = [];
  const read = (name, find, wanted) => {
    if (!given.has(name)) return undefined;
    const value = find(given.get(name));
    if (value === undefined) problems.push(`${name} “${given.get(name).slice(0, 60)}”: ${wanted}`);
    return value;
  };
  const number = (low, high, whole = true) => (text) => {
    const x = text.trim() === "" ? NaN : Number(text);
    return x >= low && x <= high && (!whole || Number.isInteger(x)) ? x : undefined;
  };
  const choice = (name, names) =>
    read(name, (text) => (names.includes(text) ? text : undefined), `it must be one of ${names.join(", ")}`);
  return { problems, read, number, choice };
}

/* Files */

function save(name, href) {
  h("a", { download: name, href }).click();
}

function saveText(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  save(name, url);
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
