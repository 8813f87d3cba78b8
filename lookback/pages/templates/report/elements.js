/* Small things for the page: finding and making elements, numbers in words. */

const $ = (id) => document.getElementById(id);

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const shown = (x, digits) => (Number.isFinite(x) ? x.toFixed(digits).replace("-", "−") : "–");
const brief = (x) =>
  Math.abs(x) < 0.001 && x !== 0 ? x.toExponential(1).replaceAll("-", "−") : shown(x, 3);
