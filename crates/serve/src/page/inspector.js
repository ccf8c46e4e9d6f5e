// The little card beside a token: when it was committed, how sure the network was, and what it weighed against it.

import { make, readable, percent } from "./elements.js";
import { describe } from "./tokens.js";

export class Inspector {
  #card = make("div", { class: "inspector", hidden: true, "aria-hidden": "true" });
  #voice;

  /** Makes the inspector. What is asked for with keys is also said in `voice`. */
  constructor(voice) {
    this.#voice = voice;
    document.body.append(this.#card);
    addEventListener("scroll", () => this.show(null), { passive: true, capture: true });
  }

  /** Shows a token, or nothing for null. */
  show(seen) {
    this.#card.hidden = seen === null;
    if (seen === null) return;
    this.#card.replaceChildren(...rows(seen));
    this.#place(seen.rectangle);
    if (seen.aloud) this.#voice.textContent = describe(seen);
  }

  #place({ left, top, bottom }) {
    const { offsetWidth: width, offsetHeight: height } = this.#card;
    const room = document.documentElement.clientWidth;
    const across = Math.max(8, Math.min(left, room - width - 8));
    const down = bottom + height + 12 < innerHeight ? bottom + 6 : Math.max(8, top - height - 6);
    this.#card.style.setProperty("left", `${across}px`);
    this.#card.style.setProperty("top", `${down}px`);
  }
}

function rows({ index, token, given }) {
  const place = make("span", { class: "quiet" }, `position ${index + 1}`);
  if (token === null) return [make("p", {}, make("b", {}, "a mask"), " ", place)];
  const title = make("p", {}, make("b", { class: "word" }, readable(token.text, token.token)), " ", place);
  if (given) return [title, make("p", { class: "quiet" }, "given, not decoded")];
  if (token.forced) return [title, make("p", { class: "quiet" }, "forced: the form leaves no choice")];
  const when = [make("p", {}, `forward ${token.forward + 1} · confidence ${percent(token.confidence)}`)];
  if (token.changed) when.push(make("p", {}, "changed by the form: another token was predicted"));
  if (!token.top || token.top.length === 0) return [title, ...when];
  return [title, ...when, make("p", { class: "quiet" }, "weighed at that moment"), alternatives(token)];
}

function alternatives({ token, top }) {
  const list = make("ul", { class: "alternatives" });
  for (const [id, text, share] of top) {
    const bar = make("span", { class: "bar" });
    bar.style.setProperty("width", `${Math.max(1, Math.min(100, share * 100))}%`);
    const word = make("span", { class: "word" }, readable(text, id));
    list.append(make("li", { class: id === token ? "taken" : "" }, bar, word, make("span", {}, percent(share))));
  }
  return list;
}
