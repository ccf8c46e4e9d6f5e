// The playground: asks the server, and shows how a canvas of masks becomes an answer.

import { Card } from "./page/card.js";
import { Chat, restoredRun } from "./page/chat.js";
import { button, make, setText } from "./page/elements.js";
import { EXAMPLES } from "./page/examples.js";
import { Follower } from "./page/follow.js";
import { FormError, FormField } from "./page/form.js";
import { Inspector } from "./page/inspector.js";
import { monoNodes } from "./page/mono.js";
import { chatRequest, curlOf, infillRequest, leadOf, rawRequest, segmentsOf } from "./page/requests.js";
import { Run, runOfTrace, wordsOf } from "./page/run.js";
import { Settings } from "./page/settings.js";
import { ServerError, ask } from "./page/stream.js";
import { promptTokens, textBefore, textOf } from "./page/texts.js";
import { FILE_LIMIT, readTrace } from "./page/trace.js";

const find = (id) => document.getElementById(id);
const KEY = "demask-api-key";
const MODES = {
  chat: { label: "Message", action: "Send", hint: "Enter sends, Shift+Enter begins a line, Escape stops", placeholder: "Ask something" },
  raw: { label: "Text to go on from", action: "Continue", hint: "Ctrl+Enter sends; no chat template is added", placeholder: "Once upon a time" },
  infill: { label: "Text with holes", action: "Fill", hint: "Ctrl+Enter sends; [[12]] or <mask:12> is a hole of 12 tokens", placeholder: "def area(radius):\n    return [[8]]\n" },
};

/** What the page knows: the models, the mode, what is being written, and the answers. */
const state = { models: [], mode: "chat", drafts: { chat: "", raw: "", infill: "" }, key: "", cards: [] };
const chat = new Chat();
const follower = new Follower(document.querySelector(".ask"));
const settings = new Settings(find("settings"));
const form = new FormField({
  kind: find("form-kind"), row: find("form-row"), label: find("form-label"), text: find("form"), hint: find("form-hint"), fault: find("form-fault"),
});

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
  prompt: (run) => promptTokens(run, options()),
  follow: (find) => follower.keep(find),
  drawn,
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
  } catch (error) {
    settings.build(null);
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
  setText(find("text-label"), MODES[mode].label);
  text.placeholder = MODES[mode].placeholder;
  text.classList.toggle("code", mode === "infill");
  find("hole").hidden = mode !== "infill";
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.dataset.mode === mode;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
  }
  find("composer-panel").setAttribute("aria-labelledby", `tab-${mode}`);
  settings.tellUsual(mode === "infill");
  setText(find("mode-note"), cannotFill() ? "This model cannot fill holes: its blocks see only what stands before them." : "");
  setText(find("demo-note"), `${settings.model} is a small demo: it solves word problems such as the examples, each on its own, and knows nothing else.`);
  find("demo-note").hidden = !settings.demo || mode !== "chat";
  find("examples").hidden = !settings.demo;
  tellComposer();
}

const cannotFill = () => state.mode === "infill" && settings.facts?.infill === false;
const canSend = () => settings.facts !== null && !cannotFill();

/** Says what the button and Enter do now: the button stops the answer that is being written. */
function tellComposer() {
  const writing = state.cards.at(-1)?.writing ?? false;
  setText(find("send"), writing ? "Stop" : MODES[state.mode].action);
  find("send").disabled = !writing && !canSend();
  setText(find("hint"), chat.editing ? "Sent, this replaces the question and all after it; Escape leaves it" : MODES[state.mode].hint);
}

/** Follows what a card has become. */
function drawn(card) {
  tellComposer();
  for (const { run } of card.lanes) {
    if (run.state !== "failed" || run.param === null) continue;
    form.take(run);
    // Once: what is typed next is not what was refused.
    run.param = null;
  }
  if (card.offer) card.offer();
}

/** Sends what the composer holds. */
function submit() {
  const text = find("text").value;
  if (!canSend() || text.trim() === "") return;
  const last = state.cards.at(-1);
  if (last?.busy) return notify("An answer is being written: stop it first, with Escape or the button.");
  if (last?.writing) last.rest();
  withLanes((lanes) => {
    if (state.mode === "chat") sendChat(text, lanes);
    else if (state.mode === "raw") sendRaw(text, lanes);
    else sendInfill(segmentsOf(text), lanes, "Infilling");
  });
}

function sendChat(question, lanes) {
  if (chat.editing) cutFrom(chat.editing);
  const messages = chat.messages(question, settings.system.value.trim(), settings.demo);
  const request = (lane) => chatRequest(settings.model, messages, lane, settings.alternativesWanted);
  const turn = newTurn(question);
  const runs = start(lanes, request, { messages, turn });
  turn.answer = () => runs[0].recording.text;
  find("text").value = "";
  show("Answer", runs);
}

/** Adds a turn to the chat, and its question to the page. */
function newTurn(question) {
  const element = make("div", { class: "question" }, ...monoNodes(question));
  const turn = { question, element: make("div", { class: "turn" }, element), cards: [], answer: () => "" };
  turn.element.append(button("Edit", () => edit(turn), { class: "small" }));
  find("answers").append(turn.element);
  chat.turns.push(turn);
  return turn;
}

/** Puts a question into the box again. */
function edit(turn) {
  setMode("chat");
  chat.editing = turn;
  find("text").value = turn.question;
  find("text").focus();
  tellComposer();
}

/** Leaves a question as it was. */
function leaveEdit() {
  chat.editing = null;
  find("text").value = "";
  tellComposer();
}

/** Takes a turn and all after it off the page. */
function cutFrom(turn) {
  for (const { element, cards } of chat.cut(turn)) {
    for (const card of cards) drop(card);
    element.remove();
  }
}

function drop(card) {
  card.cancel();
  card.element.remove();
  state.cards = state.cards.filter((each) => each !== card);
}

/** Gives a card of a chat its buttons, which are there for the newest answer. */
function offerMore(card, turn) {
  const again = button("Regenerate", () => regenerate(turn));
  const more = button("Continue", () => goOn(turn));
  card.actions.append(again, more);
  card.offer = () => {
    const [{ run }] = card.lanes;
    const newest = chat.last === turn && turn.cards.at(-1) === card && !card.writing && !run.busy;
    const cut = run.state === "cancelled" || run.state === "failed" || run.recording.finishReason === "length";
    again.hidden = !newest || settings.facts === null;
    more.hidden = again.hidden || !cut || turn.answer() === "";
    card.actions.hidden = again.hidden;
  };
}

/** Asks the last question again. */
function regenerate(turn) {
  withLanes((lanes) => {
    const draft = find("text").value;
    cutFrom(turn);
    sendChat(turn.question, lanes);
    find("text").value = draft;
  });
}

/** Lets the model go on with an answer that was cut. */
async function goOn(turn) {
  try {
    const lead = turn.answer();
    const [{ run }] = turn.cards[0].lanes;
    const prompt = (await textBefore(run, settings.model, options())) + lead;
    const request = (lane) => rawRequest(settings.model, prompt, lane, settings.alternativesWanted);
    const [lane] = settings.lanes();
    const runs = start([lane], request, { ...run.context, context: prompt }, lead);
    turn.answer = () => lead + runs[0].recording.text;
    show("Continued", runs);
  } catch (error) {
    notify(wordsOf(error));
  }
}

/** Does something with the settings of each lane and the form, or tells which of them cannot be read. */
function withLanes(use) {
  notify("");
  try {
    const fields = form.read();
    use(settings.lanes().map((lane) => ({ ...lane, body: { ...lane.body, ...fields } })));
  } catch (error) {
    if (error instanceof FormError) find("form").focus();
    else notify(error.message);
  }
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
    return Object.assign(run, { name: lane.name, context, causal: settings.facts.attention === "causal" });
  });
}

/** Puts a card on the page, and lets its runs begin. */
function show(title, runs) {
  find("settled").replaceChildren();
  const card = addCard(title, runs);
  follower.begin();
  card.element.scrollIntoView({ block: "nearest" });
  for (const run of runs) if (run.path !== null) run.start();
}

function addCard(title, runs) {
  find("welcome").hidden = true;
  const card = new Card(title, runs, page);
  const turn = runs[0].context?.turn;
  if (turn) {
    turn.cards.push(card);
    offerMore(card, turn);
  }
  state.cards.push(card);
  find("answers").append(card.element);
  for (const each of state.cards) each.changed();
  return card;
}

/** Makes a hole of some tokens of an answer, and lets the model fill it anew. */
async function remask(lane, [first, last]) {
  const { run } = lane;
  const { recording } = run;
  try {
    const ids = Array.from({ length: recording.end }, (_, index) => recording.tokenAt(index));
    const before = await textOf(ids.slice(0, first), options());
    const after = await textOf(ids.slice(last + 1), options());
    const context = await textBefore(run, settings.model, options());
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
  if (question !== null) find("answers").append(make("div", { class: "question" }, ...monoNodes(question)));
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
  state.cards = [];
  if (chat.last) chat.cut(chat.turns[0]);
  find("answers").replaceChildren();
  tellComposer();
  find("settled").replaceChildren();
  find("welcome").hidden = false;
  find("text").focus();
}

function listenToComposer() {
  const text = find("text");
  find("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const last = state.cards.at(-1);
    if (last?.writing) last.cancel();
    else submit();
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
    if (key !== "Escape") return;
    if (chat.editing) leaveEdit();
    else state.cards.findLast((card) => card.busy || card.playing)?.cancel();
  });
  addEventListener("pagehide", keep);
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    openTraces(event.dataTransfer.files);
  });
  const redraw = () => state.cards.forEach((card) => card.changed());
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

/** Keeps the chat for a reload of this tab. */
function keep() {
  state.drafts[state.mode] = find("text").value;
  chat.keep({ system: settings.system.value, mode: state.mode, drafts: state.drafts, form: form.kept });
}

/** Brings back the chat that was there before a reload. */
function restore() {
  const { turns = [], system = "", mode = "chat", drafts = state.drafts, form: typed = {} } = Chat.kept() ?? {};
  form.restore(typed);
  settings.system.value = system;
  Object.assign(state, { mode, drafts });
  find("text").value = drafts[mode];
  for (const { question, answer, cards } of turns) {
    const turn = newTurn(question);
    turn.answer = () => answer;
    for (const { title, runs } of cards) {
      const card = addCard(title, runs.map((run) => restoredRun(run, turn)));
      card.hush();
      card.rest();
    }
  }
}

function offerExamples() {
  const ask = (question) => {
    setMode("chat");
    find("text").value = question;
    submit();
  };
  find("examples").append(...EXAMPLES.map((question) => button(question, () => ask(question), { class: "example" })));
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
offerExamples();
restore();
// A touch screen would cover half of the page with its keyboard.
if (!matchMedia("(pointer: coarse)").matches) find("text").focus({ preventScroll: true });
connect();
