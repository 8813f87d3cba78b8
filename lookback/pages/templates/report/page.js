/* The fixed part of the page: tables that sort, where the reader is; and the start. */

function sortable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const heads = [...table.tHead.rows].at(-1).cells;
  const words = new Intl.Collator("en", { numeric: true });
  [...heads].forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const numeric = head.classList.contains("num");
    const cycle = [...(numeric ? ["descending", "ascending"] : ["ascending", "descending"]), "none"];
    const order = cycle[(cycle.indexOf(head.ariaSort) + 1) % 3];
    for (const other of heads) other.ariaSort = "none";
    head.ariaSort = order;
    const sign = order === "descending" ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      const missing = (x.dataset.value === "") - (y.dataset.value === "");
      if (missing) return missing; // last, whichever way
      return sign * (numeric
        ? Number(x.dataset.value) - Number(y.dataset.value)
        : words.compare(x.textContent, y.textContent));
    };
    // From the rows as they stand, so that ties keep the order of the column sorted before.
    body.append(...(order === "none" ? original : [...body.rows].sort(compare)));
    table.classList.toggle("sorted", order !== "none");
  }));
}

function followed(links) {
  const seen = new Map(links.map((link) => [document.querySelector(link.hash), link]));
  const observer = new IntersectionObserver((entries) => {
    const entry = entries.find((e) => e.isIntersecting);
    if (!entry) return;
    for (const link of links) link.removeAttribute("aria-current");
    const link = seen.get(entry.target);
    link.setAttribute("aria-current", "true");
    const list = link.closest("ul");
    list.scrollTo({ left: link.offsetLeft - list.offsetLeft - 60 }); // on small screens it is a row
  }, { rootMargin: "-20% 0px -79% 0px" });
  for (const section of seen.keys()) observer.observe(section);
}

document.querySelectorAll("table.sortable").forEach(sortable);
followed([...document.querySelectorAll("nav li a")]);
const data = JSON.parse($("data").textContent);
if (!data.runs.length) {
  $("extent").textContent = "None of these runs has items to show: give one that is no control.";
} else if (!CAN_DECODE) {
  $("extent").textContent =
    "This browser cannot unpack the items of this page (it has no DecompressionStream): open it in " +
    "Chrome or Edge 80, Firefox 113, Safari 16.4 or later. The tables do not need it.";
} else browse(data);
