// The receipt of an answer as a table: methods, claim, counts, time and memory, as the server wrote them.

import { make, short } from "./elements.js";

const NAMES = {
  exactness: "claim",
  against: "claim holds against",
  nfe: "NFE",
  tokens_per_nfe: "tokens by NFE",
  flops: "floating point operations",
};
const BYTES = new Set(["memory weights", "memory guide", "memory cache", "memory peak"]);

/** Returns a receipt as a table; a sentence if there is none. */
export function receiptTable(receipt, name) {
  if (!receipt) return make("p", { class: "quiet" }, "No receipt: it comes with the end of an answer.");
  const body = make("tbody");
  for (const [name, value] of flat(receipt)) {
    const title = NAMES[name] ?? name.replaceAll("_", " ");
    body.append(make("tr", {}, make("th", { scope: "row" }, title), make("td", {}, written(name, value))));
  }
  return make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": name }, make("table", {}, body));
}

/** Yields the entries of an object, those of objects inside of it under both names. */
function* flat(object, before = "") {
  for (const [name, value] of Object.entries(object)) {
    const full = before === "" ? name : `${before} ${name}`;
    if (value !== null && typeof value === "object" && !Array.isArray(value)) yield* flat(value, full);
    else yield [full, value];
  }
}

function written(name, value) {
  if (value === null) return "–";
  if (BYTES.has(name)) return `${short(value / 2 ** 20)} MiB`;
  if (name.startsWith("seconds ")) return `${short(value)} s`;
  if (name === "flops") return value.toExponential(2);
  if (name === "seed") return String(value);
  if (Array.isArray(value)) return value.map((each) => written("", each)).join(", ");
  return typeof value === "number" ? short(value) : String(value);
}
