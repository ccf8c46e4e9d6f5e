// The turns of a chat: what is sent with a question, and what outlives a reload of the page.

import { runOfTrace } from "./run.js";
import { readTrace, writeTrace } from "./trace.js";

const STORE = "demask-chat";

export class Chat {
  /** Each has its `question`, its `element`, its `cards`, and `answer()`. */
  turns = [];
  /** The turn whose question is being written again; null if there is none. */
  editing = null;

  get last() {
    return this.turns.at(-1);
  }

  /** Returns the messages that ask a question; `alone` leaves out what was said before. */
  messages(question, system, alone) {
    const before = alone ? [] : this.turns.filter((turn) => turn.answer() !== "");
    return [
      ...(system === "" ? [] : [{ role: "system", content: system }]),
      ...before.flatMap((turn) => [
        { role: "user", content: turn.question },
        { role: "assistant", content: turn.answer() },
      ]),
      { role: "user", content: question },
    ];
  }

  /** Takes a turn and all after it away, and returns them. */
  cut(turn) {
    this.editing = null;
    return this.turns.splice(this.turns.indexOf(turn));
  }

  /** Keeps the turns and what else is given until the tab is closed. What there is no room for is left out: what else
   *  was weighed for each token, then the oldest turns. */
  keep(others) {
    if (tryToKeep({ ...others, turns: this.turns.map((turn) => saved(turn, true)) })) return;
    const turns = this.turns.map((turn) => saved(turn, false));
    while (!tryToKeep({ ...others, turns }) && turns.length > 0) turns.shift();
  }

  /** Returns what was kept; null if there is nothing. */
  static kept() {
    try {
      return JSON.parse(sessionStorage.getItem(STORE));
    } catch {
      return null;
    }
  }
}

function tryToKeep(state) {
  try {
    sessionStorage.setItem(STORE, JSON.stringify(state));
    return true;
  } catch {
    return false;
  }
}

function saved(turn, alternatives) {
  const cards = turn.cards.map(({ title, lanes }) => ({ title, runs: lanes.map(({ run }) => savedRun(run, alternatives)) }));
  return { question: turn.question, answer: turn.answer(), cards };
}

function savedRun(run, alternatives) {
  const { text, receipt, usage, finishReason } = run.recording;
  const { messages, context } = run.context;
  return {
    name: run.name,
    state: run.busy ? "cancelled" : run.state,
    error: run.error,
    told: { text, receipt, usage, finishReason },
    context: { messages, context },
    trace: writeTrace(run.recording, alternatives),
  };
}

/** Returns a run as it was kept. */
export function restoredRun({ name, state, error, told, context, trace }, turn) {
  const recording = Object.assign(readTrace(trace), told);
  return Object.assign(runOfTrace(recording), { name, state, error, context: { ...context, turn } });
}
