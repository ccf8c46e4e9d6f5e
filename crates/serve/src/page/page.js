// The playground: asks the server, and shows how a canvas of masks becomes an answer.

import { Card } from "./page/card.js";
import { button, make, setText } from "./page/elements.js";
import { Inspector } from "./page/inspector.js";
import { chatRequest, curlOf, infillRequest, leadOf, rawRequest, segmentsOf } from "./page/requests.js";
import { Run, runOfTrace, wordsOf } from "./page/run.js";
import { Settings } from "./page/settings.js";
import { ServerError, ask } from "./page/stream.js";
import { FILE_LIMIT, readTrace } from "./page/trace.js";

const find = (id) => document.getElementById(id);
const KEY = "demask-api-key";
const MODES = {
  chat: { label: "Message", action: "Send", hint: "Enter sends, Shift+Enter begins a line, Escape cancels", placeholder: "Ask something" },
  raw: { label: "Text to go on from", action: "Continue", hint: "Ctrl+Enter sends; no chat template is added", placeholder: "Once upon a time" },
  infill: { label: "Text with holes", action: "Fill", hint: "Ctrl+Enter sends; [[12]] is a hole of 12 tokens", placeholder: "def area(radius):\n    return [[8]]\n" },
};

/** What the page knows: the models, the mode, and the turns of the chat. */
const state = { models: [], mode: "chat", turns: [], drafts: { chat: "", raw: "", infill: "" }, key: "", cards: [] };
const settings = new Settings(find("settings"));

/** What cards may ask of the page. */
const page = {
  inspector: new Inspector(find("voice")),
  colouring: () => document.body.dataset.colouring,
  say: (text) => find("settled").append(make("span", {}, text)),
  tell: (text) => setText(find("voice"), text),
  notify,
  canRemask: (lane) => settings.facts?.infill === true && lane.run.context !== undefined && !lane.run.busy,
  remask,
  curl: (run) => curlOf(location.href, run, state.key !== ""),
  prompt: promptTokens,
};

const options = () => ({ key: state.key });

/** Tells something in the line below the header. */
function notify(text) {
  const line = find("notice");
  line.hidden = text === "";
  setText(line.firstElementChild, text);
}

async function connect() {
  try {
    const { data } = await ask("v1/models", undefined, options());
    state.models = data;
    find("model").replaceChildren(...data.map(({ id }) => make("option", { value: id }, id)));
    settings.build(data[0]);
    notify("");
    find("send").disabled = false;
  } catch (error) {
    settings.build(null);
    find("send").disabled = true;
    notify(`${wordsOf(error)} Saved traces can be opened all the same.`);
    if (error instanceof ServerError && error.status === 401) find("key-panel").open = true;
  }
  setMode(state.mode);
}

/** Chooses chat, raw or infill. */
function setMode(mode) {
  const text = find("text");
  state.drafts[state.mode] = text.value;
  state.mode = mode;
  text.value = state.drafts[mode];
  const { label, action, hint, placeholder } = MODES[mode];
  setText(find("text-label"), label);
  setText(find("send"), action);
  setText(find("hint"), hint);
  text.placeholder = placeholder;
  text.classList.toggle("code", mode === "infill");
  find("hole").hidden = mode !== "infill";
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.dataset.mode === mode;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
  }
  find("composer-panel").setAttribute("aria-labelledby", `tab-${mode}`);
  const cannot = mode === "infill" && settings.facts?.infill === false;
  setText(find("mode-note"), cannot ? "This model cannot fill holes: its blocks see only what stands before them." : "");
  find("send").disabled = cannot || settings.facts === null;
}

/** Sends what the composer holds. */
function submit() {
  const text = find("text").value;
  if (find("send").disabled || text.trim() === "") return;
  notify("");
  try {
    const lanes = settings.lanes();
    if (state.mode === "chat") sendChat(text, lanes);
    else if (state.mode === "raw") sendRaw(text, lanes);
    else sendInfill(segmentsOf(text), lanes, "Infilling");
  } catch (error) {
    notify(error.message);
  }
}

function sendChat(text, lanes) {
  const history = state.turns.filter((turn) => turn.answer() !== "").flatMap((turn) => [
    { role: "user", content: turn.question },
    { role: "assistant", content: turn.answer() },
  ]);
  const messages = [...history, { role: "user", content: text }];
  const request = (lane) => chatRequest(settings.model, messages, lane, settings.alternativesWanted);
  const turn = { question: text };
  const runs = start(lanes, request, { messages, turn });
  turn.answer = () => runs[0].recording.text;
  state.turns.push(turn);
  find("text").value = "";
  find("answers").append(make("p", { class: "question" }, text));
  show("Answer", runs);
}

function sendRaw(prompt, lanes) {
  const request = (lane) => rawRequest(settings.model, prompt, lane, settings.alternativesWanted);
  show("Continuation", start(lanes, request, { prompt }, prompt));
}

function sendInfill(segments, lanes, title, context = {}, lead = leadOf(segments)) {
  const request = (lane) => infillRequest(settings.model, segments, lane, settings.alternativesWanted);
  const runs = start(lanes, request, { before: segments, ...context }, lead);
  show(title, runs);
  return runs;
}

/** Makes the runs of a request, one a lane, and sends them. */
function start(lanes, request, context, lead = "") {
  return lanes.map((lane) => {
    const asked = { ...request(lane), lead, seed: lane.seed, model: settings.model };
    const run = new Run(asked, { key: () => state.key, changed: () => {} });
    return Object.assign(run, { name: lane.name, context });
  });
}

/** Puts a card on the page, and lets its runs begin. */
function show(title, runs) {
  find("welcome").hidden = true;
  find("settled").replaceChildren();
  const card = new Card(title, runs, page);
  state.cards.push(card);
  find("answers").append(card.element);
  card.element.scrollIntoView({ block: "nearest" });
  card.changed();
  for (const run of runs) if (run.path !== null) run.start();
  return card;
}

/** Makes a hole of some tokens of an answer, and lets the model fill it anew. */
async function remask(lane, [first, last]) {
  const { run } = lane;
  const { recording } = run;
  try {
    const ids = Array.from({ length: recording.end }, (_, index) => recording.tokenAt(index));
    const before = await textOf(ids.slice(0, first));
    const after = await textOf(ids.slice(last + 1));
    const context = await textBefore(run);
    const hole = { hole: { tokens: last - first + 1 } };
    const segments = [context + before, hole, after].filter((segment) => segment !== "");
    const [settingsOfFirst] = settings.lanes();
    const lead = run.context.messages ? recording.lead + before : context + before;
    const again = sendInfill(segments, [settingsOfFirst], "Written again", { ...run.context, context: context + before }, lead)[0];
    // A later question is about the answer as it reads now.
    const { turn } = run.context;
    const earlier = turn?.answer;
    if (turn) turn.answer = () => (again.state === "done" ? lead + again.recording.text + after : earlier());
  } catch (error) {
    notify(wordsOf(error));
  }
}

/** Returns the text of tokens: from the canvas, or from the server where a character has several tokens. */
async function textOf(tokens) {
  if (tokens.every((token) => typeof token?.text === "string")) return tokens.map(({ text }) => text).join("");
  if (tokens.includes(null)) throw new ServerError("The answer has masks left: it cannot be written again.");
  const { prompt } = await ask("detokenize", { tokens: tokens.map(({ token }) => token) }, options());
  return prompt;
}

/** Returns the text that stood before an answer's canvas, chat template included. */
async function textBefore(run) {
  const { context, messages, prompt, before } = run.context;
  if (context !== undefined) return context;
  if (prompt !== undefined) return prompt;
  if (messages === undefined) return leadOf(before);
  const { tokens } = await ask("tokenize", { model: settings.model, messages }, options());
  return (await ask("detokenize", { tokens }, options())).prompt;
}

/** Returns a prompt's token ids for a trace; null if the server does not tell them, or tells of another number. */
async function promptTokens(run) {
  const { messages, prompt } = run.context ?? {};
  const asked = messages ? { messages } : { prompt };
  if (run.path === "v1/infill" || (!messages && prompt === undefined)) return null;
  try {
    const { tokens } = await ask("tokenize", { model: run.model, ...asked }, options());
    return tokens.length === run.recording.facts.promptTokens ? tokens : null;
  } catch {
    return null;
  }
}

/** Opens saved traces: one file alone, or two side by side. */
async function openTraces(files) {
  try {
    const runs = [];
    for (const file of [...files].slice(0, 2)) {
      if (file.size > FILE_LIMIT) throw new Error(`${file.name} is too large: at most ${FILE_LIMIT / 2 ** 20} MiB are read.`);
      runs.push(traceRun(await file.text(), file.name));
    }
    if (runs.length === 0) return;
    notify("");
    showTraces(runs.length === 1 ? `Trace ${files[0].name}` : "Two traces", runs);
  } catch (error) {
    notify(error.message);
  }
}

/** Shows runs that are over, below the question that they answer if the trace has it. */
function showTraces(title, runs) {
  const { question } = runs[0].recording.facts;
  if (question !== null) find("answers").append(make("p", { class: "question" }, question));
  show(title, runs);
}

function traceRun(text, name) {
  const recording = readTrace(text);
  recording.text = recording.cells.slice(0, recording.end).map((_, index) => recording.tokenAt(index)?.text ?? "").join("");
  const { decoder, cache } = recording.facts;
  return Object.assign(runOfTrace(recording), { name: [decoder, cache].filter(Boolean).join(" · ") || name });
}

/** Plays the recorded run that comes with the page. */
async function playExample() {
  try {
    const response = await fetch("page/example.jsonl");
    if (!response.ok) throw new Error(`status ${response.status}`);
    showTraces("A recorded run", [traceRun(await response.text(), "example")]);
  } catch (error) {
    notify(`The example cannot be loaded: ${error.message}`);
  }
}

function setKey() {
  state.key = find("key").value.trim();
  const keep = find("keep-key").checked && state.key !== "";
  if (keep) sessionStorage.setItem(KEY, state.key);
  else sessionStorage.removeItem(KEY);
  find("key-panel").open = false;
  connect();
}

function newChat() {
  for (const card of state.cards) card.cancel();
  Object.assign(state, { turns: [], cards: [] });
  find("answers").replaceChildren();
  find("settled").replaceChildren();
  find("welcome").hidden = false;
  find("text").focus();
}

function listenToComposer() {
  const text = find("text");
  find("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  text.addEventListener("keydown", (event) => {
    const plain = state.mode === "chat" && !event.shiftKey;
    if (event.key !== "Enter" || event.isComposing || !(plain || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    submit();
  });
  find("hole").addEventListener("click", () => {
    text.setRangeText("[[8]]", text.selectionStart, text.selectionEnd, "end");
    text.focus();
  });
}

function listenToTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => setMode(tab.dataset.mode));
    tab.addEventListener("keydown", ({ key }) => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (way === undefined) return;
      const next = tabs[(index + way + tabs.length) % tabs.length];
      setMode(next.dataset.mode);
      next.focus();
    });
  }
}

function listenToHeader() {
  find("model").addEventListener("change", ({ target }) => {
    settings.build(state.models.find(({ id }) => id === target.value));
    setMode(state.mode);
  });
  find("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setKey();
  });
  find("open").addEventListener("click", () => find("file").click());
  find("file").addEventListener("change", async ({ target }) => {
    await openTraces(target.files);
    target.value = "";
  });
  find("new").addEventListener("click", newChat);
  find("example").addEventListener("click", playExample);
  find("notice").append(button("Close", () => notify(""), { class: "small" }));
  for (const choice of document.querySelectorAll("[name=colouring]")) {
    choice.addEventListener("change", () => {
      document.body.dataset.colouring = choice.value;
      for (const card of state.cards) card.changed();
    });
  }
}

function listenToWindow() {
  addEventListener("keydown", ({ key }) => {
    if (key === "Escape") state.cards.findLast((card) => card.busy)?.cancel();
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    openTraces(event.dataTransfer.files);
  });
  const redraw = () => state.cards.forEach((card) => card.changed());
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

state.key = sessionStorage.getItem(KEY) ?? "";
find("key").value = state.key;
find("keep-key").checked = state.key !== "";
// Wide screens have room for the settings, others open them when they want.
find("settings-panel").open = matchMedia("(min-width: 60rem)").matches;
listenToComposer();
listenToTabs();
listenToHeader();
listenToWindow();
connect();
