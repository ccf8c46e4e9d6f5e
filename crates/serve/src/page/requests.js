// The bodies of requests: what is asked of which endpoint, and the same as a curl command.

/** How many alternatives of a token are asked for. */
const ALTERNATIVES = 5;

/** Returns the request of a chat: all turns so far. */
export function chatRequest(model, messages, settings, alternatives) {
  const asked = alternatives ? { logprobs: true, top_logprobs: ALTERNATIVES } : {};
  return { path: "v1/chat/completions", body: body(model, { messages }, settings, asked) };
}

/** Returns the request that goes on with a text as it is. */
export function rawRequest(model, prompt, settings, alternatives) {
  const asked = alternatives ? { logprobs: ALTERNATIVES } : {};
  return { path: "v1/completions", body: body(model, { prompt }, settings, asked) };
}

/** Returns the request that fills holes between texts. Their lengths say how long the answer is. */
export function infillRequest(model, segments, settings, alternatives) {
  const asked = alternatives ? { logprobs: true, top_logprobs: ALTERNATIVES } : {};
  const request = body(model, { segments }, settings, asked);
  delete request.diffusion.gen_length;
  return { path: "v1/infill", body: request };
}

function body(model, what, settings, asked) {
  return {
    model,
    ...what,
    stream: true,
    stream_options: { include_usage: true },
    return_token_ids: true,
    ...asked,
    ...settings.body,
    diffusion: { ...settings.diffusion, frames: "commits", receipt: true },
  };
}

/** Reads text with holes: `<mask:12>` is one of twelve tokens, and so is `[[12]]` in a text that has no such mark.
 *  @throws {Error} if there is no hole, or one of no tokens. */
export function segmentsOf(text) {
  const marked = text.split(/<mask:\s*(\d+)\s*>/);
  const parts = marked.length > 1 ? marked : text.split(/\[\[\s*(\d+)\s*\]\]/);
  if (parts.length === 1) throw new Error("There is no hole: write [[12]] or <mask:12> where 12 tokens are wanted.");
  const segments = parts.map((part, index) => (index % 2 === 0 ? part : { hole: { tokens: Number(part) } }));
  if (segments.some((segment) => segment.hole?.tokens === 0)) throw new Error("A hole has 0 tokens: expected 1 or more.");
  return segments.filter((segment) => segment !== "");
}

/** Returns the text before the first hole, which stands before the canvas. */
export function leadOf(segments) {
  return typeof segments[0] === "string" ? segments[0] : "";
}

/** Returns a request as a curl command. The key stays here: the command names a variable for it. */
export function curlOf(address, { path, body }, hasKey) {
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  const key = hasKey ? ` \\\n  -H "authorization: Bearer $DEMASK_API_KEY"` : "";
  return `curl -N ${new URL(path, address).href} \\\n  -H 'content-type: application/json'${key} \\\n  -d '${quoted}'\n`;
}
