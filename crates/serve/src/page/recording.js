// What happened to one canvas, forward by forward: filled from a stream or from a saved trace, read by every view.

/** The most positions of a canvas that are drawn. */
export const POSITION_LIMIT = 200_000;

/** Marks that end a text or fill it up; models write them as tokens. */
const SPECIAL = /^(?:<\|[^<>]*\|>|<\/?s>|<(?:eos|bos|pad|unk|mask)>|\[(?:MASK|PAD|EOS)\])$/;

/** Says whether a token is a mark of the vocabulary and not text. */
export function isSpecial(text) {
  return text !== null && SPECIAL.test(text);
}

export class Recording {
  /** Facts of the run; what is not known is null. */
  facts = { model: "", decoder: "", cache: "", seed: null, blockLength: null, promptTokens: 0, prompt: null, question: null };
  /** One entry a forward: `{step, nfe, drafts, accepted, rejected, settled, at, commits}`. */
  forwards = [];
  /** The last commit of each position of the answer; null where there is none. */
  cells = [];
  /** Tokens that were given, by position of the answer. */
  given = new Map();
  /** Text that stands before the canvas and is shown with it. */
  lead = "";
  /** The settled text, as the stream told it. */
  text = "";
  receipt = null;
  usage = null;
  finishReason = null;
  finished = false;
  /** Whether a form forced or changed one of its tokens. */
  formed = false;
  /** Forwards that the server did not tell of because we read too slowly. */
  dropped = 0;
  /** Changes where a view cannot go on from what it has drawn. */
  generation = 0;
  /** Milliseconds from the request to the first frame, and in the server's queue if it told. */
  waited = null;
  queued = null;
  #byStep = new Map();
  #nfe = 0;
  #committed = 0;
  /** Where the forwards of the frame that is taken begin: views may have drawn those before it. */
  #open = 0;

  /** Says whether the answer is written from left to right, one token after the other: nothing is masked then. */
  get inOrder() {
    return this.facts.decoder.split(":")[0] === "ar";
  }

  /** NFE so far. */
  get nfe() {
    return this.receipt?.nfe ?? this.#nfe;
  }

  /** Positions of the answer that hold a token that was decoded. */
  get committed() {
    return this.#committed;
  }

  /** Tokens of the answer: what the server counted, or text tokens on the canvas. */
  get answerTokens() {
    if (this.usage?.completion_tokens !== undefined) return this.usage.completion_tokens;
    return this.receipt?.generated_tokens ?? this.committed;
  }

  /** Tokens of the answer a second; null as long as it is made. */
  get tokensPerSecond() {
    return this.usage?.tokens_per_second ?? this.receipt?.seconds?.tokens_per_second ?? null;
  }

  /** Milliseconds of a forward: as the receipt has it, else between frames. */
  get forwardMilliseconds() {
    const { seconds, forwards } = this.receipt ?? {};
    if (seconds?.total && forwards) return (seconds.total * 1000) / forwards;
    const timed = (forward) => forward.at !== null;
    const first = this.forwards.find(timed);
    const last = this.forwards.findLast(timed);
    return last && last.at > first.at ? (last.at - first.at) / (last.index - first.index) : null;
  }

  /** Takes the canvas that the first frame describes. */
  begin({ prompt_tokens: promptTokens = 0, length = 0, given = [], ...rest }) {
    const answer = length - promptTokens;
    if (!Number.isInteger(answer) || answer < 0 || answer > POSITION_LIMIT) {
      throw new RangeError(`a canvas of ${answer} positions; expected 0 to ${POSITION_LIMIT}`);
    }
    Object.assign(this.facts, { promptTokens, blockLength: rest.block_length ?? null });
    for (const name of ["decoder", "cache", "model", "seed"]) {
      if (rest[name] !== undefined) this.facts[name] = rest[name];
    }
    this.#grow(answer);
    for (const [position, token, text] of given) {
      this.given.set(position - promptTokens, { token, text: wholeText(text) });
    }
    this.generation += 1;
  }

  /** Takes the `diffusion` object of a chunk. */
  addFrame(frame, at = null) {
    if (frame.canvas) this.begin(frame.canvas);
    this.#open = this.forwards.length;
    if (frame.dropped) this.dropped += frame.dropped;
    const commits = frame.commits ?? [];
    const told = new Map((frame.forwards ?? []).map((forward) => [forward[0], forward]));
    const steps = new Set([...told.keys(), ...commits.map((commit) => commit[4] ?? frame.step)]);
    for (const step of [...steps].sort((left, right) => left - right)) {
      const [, nfe = null, drafts = 0, accepted = 0, rejected = 0] = told.get(step) ?? [];
      this.addForward({ step, nfe, drafts, accepted, rejected, at });
    }
    const [forced, changed] = [frame.forced, frame.changed].map((positions) => new Set(positions));
    for (const [position, token, text, confidence, step, top] of commits) {
      const marks = { forced: forced.has(position), changed: changed.has(position) };
      this.addCommit({ position, token, text, confidence, step: step ?? frame.step, top, ...marks });
    }
    for (const position of frame.taken_back ?? []) {
      this.addCommit({ position, token: null, text: null, confidence: 0, step: frame.step });
    }
    if (frame.nfe !== undefined) this.#nfe = Math.max(this.#nfe, frame.nfe);
    if (frame.settled !== undefined && this.forwards.length > 0) this.settle(frame.settled);
  }

  /** Takes a forward; one that is known already is completed. */
  addForward({ step, nfe = null, drafts = 0, accepted = 0, rejected = 0, at = null }) {
    const known = this.#byStep.get(step);
    if (known !== undefined) {
      if (nfe !== null) Object.assign(known, { nfe, drafts, accepted, rejected });
      return known;
    }
    const settled = this.forwards.at(-1)?.settled ?? 0;
    const forward = { step, nfe, drafts, accepted, rejected, at, settled, commits: [] };
    forward.index = this.forwards.push(forward) - 1;
    this.#byStep.set(step, forward);
    if (nfe !== null) this.#nfe = Math.max(this.#nfe, nfe);
    return forward;
  }

  /** Takes a commit, by position in the whole canvas; without a token it takes one back. */
  addCommit({ position, token, text: told, confidence, step, top = null, forced = false, changed = false }) {
    const text = wholeText(told);
    const index = position - this.facts.promptTokens;
    if (!Number.isInteger(index) || index < 0 || index >= POSITION_LIMIT) {
      throw new RangeError(`a commit at position ${position}, outside the canvas`);
    }
    this.#grow(index + 1);
    const forward = this.addForward({ step });
    const previous = this.cells[index];
    const commit = { index, token, text, confidence, step, top, forced, changed, forward: forward.index, previous };
    this.formed ||= forced || changed;
    this.#committed += Number(token !== null) - Number(previous !== null);
    if (forward.index < this.#open) this.generation += 1;
    forward.commits.push(commit);
    this.cells[index] = token === null ? null : commit;
  }

  /** Says how many leading positions of the answer cannot change any more. */
  settle(count) {
    this.forwards.at(-1).settled = Math.max(count, this.forwards.at(-1).settled);
  }

  /** Ends the recording: nothing follows. */
  finish() {
    this.finished = true;
  }

  /** Returns the token at a position once all is done: given or committed, or null. */
  tokenAt(index) {
    return this.given.get(index) ?? this.cells[index] ?? null;
  }

  /** Returns where the answer's tokens end: what follows is masks, marks and padding. */
  get end() {
    let end = this.cells.length;
    while (end > 0 && !isText(this.tokenAt(end - 1))) end -= 1;
    return end;
  }

  #grow(length) {
    while (this.cells.length < length) this.cells.push(null);
  }
}

/** Returns a token's text, or null where it is only a part of a character: such parts make sense together alone. */
function wholeText(text) {
  return typeof text === "string" && !text.includes("\uFFFD") ? text : null;
}

function isText(token) {
  return token !== null && token.text !== null && !isSpecial(token.text);
}
