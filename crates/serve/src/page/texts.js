// Texts that the page has to ask the server for: of tokens, of a prompt, and the prompt's tokens.

import { leadOf } from "./requests.js";
import { ServerError, ask } from "./stream.js";

/** Returns the text of tokens: from the canvas, or from the server where a character has several tokens. */
export async function textOf(tokens, options) {
  if (tokens.every((token) => typeof token?.text === "string")) return tokens.map(({ text }) => text).join("");
  if (tokens.includes(null)) throw new ServerError("The answer has masks left: it cannot be written again.");
  const { prompt } = await ask("detokenize", { tokens: tokens.map(({ token }) => token) }, options);
  return prompt;
}

/** Returns the text that stood before an answer's canvas, chat template included. */
export async function textBefore(run, model, options) {
  const { context, messages, prompt, before } = run.context;
  if (context !== undefined) return context;
  if (prompt !== undefined) return prompt;
  if (messages === undefined) return leadOf(before);
  const { tokens } = await ask("tokenize", { model, messages }, options);
  return (await ask("detokenize", { tokens }, options)).prompt;
}

/** Returns a prompt's token ids for a trace; null if the server does not tell them, or tells of another number. */
export async function promptTokens(run, options) {
  const { messages, prompt } = run.context ?? {};
  const asked = messages ? { messages } : { prompt };
  if (run.path === "v1/infill" || (!messages && prompt === undefined)) return null;
  try {
    const { tokens } = await ask("tokenize", { model: run.model, ...asked }, options);
    return tokens.length === run.recording.facts.promptTokens ? tokens : null;
  } catch {
    return null;
  }
}
