// One request on its way: sends it, fills its recording from the stream, waits out a full server, and can be cancelled.

import { Recording } from "./recording.js";
import { ConnectionError, ServerError, chunksOf, queuedOf, send } from "./stream.js";

/** How often a request that finds the server full is sent again by itself. */
const TRIES = 20;
/** Seconds to wait where a full server does not say how long. */
const DEFAULT_WAIT = 5;

export class Run {
  /** One of `idle`, `sent`, `running`, `waiting`, `done`, `cancelled`, `failed`. */
  state = "idle";
  /** What went wrong, in words, and the field of the request that the server refused, if it is one. */
  error = null;
  param = null;
  /** Until when it waits, on the clock of `performance.now()`. */
  retryAt = null;
  recording = new Recording();
  #abort = null;
  #wake = null;
  #lead;

  /** Makes a run of a request: `{path, body}`. `lead` is shown before its canvas; `changed()` is called for all news. */
  constructor({ path, body, lead = "", seed = null, model = "" }, { key, changed }) {
    Object.assign(this, { path, body, key, changed, seed, model });
    this.#lead = lead;
  }

  /** Says whether something may still happen. */
  get busy() {
    return ["sent", "running", "waiting"].includes(this.state);
  }

  /** Sends the request, again and again while the server is full, and returns once all is over. */
  async start() {
    this.#abort = new AbortController();
    for (let tries = 0; ; tries += 1) {
      try {
        await this.#once();
        return this.#end("done", null);
      } catch (error) {
        if (this.#abort.signal.aborted) return this.#end("cancelled", null);
        if (this.#doesWithout(error)) continue;
        const full = error instanceof ServerError && [429, 503].includes(error.status);
        if (!full || tries === TRIES) {
          this.param = error.param ?? null;
          return this.#end("failed", wordsOf(error));
        }
        await this.#wait(error);
        if (this.#abort.signal.aborted) return this.#end("cancelled", null);
      }
    }
  }

  /** Ends the request; the server notices that nobody listens any more. */
  cancel() {
    this.#abort?.abort();
    this.#wake?.();
  }

  /** Sends a waiting request now. */
  retryNow() {
    this.#wake?.();
  }

  async #once() {
    this.#set("sent");
    this.recording = new Recording();
    this.recording.lead = this.#lead;
    const question = this.context?.turn?.question ?? null;
    Object.assign(this.recording.facts, { seed: this.seed, model: this.model, question });
    const began = performance.now();
    const { signal } = this.#abort;
    const response = await send(this.path, this.body, { key: this.key(), signal });
    this.recording.queued = queuedOf(response);
    for await (const chunks of chunksOf(response, signal)) {
      const now = performance.now();
      for (const chunk of chunks) this.#take(chunk, now - began);
      this.#set("running");
    }
  }

  #take(chunk, at) {
    const { recording } = this;
    if (chunk.model) recording.facts.model = chunk.model;
    if (chunk.prompt_token_ids) recording.facts.prompt = chunk.prompt_token_ids;
    if (chunk.usage) recording.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    recording.text += choice?.delta?.content ?? choice?.text ?? "";
    if (choice?.finish_reason) recording.finishReason = this.path === "v1/infill" ? "filled" : choice.finish_reason;
    const frame = chunk.diffusion;
    if (!frame) return;
    recording.waited ??= at;
    if (frame.canvas || frame.commits || frame.forwards) recording.addFrame(frame, at);
    if (frame.canvas?.prompt) recording.facts.prompt = frame.canvas.prompt;
    if (frame.seed !== undefined) recording.facts.seed = frame.seed;
    if (frame.receipt) recording.receipt = frame.receipt;
  }

  /** Takes out of the request what is asked beside the answer and the endpoint does not know; says whether it did. */
  #doesWithout(error) {
    const wishes = { logprobs: ["logprobs", "top_logprobs"], top_logprobs: ["top_logprobs"], return_token_ids: ["return_token_ids"] };
    const names = error instanceof ServerError && error.status === 400 ? (wishes[error.param] ?? []) : [];
    const present = names.filter((name) => name in this.body);
    for (const name of present) delete this.body[name];
    return present.length > 0;
  }

  async #wait(error) {
    const seconds = error.retryAfter ?? DEFAULT_WAIT;
    this.error = error.message;
    this.retryAt = performance.now() + seconds * 1000;
    this.#set("waiting");
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    [this.#wake, this.retryAt, this.error] = [null, null, null];
  }

  #end(state, error) {
    this.error = error;
    this.recording.finish();
    this.#set(state);
  }

  #set(state) {
    this.state = state;
    this.changed();
  }
}

/** A run that is over: what a saved trace holds. */
export function runOfTrace(recording) {
  const run = new Run({ path: null, body: null }, { key: () => "", changed: () => {} });
  run.recording = recording;
  run.state = "done";
  return run;
}

/** Says an error in words that a reader can act upon. */
export function wordsOf(error) {
  if (error instanceof ServerError) {
    const place = error.param ? ` (${error.param})` : "";
    if (error.status === 401) return `${error.message} Enter a key under “API key”.`;
    return `${error.message}${place}`;
  }
  if (error instanceof ConnectionError) return error.message;
  if (error instanceof RangeError) return `The server described ${error.message}.`;
  return `Something went wrong in this page: ${error.message}`;
}
