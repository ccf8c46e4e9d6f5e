// The AI SDK against a server.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

import { KEY, MODEL, QUESTION, URL, equal, holds, raises, run } from "./checks.mjs";

const made = (given = {}) =>
  createOpenAICompatible({ name: "demask", baseURL: `${URL}/v1`, apiKey: KEY, includeUsage: true, ...given });
const provider = made();
const common = { model: provider.chatModel(MODEL), prompt: QUESTION, maxOutputTokens: 32, seed: 7, maxRetries: 0 };

await run({
  async generated() {
    const found = await generateText(common);
    holds(found.text, found.text);
    holds(["stop", "length"].includes(found.finishReason), found.finishReason);
    holds(found.usage.outputTokens > 0, found.usage);
  },

  async streamed() {
    const whole = await generateText(common);
    const errors = [];
    const stream = streamText({ ...common, onError: ({ error }) => errors.push(String(error)) });
    let text = "";
    for await (const part of stream.textStream) text += part;
    equal(errors, []);
    equal(text, whole.text);
    equal((await stream.usage).outputTokens, whole.usage.outputTokens, "tokens");
  },

  async framesAreIgnored() {
    const whole = await generateText(common);
    const provider = made({ transformRequestBody: (body) => ({ ...body, diffusion: { frames: "commits" } }) });
    const errors = [];
    const stream = streamText({ ...common, model: provider.chatModel(MODEL), onError: ({ error }) => errors.push(String(error)) });
    let text = "";
    for await (const part of stream.textStream) text += part;
    equal([errors, text], [[], whole.text]);
  },

  async completions() {
    const found = await generateText({ ...common, model: provider.completionModel(MODEL), maxOutputTokens: 8 });
    holds(typeof found.text === "string", found);
  },

  async errors() {
    const error = await raises(() => generateText({ ...common, model: provider.chatModel("no-such-model") }));
    equal(error.statusCode, 404);
    equal(error.isRetryable, false);
  },
});
