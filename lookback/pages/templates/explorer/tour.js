/* A short tour: five steps, each beside the part of the page that it tells of. */

const TOURED = "lookback-toured";

/** Where the card goes so that the box can be seen: right of it, left of it, below, above, or at the bottom. */
function besideOf(box, own, wide) {
  const within = (top) => Math.max(8, Math.min(top, innerHeight - own.height - 12));
  if (box.right + own.width + 24 < wide) return [box.right + 16, within(box.top)];
  if (box.left - own.width - 24 > 0) return [box.left - own.width - 16, within(box.top)];
  const left = Math.max(8, Math.min(box.left, wide - own.width - 8));
  const places = [box.bottom + 14, box.top - own.height - 14];
  return [left, places.find((top) => top > 8 && top + own.height < innerHeight) ?? within(Infinity)];
}

/** `steps`: [{target, title, text, before}]; `before` is done when the step comes up. */
function tourGuide(steps) {
  let [at, back] = [null, null];
  const tour = $("tour");

  function place() {
    if (at === null) return;
    const target = $(steps[at].target);
    const box = target.getBoundingClientRect();
    const [wide, edge] = [document.documentElement.clientWidth, 6];
    const from = Math.max(2, box.left - edge);
    Object.assign($("ring").style, {
      left: `${from + scrollX}px`, top: `${box.top - edge + scrollY}px`,
      width: `${Math.min(box.right + edge, wide - 2) - from}px`, height: `${box.height + 2 * edge}px`,
    });
    const [left, top] = besideOf(box, tour.getBoundingClientRect(), wide);
    Object.assign(tour.style, { left: `${left + scrollX}px`, top: `${top + scrollY}px` });
  }

  function show(step) {
    at = step;
    const { target, title, text, before } = steps[step];
    before?.();
    [tour.hidden, $("ring").hidden] = [false, false];
    $("tour-place").textContent = `${step + 1} of ${steps.length}`;
    $("tour-title").textContent = title;
    $("tour-text").textContent = text;
    $("tour-back").disabled = step === 0;
    $("tour-next").textContent = step === steps.length - 1 ? "Done" : "Next";
    $(target).scrollIntoView({ block: $(target).offsetHeight > 0.6 * innerHeight ? "start" : "center" });
    place();
    tour.focus({ preventScroll: true });
  }

  function end() {
    if (at === null) return;
    at = null;
    [tour.hidden, $("ring").hidden] = [true, true];
    back?.focus({ preventScroll: true });
  }

  const next = () => (at === steps.length - 1 ? end() : show(at + 1));
  const previous = () => { if (at > 0) show(at - 1); };
  function begin() {
    remember();
    back = document.activeElement;
    show(0);
  }

  // Where storage is closed the offer comes again: no harm.
  const known = () => { try { return localStorage.getItem(TOURED) !== null; } catch { return false; } };
  function remember() {
    $("offer").hidden = true;
    try { localStorage.setItem(TOURED, "yes"); } catch { /* closed */ }
  }

  tour.addEventListener("keydown", (event) => {
    const does = { Escape: end, ArrowRight: next, ArrowLeft: previous }[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation();
    does();
  });
  listenToClicks({
    "tour-next": next, "tour-back": previous, "tour-end": end,
    "start-tour": begin, "take-tour": begin, "no-tour": remember,
  });
  addEventListener("resize", place);
  new ResizeObserver(place).observe($("explorer"));
  return { offer: () => { $("offer").hidden = known(); } };
}

const tourSteps = (app) => [
  { target: "frame", title: "A picture",
    text: "Take a drawn scene and drag its things about, or drop, paste or photograph a picture of your own." },
  { target: "form", title: "A question",
    text: "The model answers it many times, each time a little differently. The next step asks." },
  { target: "candidates", title: "The ranking", before: () => { if (!app.asked) app.begin(); },
    text: "Answers appear as they are written. The best supported comes first: likely words, chosen while looking at the picture. The worst end early and fade." },
  { target: "settings", title: "What counts", before: () => { if (!app.asked) app.begin(); },
    text: "Move α and λ, or rank by something else: the order follows at once. Words are shaded by the signal that you choose." },
  { target: "frame", title: "Where it looked", before: () => app.showWord(),
    text: "Point at a word, or tap it, and the picture shows where the model looked. Below the chosen answer: would it say so without looking?" },
];
