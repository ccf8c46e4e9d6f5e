// Trace files, as `demask generate --trace` writes them: a recording to lines of JSON, and lines to a recording.

import { Recording } from "./recording.js";

/** The version that is written, and the newest that is read. */
const VERSION = 3;
/** The largest file that is read, in bytes. */
export const FILE_LIMIT = 256 * 1024 * 1024;

/** Writes a recording down, with what else was weighed or without it. Alternatives, settled counts and texts that `demask-lab trace` does without are extra fields,
 *  which it skips. */
export function writeTrace(recording, alternatives = true) {
  const lines = [header(recording)];
  for (const forward of recording.forwards) {
    for (const { index, token, text, confidence, top, step, previous, forced, changed } of forward.commits) {
      const position = index + recording.facts.promptTokens;
      const marks = { forced: forced || null, changed: changed || null };
      const rest = { confidence, ...present({ ...marks, text, top: alternatives ? top : null }) };
      if (previous === null) lines.push({ step, position, token, ...rest });
      else lines.push({ event: "replace", step, at: position, from: previous.token, to: token, ...rest });
    }
    const { step, nfe, drafts, accepted, rejected, settled } = forward;
    lines.push({ event: "step", step, nfe: nfe ?? step + 1, rows: 0, drafts, accepted, rejected, settled });
  }
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

function header(recording) {
  const { model, decoder, cache, seed, question, prompt, promptTokens, blockLength } = recording.facts;
  const given = [...recording.given].map(([index, { token, text }]) => {
    return { position: index + promptTokens, token, ...present({ text }) };
  });
  return {
    event: "header",
    version: VERSION,
    model,
    prompt: prompt ?? [],
    length: recording.cells.length,
    ...(given.length > 0 ? { given } : {}),
    decoder,
    cache,
    seed: seed ?? 0,
    ...present({ question, block_length: blockLength, lead: recording.lead || null }),
    ...(prompt === null ? { prompt_tokens: promptTokens } : {}),
  };
}

function present(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
}

/** Reads a trace.
 *  @throws {Error} that names the line that is not one of a trace. */
export function readTrace(text) {
  const recording = new Recording();
  let begun = false;
  text.split("\n").forEach((line, index) => {
    if (line.trim() === "") return;
    const fact = parsedLine(line, index + 1);
    if (!begun) {
      takeHeader(recording, fact);
      begun = true;
    } else {
      takeLine(recording, fact, index + 1);
    }
  });
  if (!begun) throw new Error("The file is empty: expected a trace, as demask generate --trace writes it.");
  settlePrefixes(recording);
  recording.finish();
  return recording;
}

function parsedLine(line, number) {
  try {
    const fact = JSON.parse(line);
    if (typeof fact === "object" && fact !== null) return fact;
  } catch {
    // Said below, with the line's number.
  }
  throw new Error(`Line ${number} is not one of a trace: expected a JSON object.`);
}

function takeHeader(recording, fact) {
  if (fact.event !== "header") throw new Error("The file does not start with a trace's header line.");
  const version = fact.version ?? 1;
  if (version > VERSION) {
    throw new Error(`The trace is of version ${version}, this page reads up to ${VERSION}: update demask.`);
  }
  const prompt = Array.isArray(fact.prompt) ? fact.prompt : [];
  const promptTokens = fact.prompt_tokens ?? prompt.length;
  const told = Array.isArray(fact.given) ? fact.given.filter((each) => Number.isInteger(each?.position)) : [];
  const given = told.map(({ position, token, text }) => [position, token, text]);
  const length = promptTokens + fact.length;
  const [model, decoder, cache] = [fact.model, fact.decoder, fact.cache].map((name) => String(name ?? ""));
  try {
    recording.begin({ ...fact, model, decoder, cache, prompt_tokens: promptTokens, length, given });
  } catch (error) {
    throw new Error(`Line 1 of the trace has ${error.message}.`);
  }
  recording.facts.prompt = fact.prompt_tokens === undefined ? prompt : null;
  recording.facts.question = typeof fact.question === "string" ? fact.question : null;
  recording.lead = String(fact.lead ?? "");
}

function takeLine(recording, fact, number) {
  try {
    if (Number.isInteger(fact.position)) recording.addCommit(checked(fact));
    else if (fact.event === "replace") recording.addCommit({ ...checked(fact), position: fact.at, token: fact.to ?? null });
    else if (fact.event === "step") {
      const forward = recording.addForward(checked(fact));
      forward.settled = Number.isInteger(fact.settled) ? fact.settled : forward.settled;
    } else if (!["predictions", "draft", "target"].includes(fact.event)) throw new Error("no known event");
  } catch {
    throw new Error(`Line ${number} of the trace is neither a step nor a commit inside the canvas.`);
  }
}

function checked(fact) {
  if (!Number.isInteger(fact.step) || fact.step < 0) throw new Error("no step");
  const top = Array.isArray(fact.top) && fact.top.every(Array.isArray) ? fact.top : null;
  const [forced, changed] = [fact.forced === true, fact.changed === true];
  return { ...fact, text: typeof fact.text === "string" ? fact.text : null, top, forced, changed };
}

/** Where a trace does not tell what is settled, it is the positions before the first one that still changes. */
function settlePrefixes(recording) {
  if (recording.forwards.some((forward) => forward.settled > 0)) return;
  let settled = 0;
  const stands = (index, forward) => {
    return recording.given.has(index) || (recording.cells[index] ?? { forward: Infinity }).forward <= forward.index;
  };
  for (const forward of recording.forwards) {
    while (stands(settled, forward)) settled += 1;
    forward.settled = settled;
  }
}
