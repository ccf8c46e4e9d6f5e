// One answer on the page: its lanes, the player that moves all of them in step, and what can be done with it.

import { button, copyText, make, reducedMotion, saveFile, setText } from "./elements.js";
import { Lane } from "./lane.js";
import { receiptTable } from "./receipt.js";
import { writeTrace } from "./trace.js";

/** Forwards a second of each pace, and the most seconds that a run may be behind what has arrived. */
const PACES = {
  calm: { name: "calm", rate: 6, behind: 8 },
  quick: { name: "quick", rate: 24, behind: 2 },
  live: { name: "as it arrives", rate: Infinity, behind: 0 },
};
/** Milliseconds of a forward from which an answer needs no slower pace to be followed. */
const SLOW = 50;

export class Card {
  playing = true;
  /** How many forwards are shown. */
  playhead = 0;
  /** The range that was chosen to be written again, with its lane. */
  chosen = null;
  #position = 0;
  #last = 0;
  #scheduled = false;
  #told = 0;
  #wasBusy = false;
  /** Whether the reader chose the pace, and whether all was shown once. */
  #paced = false;
  #shown = false;

  /** Makes a card. `page` offers `colouring()`, `inspector`, `say(text)`, `tell(text)`, `notify(text)`, `remask(lane, range)`, `canRemask(lane)`,
   *  `curl(run)`, `prompt(run)`, `drawn(card)` and `follow(find)`. */
  constructor(title, runs, page) {
    this.page = page;
    this.title = title;
    const hooks = {
      inspect: (seen) => page.inspector.show(seen),
      choose: (lane, range) => this.#choose(lane, range),
      scrub: (forwards) => this.#scrub(forwards),
      toggle: () => this.toggle(),
      resized: () => this.changed(),
    };
    this.lanes = runs.map((run, index) => new Lane(run, run.name ?? (index === 0 ? "Answer" : "Second answer"), hooks));
    for (const run of runs) run.changed = () => this.changed();
    this.receipt = make("details", { class: "receipt" }, make("summary", {}, "Receipt"));
    this.receipt.addEventListener("toggle", () => this.#fillReceipt());
    this.element = make("article", { class: "card" },
      make("h2", { class: "card-title" }, title), this.#legend(),
      make("div", { class: `lanes of-${this.lanes.length}` }, ...this.lanes.map((lane) => lane.element)),
      this.#controls(), this.receipt);
  }

  /** Says whether one of the runs goes on. */
  get busy() {
    return this.lanes.some((lane) => lane.run.busy);
  }

  /** Draws before the next frame of the screen, once, however much has happened. */
  changed() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame((now) => this.#frame(now));
  }

  /** Starts or stops the player; from the end it begins anew. */
  toggle() {
    if (!this.playing && this.playhead >= this.#total && !this.busy) this.#position = 0;
    this.playing = !this.playing;
    this.changed();
  }

  /** Says whether an answer that was asked for is still being written, here or by the server. */
  get writing() {
    const asked = this.lanes.some((lane) => lane.run.path !== null);
    return asked && (this.busy || (this.playing && !this.#shown));
  }

  /** Ends all runs, and shows all that has arrived of them. */
  cancel() {
    for (const lane of this.lanes) if (lane.run.busy) lane.run.cancel();
    this.rest();
  }

  /** Shows the end of what has arrived, and stays there. */
  rest() {
    this.playing = false;
    this.jump(Infinity);
  }

  /** Takes the settled text for said already. */
  hush() {
    this.spoken = this.lanes[0].run.recording.text.length;
  }

  /** Shows a moment: a number of forwards. */
  jump(forwards) {
    this.#position = forwards;
    this.changed();
  }

  get #total() {
    return Math.max(0, ...this.lanes.map((lane) => lane.run.recording.forwards.length));
  }

  #scrub(forwards) {
    this.playing = false;
    this.jump(forwards);
  }

  #frame(now) {
    this.#scheduled = false;
    const seconds = Math.min(0.25, (now - this.#last) / 1000);
    this.#last = now;
    const total = this.#total;
    this.#choosePace();
    const before = this.playing ? this.playhead : Infinity;
    if (this.playing) this.#advance(seconds, total);
    this.playhead = Math.floor(Math.min(this.#position, total));
    const ended = !this.busy && this.playhead >= total;
    if (ended) this.playing = false;
    this.#shown ||= ended;
    this.#tellEnd();
    for (const lane of this.lanes) lane.sync(this.playhead, total, this.page.colouring(), this.#shown);
    this.#tell(total);
    this.page.drawn(this);
    if (this.playhead > before) this.page.follow(() => (ended ? this.element : this.lanes[0].frontier));
    const waiting = this.lanes.some((lane) => lane.run.state === "waiting");
    if (waiting || (this.playing && (this.#position < total || this.busy))) this.changed();
  }

  /** An answer that comes no faster than one can follow is shown as it arrives, unless the reader chose a pace. */
  #choosePace() {
    if (this.#paced || this.pace.value === "live") return;
    const slow = ({ path, causal, recording }) => path !== null && (causal || recording.forwardMilliseconds > SLOW);
    if (this.lanes.some((lane) => slow(lane.run))) this.pace.value = "live";
  }

  #advance(seconds, total) {
    // Whoever asked for less motion sees the canvas once it is done, and moves through it by hand.
    if (reducedMotion()) {
      if (!this.busy) this.#position = total;
      return;
    }
    const { rate, behind } = PACES[this.pace.value];
    const pace = behind === 0 ? Infinity : Math.max(rate, (total - this.#position) / behind);
    this.#position = pace === Infinity ? total : Math.min(total, this.#position + pace * seconds);
  }

  #tell(total) {
    const { playhead, busy } = this;
    setText(this.play, this.playing ? "Pause" : "Play");
    this.formed.hidden = !this.lanes.some((lane) => lane.run.recording.formed);
    this.element.classList.toggle("without-masks", this.lanes.every((lane) => lane.run.recording.inOrder));
    this.play.disabled = total === 0 && !busy;
    setText(this.moment, `forward ${playhead} of ${total}${busy ? " …" : ""}`);
    this.end.disabled = this.playing ? playhead >= total : playhead >= total && !busy;
    this.stop.hidden = !busy;
    for (const each of this.keep) each.disabled = busy || total === 0;
    this.element.setAttribute("aria-busy", String(busy));
    this.#tellRemask();
    this.#speak();
    if (this.receipt.open) this.#fillReceipt();
  }

  /** Says once, to those who listen, that the runs are over. */
  #tellEnd() {
    if (this.#wasBusy && !this.busy) {
      this.page.tell(this.lanes.map((lane) => `${lane.name}: ${lane.outcome}`).join(". "));
    }
    this.#wasBusy = this.busy;
  }

  /** Says the settled text, and only what is new of it, not oftener than a listener can follow. */
  #speak() {
    const { text } = this.lanes[0].run.recording;
    const now = performance.now();
    if (text.length < this.spoken) this.spoken = 0;
    if (text.length === this.spoken || (this.busy && now - this.#told < 1500)) return;
    this.#told = now;
    this.page.say(text.slice(this.spoken));
    this.spoken = text.length;
  }

  spoken = 0;

  #controls() {
    this.play = button("Pause", () => this.toggle(), { class: "play" });
    this.pace = make("select", { "aria-label": "Pace of the player" },
      ...Object.entries(PACES).map(([value, { name }]) => make("option", { value }, name)));
    this.pace.addEventListener("change", () => {
      this.#paced = true;
      this.changed();
    });
    this.moment = make("span", { class: "moment" }, "forward 0 of 0");
    this.end = button("To the end", () => this.#toEnd());
    this.stop = button("Stop", () => this.cancel(), { class: "cancel" });
    this.remask = button("Remask selection", () => this.#remask(), { hidden: true, class: "remask" });
    this.actions = make("span", { class: "actions", hidden: true });
    this.keep = this.lanes.flatMap((lane) => this.#keeping(lane));
    return make("div", { class: "controls" }, this.play, this.pace, this.moment, this.end, this.stop, this.actions, this.remask,
      make("span", { class: "spring" }), ...this.keep);
  }

  #keeping(lane) {
    const of = this.lanes.length > 1 ? ` ${this.lanes.indexOf(lane) + 1}` : "";
    const buttons = [
      button(`Copy text${of}`, async ({ target }) => flash(target, await copyText(lane.run.recording.text, "Text"))),
      button(`Save trace${of}`, () => this.#save(lane)),
    ];
    if (lane.run.path !== null) {
      const copy = async ({ target }) => flash(target, await copyText(this.page.curl(lane.run), "The request as curl"));
      buttons.push(button(`Copy as curl${of}`, copy));
    }
    return buttons;
  }

  async #save(lane) {
    const { run } = lane;
    run.recording.facts.prompt ??= await this.page.prompt(run);
    if (run.recording.facts.prompt === null) {
      this.page.notify("The prompt's token ids were not to be had: the trace has their number alone.");
    }
    const name = (run.recording.facts.model || "demask").replaceAll(/[^\w.-]+/g, "-");
    saveFile(`${name}-${run.recording.facts.seed ?? 0}.jsonl`, writeTrace(run.recording));
  }

  #toEnd() {
    this.#position = this.#total;
    this.playing = this.busy;
    this.changed();
  }

  #choose(lane, range) {
    for (const other of this.lanes) if (other !== lane && range && other.tokens.chosen) other.tokens.choose(null);
    this.chosen = range ? { lane, range } : null;
    this.#tellRemask();
  }

  #tellRemask() {
    const { chosen } = this;
    const count = chosen ? chosen.range[1] - chosen.range[0] + 1 : 0;
    this.remask.hidden = !chosen || !this.page.canRemask(chosen.lane);
    setText(this.remask, `Remask ${count} ${count === 1 ? "token" : "tokens"}`);
  }

  #remask() {
    const { lane, range } = this.chosen;
    lane.tokens.choose(null);
    document.getSelection()?.removeAllRanges();
    this.page.remask(lane, range);
  }

  #fillReceipt() {
    const receipts = this.lanes.map((lane) => lane.run.recording.receipt);
    if (receipts.every((receipt, index) => receipt === this.receipts?.[index])) return;
    this.receipts = receipts;
    this.receipt.replaceChildren(this.receipt.firstChild, 
      ...receipts.map((receipt, index) => receiptTable(receipt, `Receipt of ${this.lanes[index].name}`)));
  }

  #legend() {
    const swatches = Array.from({ length: 8 }, (_, tone) => make("i", { class: `swatch tone-${tone} settled` }));
    return make("div", { class: "legend" },
      make("span", { class: "of-masks" }, make("span", { class: "sample mask" }), "mask"),
      make("span", { class: "sample tone-2 loose" }), make("span", {}, "committed"),
      make("span", { class: "sample tone-2 settled" }), make("span", {}, "settled"),
      this.formed = make("span", { class: "of-forms", hidden: true },
        make("span", { class: "sample forced", "aria-hidden": "true" }, "abc"), "forced by the form",
        make("span", { class: "sample tone-2 settled changed", "aria-hidden": "true" }, "abc"), "changed by it"),
      make("span", { class: "scale" }, make("span", { class: "scale-from" }), ...swatches,
        make("span", { class: "scale-to" })));
  }
}

/** Says on a button, for a moment, that it did what it is for. */
function flash(target, copied) {
  if (!copied) return;
  const before = target.textContent;
  target.textContent = "Copied";
  setTimeout(() => (target.textContent = before), 1200);
}
