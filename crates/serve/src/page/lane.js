// One canvas with its timeline, counters and messages. A card has one of them, or two side by side.

import { button, make, percent, setText, short } from "./elements.js";
import { Timeline } from "./timeline.js";
import { TokenCanvas } from "./tokens.js";

const FINISHES = { stop: "ended by itself", length: "ended at its length", filled: "filled" };

export class Lane {
  #counters = new Map();
  #sums = null;
  #message = make("p", { class: "message", hidden: true, role: "alert" });
  #retry = make("p", { class: "waiting", hidden: true });
  #status = make("span", { class: "status" });

  /** Makes the view of a run. `hooks` has `inspect`, `choose`, `scrub` and `toggle`. */
  constructor(run, name, hooks) {
    this.run = run;
    this.name = name;
    this.hooks = hooks;
    this.countdown = make("span", { class: "countdown" });
    this.#retry.append(this.countdown, " ", button("Try now", () => run.retryNow(), { class: "small" }));
    this.title = make("h3", { class: "lane-title" }, name);
    this.stage = make("div", { class: "stage" });
    // A group: there are as many lanes as answers, and landmarks of one name would be no marks.
    this.element = make("div", { class: "lane", role: "group", "aria-label": name },
      make("div", { class: "lane-head" }, this.title, this.#status),
      this.stage, this.#retry, this.#message, this.#counterList());
    this.#show();
  }

  /** Draws the state after a number of forwards. `shown` says whether the last one was shown before. */
  sync(playhead, total, colouring, shown) {
    if (this.recording !== this.run.recording) this.#show();
    this.element.classList.toggle("in-order", this.recording.inOrder);
    this.tokens.sync(playhead, colouring);
    this.timeline.sync(playhead, total, colouring);
    this.#count(playhead);
    this.#tell(shown);
    // What decodes is known best by the server: infilling has other defaults than chat.
    const { decoder, cache } = this.recording.facts;
    if (decoder !== "") setText(this.title, [decoder, cache].filter(Boolean).join(" · "));
  }

  /** Where the text is being written, as an element; null before there is any. */
  get frontier() {
    return this.tokens.frontier;
  }

  /** Takes the run's recording, which a retry makes anew. */
  #show() {
    this.recording = this.run.recording;
    this.tokens = new TokenCanvas(this.recording, {
      inspect: this.hooks.inspect,
      choose: (range) => this.hooks.choose(this, range),
    });
    this.timeline = new Timeline(this.recording, { ...this.hooks, name: this.name });
    this.stage.replaceChildren(this.tokens.element, this.timeline.element);
  }

  #counterList() {
    const list = make("dl", { class: "counters" });
    const names = [
      ["forwards", "forwards", "Passes through the network so far: NFE, number of function evaluations"],
      ["pace", "tokens a forward", "Tokens committed for each forward: an ordinary language model has exactly 1"],
      ["speed", "tokens a second", "Tokens of the answer a second, as the server counts them once it is over"],
      ["time", "ms a forward", "Milliseconds of one forward: by the receipt once it is there, until then as frames arrive"],
      ["wait", "ms of wait", "Milliseconds until the first frame, or in the server's queue if it tells"],
      ["sure", "mean confidence", "How probable the network held the tokens, on average, as it committed them"],
    ];
    for (const [key, text, title] of names) {
      const number = make("dd", {}, "–");
      this.#counters.set(key, number);
      list.append(make("div", { class: "counter", title }, make("dt", {}, text), number));
    }
    return list;
  }

  #count(playhead) {
    const { recording } = this;
    const here = Math.min(playhead, recording.forwards.length);
    const { commits, decided, sure } = this.#sumUpTo(here);
    const whole = here === recording.forwards.length;
    const nfe = whole ? recording.nfe || here : (recording.forwards[here - 1]?.nfe ?? here);
    const pace = nfe > 0 ? commits / nfe : null;
    const set = (key, text) => setText(this.#counters.get(key), text);
    set("forwards", short(nfe));
    set("pace", short(pace));
    set("speed", short(recording.tokensPerSecond));
    set("time", short(recording.forwardMilliseconds));
    set("wait", short(recording.queued ?? recording.waited));
    set("sure", decided > 0 ? percent(sure / decided) : "–");
  }

  /** Returns how many tokens stand behind the first forwards, how many of them a forward decided, and the sum of the confidences of these:
   *  going on from the last sums. */
  #sumUpTo(here) {
    const { forwards, generation } = this.recording;
    const known = this.#sums;
    const usable = known && known.recording === this.recording && known.generation === generation && known.here <= here;
    const sums = usable ? known : { recording: this.recording, generation, here: 0, commits: 0, decided: 0, sure: 0 };
    for (; sums.here < here; sums.here += 1) {
      for (const { token, confidence, previous, forced } of forwards[sums.here].commits) {
        sums.commits += Number(token !== null) - Number(previous !== null);
        if (token !== null && !forced) [sums.decided, sums.sure] = [sums.decided + 1, sums.sure + confidence];
        if (previous && !previous.forced) [sums.decided, sums.sure] = [sums.decided - 1, sums.sure - previous.confidence];
      }
    }
    return (this.#sums = sums);
  }

  #tell(shown) {
    const { state, error, retryAt } = this.run;
    this.element.classList.toggle("busy", state === "sent" || state === "running");
    const waiting = state === "waiting";
    this.#retry.hidden = !waiting;
    if (waiting) {
      const left = Math.max(0, Math.ceil((retryAt - performance.now()) / 1000));
      setText(this.countdown, `The server is full: ${error} Trying again in ${left} s.`);
    }
    this.#message.hidden = state !== "failed";
    setText(this.#message, state === "failed" ? error : "");
    setText(this.#status, state === "done" && !shown ? "showing …" : this.#words());
  }

  /** How the run ended, with its figures. */
  get outcome() {
    return `${this.#words()}, ${this.recording.forwards.length} forwards`;
  }

  #words() {
    const { recording } = this;
    const dropped = recording.dropped > 0 ? ` · ${recording.dropped} forwards not told` : "";
    switch (this.run.state) {
      case "sent": return "in the queue …";
      case "running": return `decoding …${dropped}`;
      case "waiting": return "waiting for a place";
      case "cancelled": return "stopped";
      case "failed": return "failed";
      case "done": return (FINISHES[recording.finishReason] ?? "") + dropped;
      default: return "";
    }
  }
}
