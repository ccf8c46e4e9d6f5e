// The canvas on the page: one span a position, of which only those that change are touched.

import { make, readable, percent, reducedMotion, setText } from "./elements.js";
import { MonoReader, monoNodes } from "./mono.js";
import { isSpecial } from "./recording.js";

/** Colours of the scale; page.css has a class for each. */
export const TONES = 8;
/** Above this many commits at once nothing flashes: it would only be noise. */
const FLASH_LIMIT = 64;
/** Positions of a section, and the longest canvas that is a single one. A browser lays out and paints only the sections
 *  that can be seen, so that long canvases stay smooth. */
const SECTION = 256;
const UNDIVIDED = 512;

const numbers = new WeakMap();
let canvases = 0;

export class TokenCanvas {
  /** What the reader points at, or null. */
  focused = null;
  /** Positions that were chosen, first and last, or null. */
  chosen = null;
  #recording;
  #spans = [];
  #classes = [];
  #shown = [];
  #fresh = [];
  #playhead = 0;
  #settled = 0;
  #tail = Infinity;
  #section = null;
  #sectionLength = Infinity;
  #generation = -1;
  /** Which positions are code or tables: known of those that were settled once. */
  #mono = [];
  #reader = new MonoReader();
  #paintedScale = "";
  #listeners;

  /** Makes the view. Listeners: `inspect(token, rectangle, described)` and `choose(range)`. */
  constructor(recording, listeners) {
    this.#recording = recording;
    this.#listeners = listeners;
    this.picture = make("div", { class: "canvas", role: "img", "aria-label": "An empty canvas" });
    const hint = `canvas-hint-${(canvases += 1)}`;
    this.element = make("div", {
      class: "canvas-frame",
      role: "group",
      tabindex: "0",
      "aria-label": "Tokens of the canvas",
      "aria-describedby": hint,
    }, this.picture, make("span", { id: hint, class: "unseen" },
      "Arrow keys go from token to token, with shift they choose a range."));
    this.#listen();
  }

  /** Draws the state after a number of forwards, coloured by `step` or `confidence`. */
  sync(playhead, colouring) {
    const recording = this.#recording;
    if (this.#generation !== recording.generation) this.#restart();
    this.#extend();
    const target = Math.min(playhead, recording.forwards.length);
    const touched = this.#calm();
    this.#move(target, touched);
    this.#settle(target, touched);
    this.#cutTail(target, touched);
    this.#rescale(colouring, touched);
    for (const index of touched) this.#paint(index, colouring);
    this.#label(target);
  }

  /** The last token that is settled, as an element; null before there is one. */
  get frontier() {
    return this.#spans[Math.min(this.#settled, this.#spans.length) - 1] ?? null;
  }

  /** Marks a range of positions as chosen; null for none. */
  choose(range) {
    const before = this.chosen;
    this.chosen = range;
    for (const each of [before, range]) {
      for (let index = each?.[0] ?? 0; each && index <= each[1]; index += 1) this.#repaint(index);
    }
    this.#listeners.choose(range);
  }

  /** Returns the token at a position as it is drawn now: given or committed, or null for a mask. */
  tokenNow(index) {
    return this.#recording.given.get(index) ?? this.#shown[index] ?? null;
  }

  #restart() {
    this.#generation = this.#recording.generation;
    this.#reader = new MonoReader();
    this.#mono = [];
    this.#playhead = 0;
    this.#settled = 0;
    this.#tail = Infinity;
    this.#shown = [];
    this.#fresh = [];
    this.#spans = [];
    this.#classes = [];
    this.picture.replaceChildren();
    this.#sectionLength = this.#recording.cells.length > UNDIVIDED ? SECTION : Infinity;
    this.#section = make("div", { class: "section" });
    this.picture.append(this.#section);
    if (this.#recording.lead !== "") {
      this.#section.append(make("span", { class: "lead" }, ...monoNodes(this.#recording.lead, this.#reader)));
    }
  }

  /** Begins a section where one is over. */
  #divide(index) {
    if (index === 0 || index % this.#sectionLength !== 0) return;
    this.#section = make("div", { class: "section", "data-from": index + 1 });
    this.picture.append(this.#section);
  }

  /** Makes the spans that are missing. */
  #extend() {
    const { cells, given, finished } = this.#recording;
    for (let index = this.#spans.length; index < cells.length; index += 1) {
      const text = given.get(index) ?? (finished ? cells[index] : null);
      const name = given.has(index) ? classOfGiven(given.get(index)) : "token mask";
      const span = make("span", { class: name }, text === null ? "" : drawn(text));
      if (text !== null && name === "token mask") span.className = "token mask known";
      numbers.set(span, index);
      this.#divide(index);
      this.#section.append(span);
      this.#spans.push(span);
      this.#classes.push(span.className);
      this.#shown.push(null);
    }
  }

  /** Ends the flash of what was new before. */
  #calm() {
    const touched = new Set(this.#fresh);
    this.#fresh = [];
    return touched;
  }

  #move(target, touched) {
    const { forwards } = this.#recording;
    const before = this.#playhead;
    while (this.#playhead < target) {
      for (const commit of forwards[this.#playhead].commits) {
        this.#shown[commit.index] = commit.token === null ? null : commit;
        touched.add(commit.index);
        this.#fresh.push(commit.index);
      }
      this.#playhead += 1;
    }
    while (this.#playhead > target) {
      this.#playhead -= 1;
      for (const commit of forwards[this.#playhead].commits.toReversed()) {
        this.#shown[commit.index] = commit.previous;
        touched.add(commit.index);
      }
    }
    if (target < before || this.#fresh.length > FLASH_LIMIT || reducedMotion()) this.#fresh = [];
  }

  #settle(target, touched) {
    const { forwards } = this.#recording;
    const settled = target > 0 ? forwards[target - 1].settled : 0;
    const [from, to] = [Math.min(settled, this.#settled), Math.max(settled, this.#settled)];
    for (let index = from; index < Math.min(to, this.#spans.length); index += 1) touched.add(index);
    this.#settled = settled;
    this.#readUpTo(Math.min(settled, this.#spans.length));
  }

  #readUpTo(settled) {
    for (let index = this.#mono.length; index < settled; index += 1) {
      this.#mono.push(this.#reader.take(this.tokenNow(index)?.text ?? ""));
    }
  }

  /** Hides what stands behind the answer's end, once all is done and the last forward is looked at. */
  #cutTail(target, touched) {
    const { finished, forwards } = this.#recording;
    const end = finished && target === forwards.length ? this.#recording.end : 0;
    const tail = end > 0 ? end : Infinity;
    if (tail === this.#tail) return;
    const first = Math.min(tail, this.#tail);
    this.#tail = tail;
    for (let index = first; index < this.#spans.length; index += 1) touched.add(index);
  }

  /** Takes a new scale if there is one. While forwards are still told it grows in doublings, so that not every forward
   *  colours everything anew. */
  #rescale(colouring, touched) {
    const { forwards, finished } = this.#recording;
    const doubled = 2 ** Math.ceil(Math.log2(Math.max(8, forwards.length)));
    this.scale = finished ? Math.max(1, forwards.length - 1) : doubled;
    const scale = `${colouring} ${this.scale}`;
    if (scale === this.#paintedScale) return;
    this.#paintedScale = scale;
    this.#shown.forEach((commit, index) => commit !== null && touched.add(index));
  }

  #repaint(index) {
    if (index < this.#spans.length) this.#paint(index, this.#paintedScale.split(" ")[0]);
  }

  #paint(index, colouring) {
    const commit = this.#shown[index];
    const span = this.#spans[index];
    const given = this.#recording.given.get(index);
    let name = given ? classOfGiven(given) : this.#classOf(commit, index, colouring, span);
    if (this.#mono[index]) name += " mono";
    if (index === this.focused) name += " focused";
    if (this.chosen && index >= this.chosen[0] && index <= this.chosen[1]) name += " chosen";
    if (name === this.#classes[index]) return;
    this.#classes[index] = name;
    if (commit !== null && !given) setText(span, drawn(commit));
    span.className = name;
  }

  #classOf(commit, index, colouring, span) {
    if (index >= this.#tail) return "token unused";
    if (commit === null) return span.firstChild ? "token mask known" : "token mask";
    const tone = toneOf(commit, colouring, this.scale);
    let name = `token tone-${tone} ${index < this.#settled ? "settled" : "loose"}`;
    if (commit.text === null || isSpecial(commit.text)) name += " mark";
    // Two tokens of one position can have the same class but another text.
    if (commit.previous !== null) name += ` again-${commit.forward % 2}`;
    if (commit.forced) name += " forced";
    if (commit.changed) name += " changed";
    if (this.#fresh.includes(index)) name += " fresh";
    return name;
  }

  #label(target) {
    const { cells, given, forwards } = this.#recording;
    const filled = this.#filled(target);
    const text = `Canvas of ${cells.length} positions: ${filled + given.size} filled, ${this.#settled} settled, `
      + `after forward ${target} of ${forwards.length}`;
    if (this.picture.getAttribute("aria-label") !== text) this.picture.setAttribute("aria-label", text);
  }

  #filled(target) {
    let filled = 0;
    const seen = target === this.#recording.forwards.length;
    if (seen) return this.#recording.committed;
    for (const commit of this.#shown) if (commit !== null) filled += 1;
    return filled;
  }

  #listen() {
    const inspect = (index) => this.#inspect(index, false);
    this.picture.addEventListener("pointerover", ({ target }) => inspect(numbers.get(target) ?? null));
    this.picture.addEventListener("pointerleave", () => inspect(null));
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("blur", () => this.#focus(null));
    const gone = new AbortController();
    const selected = () => (this.element.isConnected ? this.#selected() : gone.abort());
    document.addEventListener("selectionchange", selected, { signal: gone.signal });
  }

  #inspect(index, aloud) {
    const token = index === null ? null : this.tokenNow(index);
    if (index === null) return this.#listeners.inspect(null);
    const given = this.#recording.given.has(index);
    const rectangle = this.#spans[index].getClientRects()[0] ?? this.#spans[index].getBoundingClientRect();
    return this.#listeners.inspect({ index, token, given, rectangle, aloud });
  }

  #focus(index) {
    const before = this.focused;
    this.focused = index;
    if (before !== null) this.#repaint(before);
    if (index === null) return this.#listeners.inspect(null);
    this.#repaint(index);
    this.#spans[index].scrollIntoView({ block: "nearest" });
    return this.#inspect(index, true);
  }

  #key(event) {
    if (event.target !== this.element || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape" && (this.chosen || this.focused !== null)) {
      this.choose(null);
      this.#focus(null);
      event.stopPropagation();
    }
    const next = this.#next(event.key);
    if (next === null) return;
    event.preventDefault();
    const from = this.focused ?? next;
    if (event.shiftKey) {
      const anchor = this.chosen && this.chosen[0] === from ? this.chosen[1] : (this.chosen?.[0] ?? from);
      this.choose([Math.min(anchor, next), Math.max(anchor, next)]);
    } else if (this.chosen) {
      this.choose(null);
    }
    this.#focus(next);
  }

  #next(key) {
    const last = Math.min(this.#spans.length, this.#tail) - 1;
    if (last < 0) return null;
    const now = this.focused;
    const within = (index) => Math.max(0, Math.min(last, index));
    switch (key) {
      case "ArrowRight": return now === null ? 0 : within(now + 1);
      case "ArrowLeft": return now === null ? last : within(now - 1);
      case "ArrowDown": return now === null ? 0 : this.#inLine(now, 1, last);
      case "ArrowUp": return now === null ? last : this.#inLine(now, -1, last);
      case "Home": return 0;
      case "End": return last;
      default: return null;
    }
  }

  /** Returns the token above or below: the nearest one of the next line. */
  #inLine(from, way, last) {
    const start = this.#spans[from].getBoundingClientRect();
    let best = from;
    let line = null;
    for (let index = from + way; index >= 0 && index <= last; index += way) {
      const here = this.#spans[index].getBoundingClientRect();
      if (Math.abs(here.top - start.top) < start.height / 2) continue;
      line ??= here.top;
      if (Math.abs(here.top - line) > start.height / 2) break;
      const distance = (spot) => Math.abs(this.#spans[spot].getBoundingClientRect().left - start.left);
      if (best === from || distance(index) < distance(best)) best = index;
    }
    return best;
  }

  /** Takes what was selected with the pointer as the chosen range. */
  #selected() {
    const selection = document.getSelection();
    if (!selection || selection.isCollapsed || selection.rangeCount === 0) return;
    const range = selection.getRangeAt(0);
    if (!this.picture.contains(range.startContainer) || !this.picture.contains(range.endContainer)) return;
    const inside = [];
    this.#spans.forEach((span, index) => {
      if (index < this.#tail && range.intersectsNode(span) && holds(range, span)) inside.push(index);
    });
    if (inside.length > 0) this.choose([inside[0], inside.at(-1)]);
  }
}

/** Says whether a selection holds some of a span, and does not only touch its edge. */
function holds(range, span) {
  const text = span.firstChild ?? span;
  const length = text.nodeType === Node.TEXT_NODE ? text.length : 0;
  if (range.startContainer === text && range.startOffset >= length && length > 0) return false;
  return !(range.endContainer === text && range.endOffset === 0);
}

function classOfGiven({ text }) {
  return text === null || isSpecial(text) ? "token given mark" : "token given";
}

/** Text that stands for a token on the canvas. */
function drawn({ text }) {
  if (text === null) return "▯";
  return isSpecial(text) ? "∎" : text;
}

/** Returns which colour a commit has: by its forward on a scale, or by how little the network was sure. */
export function toneOf(commit, colouring, scale) {
  const share = colouring === "step" ? commit.forward / scale : 1 - commit.confidence;
  return Math.max(0, Math.min(TONES - 1, Math.floor((Number.isFinite(share) ? share : 1) * TONES)));
}

/** Says in words what a token is, for those who cannot see it. */
export function describe({ index, token, given }) {
  const place = `Position ${index + 1}`;
  if (token === null) return `${place}: still a mask.`;
  const text = readable(token.text, token.token);
  if (given) return `${place}: ${text}, given.`;
  if (token.forced) return `${place}: ${text}, forced: the form leaves no choice.`;
  const changed = token.changed ? ", changed by the form" : "";
  const said = `${place}: ${text}, forward ${token.forward + 1}, confidence ${percent(token.confidence)}${changed}.`;
  const others = (token.top ?? []).filter((other) => other[0] !== token.token);
  if (others.length === 0) return said;
  const list = others.map(([id, other, share]) => `${readable(other, id)} ${percent(share)}`).join(", ");
  return `${said} Also weighed: ${list}.`;
}
