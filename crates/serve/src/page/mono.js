// Which parts of a text are code or tables: fenced lines, and lines that begin with a bar. They are only set in another type.

import { make } from "./elements.js";

const FENCE = /^\s*(?:```|~~~)/;
const TABLE = /^\s*\|/;

/** Reads a text piece by piece, and says of each piece whether it is to be set in monospace. */
export class MonoReader {
  #fenced = false;
  #line = "";

  /** Takes the next piece. A blank line belongs to what it is in. */
  take(piece) {
    let mono = false;
    let written = false;
    for (const [index, part] of piece.split("\n").entries()) {
      if (index > 0) this.#endLine();
      this.#line += part;
      if (part === "") continue;
      written = true;
      mono ||= this.#fenced || FENCE.test(this.#line) || TABLE.test(this.#line);
    }
    return written ? mono : this.#fenced;
  }

  #endLine() {
    if (FENCE.test(this.#line)) this.#fenced = !this.#fenced;
    this.#line = "";
  }
}

/** Returns a text as nodes, its lines of code and tables in spans of their own. */
export function monoNodes(text, reader = new MonoReader()) {
  const lines = text.split(/(?<=\n)/);
  return lines.map((line) => (reader.take(line) ? make("span", { class: "mono" }, line) : line));
}
