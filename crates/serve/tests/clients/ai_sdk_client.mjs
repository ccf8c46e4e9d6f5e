// The AI SDK against a server.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, jsonSchema, streamObject, streamText } from "ai";

import { KEY, MODEL, QUESTION, URL, equal, holds, raises, run } from "./checks.mjs";

const made = (given = {}) =>
  createOpenAICompatible({ name: "demask", baseURL: `${URL}/v1`, apiKey: KEY, includeUsage: true, ...given });
const provider = made();
const common = { model: provider.chatModel(MODEL), prompt: QUESTION, maxOutputTokens: 32, seed: 7, maxRetries: 0 };

const COUNT = jsonSchema({
  type: "object",
  properties: { pears: { type: "integer", minimum: 0, maximum: 99 }, sure: { type: "boolean" }, who: { enum: ["Ada", "Ben"] } },
  required: ["pears", "sure", "who"],
  additionalProperties: false,
});

function isCount({ pears, sure, who }) {
  holds(Number.isInteger(pears) && pears >= 0 && pears <= 99 && typeof sure === "boolean", { pears, sure });
  holds(["Ada", "Ben"].includes(who), who);
}

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

  async objects() {
    const model = made({ supportsStructuredOutputs: true }).chatModel(MODEL);
    isCount((await generateObject({ ...common, model, schema: COUNT, maxOutputTokens: 48 })).object);
    // Without a schema any object is asked for.
    const { object } = await generateObject({ ...common, output: "no-schema" });
    holds(typeof object === "object" && !Array.isArray(object), object);
  },

  async objectsAsTheyGrow() {
    const model = made({ supportsStructuredOutputs: true }).chatModel(MODEL);
    const asked = { ...common, model, schema: COUNT, maxOutputTokens: 48 };
    const stream = streamObject(asked);
    let last;
    for await (const part of stream.partialObjectStream) last = part;
    isCount(last);
    equal(last, (await generateObject(asked)).object);
  },

  async enums() {
    const model = made({ supportsStructuredOutputs: true }).chatModel(MODEL);
    const { object } = await generateObject({ ...common, model, output: "enum", enum: ["seven", "eight"] });
    holds(["seven", "eight"].includes(object), object);
  },

  async errors() {
    const error = await raises(() => generateText({ ...common, temperature: 9 }));
    equal([error.statusCode, error.isRetryable], [400, false]);
  },
});
