// The settings of a request, made from what the server says of its models.

import { make, setText } from "./elements.js";
import { isDemo } from "./examples.js";

/** Numbers that a request may set: where they go in the body, and their limits. */
const NUMBERS = [
  { name: "temperature", label: "Temperature", place: "body", min: 0, max: 2, step: "any", hint: "0: the most probable token" },
  { name: "steps", label: "Steps", place: "diffusion", min: 1, step: 1, hint: "as the model’s", of: "static" },
  { name: "block_length", label: "Block length", place: "diffusion", min: 1, step: 1, hint: "as the model’s" },
  { name: "seed", label: "Seed", place: "seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, hint: "drawn" },
];

let fields = 0;

export class Settings {
  #model = null;
  #numbers = new Map();

  /** Makes the form's content inside an element. */
  constructor(root) {
    this.root = root;
    this.notes = make("p", { class: "quiet" });
    this.system = make("textarea", { rows: 2, placeholder: "You are a helpful assistant." });
    this.systemRow = row("System prompt", this.system, "before the first question of a chat");
  }

  /** The facts of a model as `/v1/models` tells them; null without a server. */
  get facts() {
    return this.#model?.diffusion ?? null;
  }

  get model() {
    return this.#model?.id ?? "";
  }

  /** Says whether the model is a demo, which answers each question on its own. */
  get demo() {
    return isDemo(this.#model);
  }

  /** Builds the fields for a model. */
  build(model) {
    this.#model = model;
    const facts = this.facts ?? {};
    this.first = methodFields(facts, "");
    this.second = methodFields(facts, " of the second");
    this.#numbers.clear();
    const second = make("div", { class: "method", hidden: true }, ...this.second.rows);
    this.compare = make("input", { type: "checkbox" });
    this.compare.addEventListener("change", () => {
      second.hidden = !this.compare.checked;
      if (this.first.title() === this.second.title()) this.second.differ(this.first.decoder());
    });
    this.alternatives = make("input", { type: "checkbox" });
    this.alternatives.checked = true;
    this.root.replaceChildren(
      this.systemRow,
      this.#length(facts),
      make("div", { class: "method" }, ...this.first.rows),
      ...this.#guide(facts),
      make("label", { class: "check" }, this.compare, "Compare with a second decoder, on the same seed"),
      second,
      make("label", { class: "check" }, this.alternatives, "Tell what else was weighed for each token"),
      make("details", { class: "more" }, make("summary", {}, "More"), ...NUMBERS.map((number) => this.#number(number)),
        this.#extra()),
      this.notes,
    );
    this.notes.textContent = about(facts);
  }

  /** Returns the settings of each lane: `[{name, body, diffusion, seed}]`.
   *  @throws {Error} that says which field cannot be read. */
  lanes() {
    const seed = this.#value("seed") ?? drawn();
    const body = { seed };
    const diffusion = { ...this.#more() };
    if (this.length.value !== "") diffusion.gen_length = readWhole(this.length, "Length");
    for (const { name, place } of NUMBERS) {
      const value = this.#value(name);
      if (value !== null && place === "body") body[name] = value;
      if (value !== null && place === "diffusion") diffusion[name] = value;
    }
    if (this.guide && this.guide.value !== "") diffusion.guide = this.guide.value;
    const methods = this.compare.checked ? [this.first, this.second] : [this.first];
    return methods.map((method) => {
      return { name: method.title(), body, diffusion: { ...diffusion, ...method.read() }, seed };
    });
  }

  /** Says what is usual: texts with holes are decoded in another way than others. */
  tellUsual(holes) {
    for (const method of [this.first, this.second]) method?.tellUsual(holes);
  }

  /** The alternatives that are asked for at each token. */
  get alternativesWanted() {
    return this.alternatives.checked;
  }

  #length({ default_gen_length: usual, max_gen_length: most }) {
    this.length = make("input", { type: "number", min: 1, max: most, step: 1, placeholder: usual ?? "the model’s" });
    return row("Length", this.length, most ? `positions of the canvas; at most ${most}` : "positions of the canvas");
  }

  #guide({ guides }) {
    this.guide = null;
    const names = namesOf(guides);
    if (names.length === 0) return [];
    this.guide = make("select", {}, make("option", { value: "" }, "none"), ...names.map(optionOf));
    return [row("Guide", this.guide, "for guided decoders")];
  }

  #number({ name, label, min, max, step, hint, of }) {
    const input = make("input", { type: "number", min, max, step, placeholder: hint });
    this.#numbers.set(name, { input, label });
    return row(label, input, of ? `of decoder ${of}` : null);
  }

  #extra() {
    this.extra = make("textarea", { rows: 2, spellcheck: "false", placeholder: '{"top_p": 0.95}' });
    return row("Other diffusion options", this.extra, "a JSON object, sent as it is");
  }

  #more() {
    const text = this.extra.value.trim();
    if (text === "") return {};
    try {
      const value = JSON.parse(text);
      if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
    } catch {
      // Said below.
    }
    throw new Error('Other diffusion options: expected a JSON object such as {"top_p": 0.95}.');
  }

  #value(name) {
    const { input, label } = this.#numbers.get(name);
    if (input.value === "" && !input.validity.badInput) return null;
    const value = Number(input.value);
    if (input.validity.valid && input.value !== "") return value;
    throw new Error(`${label}: ${input.validationMessage || "expected a number"}`);
  }
}

/** Fields of a decoder with its parameters and a cache. */
function methodFields(facts, of) {
  const { decoder = "its own", cache = "its own" } = facts.defaults ?? {};
  const [usualDecoder, usualCache] = [make("option", { value: "" }), make("option", { value: "" })];
  const tellUsual = (holes) => {
    setText(usualDecoder, holes ? "usual for holes" : `usual: ${decoder}`);
    setText(usualCache, holes ? "usual for holes" : `usual: ${cache}`);
  };
  tellUsual(false);
  const decoders = make("select", {}, usualDecoder, ...namesOf(facts.decoders).map(optionOf));
  const parameters = make("input", { type: "text", spellcheck: "false", autocomplete: "off", placeholder: "such as tau=0.8" });
  const caches = make("select", {}, usualCache, ...namesOf(facts.caches).map(optionOf));
  const rows = [row(`Decoder${of}`, decoders), row(`Parameters${of}`, parameters, "after the decoder’s colon"),
    row(`Cache${of}`, caches)];
  const enable = () => (parameters.disabled = decoders.value === "");
  decoders.addEventListener("change", enable);
  enable();
  const spec = () => [decoders.value, parameters.value.trim()].filter((part) => part !== "").join(":");
  const chosen = () => (decoders.value || decoder).split(":")[0];
  return {
    rows,
    tellUsual,
    decoder: chosen,
    /** Chooses another decoder than one: the plainest, or else the first. */
    differ: (other) => {
      const names = namesOf(facts.decoders).map(({ name }) => name);
      const found = ["static", ...names].find((name) => names.includes(name) && name !== other);
      if (found === undefined) return;
      decoders.value = found;
      if (found === "static" && namesOf(facts.caches).some(({ name }) => name === "none")) caches.value = "none";
      enable();
    },
    title: () => `${decoders.value === "" ? decoder : spec()} · ${caches.value || cache}`,
    read: () => {
      const methods = {};
      if (decoders.value !== "") methods.decoder = spec();
      if (caches.value !== "") methods.cache = caches.value;
      return methods;
    },
  };
}

/** Reads a list of names, which may be words, or objects with a name and a sentence about it. */
function namesOf(list) {
  return (Array.isArray(list) ? list : []).map((each) => (typeof each === "string" ? { name: each } : each));
}

function optionOf({ name, about }) {
  return make("option", { value: name, title: about }, name);
}

function row(label, input, hint) {
  const id = `field-${(fields += 1)}`;
  input.id = id;
  const parts = [make("label", { for: id }, label), input];
  if (hint) {
    input.setAttribute("aria-describedby", `${id}-hint`);
    parts.push(make("small", { id: `${id}-hint` }, hint));
  }
  return make("div", { class: "field" }, ...parts);
}

function readWhole(input, label) {
  if (!input.validity.valid) throw new Error(`${label}: ${input.validationMessage}`);
  return Number(input.value);
}

/** Draws a seed, so that two requests can share it and a third can repeat it. */
function drawn() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

function about({ family, attention, infill }) {
  const parts = [family && `Family ${family}`, attention && `${attention} attention`];
  parts.push(infill === true ? "can fill holes" : infill === false ? "cannot fill holes" : null);
  return parts.filter(Boolean).join(", ");
}
