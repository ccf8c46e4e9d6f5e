// The timeline: a bar a forward, as high as its commits, with hatched bars for drafts that were rejected; to be scrubbed.

import { make } from "./elements.js";
import { TONES } from "./tokens.js";

/** Half of the thumb's width in pixels; the bars leave the same edge, so that thumb and bars agree. */
const EDGE = 6;
const HEIGHT = 56;
let timelines = 0;

export class Timeline {
  #recording;
  #chart = make("canvas", { class: "chart", "aria-hidden": "true" });
  #drawn = "";
  #width = 0;

  /** Makes a timeline; `scrub(forwards)` is called as the reader moves it, `toggle()` for the space bar,
   *  `resized()` when it must be drawn anew. */
  constructor(recording, { scrub, toggle, resized, name }) {
    this.#recording = recording;
    const id = `timeline-${(timelines += 1)}`;
    this.range = make("input", { type: "range", class: "scrubber", id, min: 0, max: 0, step: 1, value: 0 });
    this.range.addEventListener("input", () => scrub(Number(this.range.value)));
    this.range.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
    const label = make("label", { class: "unseen", for: id }, `Forwards of ${name}`);
    this.element = make("div", { class: "timeline" }, label, this.#chart, this.range);
    // Asked for while drawing, the width would make the browser lay the page out twice a frame.
    new ResizeObserver(([{ contentRect }]) => {
      this.#width = contentRect.width;
      this.#drawn = "";
      resized();
    }).observe(this.#chart);
  }

  /** Draws the state: the forward that is looked at, and the end of the scale that several timelines share. */
  sync(playhead, total, colouring) {
    const here = Math.min(playhead, total);
    if (Number(this.range.max) !== total) this.range.max = String(total);
    if (Number(this.range.value) !== here) this.range.value = String(here);
    this.#say(here);
    const state = [here, total, this.#recording.forwards.length, this.#recording.generation,
      this.#width, colouring, scheme.matches, this.#recording.finished].join(" ");
    if (state === this.#drawn) return;
    this.#drawn = state;
    this.#draw(here, total, colouring);
  }

  #say(here) {
    const forward = this.#recording.forwards[here - 1];
    const words = forward
      ? `Forward ${here} of ${this.#recording.forwards.length}: ${forward.commits.length} tokens committed`
        + (forward.rejected > 0 ? `, ${forward.rejected} drafts rejected` : "")
      : `Before the first forward of ${this.#recording.forwards.length}`;
    if (this.range.getAttribute("aria-valuetext") !== words) this.range.setAttribute("aria-valuetext", words);
  }

  #draw(here, total, colouring) {
    const width = this.#width;
    if (width === 0) return;
    const density = devicePixelRatio || 1;
    this.#chart.width = Math.round(width * density);
    this.#chart.height = Math.round(HEIGHT * density);
    const pen = this.#chart.getContext("2d");
    pen.scale(density, density);
    const colours = paletteOf(this.#chart);
    const columns = columnsOf(this.#recording.forwards, total, width - 2 * EDGE, colouring);
    const highest = Math.max(1, ...columns.map((column) => column.commits + column.rejected));
    for (const column of columns) drawColumn(pen, column, highest, colours, here);
    this.#drawThumb(pen, EDGE + (total > 0 ? here / total : 0) * (width - 2 * EDGE), colours, width);
  }

  #drawThumb(pen, across, colours, width) {
    pen.globalAlpha = 1;
    pen.fillStyle = colours.line;
    pen.fillRect(EDGE, HEIGHT - 1, width - 2 * EDGE, 1);
    pen.fillStyle = colours.ink;
    pen.fillRect(Math.round(across) - 1, 0, 2, HEIGHT);
  }
}

const scheme = matchMedia("(prefers-color-scheme: dark)");

/** Groups forwards into columns of at least two pixels, each as high as its highest forward. */
function columnsOf(forwards, total, room, colouring) {
  const together = Math.max(1, Math.ceil((total * 2) / Math.max(1, room)));
  const wide = (room / Math.max(1, total)) * together;
  const scale = Math.max(1, forwards.length - 1);
  const columns = [];
  for (let first = 0; first < forwards.length; first += together) {
    const group = forwards.slice(first, first + together);
    const commits = Math.max(...group.map((forward) => forward.commits.length));
    const rejected = Math.max(...group.map((forward) => forward.rejected));
    const share = colouring === "step" ? first / scale : doubt(group);
    const tone = Math.min(TONES - 1, Math.floor(share * TONES));
    columns.push({ left: EDGE + (first / together) * wide, wide, first, commits, rejected, tone });
  }
  return columns;
}

/** How unsure the commits of some forwards were, on average. */
function doubt(group) {
  const sure = group.flatMap((forward) => forward.commits.flatMap(({ token, confidence }) => (token === null ? [] : [confidence])));
  if (sure.length === 0) return 0;
  return Math.max(0, 1 - sure.reduce((sum, each) => sum + each, 0) / sure.length);
}

function drawColumn(pen, { left, wide, first, commits, rejected, tone }, highest, colours, here) {
  const room = HEIGHT - 6;
  const gap = wide > 5 ? 2 : wide > 3 ? 1 : 0;
  const solid = commits === 0 ? 0 : Math.max(2, (commits / highest) * room);
  const hatched = (rejected / highest) * room;
  pen.globalAlpha = first < here ? 1 : 0.35;
  pen.fillStyle = colours.tones[tone];
  pen.fillRect(left, HEIGHT - 1 - solid, Math.max(1, wide - gap), solid);
  if (commits === 0) pen.fillRect(left, HEIGHT - 2, Math.max(1, wide - gap), 1);
  if (hatched > 0) hatch(pen, left, HEIGHT - 1 - solid - hatched, Math.max(1, wide - gap), hatched, colours.muted);
}

/** Fills a rectangle with slanted lines. */
function hatch(pen, left, top, wide, high, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, wide, high);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.strokeRect(left + 0.5, top + 0.5, wide - 1, high);
  pen.beginPath();
  for (let start = left - high; start < left + wide; start += 4) {
    pen.moveTo(start, top + high);
    pen.lineTo(start + high, top);
  }
  pen.stroke();
  pen.restore();
}

function paletteOf(element) {
  const style = getComputedStyle(element);
  const value = (name) => style.getPropertyValue(name).trim();
  const tones = Array.from({ length: TONES }, (_, tone) => value(`--strong-${tone}`));
  return { ink: value("--ink"), muted: value("--muted"), line: value("--line"), tones };
}
