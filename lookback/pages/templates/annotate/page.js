/* The raters' page: a code, case after case, the end. */

const data = JSON.parse($("data").textContent);
const store = data.served ? new ServerStore() : new FileStore(data);
const KEYS = { 1: "A", a: "A", 2: "B", b: "B", 3: "tie", t: "tie" };
const LONG = /\S{500}(?=\S)/gu;  // browsers are slow on more without a blank: a place to break after each
let session = null;  // {rater, set, study, cases, votes}
let current = null;  // the case that is shown; null before the first and after the last

function write(element, text) {
  const parts = [];
  let done = 0;
  for (const run of text.matchAll(LONG)) {
    parts.push(text.slice(done, run.index + run[0].length), h("wbr"));
    done = run.index + run[0].length;
  }
  element.replaceChildren(...parts, text.slice(done));
}

/** Do something that takes its time: meanwhile nothing else is done, and what fails is said. */
async function busy(work) {
  if ($("main").ariaBusy === "true") return;
  $("main").ariaBusy = "true";
  $("problem").hidden = true;
  for (const button of document.querySelectorAll("[data-choice], #undo")) button.disabled = true;
  try {
    await work();
  } catch (error) {
    $("problem").textContent = error.message;
    $("problem").hidden = false;
    $("problem").scrollIntoView({ block: "nearest" });
  }
  for (const button of document.querySelectorAll("[data-choice]")) button.disabled = false;
  $("undo").disabled = !session?.votes.length;
  $("main").ariaBusy = "false";
}

const enter = () => busy(async () => {
  const rater = raterCode($("rater").value);
  if (!rater) throw new Error("A code has 1 to 40 letters (a to z), digits or any of . _ @ -");
  const set = document.querySelector("[name=set]:checked");
  session = await store.enter(rater, Number(set?.value));
  $("entry").hidden = true;
  $("tools").hidden = false;
  $("who").textContent = `${session.rater}, set ${session.set}`;
  showNext();
});

function showNext() {
  const judged = new Set(session.votes.map((vote) => vote.case));
  showCase(session.cases.find((one) => !judged.has(one.case)) ?? null);
}

function showCase(one) {
  current = one;
  const [total, judged] = [session.cases.length, session.votes.length];
  $("case").hidden = one === null;
  $("done").hidden = one !== null;
  $("kept").textContent = `${judged} of ${total} judged, kept ${data.served ? "by the server" : "in this browser"}`;
  if (one === null) return $("thanks").focus();
  const answers = swapped(one) ? [...one.answers].reverse() : one.answers;
  $("place").textContent = `Case ${session.cases.indexOf(one) + 1} of ${total}`;
  [$("progress").value, $("progress").max] = [judged, total];
  write($("question"), one.question);
  write($("a"), answers[0]);
  write($("b"), answers[1]);
  $("picture").hidden = one.image === null;
  $("no-image").hidden = one.image !== null;
  if (one.image !== null) $("image").src = one.image;
  scrollTo(0, 0);
  $("question").focus({ preventScroll: true });
}

const swapped = (one) => isSwapped(session.study, session.rater, session.set, one.case);

const vote = (choice) => busy(async () => {
  if (current === null) return;
  const { study, rater, set } = session;
  const at = `${new Date().toISOString().slice(0, 19)}+00:00`;
  const made = { study, rater, set, case: current.case, choice, swapped: swapped(current), at };
  await store.put(made);  // the next case shows only when it is kept
  session.votes = [...session.votes.filter((one) => one.case !== made.case), made];
  showNext();
});

const undo = () => busy(async () => {
  const last = session?.votes.at(-1);
  if (!last) return;
  await store.undo({ ...last, rater: session.rater, set: session.set });
  session.votes.pop();
  showCase(session.cases.find((one) => one.case === last.case));
});

const saveVotes = () =>
  saveText(`votes-${session.rater}-set${session.set}.jsonl`, store.lines(), "application/jsonl");

function leave() {
  session = current = null;
  for (const id of ["case", "done", "tools"]) $(id).hidden = true;
  $("rater").value = "";
  $("entry").hidden = false;
  $("rater").focus();
}

/** Pages without a list of raters ask which set, where there are several. */
function offerSets() {
  const sets = data.served || data.raters ? [] : [...new Set(data.cases.map((one) => one.set))];
  $("sets").hidden = sets.length < 2;
  for (const set of sets) {
    const field = h("input", { type: "radio", name: "set", value: set, required: "" });
    field.checked = sets.length === 1;
    $("sets").append(h("label", {}, field, ` Set ${set}`));
  }
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (session === null || $("zoom").open || event.target.matches("input")) return;
  const key = event.key.toLowerCase();
  if (current !== null && key in KEYS) vote(KEYS[key]);
  else if (current?.image && key === "z") $("picture").click();
  else if (key === "u") undo();
  else return;
  event.preventDefault();
}

/* The picture as large as one likes: 100 % is as large as the window lets it be. */

const SCALES = [1, 1.5, 2, 3, 4, 6, 8];

function setUpZoom() {
  const [dialog, pane, image] = ["zoom", "pane", "enlarged"].map($);
  let step = 0;
  const show = (next) => {
    step = Math.min(SCALES.length - 1, Math.max(0, next));
    const [x, y] = [pane.scrollLeft + pane.clientWidth / 2, pane.scrollTop + pane.clientHeight / 2]
      .map((middle, axis) => middle / Math.max(1, axis ? image.height : image.width));
    // Of the pane without scroll bars, which come and go with the size.
    const fit = Math.min(pane.offsetWidth, (pane.offsetHeight * image.naturalWidth) / image.naturalHeight);
    image.style.width = `${Math.floor(fit) * SCALES[step]}px`;
    pane.scrollTo(x * image.width - pane.clientWidth / 2, y * image.height - pane.clientHeight / 2);
    $("scale").textContent = `${100 * SCALES[step]} %`;
    $("smaller").disabled = step === 0;
    $("larger").disabled = step === SCALES.length - 1;
  };
  $("picture").addEventListener("click", async () => {
    image.src = $("image").src;
    dialog.showModal();
    await image.decode().catch(() => {});
    show(0);
    pane.focus();
  });
  $("larger").addEventListener("click", () => show(step + 1));
  $("smaller").addEventListener("click", () => show(step - 1));
  image.addEventListener("click", () => show(step === SCALES.length - 1 ? 0 : step + 1));
  $("close").addEventListener("click", () => dialog.close());
  addEventListener("resize", () => dialog.open && show(step));
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") show(step + 1);
    else if (event.key === "-") show(step - 1);
    else if (event.key === "z") dialog.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

setUpZoom();
offerSets();
$("form").addEventListener("submit", (event) => { event.preventDefault(); enter(); });
for (const button of document.querySelectorAll("[data-choice]"))
  button.addEventListener("click", () => vote(button.dataset.choice));
$("undo").addEventListener("click", undo);
$("save").addEventListener("click", saveVotes);
$("leave").addEventListener("click", leave);
document.addEventListener("keydown", onKey);
$("save").hidden = data.served;
$("next").textContent = data.served
  ? "All votes are kept; you may close this page."
  : "Save the votes as a file and send it back to whoever asked you.";
$("entry").hidden = false;
$("rater").focus();
