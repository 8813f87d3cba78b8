/* Talking with the server that the page came from: requests, its refusals in words, its events. */

const KEY = "lookback-key"; // in this tab's storage

/** What went wrong, in words for the reader; `again` says what the way out is called. */
class Refusal extends Error {
  constructor(message, status = 0, again = "Try again") {
    super(message);
    Object.assign(this, { status, again });
  }
}

const GONE = "The server does not answer. Is lookback serve still running?";

async function refusalOf(response) {
  let said = `The server says ${response.status} ${response.statusText}`.trim();
  try {
    said = (await response.json()).error.message;
  } catch { /* it was not the server's own: something between here and there answered */ }
  const wait = Number(response.headers.get("retry-after"));
  if (response.status === 429) said += wait > 0 ? ` Free again in about ${wait} s.` : "";
  return new Refusal(said, response.status);
}

async function send(path, body, signal) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...(body ? { "content-type": "application/json" } : {}), ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, ...(body ? { body: JSON.stringify(body) } : {}) });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refusal(GONE);
  }
  if (response.ok) return response;
  throw await refusalOf(response);
}

/** Ask the reader for the server's key; whether there is one now. */
function askForKey() {
  return new Promise((done) => {
    const dialog = $("key-dialog");
    const end = () => {
      const key = dialog.returnValue === "ok" ? $("key").value.trim() : "";
      if (key) sessionStorage.setItem(KEY, key);
      done(Boolean(key));
    };
    dialog.returnValue = "";
    $("key").value = "";
    $("key-cancel").onclick = () => dialog.close("");
    dialog.addEventListener("close", end, { once: true });
    dialog.showModal();
  });
}

/** A response to a request; where the server wants a key, the reader is asked for it. */
async function request(path, body, signal) {
  for (;;) {
    try {
      return await send(path, body, signal);
    } catch (error) {
      if (error.status !== 401) throw error;
      sessionStorage.removeItem(KEY);
      if (!(await askForKey())) throw new Refusal("This server answers those with a key only.", 401, "Give the key");
    }
  }
}

const requestJson = async (path, body, signal) => (await request(path, body, signal)).json();

/** A function that takes a stream's text as it comes and calls `hear(kind, value)`: "comment" with
    what the server tells on the way, "data" with what OpenAI's clients get, "done" at the end. */
function eventReader(hear) {
  let rest = "";
  return (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines.map((one) => one.replace(/\r$/, ""))) {
      if (line.startsWith(": lookback ")) hear("comment", JSON.parse(line.slice(11)));
      else if (line === "data: [DONE]") hear("done", null);
      else if (line.startsWith("data: ")) hear("data", JSON.parse(line.slice(6)));
    }
  };
}

async function readEvents(response, hear) {
  const read = eventReader(hear);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      throw error.name === "AbortError" ? error : new Refusal("The server went away while it was answering.");
    }
    if (part.done) return;
    read(part.value);
  }
}

/** What is asked, as OpenAI's clients put it; without a picture for null. */
function messagesOf(question, picture) {
  const text = { type: "text", text: question };
  const image = picture ? [{ type: "image_url", image_url: { url: picture } }] : [];
  return [{ role: "user", content: [...image, text] }];
}
