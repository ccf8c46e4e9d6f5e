// Elements made by name, with text that can only ever be text: nothing here parses markup.

/** Makes an element. Properties that start with `on` are listeners, `class` is the class, all others attributes. */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Makes a button that never submits a form. */
export function button(text, onclick, properties = {}) {
  return make("button", { type: "button", onclick, ...properties }, text);
}

/** Sets an element's text only if it differs, so that nothing is laid out again for nothing. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Says whether the reader asked for less motion. */
export function reducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Writes a number with few digits: 0.031, 4.27, 31.4, 512. */
export function short(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return "–";
  if (number === 0) return "0";
  if (Math.abs(number) >= 100) return Math.round(number).toLocaleString("en");
  return String(Number(number.toPrecision(3)));
}

/** Writes a probability as percent. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(share * 100).toFixed(share < 0.1 || share > 0.99 ? 1 : 0)} %`;
}

/** Writes a token as it can be read: line ends and blanks get signs. */
export function readable(text, token) {
  if (text === null || text === undefined) return `token ${token}`;
  return `“${text.replaceAll("\n", "⏎").replaceAll("\t", "⇥")}”`;
}

/** Puts text on the clipboard; without a clipboard, as on plain http, it is shown to be copied by hand. */
export async function copyText(text, title) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { rows: 10, readonly: true, "aria-label": title });
    area.value = text;
    const dialog = make("dialog", { class: "plain-dialog", "aria-label": title }, make("h2", {}, title), area);
    dialog.append(button("Close", () => dialog.close()));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    area.select();
    return false;
  }
}

/** Offers text as a file to keep. */
export function saveFile(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
