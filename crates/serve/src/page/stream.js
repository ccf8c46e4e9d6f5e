// Requests to the server and the streams that it answers with: server-sent events read by hand, errors as words.

/** The most characters of one message: whoever sends more is not our server. */
const MESSAGE_LIMIT = 16 * 1024 * 1024;

/** A refusal or failure that the server put into words. */
export class ServerError extends Error {
  constructor(message, { status = 0, code = null, param = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, code, param, retryAfter });
  }
}

/** A connection that was not there, or that ended before the answer did. */
export class ConnectionError extends Error {}

/** Cuts a stream of text into the data of its events. Comments, which servers send as heartbeats, are skipped. */
export class EventReader {
  #rest = "";

  /** Takes the next piece of text, and returns the data of all events that are whole now. */
  push(text) {
    this.#rest += text.replaceAll("\r", "");
    if (this.#rest.length > MESSAGE_LIMIT) throw new ConnectionError("The server sent a message without an end.");
    const blocks = this.#rest.split("\n\n");
    this.#rest = blocks.pop();
    return blocks.map(dataOf).filter((data) => data !== null);
  }
}

function dataOf(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data:"));
  if (lines.length === 0) return null;
  return lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
}

/** Returns the headers of a request; the key goes nowhere else. */
function headersOf(key, body) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key) headers.authorization = `Bearer ${key}`;
  return headers;
}

/** Sends a request and returns the response.
 *  @throws {ServerError} if the server refuses, {ConnectionError} if it is not there. */
export async function send(path, body, { key = "", signal } = {}) {
  const method = body === undefined ? "GET" : "POST";
  const init = { method, headers: headersOf(key, body), signal, cache: "no-store" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ConnectionError("The server cannot be reached. Is demask serve still running?");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/** Sends a request and returns the JSON of the answer. */
export async function ask(path, body, options) {
  const response = await send(path, body, options);
  return response.json();
}

async function refusal(response) {
  const text = await response.text().catch(() => "");
  let said = null;
  try {
    said = JSON.parse(text).error;
  } catch {
    // Not the server's envelope, a proxy's page perhaps: the status has to do.
  }
  const message = said?.message ?? `The server answered ${response.status} ${response.statusText}`.trim();
  return new ServerError(message, {
    status: response.status,
    code: said?.code ?? null,
    param: said?.param ?? null,
    retryAfter: secondsOf(response.headers.get("retry-after")),
  });
}

/** Reads a Retry-After header: seconds, or a date. */
export function secondsOf(header, now = Date.now()) {
  if (header === null || header.trim() === "") return null;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return Math.max(0, seconds);
  const date = Date.parse(header);
  return Number.isNaN(date) ? null : Math.max(0, (date - now) / 1000);
}

/** Reads how long a request queued from a Server-Timing header, in milliseconds. */
export function queuedOf(response) {
  const found = /(?:^|,)\s*queue[^,]*?;\s*dur=([0-9.]+)/.exec(response.headers.get("server-timing") ?? "");
  return found ? Number(found[1]) : null;
}

/** Yields the chunks of a streamed answer, in bunches as they arrive, until `[DONE]`.
 *  @throws {ServerError} for an error chunk, {ConnectionError} if the stream breaks off. */
export async function* chunksOf(response, signal) {
  const reader = response.body.getReader();
  try {
    yield* bunches(reader, signal);
  } finally {
    // Whoever stops reading closes the connection too, or the server would decode for nobody.
    reader.cancel().catch(() => {});
  }
}

async function* bunches(reader, signal) {
  const decoder = new TextDecoder();
  const events = new EventReader();
  for (;;) {
    const { done, value } = await nextPiece(reader, signal);
    const said = events.push(done ? decoder.decode() : decoder.decode(value, { stream: true }));
    const end = said.indexOf("[DONE]");
    const { chunks, error } = parsedUpToError(end < 0 ? said : said.slice(0, end));
    if (chunks.length > 0) yield chunks;
    if (error !== null) throw error;
    if (end >= 0) return;
    if (done) throw new ConnectionError("The connection ended before the answer was whole.");
  }
}

async function nextPiece(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ConnectionError("The connection broke before the answer was whole.");
  }
}

/** Parses messages up to the first that is an error: what stands before it still counts. */
function parsedUpToError(messages) {
  const chunks = [];
  for (const data of messages) {
    try {
      chunks.push(parsed(data));
    } catch (error) {
      return { chunks, error };
    }
  }
  return { chunks, error: null };
}

function parsed(data) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ConnectionError("The server sent a message that is not JSON.");
  }
  if (chunk.error) {
    const { message = "The server failed.", code = null, param = null } = chunk.error;
    throw new ServerError(message, { code, param });
  }
  return chunk;
}
