"""A server that speaks the playground's wire contract from a script: what it answers is said by the words of the prompt.

Words: `long` (4,000 positions), `slow`, `kill` (the connection breaks in the middle), `fail` (an error chunk in the
middle), `full` (503 twice before it answers), `refuse` (a 400), `markup` (markup as the model's text), `code` (a fenced block and a table), `short` (ends at its length), `dribble` (bytes in
odd pieces, with heartbeats), `hush` (the connection ends in order, but before the answer),
`strict` (refuses to tell alternatives). An expression that does not close its group and a schema with `multipleOf` are refused.
"""

import contextlib
import json
import pathlib
import random
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src" / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".jsonl": "application/jsonl"}
SENTENCES = (
    "A diffusion model begins with noise and ends with words. It reads the whole canvas at every step, and writes what it "
    "is surest of first: names, numbers, the end. What is left in doubt waits until its neighbours have settled.\n"
    "That is why the middle of a sentence can stand before its beginning does."
)
MARKUP = "Try <script>window.broken = true</script> or <img src=x onerror=\"window.broken = true\"> & see."
CODE = "So:\n```python\nx = 1\n\ny = 2\n```\nand\n| a | b |\n| 1 | 2 |\nthen."
PROMPT_TOKENS = 9
# Every answer that is to have a form, with the tokens that the form leaves no choice about and the one that it changes.
FORMED = '{"pears": 7}'
FORCED, CHANGED = {'{', ':', '}'}, " 7"


def causal_facts():
    facts = {**diffusion_facts(False), "family": "qwen3", "attention": "causal", "decoders": ["ar", "isd"], "caches": ["causal"]}
    return {**facts, "defaults": {"decoder": "ar", "cache": "causal"}}


def diffusion_facts(infill):
    return {
        "family": "llada" if infill else "sdar",
        "attention": "full" if infill else "block-causal",
        "infill": infill,
        "default_gen_length": 64,
        "max_gen_length": 4096,
        "decoders": ["static", "threshold", "freedave"],
        "caches": ["none", "prefix", "dual"] if infill else ["block"],
        "guides": ["demo-qwen"] if infill else [],
        "defaults": {"decoder": "threshold:tau=0.9", "cache": "dual" if infill else "block"},
    }


MODELS = [
    {"id": "mock-llada", "object": "model", "created": 1, "owned_by": "demask", "max_model_len": 8192, "diffusion": diffusion_facts(True)},
    {"id": "mock-demo", "root": "demo-llada", "object": "model", "created": 1, "owned_by": "demask", "max_model_len": 512, "diffusion": diffusion_facts(True)},
    {"id": "mock-ar", "object": "model", "created": 1, "owned_by": "demask", "max_model_len": 8192, "diffusion": causal_facts()},
    {"id": "mock-sdar", "object": "model", "created": 1, "owned_by": "demask", "max_model_len": 8192, "diffusion": diffusion_facts(False)},
]


def tokens_of(text):
    """Cuts text into words with the blank before them, line ends and marks alone."""
    return re.findall(r"\n| ?[^\s\w]| ?\w{1,7}|\s", text)


class Vocabulary:
    """Gives each text a number, and knows it again."""

    def __init__(self):
        self.texts, self.ids = [], {}

    def id(self, text):
        if text not in self.ids:
            self.ids[text] = len(self.texts)
            self.texts.append(text)
        return self.ids[text]


class Script:
    """What a decoder does with an answer: which positions it commits in which forward."""

    def __init__(self, tokens, decoder, seed, length):
        self.tokens, self.length = tokens, length
        chance = random.Random(seed)
        order = sorted(range(len(tokens)), key=lambda place: place / max(1, len(tokens)) + chance.random() * 0.8)
        name = decoder.split(":")[0]
        if name == "ar":
            order = list(range(len(tokens)))
        most = {"static": 1, "freedave": 4}.get(name, max(5, len(tokens) // 500 + 3))
        self.forwards = []
        while order:
            count = 1 if name in ("static", "ar") else chance.randint(1, most)
            taken, order = order[:count], order[count:]
            drafts = 3 if name == "freedave" else 0
            rejected = max(0, drafts - count + 1) if drafts else 0
            self.forwards.append((taken, drafts, drafts - rejected, rejected))
        self.confidence = [round(1 - chance.random() ** 2 * 0.7, 4) for _ in tokens]

    def settled(self, done):
        count = 0
        while count < len(self.tokens) and count in done:
            count += 1
        return count


class Mock:
    """The state that tests look at: requests, cancellations, refusals."""

    def __init__(self):
        self.requests, self.cancelled, self.refusals, self.vocabulary = [], 0, 0, Vocabulary()
        self.key, self.connections = None, []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/"

    def close(self):
        """Ends the server as a kill does: connections that are kept alive break too."""
        self.server.shutdown()
        self.server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handler(self):
        mock = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                mock.connections.append(self.connection)

            def log_message(self, *_):
                pass

            def do_GET(self):
                path = self.path.split("?")[0]
                if path == "/v1/models":
                    return self.models()
                name = "index.html" if path == "/" else path.removeprefix("/page/").lstrip("/")
                return self.file(PAGE / name)

            def models(self):
                if mock.key and self.headers.get("authorization") != f"Bearer {mock.key}":
                    return self.error(401, "No key, or one that is not known.", "invalid_api_key")
                return self.json(200, {"object": "list", "data": MODELS})

            def file(self, path):
                if path.parent != PAGE or not path.is_file():
                    return self.error(404, f"There is no {self.path}.", "not_found")
                return self.whole(200, path.read_bytes(), TYPES[path.suffix])

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == "/tokenize":
                    text = body["prompt"] if "prompt" in body else template(body["messages"])
                    ids = [mock.vocabulary.id(token) for token in tokens_of(text)]
                    return self.json(200, {"count": len(ids), "tokens": ids})
                if self.path == "/detokenize":
                    return self.json(200, {"prompt": "".join(mock.vocabulary.texts[each] for each in body["tokens"])})
                mock.requests.append((self.path, body, dict(self.headers)))
                return self.answer(body)

            def answer(self, body):
                words = body["messages"][-1]["content"] if "messages" in body else json.dumps(body.get("prompt") or body["segments"])
                if "refuse" in words:
                    return self.error(400, "`max_tokens` is 9000, and this server decodes at most 4096 tokens: lower it", None, "max_tokens")
                form = body.get("structured_outputs", {})
                if form.get("regex") == "a(b":
                    return self.error(400, "the regex cannot be read at byte 1: unclosed group", None, "structured_outputs.regex")
                if "multipleOf" in json.dumps(form):
                    return self.error(400, "the schema at #/properties/a: multipleOf 0.3 cannot be held to", None, "structured_outputs.json")
                if "strict" in words and "logprobs" in body:
                    return self.error(400, 'unknown parameter "logprobs": omit it', "unknown_parameter", "logprobs")
                if "full" in words and mock.refusals < 2:
                    mock.refusals += 1
                    return self.error(503, "the queue holds 64 requests.", "overloaded", retry=3)
                try:
                    return self.stream(body, words)
                except (BrokenPipeError, ConnectionResetError):
                    mock.cancelled += 1
                    self.close_connection = True

            def stream(self, body, words):
                self.send_response(200)
                for name, value in {**HEADERS, "Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", "Server-Timing": "queue;dur=2.5"}.items():
                    self.send_header(name, value)
                self.end_headers()
                messages = Answer(mock, self.path, body, words).messages()
                pause = 0.08 if "slow" in words else 0.01
                for number, message in enumerate(messages):
                    if number == 6 and "kill" in words:
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    if number == 6 and "hush" in words:
                        break
                    if number == 6 and "fail" in words:
                        message = b'data: {"error":{"message":"The device is out of memory.","type":"server_error","param":null,"code":"device"}}\n\n'
                    self.pieces(message, "dribble" in words)
                    time.sleep(pause)
                self.chunk(b"")

            def pieces(self, message, dribble):
                if not dribble:
                    return self.chunk(message)
                self.chunk(b":\n\n")
                for start in range(0, len(message), 37):
                    self.chunk(message[start : start + 37])

            def chunk(self, data):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

            def json(self, status, value, extra=()):
                self.whole(status, json.dumps(value).encode(), "application/json", extra)

            def error(self, status, message, code, param=None, retry=None):
                kind = "overloaded" if status == 503 else "invalid_request_error"
                extra = [("Retry-After", str(retry))] if retry else []
                self.json(status, {"error": {"message": message, "type": kind, "param": param, "code": code}}, extra)

            def whole(self, status, data, kind, extra=()):
                self.send_response(status)
                for name, value in [*HEADERS.items(), ("Content-Type", kind), ("Content-Length", str(len(data))), *extra]:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        return Handler


def template(messages):
    return "".join(f"<{each['role']}>{each['content']}\n" for each in messages) + "<assistant>"


class Answer:
    """The messages of one streamed answer."""

    def __init__(self, mock, path, body, words):
        self.id = mock.vocabulary.id
        self.path, self.body = path, body
        options = body.get("diffusion", {})
        usual = next(each for each in MODELS if each["id"] == body["model"])["diffusion"]["defaults"]
        self.decoder = options.get("decoder", usual["decoder"])
        self.cache = options.get("cache", usual["cache"])
        self.given, self.tokens, self.finish = [], None, "stop"
        if "segments" in body:
            self.infill(body["segments"])
        else:
            text = FORMED if "structured_outputs" in body else MARKUP if "markup" in words else CODE if "code" in words else SENTENCES
            self.tokens = tokens_of(text)
            self.finish = "length" if "short" in words else "stop"
            if "long" in words:
                self.tokens = (tokens_of(SENTENCES + " ") * 80)[:4000]
            self.places = list(range(len(self.tokens)))
            self.length = max(len(self.tokens) + 6, int((body.get("diffusion") or {}).get("gen_length") or body.get("max_tokens") or 64))
        self.script = Script(self.tokens, self.decoder, body.get("seed", 0), self.length)

    def infill(self, segments):
        """Holes take made-up words; texts behind the first hole are given."""
        self.tokens, self.places, place = [], [], 0
        begun = False
        for segment in segments:
            if isinstance(segment, str):
                for token in tokens_of(segment) if begun else []:
                    self.given.append([PROMPT_TOKENS + place, self.id(token), token])
                    place += 1
            else:
                begun = True
                for number in range(segment["hole"]["tokens"]):
                    self.tokens.append([" new", " words", " here"][number % 3])
                    self.places.append(place)
                    place += 1
        self.length = place

    def chunk(self, diffusion, text="", finish=None):
        choice = {"index": 0, "finish_reason": finish}
        if "chat" in self.path:
            choice["delta"] = {"content": text} if text else {}
        else:
            choice["text"] = text
        return {"id": "mock-1", "object": "chunk", "created": 1, "model": self.body["model"], "choices": [choice], "usage": None, "diffusion": diffusion}

    def messages(self):
        canvas = {"prompt_tokens": PROMPT_TOKENS, "length": PROMPT_TOKENS + self.length, "block_length": 16, "decoder": self.decoder, "cache": self.cache, "given": self.given}
        yield sse(self.chunk({"v": 1, "step": 0, "nfe": 0, "masks": self.length, "settled": 0, "commits": [], "canvas": canvas}))
        done, told = set(), 0
        for step, (taken, drafts, accepted, rejected) in enumerate(self.script.forwards):
            done.update(taken)
            settled = self.script.settled(done)
            frame = {"v": 1, "step": step, "nfe": step + 1, "masks": self.length - len(done), "settled": self.place(settled)}
            frame["commits"] = [self.commit(index, step) for index in taken]
            if "structured_outputs" in self.body:
                for name, marked in [("forced", lambda token: token in FORCED), ("changed", lambda token: token == CHANGED)]:
                    places = [PROMPT_TOKENS + self.places[index] for index in taken if marked(self.tokens[index])]
                    frame |= {name: places} if places else {}
            frame["forwards"] = [[step, step + 1, drafts, accepted, rejected]]
            text = "".join(self.tokens[told:settled])
            told = settled
            yield sse(self.chunk(frame, text))
        yield sse(self.chunk(self.end(), "", self.finish))
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": len(self.tokens), "total_tokens": PROMPT_TOKENS + len(self.tokens), "tokens_per_second": 812.4}
        yield sse({"id": "mock-1", "object": "chunk", "created": 1, "model": self.body["model"], "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def place(self, settled):
        return self.places[settled] if settled < len(self.places) else self.length

    def commit(self, index, step):
        token, confidence = self.tokens[index], self.script.confidence[index]
        entry = [PROMPT_TOKENS + self.places[index], self.id(token), token, confidence, step]
        if self.body.get("logprobs"):
            rest = (1 - confidence) / 2
            entry.append([[self.id(token), token, confidence], [self.id(" other"), " other", rest], [self.id(" <b>bold</b>"), " <b>bold</b>", rest / 2]])
        return entry

    def end(self):
        forwards = len(self.script.forwards)
        receipt = {
            "model": self.body["model"], "device": "a script", "decoder": self.decoder, "cache": self.cache, "exactness": "approximate",
            "seed": self.body.get("seed", 0), "nfe": forwards, "forwards": forwards, "generated_tokens": len(self.tokens),
            "tokens_per_nfe": len(self.tokens) / forwards, "flops": 1.5e9, "seconds": {"model": 0.1, "total": 0.12, "wall": 0.13}, "memory": {"weights": 1 << 20},
        }
        return {"seed": self.body.get("seed", 0), "nfe": forwards, "receipt": receipt}


def sse(value):
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


if __name__ == "__main__":
    mock = Mock()
    print(mock.url, flush=True)
    threading.Event().wait()
