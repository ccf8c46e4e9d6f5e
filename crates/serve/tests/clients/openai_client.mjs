// The official JavaScript client against a server.

import OpenAI from "openai";

import { KEY, MODEL, QUESTION, URL, equal, holds, raises, run } from "./checks.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: KEY, maxRetries: 0, timeout: 120_000 });
const messages = [{ role: "user", content: QUESTION }];
const chat = (given = {}) =>
  client.chat.completions.create({ model: MODEL, messages, max_tokens: 32, seed: 7, ...given });

await run({
  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    holds(ids.includes(MODEL), ids);
    equal((await client.models.retrieve(MODEL)).object, "model");
  },

  async chatWholeAndStreamed() {
    const whole = await chat();
    holds(whole.choices[0].message.content && whole.usage.completion_tokens > 0, whole);
    let text = "";
    let last;
    for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta?.content ?? "";
      last = chunk;
    }
    equal(text, whole.choices[0].message.content, "text");
    equal([last.choices, last.usage.completion_tokens], [[], whole.usage.completion_tokens], "usage");
  },

  async streamHelper() {
    const runner = client.chat.completions.stream({ model: MODEL, messages, max_tokens: 16, seed: 7 });
    let text = "";
    runner.on("content", (delta) => (text += delta));
    const final = await runner.finalChatCompletion();
    equal(final.choices[0].message.content, text);
  },

  async frames() {
    const frames = [];
    let text = "";
    for await (const chunk of await chat({ stream: true, diffusion: { frames: "commits", receipt: true } })) {
      if (chunk.diffusion) frames.push(chunk.diffusion);
      text += chunk.choices[0]?.delta?.content ?? "";
    }
    holds(frames[0].canvas.length > 0 && frames.some((frame) => frame.commits?.length), frames[0]);
    holds(frames.at(-1).receipt.forwards > 0, frames.at(-1));
    equal(text, (await chat()).choices[0].message.content, "text beside frames");
  },

  async logprobsAndChoices() {
    const found = await chat({ logprobs: true, top_logprobs: 2, n: 2, temperature: 1 });
    equal(found.choices.map((choice) => choice.index), [0, 1]);
    holds(found.choices[0].logprobs.content.every((token) => token.logprob <= 0), "a probability above 1");
  },

  async completions() {
    const given = { model: MODEL, prompt: ["Ada has", "Ben has"], max_tokens: 8, seed: 7 };
    const whole = await client.completions.create(given);
    const texts = ["", ""];
    for await (const chunk of await client.completions.create({ ...given, stream: true }))
      for (const choice of chunk.choices) texts[choice.index] += choice.text;
    equal(texts, whole.choices.map((choice) => choice.text));
  },

  async errors() {
    const wrong = await raises(() => chat({ no_such_parameter: 1 }));
    equal([wrong.constructor.name, wrong.status, wrong.param], ["BadRequestError", 400, "no_such_parameter"]);
    const model = await raises(() => client.models.retrieve("no-such-model"));
    equal([model.constructor.name, model.status], ["NotFoundError", 404]);
  },

  async responses() {
    const whole = await client.responses.create({ model: MODEL, input: QUESTION });
    let text = "";
    for await (const event of await client.responses.create({ model: MODEL, input: QUESTION, stream: true }))
      if (event.type === "response.output_text.delta") text += event.delta;
    equal([whole.status, text], ["completed", whole.output_text]);
  },

  async abortedStreams() {
    const stream = await chat({ stream: true });
    for await (const _ of stream) break;
    stream.controller.abort();
    holds((await chat({ max_tokens: 4 })).choices.length === 1, "no answer behind an aborted stream");
  },
});
