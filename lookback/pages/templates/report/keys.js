/* The keyboard, and the page's address. */

const TYPING = "input, select, textarea, dialog, .scroll";

/** Whether the list of candidates is what the reader looks at. */
function isInView(list) {
  const { top, bottom } = list.getBoundingClientRect();
  return top < 0.6 * innerHeight && bottom > 0.4 * innerHeight;
}

/** Arrows step through items and candidates, "/" goes to the search, "?" says so.
    Where there is no next candidate, or the list is out of sight, up and down scroll as ever. */
function listenToKeys(step, stepCandidate) {
  const keys = {
    ArrowLeft: () => { step(-1); return true; },
    ArrowRight: () => { step(1); return true; },
    ArrowUp: () => isInView($("candidates")) && stepCandidate(-1),
    ArrowDown: () => isInView($("candidates")) && stepCandidate(1),
    "/": () => { $("search").focus(); $("search").select(); return true; },
    "?": () => { $("keys").showModal(); return true; },
  };
  addEventListener("keydown", (event) => {
    const other = event.altKey || event.ctrlKey || event.metaKey || (event.shiftKey && event.key !== "?");
    if (!(event.key in keys) || other || event.target.closest?.(TYPING)) return;
    if (keys[event.key]()) event.preventDefault();
  });
  $("show-keys").addEventListener("click", () => $("keys").showModal());
  $("close-keys").addEventListener("click", () => $("keys").close());
}

const QUIET = 200; // ms: browsers refuse an address that changes with every step of a slider

/** A function that writes the address once things are quiet: another item is another entry of the
    history, anything else changes the entry. `begin` says that the address is as the state is. */
function remembered(look) {
  let timer, entry;
  const write = () => {
    const { hash, item } = look();
    history[item === entry ? "replaceState" : "pushState"](null, "", hash);
    entry = item;
  };
  const remember = () => {
    clearTimeout(timer);
    timer = setTimeout(write, QUIET);
  };
  remember.begin = () => {
    clearTimeout(timer);
    entry = look().item;
  };
  return remember;
}
