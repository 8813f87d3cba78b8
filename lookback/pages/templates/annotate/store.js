/* Votes: which answer stands on which side, and where votes are kept. */

/** Whether the answers of a case change sides: the same as in annotation/votes.py. */
function isSwapped(study, rater, set, number) {
  let state = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(`${study}\n${rater}\n${set}\n${number}`))
    state = Math.imul(state ^ byte, 0x01000193);
  state = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
  state = Math.imul(state ^ (state >>> 13), 0xc2b2ae35);
  return ((state ^ (state >>> 16)) & 1) === 1;
}

function raterCode(given) {
  const code = given.trim().toLowerCase();
  return /^[a-z0-9._@-]{1,40}$/.test(code) ? code : null;
}

/* Where votes are kept. Both kinds have
     enter(rater, set) -> {rater, set, study, cases, votes}, votes in the order in which they were made
     put(vote), undo(vote): done when the promise is. */

/** The server that the page came from: it has a vote on disk before it answers. */
class ServerStore {
  async ask(path, body) {
    let reply;
    try {
      reply = await fetch(path, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
      });
    } catch {
      throw new Error("The server does not answer, so this is not kept: try again in a moment.");
    }
    const found = await reply.json().catch(() => ({ error: `The server says ${reply.status}.` }));
    if (!reply.ok) throw new Error(found.error);
    return found;
  }
  enter(rater) { return this.ask("enter", { rater }); }
  put({ rater, set, case: number, choice }) { return this.ask("vote", { rater, set, case: number, choice }); }
  undo({ rater, set, case: number }) { return this.ask("undo", { rater, set, case: number }); }
}

/** This browser's memory: votes are handed over as a file of JSON lines. */
class FileStore {
  constructor(data) { this.data = data; }
  async enter(rater, set) {
    const { study, raters, cases } = this.data;
    if (raters && !(rater in raters)) throw new Error(`Nobody here has the code “${rater}”: look at your invitation.`);
    this.set = raters ? raters[rater] : set;
    this.key = `votes:${study}:${this.set}:${rater}`;
    this.votes = JSON.parse(localStorage.getItem(this.key) ?? "[]");
    return { rater, set: this.set, study, cases: cases.filter((one) => one.set === this.set), votes: [...this.votes] };
  }
  write(votes) {
    try {
      localStorage.setItem(this.key, JSON.stringify(votes));
    } catch (error) {
      throw new Error(`This browser does not let the page keep votes (${error.name}): use another.`);
    }
    this.votes = votes;
  }
  async put(vote) { this.write([...this.votes.filter((one) => one.case !== vote.case), vote]); }
  async undo(vote) { this.write(this.votes.filter((one) => one.case !== vote.case)); }
  lines() { return this.votes.map((vote) => `${JSON.stringify(vote)}\n`).join(""); }
}
