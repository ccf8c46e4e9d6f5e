// The form that an answer is to have: its kind, what was typed of it, and what is wrong with that.

import { make, setText } from "./elements.js";

/** The kinds of forms: the name of each in a request, and how what was typed is read. */
const KINDS = {
  json: {
    name: "JSON schema",
    hint: "draft 2020-12; the answer is JSON that is valid under it",
    placeholder: '{"type": "object", "properties": {"pears": {"type": "integer"}}, "required": ["pears"]}',
    read: readSchema,
  },
  regex: {
    name: "regular expression",
    hint: "the whole answer matches, in the syntax of Rust’s regex",
    placeholder: "(?s:.)*\\nThe final answer is [0-9]+",
    read: (text) => text,
  },
  choice: {
    name: "choices",
    hint: "one a line; the answer is one of them",
    placeholder: "yes\nno",
    read: (text) => text.split("\n").filter((line) => line !== ""),
  },
};
/** The field of a request that has the form. */
const FIELD = "structured_outputs";

/** What was typed and is no form: it is said where it was typed. */
export class FormError extends Error {}

export class FormField {
  #texts = { json: "", regex: "", choice: "" };
  #kind = "";

  /** Takes the elements of the page: the list of kinds, the box with its label and hint, and the line for what is wrong. */
  constructor({ kind, row, label, text, hint, fault }) {
    Object.assign(this, { kind, row, label, text, hint, fault });
    kind.append(make("option", { value: "" }, "any text"),
      ...Object.entries(KINDS).map(([value, { name }]) => make("option", { value }, name)));
    kind.addEventListener("change", () => {
      this.#choose(kind.value);
      if (this.#kind !== "") text.focus();
    });
    text.addEventListener("input", () => this.refuse(""));
  }

  /** Returns the fields that a request has for the form; none for any text.
   *  @throws {FormError} if what was typed is none. */
  read() {
    this.refuse("");
    if (this.#kind === "") return {};
    try {
      if (this.text.value.trim() === "") throw new FormError("There is no form yet: write it here, or choose “any text”.");
      return { [FIELD]: { [this.#kind]: KINDS[this.#kind].read(this.text.value) } };
    } catch (error) {
      this.refuse(error.message);
      throw error;
    }
  }

  /** Says what is wrong with the form, below the box; "" for nothing. */
  refuse(message) {
    setText(this.fault, message);
    if (message === "") this.text.removeAttribute("aria-invalid");
    else this.text.setAttribute("aria-invalid", "true");
  }

  /** Says below the box what the server said, if it is the form that it refused. */
  take({ error, param }) {
    if (param.split(".")[0] === FIELD) this.refuse(error);
  }

  /** What is kept for a reload. */
  get kept() {
    this.#remember();
    return { kind: this.#kind, texts: this.#texts };
  }

  /** Brings back what was kept. */
  restore({ kind = "", texts = {} }) {
    Object.assign(this.#texts, texts);
    this.kind.value = kind in KINDS ? kind : "";
    this.#choose(this.kind.value);
  }

  #remember() {
    if (this.#kind !== "") this.#texts[this.#kind] = this.text.value;
  }

  #choose(kind) {
    this.#remember();
    this.#kind = kind;
    this.refuse("");
    this.row.hidden = kind === "";
    if (kind === "") return;
    const { name, hint, placeholder } = KINDS[kind];
    setText(this.label, name[0].toUpperCase() + name.slice(1));
    setText(this.hint, hint);
    Object.assign(this.text, { value: this.#texts[kind], placeholder });
  }
}

/** Reads a schema, which a request holds as JSON. */
function readSchema(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FormError(`The schema is no JSON: ${error.message}.`);
  }
}
