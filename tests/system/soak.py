"""What a server bears: long runs, crowds, bad clients and signals, each with a bar that it passes or not.

    python tests/system/soak.py target/release/demask
    python tests/system/soak.py target/release/demask --bars storms,slow --requests 10000 --connections 2000
    python tests/system/soak.py target/release/demask --bars memory --requests 1000000 --smallest demo/demo-llada

Each bar starts a server of that program on a free port of this machine, which nothing else reaches, and stops it. Each
ends by itself: --requests, --connections and --seconds bound what is sent and how long. One JSON line a bar: its name,
whether it passed, what was measured. The exit status is 1 if one did not.

| bar | what is done | what must hold |
|---|---|---|
| answers | requests over all options, to 64 at once, every fifth cut off | each answer is that of the request alone |
| malformed | bad HTTP, and bodies that are no requests | an error of the client's, or the end; never 5xx |
| slow | heads, bodies and readers that dribble | others' p99 at most 1.5 times as long; memory flat; slow ones cut |
| storms | connections that end at a random byte | nothing runs, waits or stays open afterwards |
| overload | ten times what the server manages | 90 % of its peak; refusals within 10 ms; well again within 2 s |
| signals | SIGTERM and SIGKILL at random times | streams end by their rule, and so does the process |
| descriptors | more connections than the process may open | it waits without spinning, and serves again |
| memory | many small requests | memory does not grow behind the first tenth; counters add up |
| disk | a log on a full disk | requests are served, and SIGTERM ends it with status 0 |
| clock | the date jumps by days, both ways, before and during requests | no deadline, rate or time-out follows it |

Needs Linux: descriptors, memory and processor seconds are read from /proc. The bar
of the clock needs libfaketime (Debian's package of that name), and passes without being measured where it is not.
"""

import argparse
import asyncio
import collections
import json
import multiprocessing
import os
import random
import re
import resource
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
from common import number, program

HOST = "127.0.0.1"
# Seconds that a server may take to start, to end behind SIGTERM, and to be idle behind the last request.
START, END, IDLE = 120, 40, 5
# Requests that a server has room for where it is to be overrun.
PLACES = 32
# Requests of a crowd that wait for an answer at the same time, at most.
CROWD = 256
# End of a body in chunks.
LAST_CHUNK = b"\r\n0\r\n\r\n"
# Seconds of one exchange.
PATIENCE = 60
QUESTION = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?"
# What must be told, and 0 when nobody asks anything.
IDLE_GAUGES = (
    "demask_running",
    "demask_waiting",
    "demask_places_taken",
    "demask_mailboxes",
    "demask_network_open_sequences",
    "demask_leaks_total",
)


class Server:
    """A server on a free port of this machine."""

    def __init__(self, binary, words=(), files=None, variables=None, log=None, cores=None):
        self.binary, self.words, self.files, self.cores = binary, list(words), files, cores
        self.variables = variables or {}
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}"
        # Requests are written down only where somebody asks for it.
        self.words += [] if log else ["--no-log"]
        self.log = log or tempfile.TemporaryFile("w+")
        self.process = None

    def start(self):
        """Starts it and waits until it is ready; the seconds that it took."""
        began = time.monotonic()

        def limit():
            if self.files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.files,) * 2)
            if self.cores is not None:
                os.sched_setaffinity(0, self.cores)

        command = [self.binary, "serve", "--host", HOST, "--port", str(self.port), *self.words]
        variables = {**os.environ, **self.variables}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, preexec_fn=limit, env=variables)
        while self.process.poll() is None and time.monotonic() < began + START:
            if self.is_ready():
                return time.monotonic() - began
            time.sleep(0.02)
        self.stop()
        raise Broken(f"the server did not start: {self.told()[-500:]}")

    def told(self):
        """What it has written so far."""
        if not self.log.readable():
            return ""
        self.log.seek(0)
        return self.log.read()

    def is_ready(self):
        try:
            return asyncio.run(ask(self, "GET", "/health")).status == 200
        except (OSError, ValueError, TimeoutError):
            return False

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def is_alive(self):
        return self.process.poll() is None

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident(self):
        """Bytes that it has in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def processor_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metrics(self):
        """All values by name, those of all labels together."""
        found = {}
        for line in asyncio.run(ask(self, "GET", "/metrics")).body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{", 1)[0]
                found[name] = found.get(name, 0.0) + float(value)
        return found

    def model(self):
        return json.loads(asyncio.run(ask(self, "GET", "/v1/models")).body)["data"][0]

    def idle(self):
        """What is not 0 although nobody asks, once there was time for it to become so."""
        ends = time.monotonic() + IDLE
        while True:
            found = self.metrics()
            left = {name: found.get(name) for name in IDLE_GAUGES if found.get(name) != 0}
            if not left or time.monotonic() > ends:
                return left
            time.sleep(0.05)


class Broken(Exception):
    """Why a bar could not be measured."""


class Reply:
    """An answer that was read to its end, or to where it was cut off."""

    def __init__(self, data):
        self.data = data
        head, _, rest = data.partition(b"\r\n\r\n")
        line = head.split(b"\r\n", 1)[0].split(b" ", 2)
        if len(line) < 2 or not line[0].startswith(b"HTTP/1."):
            raise ValueError(f"no answer of HTTP: {data[:80]!r}")
        self.status = int(line[1])
        fields = (field.partition(b":") for field in head.split(b"\r\n")[1:])
        self.headers = {name.decode().lower(): value.strip().decode() for name, _, value in fields}
        self.body = unchunked(rest) if self.headers.get("transfer-encoding") == "chunked" else rest


def unchunked(rest):
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size.split(b";")[0] or b"0", 16)
        if length == 0:
            break
        body, rest = body + rest[:length], rest[length + 2 :]
    return body


def request(method, path, body=None, headers="", connection="close"):
    data = b"" if body is None else json.dumps(body).encode()
    of_body = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if data else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: {connection}\r\n{of_body}{headers}\r\n"
    return head.encode() + data


async def sent(server, data, limit=None, patience=PATIENCE):
    """Sends bytes; what comes back until the end, or up to `limit` bytes, behind which the connection is broken off."""

    async def exchange():
        reader, writer = await asyncio.open_connection(HOST, server.port)
        try:
            writer.write(data)
            found = b""
            while limit is None or len(found) < limit:
                try:
                    some = await reader.read(65536 if limit is None else limit - len(found))
                except ConnectionError:
                    break
                if not some:
                    break
                found += some
            return found
        finally:
            if limit is not None:
                # Reset instead of a quiet end: what a client does that is killed.
                writer.transport.abort()
            writer.close()

    return await asyncio.wait_for(exchange(), patience)


async def ask(server, method, path, body=None):
    return Reply(await sent(server, request(method, path, body)))


def chat(**given):
    return {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 32, "seed": 1, **given}


def random_words(seed, count):
    """Messages with random words, of which no other seed has the same."""
    draws = random.Random(seed)
    text = " ".join("".join(draws.choices("abcdefghijklmnopqrstuvwxyz", k=draws.randint(2, 8))) for _ in range(count))
    return [{"role": "user", "content": text}]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


# --- loads


async def next_reply(reader):
    """The next answer on a connection that stays open."""
    data = await reader.readuntil(b"\r\n\r\n")
    headers = Reply(data).headers
    if headers.get("transfer-encoding") == "chunked":
        return Reply(data + await reader.readuntil(LAST_CHUNK))
    return Reply(data + await reader.readexactly(int(headers.get("content-length", 0))))


async def load(server, bodies, random_, at_once, rate=None):
    """Sends a request for each body, up to `at_once` at a time on connections that are kept: one after the other, or at
    random moments, `rate` a second. Returns what became of them."""
    idle, turn, bodies = [], asyncio.Semaphore(at_once), iter(bodies)
    found = {"finished": 0, "refused": 0, "with_retry_after": 0, "failed": 0, "refusal_ms": [], "late_ms": []}

    async def exchange(body):
        reader, writer = idle.pop() if idle else await asyncio.open_connection(HOST, server.port, limit=1 << 24)
        writer.write(request("POST", "/v1/chat/completions", body, connection="keep-alive"))
        reply = await asyncio.wait_for(next_reply(reader), PATIENCE)
        if reply.headers.get("connection") == "close":
            writer.close()
        else:
            idle.append((reader, writer))
        return reply

    async def one(body):
        began = time.monotonic()
        try:
            reply = await exchange(body)
            whole = reply.status == 200 and texts(reply) is not None
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
            reply, whole = None, False
        if reply and reply.status == 503:
            found["refused"] += 1
            found["with_retry_after"] += "retry-after" in reply.headers
            found["refusal_ms"].append(1e3 * (time.monotonic() - began))
        else:
            found["finished" if whole else "failed"] += 1

    async def in_turn():
        for body in bodies:
            await one(body)

    async def at(moment, body):
        async with turn:
            found["late_ms"].append(1e3 * (time.monotonic() - moment))
            await one(body)

    began = moment = time.monotonic()
    if rate is None:
        await asyncio.gather(*(in_turn() for _ in range(at_once)))
    else:
        async with asyncio.TaskGroup() as tasks:
            for body in bodies:
                moment += random_.expovariate(rate)
                await asyncio.sleep(moment - time.monotonic())
                tasks.create_task(at(moment, body))
    for _, writer in idle:
        writer.close()
    return {**found, "per_second": found["finished"] / (time.monotonic() - began)}


# --- answers


def texts(reply):
    """Texts, tokens and ends of all choices, of a whole body or a stream; None if the stream has no end."""
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        messages = [line[6:] for line in reply.body.decode().split("\n") if line.startswith("data: ")]
        if messages[-1:] != ["[DONE]"]:
            return None
        parts = [json.loads(message) for message in messages[:-1]]
        if any("error" in part for part in parts):
            return None
    else:
        parts = [json.loads(reply.body)]
    found = {}
    for choice in (choice for part in parts for choice in part["choices"]):
        text, tokens, end = found.setdefault(choice["index"], ["", [], None])
        words = choice.get("delta") or choice.get("message") or {}
        tokens = tokens + (choice.get("token_ids") or [])
        found[choice["index"]] = [text + (words.get("content") or ""), tokens, choice.get("finish_reason") or end]
    return found


def kinds(server, random_, count):
    """Requests of many kinds, each with the answer that it gets alone: [(body, answer)]."""
    about = server.model()["diffusion"]
    names = lambda key: [entry["name"] if isinstance(entry, dict) else entry for entry in about[key]]
    pairs = [(decoder, cache) for decoder in names("decoders") for cache in names("caches")]
    random_.shuffle(pairs)
    found, refused = [], set()
    while len(found) < count and len(refused) < len(pairs):
        decoder, cache = pair = random_.choice(pairs)
        numbers = random_.randint(1, 9), random_.randint(1, 9)
        question = QUESTION.replace("3", str(numbers[0])).replace("4", str(numbers[1]))
        body = chat(
            messages=[{"role": "user", "content": question}],
            max_tokens=random_.choice([8, 16, 32, 64]),
            temperature=random_.choice([0.0, 0.0, 0.7]),
            n=random_.choice([1, 1, 1, 2]),
            seed=random_.randint(0, 1 << 30),
            return_token_ids=True,
            diffusion={"decoder": decoder, "cache": cache},
        )
        reply = asyncio.run(ask(server, "POST", "/v1/chat/completions", body))
        if reply.status == 400:
            refused.add(pair)
        elif reply.status == 200:
            found.append((body, texts(reply)))
        else:
            raise Broken(f"{reply.status} for {body}: {reply.body[:300]}")
    if not found:
        raise Broken("no pair of decoder and cache was taken")
    return found


def answers(arguments, random_):
    with Server(arguments.demask, arguments.serve) as server:
        pool = kinds(server, random_, arguments.kinds)
        counts = {"equal": 0, "cut": 0, "refused": 0}
        differences = []

        async def one(turn):
            await asyncio.sleep(random_.expovariate(50))
            body, alone = random_.choice(pool)
            body = {**body, "stream": random_.random() < 0.7}
            data = request("POST", "/v1/chat/completions", body)
            async with turn:
                if random_.random() < 0.2:
                    await sent(server, data, limit=random_.randint(1, 4000))
                    counts["cut"] += 1
                    return
                reply = Reply(await sent(server, data))
            if reply.status == 503:
                counts["refused"] += 1
            elif reply.status == 200 and texts(reply) == alone:
                counts["equal"] += 1
            else:
                differences.append(
                    {"body": body, "status": reply.status, "found": str(texts(reply))[:300], "alone": str(alone)[:300]}
                )

        async def all_of_them():
            left = arguments.requests
            while left:
                at_once = random_.choice([1, 2, 4, 16, 64])
                count = min(left, at_once * 8)
                turn = asyncio.Semaphore(at_once)
                await asyncio.gather(*(one(turn) for _ in range(count)))
                left -= count

        asyncio.run(all_of_them())
        left = server.idle()
    passed = not differences and not left and counts["equal"] > 0
    methods = sorted({f"{body['diffusion']['decoder']} {body['diffusion']['cache']}" for body, _ in pool})
    return passed, {
        **counts,
        "methods": len(methods),
        "different": len(differences),
        "examples": differences[:3],
        "left": left,
    }


# --- malformed


def corpus(model):
    """Bytes that no server should like: (name, bytes, whether the client closes its side behind them)."""
    path, big = "/v1/chat/completions", 1 << 20
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\n"
    good = json.dumps({"model": model, **chat(max_tokens=4)})
    body = lambda text: f"{head}Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text
    many = "".join(f"X-{at}: b\r\n" for at in range(100_000))
    chunked = f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    field = lambda name, value: body(json.dumps({"model": model, **chat(max_tokens=4), name: value}).encode())
    raw = lambda name, value: body(f'{{"model": {json.dumps(model)}, "messages": [], "{name}": {value}}}'.encode())
    return [
        ("no host", b"GET /health HTTP/1.1\r\n\r\n", False),
        ("two lengths", f"{head}Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef".encode(), False),
        (
            "length and chunks",
            f"{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(),
            False,
        ),
        ("negative length", f"{head}Content-Length: -1\r\n\r\n".encode(), False),
        ("length of words", f"{head}Content-Length: five\r\n\r\n".encode(), False),
        ("huge length", f"{head}Content-Length: {10**18}\r\n\r\n".encode(), False),
        ("bad chunk", f"{chunked}zz\r\nabc\r\n".encode(), False),
        ("huge chunk", f"{chunked}{'f' * 16}\r\nabc\r\n".encode(), True),
        ("chunk without end", f"{chunked}5\r\nabcdefgh\r\n".encode(), False),
        ("unknown coding", f"{head}Transfer-Encoding: gzip\r\n\r\n".encode(), False),
        ("folded header", f"GET /health HTTP/1.1\r\nHost: {HOST}\r\nX-A: b\r\n c\r\n\r\n".encode(), True),
        ("nul in header", f"GET /health HTTP/1.1\r\nHost: {HOST}\r\nX-A: b\0c\r\n\r\n".encode(), False),
        ("blank before colon", f"GET /health HTTP/1.1\r\nHost : {HOST}\r\n\r\n".encode(), False),
        ("large header", f"GET /health HTTP/1.1\r\nHost: {HOST}\r\nX-A: {'b' * big}\r\n\r\n".encode(), False),
        (
            "many headers",
            f"GET /health HTTP/1.1\r\nHost: {HOST}\r\n{many}\r\n".encode(),
            False,
        ),
        ("long target", f"GET /{'a' * big} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode(), False),
        ("version 0.9", b"GET /health\r\n", True),
        ("version 3", f"GET /health HTTP/3.0\r\nHost: {HOST}\r\n\r\n".encode(), True),
        ("no method", b" /health HTTP/1.1\r\n\r\n", True),
        ("other protocol", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), True),
        ("nothing", b"", True),
        ("half a head", f"POST {path} HTT".encode(), True),
        ("half a body", body(good.encode())[:-10], True),
        ("other host", b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n", False),
        ("bad expectation", f"{head}Expect: nonsense\r\nContent-Length: 2\r\n\r\n{{}}".encode(), False),
        ("not utf-8", body(b'{"model": "\xff\xfe", "messages": []}'), False),
        (
            "lone surrogate",
            body(f'{{"model": {json.dumps(model)}, "messages": [{{"role": "user", "content": "\\ud800"}}]}}'.encode()),
            False,
        ),
        ("deep", body(b"[" * 100_000), False),
        ("deep inside", raw("metadata", "[" * 100_000), False),
        ("same key twice", raw("messages", '[], "messages": []'), False),
        ("no number", raw("temperature", "NaN"), False),
        ("endless number", raw("temperature", "1e999"), False),
        ("long number", raw("max_tokens", "9" * 100_000), False),
        ("huge answer", field("max_tokens", 10**18), False),
        ("negative choices", field("n", -1), False),
        ("many choices", field("n", 10**9), False),
        ("half a token", field("max_tokens", 1.5), False),
        ("stop of numbers", field("stop", [1, 2]), False),
        ("many stops", field("stop", ["x"] * 100_000), False),
        ("long stop", field("stop", "x" * big), False),
        ("messages of text", field("messages", "hello"), False),
        ("null messages", field("messages", None), False),
        ("unknown role", field("messages", [{"role": "\0", "content": ""}]), False),
        ("large body", body(b" " * (8 << 20)), False),
        ("tail behind json", body(good.encode() + b"}"), False),
    ]


# Statuses that these may have beside an error of the client's: what is asked for is odd, but can be carried out.
HARMLESS = {"folded header", "blank before colon", "bad expectation", "lone surrogate", "version 3"}


def is_fine(name, status):
    """Whether an error of the client's, an end of the connection, or for what is merely odd, an answer."""
    if status == "closed" or isinstance(status, int) and 400 <= status < 500:
        return True
    return status == 200 and (name in HARMLESS or name.startswith("changed"))


async def all_of(server, cases, patience):
    """What each case comes to, several at once: [(name, status or a word)]."""
    turn = asyncio.Semaphore(16)

    async def exchange(data, closes):
        reader, writer = await asyncio.open_connection(HOST, server.port)
        try:
            writer.write(data)
            await writer.drain()
            if closes:
                writer.write_eof()
                return await reader.read()
            found = b""
            # A connection that the client has not closed may stay open behind the answer.
            while b"\r\n\r\n" not in found and (some := await reader.read(65536)):
                found += some
            return found
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()

    async def one(name, data, closes):
        async with turn:
            try:
                found = await asyncio.wait_for(exchange(data, closes), patience)
                return name, Reply(found).status if found else "closed"
            except TimeoutError:
                return name, "waits on"
            except (OSError, ValueError) as error:
                return name, f"{type(error).__name__}: {error}"

    return await asyncio.gather(*(one(*case) for case in cases))


def malformed(arguments, random_):
    with Server(arguments.demask, arguments.serve) as server:
        cases = corpus(server.model()["id"])
        good = request("POST", "/v1/chat/completions", {"model": server.model()["id"], **chat(max_tokens=4)})
        # Any good request with one byte changed is a case, too.
        for at in range(arguments.mutations):
            data = bytearray(good)
            for _ in range(random_.randint(1, 3)):
                data[random_.randrange(len(data))] = random_.randrange(256)
            cases.append((f"changed {at}", bytes(data), False))
        statuses = asyncio.run(all_of(server, cases, arguments.cut))
        healthy = server.is_alive() and server.is_ready()
        left = server.idle() if healthy else "gone"
    wrong = [{"case": name, "status": status} for name, status in statuses if not is_fine(name, status)]
    counted = dict(sorted(collections.Counter(str(status) for _, status in statuses).items()))
    found = {"cases": len(cases), "statuses": counted, "wrong": wrong[:10], "alive": healthy, "left": left}
    return not wrong and healthy and not left, found


# --- slow


async def latencies(server, data, seconds):
    """Seconds of requests one after the other."""
    found, ends = [], time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.monotonic()
        reply = Reply(await sent(server, data))
        if reply.status == 200:
            found.append(time.monotonic() - began)
    return found


async def dribble(server, data, pause, state, at_once=1):
    """Sends some bytes at once and then one now and then, until the server ends it."""
    began = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(HOST, server.port)
    except OSError:
        state["refused"] += 1
        return
    state["open"] += 1
    try:
        for at in range(at_once - 1, len(data)):
            writer.write(data[: at + 1] if at < at_once else data[at : at + 1])
            await writer.drain()
            try:
                await asyncio.wait_for(reader.read(1), pause)
            except TimeoutError:
                continue
            # An end, or a refusal: either way the server has lost patience.
            state["cut"].append(time.monotonic() - began)
            return
    except OSError:
        state["cut"].append(time.monotonic() - began)
    finally:
        writer.transport.abort()


async def reads_slowly(server, data, state):
    """Asks for a stream and takes a byte a second of it, with little room for more."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    line.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(line, (HOST, server.port))
        reader, writer = await asyncio.open_connection(sock=line, limit=1)
        writer.write(data)
        state["readers"] += 1
        while await reader.read(1):
            await asyncio.sleep(1)
    except OSError:
        pass
    finally:
        line.close()


async def siege(server, arguments, random_, ready, over):
    """Slow heads, bodies and readers until it is over; what became of them."""
    state = {"open": 0, "refused": 0, "cut": [], "readers": 0}
    head = request("POST", "/v1/chat/completions", chat(), headers="X-A: " + "b" * 2000 + "\r\n")
    body = request("POST", "/v1/chat/completions", chat(messages=[{"role": "user", "content": "a " * 500}]))
    begin = body.index(b"\r\n\r\n") + 4
    streams = request("POST", "/v1/chat/completions", chat(stream=True, max_tokens=64, diffusion={"frames": "canvas"}))
    slow_ones = []
    for at in range(arguments.connections):
        if at % 50 == 49:
            work = reads_slowly(server, streams, state)
        elif at % 2:
            work = dribble(server, head, random_.uniform(0.5, 2), state)
        else:
            work = dribble(server, body, random_.uniform(0.5, 2), state, begin)
        slow_ones.append(asyncio.create_task(work))
        if at % 100 == 99:
            await asyncio.sleep(0.05)
    ready.set()
    while not over.is_set():
        await asyncio.sleep(0.1)
    for task in slow_ones:
        task.cancel()
    await asyncio.gather(*slow_ones, return_exceptions=True)
    return state


def besieger(server, arguments, random_, ready, over, told):
    """The process of those that are slow: whoever measures neither waits for it nor for its processor."""
    os.nice(19)
    told.send(asyncio.run(siege(server, arguments, random_, ready, over)))


def besieged(server, arguments, random_, good):
    """Seconds of good requests while others are slow, memory and descriptors that those took, and what became of them."""
    files, memory = server.descriptors(), server.resident()
    processes = multiprocessing.get_context("fork")
    ready, over, (hears, told) = processes.Event(), processes.Event(), processes.Pipe(False)
    crowd = processes.Process(target=besieger, args=(server, arguments, random_, ready, over, told), daemon=True)
    crowd.start()
    if not ready.wait(PATIENCE):
        raise Broken(f"{arguments.connections} connections were not made within {PATIENCE} seconds")
    seconds = asyncio.run(latencies(server, good, arguments.seconds))
    grown, ends = server.resident() - memory, time.monotonic() + arguments.cut
    # What the server still holds is its own to say: a slow reader may read on for long what was sent to it.
    while (still := server.descriptors() - files) > 0 and time.monotonic() < ends:
        time.sleep(0.2)
    over.set()
    if not hears.poll(PATIENCE):
        raise Broken("the slow clients did not end")
    state = hears.recv()
    crowd.join()
    return seconds, grown, still, state


def slow(arguments, random_):
    # The server has cores of its own, as under overload: what it loses is by its own work alone.
    cores = os.sched_getaffinity(0)
    own, words = None, arguments.serve
    if len(cores) > 1:
        own = cores - {max(cores)}
        words = [*words, "--threads", str(len(own))]
    with Server(arguments.demask, words, cores=own) as server:
        if own is not None:
            os.sched_setaffinity(0, cores - own)
        try:
            good = request("POST", "/v1/chat/completions", chat(max_tokens=8))
            asyncio.run(latencies(server, good, 2))
            base = asyncio.run(latencies(server, good, arguments.seconds / 2))
            under, grown, still, state = besieged(server, arguments, random_, good)
        finally:
            os.sched_setaffinity(0, cores)
        left = server.idle()
    alone, crowd = percentile(base, 0.99), percentile(under, 0.99)
    ratio = crowd / alone if alone and crowd else None
    found = {
        "server_cores": None if own is None else len(own),
        "connections": arguments.connections,
        "slow_readers": state["readers"],
        "refused": state["refused"],
        "p50_alone_ms": 1e3 * (percentile(base, 0.5) or 0),
        "p50_besieged_ms": 1e3 * (percentile(under, 0.5) or 0),
        "p99_alone_ms": 1e3 * (alone or 0),
        "p99_besieged_ms": 1e3 * (crowd or 0),
        "ratio": ratio,
        "requests": len(under),
        "grown_bytes": grown,
        "cut": len(state["cut"]),
        "longest_seconds": max(state["cut"], default=None),
        "still_open": still,
        "left": left,
    }
    return ratio is not None and ratio <= 1.5 and grown <= 256 << 20 and still <= 0 and not left, found


# --- storms


def storms(arguments, random_):
    with Server(arguments.demask, arguments.serve) as server:
        asyncio.run(latencies(server, request("POST", "/v1/chat/completions", chat(max_tokens=8)), 1))
        server.idle()
        before, memory = server.descriptors(), server.resident()
        whole = request("POST", "/v1/chat/completions", chat(stream=True))
        size = len(asyncio.run(sent(server, whole)))
        broken = 0

        async def one(turn):
            nonlocal broken
            body = chat(
                stream=random_.random() < 0.7, max_tokens=random_.choice([8, 32, 64]), seed=random_.randint(0, 99)
            )
            data = request("POST", "/v1/chat/completions", body)
            async with turn:
                if random_.random() < 0.4:
                    # In the head or the body of the request.
                    await sent(server, data[: random_.randint(0, len(data) - 1)], limit=0)
                else:
                    await sent(server, data, limit=random_.randint(1, size + 200))
            broken += 1

        async def all_of_them():
            turn = asyncio.Semaphore(64)
            for begin in range(0, arguments.requests, 500):
                await asyncio.gather(*(one(turn) for _ in range(min(500, arguments.requests - begin))))

        began = time.monotonic()
        asyncio.run(all_of_them())
        seconds = time.monotonic() - began
        left = server.idle()
        ends = time.monotonic() + IDLE
        while server.descriptors() > before and time.monotonic() < ends:
            time.sleep(0.05)
        after, grown = server.descriptors(), server.resident() - memory
        healthy = server.is_ready()
    found = {
        "broken_off": broken,
        "seconds": seconds,
        "left": left,
        "descriptors_before": before,
        "descriptors_after": after,
        "grown_bytes": grown,
    }
    return broken == arguments.requests and not left and after <= before and healthy, found


# --- overload


def overload(arguments, random_):
    # The client that makes the crowd has one core, the server the others: what it loses is by its own work alone.
    cores = os.sched_getaffinity(0)
    own, words = None, [*arguments.serve, "--max-queue", str(PLACES)]
    if len(cores) > 1:
        own = cores - {max(cores)}
        words += ["--threads", str(len(own))]
        os.sched_setaffinity(0, cores - own)
    try:
        return overrun(arguments, random_, own, words)
    finally:
        os.sched_setaffinity(0, cores)


def overrun(arguments, random_, own, words):
    """Ten times what a server on some cores manages."""
    # Fewer places than the client asks for at once: else nobody is ever refused.
    with Server(arguments.demask, words, cores=own) as server:

        def asked(count, at_once, rate=None):
            # Texts that the model was not trained for take many forwards: the client is not what limits the rate.
            bodies = (chat(ignore_eos=True, seed=seed, messages=random_words(seed, 32)) for seed in range(count))
            return asyncio.run(load(server, bodies, random_, at_once, rate))

        asked(2 * PLACES, PLACES)
        rate = asked(max(8 * PLACES, arguments.requests // 20), PLACES)["per_second"]
        if not rate:
            raise Broken("no request was answered")
        count = int(10 * rate * arguments.seconds)
        told = asked(count, CROWD, 10 * rate)
        began = time.monotonic()
        while asyncio.run(ask(server, "POST", "/v1/chat/completions", chat(max_tokens=4))).status != 200:
            if time.monotonic() - began > 30:
                break
            time.sleep(0.02)
        recovered = time.monotonic() - began
        left = server.idle()
    kept = told["per_second"] / rate
    found = {
        "server_cores": None if own is None else len(own),
        "peak_per_second": rate,
        "offered_per_second": 10 * rate,
        "sent": count,
        **{name: told[name] for name in ("finished", "refused", "with_retry_after", "failed")},
        "share_of_peak": kept,
        "p99_refusal_ms": percentile(told["refusal_ms"], 0.99),
        "median_refusal_ms": percentile(told["refusal_ms"], 0.5),
        "p99_sent_late_ms": percentile(told["late_ms"], 0.99),
        "recovered_seconds": recovered,
        "left": left,
    }
    refusals = told["refused"] > 0 and found["p99_refusal_ms"] < 10 and told["with_retry_after"] == told["refused"]
    return kept >= 0.9 and refusals and found["failed"] == 0 and recovered < 2 and not left, found


# --- signals


def ends_by_rule(data):
    """Whether what came back is a whole answer: JSON to its end, or a stream that closes as streams do."""
    if not data:
        return True
    reply = Reply(data)
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        return reply.body.endswith(b"data: [DONE]\n\n")
    json.loads(reply.body)
    return True


def signals(arguments, random_):
    server = Server(arguments.demask, arguments.serve)
    wrong, codes, starts = [], {}, []

    async def crowd(kind, pause):
        data = [
            request("POST", "/v1/chat/completions", chat(stream=at % 2 == 0, max_tokens=64, seed=at)) for at in range(8)
        ]
        asked = [asyncio.create_task(sent(server, one)) for one in data]
        await asyncio.sleep(pause)
        server.process.send_signal(kind)
        return await asyncio.gather(*asked, return_exceptions=True)

    for turn in range(arguments.turns):
        starts.append(server.start())
        kind = signal.SIGTERM if turn % 2 == 0 else signal.SIGKILL
        replies = asyncio.run(crowd(kind, random_.uniform(0, 0.5)))
        try:
            code = server.process.wait(END)
        except subprocess.TimeoutExpired:
            wrong.append({"turn": turn, "why": f"it did not end within {END} s"})
            server.process.kill()
            code = server.process.wait()
        codes[f"{kind.name} {code}"] = codes.get(f"{kind.name} {code}", 0) + 1
        if kind == signal.SIGTERM:
            if code != 0:
                wrong.append({"turn": turn, "why": f"exit status {code}"})
            for reply in replies:
                try:
                    fine = isinstance(reply, OSError) or ends_by_rule(reply)
                except (ValueError, TypeError):
                    fine = False
                if not fine:
                    wrong.append({"turn": turn, "why": f"cut off: {str(reply)[-200:]}"})
    return not wrong, {
        "turns": arguments.turns,
        "ends": codes,
        "slowest_start_seconds": max(starts),
        "wrong": wrong[:5],
    }


# --- descriptors


def descriptors(arguments, random_):
    files = 128
    with Server(arguments.demask, arguments.serve, files=files) as server:
        crowd = []
        for _ in range(2 * files):
            try:
                crowd.append(socket.create_connection((HOST, server.port), timeout=1))
            except OSError:
                break
        time.sleep(1)
        before = server.processor_seconds()
        time.sleep(3)
        spun = (server.processor_seconds() - before) / 3
        for connection in crowd:
            connection.close()
        ends = time.monotonic() + 10
        while not (ready := server.is_ready()) and time.monotonic() < ends:
            time.sleep(0.1)
        alive = server.is_alive()
    return alive and ready and spun < 0.2, {
        "limit": files,
        "connections": len(crowd),
        "processor_share": spun,
        "serves_again": ready,
    }


# --- memory


def memory(arguments, random_):
    with Server(arguments.demask, arguments.serve) as server:
        tenths, asked, seconds = [], 0, time.monotonic()
        body = chat(max_tokens=4, **({"diffusion": {"steps": 1}} if arguments.one_step else {}))
        size = max(arguments.requests // 20, 1)
        while asked < arguments.requests:
            count = min(size, arguments.requests - asked)
            seeds = range(asked, asked + count)
            bodies = ({**body, "stream": True, "seed": seed, "messages": random_words(seed, 4)} for seed in seeds)
            finished = asyncio.run(load(server, bodies, random_, 16))["finished"]
            if finished != count:
                raise Broken(f"{finished} of {count} requests were answered")
            asked += count
            tenths.append(server.resident())
        seconds = time.monotonic() - seconds
        left, counters = server.idle(), server.metrics()
        descriptors_ = server.descriptors()
    # Behind the first tenth: the line of least squares through what was resident, by requests.
    settled = tenths[2:] or tenths
    slope = statistics.linear_regression(range(len(settled)), settled).slope if len(settled) > 1 else 0.0
    grown = slope * len(settled)
    ends = ("demask_answers_total", "demask_requests_cancelled_total", "demask_requests_failed_total")
    told = {name: counters.get(name, 0) for name in ("demask_requests_admitted_total", *ends)}
    found = {
        "requests": asked,
        "per_second": asked / seconds,
        "resident_first": tenths[0],
        "resident_last": tenths[-1],
        "grown_bytes": grown,
        "bytes_per_request": grown / asked,
        "counters": told,
        "descriptors": descriptors_,
        "left": left,
    }
    adds_up = told["demask_requests_admitted_total"] == asked == sum(told[name] for name in ends)
    return grown <= max(4 << 20, 0.01 * tenths[0]) and adds_up and not left, found


# --- disk


def disk(arguments, random_):
    with open("/dev/full", "w") as full, Server(arguments.demask, [*arguments.serve, "-v"], log=full) as server:

        async def crowd():
            bodies = [chat(max_tokens=8, seed=at, stream=at % 2 == 0, n=at % 3) for at in range(60)]
            return await asyncio.gather(*(ask(server, "POST", "/v1/chat/completions", body) for body in bodies))

        statuses = collections.Counter(reply.status for reply in asyncio.run(crowd()))
        ready, left = server.is_ready(), server.idle()
        server.process.terminate()
        code = server.process.wait(END)
    # Every third request asks for no answer at all, which is refused.
    return statuses == {200: 40, 400: 20} and ready and not left and code == 0, {
        "statuses": {str(status): count for status, count in statuses.items()},
        "exit_status": code,
        "left": left,
    }


# --- clock


def clock(arguments, random_):
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        return True, {"measured": False, "why": "libfaketime is not installed"}
    wrong, dates = [], []
    with tempfile.TemporaryDirectory() as folder:
        date, keys = Path(folder) / "date", Path(folder) / "keys"
        date.write_text("+0")
        keys.write_text("ann first\nben second rate=1\n")
        variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(date),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        words = [*arguments.serve, "--api-key-file", str(keys), "--heartbeat", "1"]

        def asked(key, **given):
            headers = f"Authorization: Bearer {key}\r\n"
            return request("POST", "/v1/chat/completions", chat(**given), headers)

        async def jump(server, step):
            """Requests on their way while the date jumps, and what came of them."""
            long_ = {"max_tokens": 64, "ignore_eos": True, "diffusion": {"decoder": "static", "deadline_ms": 50_000}}
            data = [asked("first", stream=at % 2 == 0, seed=at, **long_) for at in range(8)]
            # One whose body comes late, and not too late.
            late = asked("first", max_tokens=4)
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(late[:-10])
            running = [asyncio.create_task(sent(server, one)) for one in data]
            await asyncio.sleep(random_.uniform(0, 0.2))
            date.write_text(step)
            # Not behind the others' ends: on a busy machine those take longer than a body may.
            await asyncio.sleep(0.5)
            writer.write(late[-10:])
            replies = [Reply(one) for one in await asyncio.gather(*running)]
            replies.append(Reply(await asyncio.wait_for(reader.read(), PATIENCE)))
            writer.close()
            return replies

        with Server(arguments.demask, words, variables=variables) as server:
            asyncio.run(sent(server, asked("second", max_tokens=4)))
            for step in ("+3d", "-9d", "+400d", "+0"):
                began = time.monotonic()
                for reply in asyncio.run(jump(server, step)):
                    found = texts(reply) if reply.status == 200 else None
                    if not found or any(end not in ("stop", "length") for _, _, end in found.values()):
                        wrong.append({"step": step, "status": reply.status, "body": reply.body[-200:].decode()})
                took = time.monotonic() - began
                if took > PATIENCE / 2:
                    wrong.append({"step": step, "took_seconds": took})
                # A day is many minutes: by the date, the key would have its rate again.
                rate = Reply(asyncio.run(sent(server, asked("second", max_tokens=4))))
                if rate.status != 429 or not 0 < int(rate.headers["retry-after"]) <= 60:
                    wrong.append({"step": step, "status": rate.status, "headers": rate.headers})
                one = Reply(asyncio.run(sent(server, asked("first", max_tokens=4))))
                dates.append(json.loads(one.body)["created"] - time.time())
            left = server.idle()
            alive = server.is_alive()
    days = [round(seconds / 86_400) for seconds in dates]
    # Otherwise nothing was tried.
    return not wrong and not left and alive and days == [3, -9, 400, 0], {
        "measured": True,
        "days_of_created": days,
        "left": left,
        "wrong": wrong[:5],
    }


# --- the smallest model

# Widths of a demo model, and of its smallest relative.
NARROW = 16
COUNTS = {"n_layers", "num_hidden_layers", "n_heads", "n_kv_heads", "num_attention_heads", "num_key_value_heads"}
WIDTHS = {"d_model", "hidden_size", "mlp_hidden_size", "intermediate_size", "head_dim"}


def smallest(model, folder, random_):
    """Writes a model of random weights with the tokenizer of another one: one layer, one head, 16 numbers wide."""
    config = json.loads((model / "config.json").read_text())
    widths = {config[name] for name in WIDTHS if name in config}
    heads = config.get("head_dim", 0) * config.get("num_key_value_heads", 0)
    for name in config:
        config[name] = 1 if name in COUNTS else NARROW if name in WIDTHS else config[name]
    with (model / "model.safetensors").open("rb") as weights:
        header = json.loads(weights.read(int.from_bytes(weights.read(8), "little")))
    tensors, data = {}, b""
    for name, tensor in header.items():
        if name == "__metadata__" or re.search(r"\.[1-9]\d*\.", name):
            continue
        shape = [NARROW if size in widths or size == heads else size for size in tensor["shape"]]
        count = 1
        for size in shape:
            count *= size
        # The upper half of a float's bits, which is a bfloat16: a sign, and 2^-4 to 2^-2.
        numbers = (random_.getrandbits(1) << 15 | random_.randrange(0x3D80, 0x3E80) for _ in range(count))
        bytes_ = b"".join(number.to_bytes(2, "little") for number in numbers)
        tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    told = json.dumps(tensors).encode()
    told += b" " * (-len(told) % 8)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(len(told).to_bytes(8, "little") + told + data)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(model / name, folder / name)


BARS = {
    bar.__name__: bar
    for bar in (answers, malformed, slow, storms, overload, signals, descriptors, memory, disk, clock)
}


def bars(text):
    names = text.split(",")
    unknown = [name for name in names if name not in BARS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown bar {unknown[0]!r} (known: {', '.join(BARS)})")
    return names


def parse(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demask", type=program, help="the program, to start servers of and to ask them with")
    parser.add_argument("--bars", type=bars, default=list(BARS), help=f"some of {', '.join(BARS)} [default: all]")
    parser.add_argument(
        "--requests", type=number, default=500, help="requests of answers, storms, memory [default: 500]"
    )
    parser.add_argument("--kinds", type=number, default=40, help="different requests of answers [default: 40]")
    parser.add_argument("--connections", type=number, default=200, help="slow connections [default: 200]")
    parser.add_argument("--mutations", type=number, default=200, help="changed requests of malformed [default: 200]")
    parser.add_argument("--turns", type=number, default=6, help="signals [default: 6]")
    parser.add_argument("--seconds", type=number, default=10, help="how long slow and overload last [default: 10]")
    parser.add_argument(
        "--cut", type=number, default=90, help="seconds until the slow are cut at the latest [default: 90]"
    )
    parser.add_argument("--serve", type=shlex.split, default=[], help="more words for `demask serve`")
    parser.add_argument(
        "--smallest", type=Path, metavar="MODEL", help="serve a model of one narrow layer, with the tokenizer of this one"
    )
    parser.add_argument("--one-step", action="store_true", help="one forward for an answer of memory")
    parser.add_argument("--seed", type=int, default=0, help="key of all that is random here [default: 0]")
    return parser.parse_args(given)


def main(given=None):
    arguments = parse(given)
    # A connection is a descriptor here, too.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smallest:
            smallest(arguments.smallest, Path(folder), random.Random(arguments.seed))
            arguments.serve = ["--model", folder, *arguments.serve]
        failed = sum(not measured(arguments, name) for name in arguments.bars)
    sys.exit(1 if failed else 0)


def measured(arguments, name):
    """Whether a bar passed, behind the line that says so."""
    began = time.monotonic()
    try:
        passed, found = BARS[name](arguments, random.Random(arguments.seed))
    except (Broken, OSError, TimeoutError, ValueError) as error:
        passed, found = False, {"error": f"{type(error).__name__}: {error}"}
    line = {"bar": name, "passed": passed, "took_seconds": round(time.monotonic() - began, 1), **found}
    print(json.dumps(line), flush=True)
    return passed


if __name__ == "__main__":
    main()
