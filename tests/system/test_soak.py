"""soak.py on a server that is made up: what it takes for a good answer, for an idle server, for an end by the rule."""

import asyncio
import contextlib
import io
import json
import random
import tempfile
import threading
import types
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import soak

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def stream(*messages, done=True):
    """A stream's bytes, a chunk a message."""
    data = [f"data: {message}\n\n".encode() for message in (*map(json.dumps, messages), *(["[DONE]"] if done else []))]
    return STREAM + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in data) + b"0\r\n\r\n"


def part(index, text, tokens=(), end=None):
    choice = {"index": index, "delta": {"content": text}, "token_ids": list(tokens), "finish_reason": end}
    return {"choices": [choice]}


# Held while a request gets its number.
COUNTING = threading.Lock()


class Mock(BaseHTTPRequestHandler):
    """Answers everything, and says of itself what the test wants."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/metrics":
            return self.reply("".join(f'{name}{{a="b"}} {value}\n' for name, value in self.server.gauges.items()))
        if self.path == "/v1/models":
            about = {"decoders": ["static", {"name": "threshold"}], "caches": ["none"]}
            return self.reply(json.dumps({"data": [{"id": "mock", "diffusion": about}]}))
        return self.reply("{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # Several threads answer: each request has a number of its own.
        with COUNTING:
            self.server.asked += 1
            asked = self.server.asked
        if self.server.refuses and asked % 3 == 0:
            return self.reply("{}", 503, retry=asked % 2 == 1)
        text = str(body["seed"]) if self.server.steady else str(asked)
        choices = [
            {"index": at, "message": {"content": text}, "token_ids": [7], "finish_reason": "stop"}
            for at in range(body.get("n", 1))
        ]
        return self.reply(json.dumps({"choices": choices}))

    def reply(self, text, status=200, retry=False):
        self.send_response(status)
        if retry:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(text.encode())


class Bars(unittest.TestCase):
    def setUp(self):
        self.mock = ThreadingHTTPServer(("127.0.0.1", 0), Mock)
        self.mock.asked, self.mock.steady, self.mock.refuses = 0, True, False
        self.mock.gauges = dict.fromkeys(soak.IDLE_GAUGES, 0)
        # Nonsense makes Python's server tell of it at length.
        self.mock.handle_error = lambda *_: None
        threading.Thread(target=self.mock.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.mock.server_close)
        self.addCleanup(self.mock.shutdown)
        self.server = soak.Server("unused")
        self.addCleanup(self.server.log.close)
        self.server.port = self.mock.server_port
        self.server.start = self.server.stop = lambda: None
        self.server.is_alive = lambda: True

    def bar(self, bar, **given):
        arguments = types.SimpleNamespace(
            **{"demask": "", "serve": [], "requests": 40, "kinds": 6, "mutations": 5, "cut": 0.2, **given}
        )
        with mock.patch.object(soak, "Server", lambda *_: self.server), mock.patch.object(soak, "IDLE", 0.2):
            return bar(arguments, random.Random(1))

    def test_answers_are_compared(self):
        passed, found = self.bar(soak.answers)
        self.assertTrue(passed, found)
        self.assertEqual((found["equal"] + found["cut"], found["different"]), (40, 0))
        self.mock.steady = False
        passed, found = self.bar(soak.answers)
        self.assertFalse(passed)
        self.assertGreater(found["different"], 0)

    def test_a_server_that_is_not_idle_fails(self):
        self.mock.gauges["demask_mailboxes"] = 2
        passed, found = self.bar(soak.answers)
        self.assertEqual((passed, found["left"]), (False, {"demask_mailboxes": 2.0}))
        del self.mock.gauges["demask_mailboxes"]
        with mock.patch.object(soak, "IDLE", 0):
            self.assertEqual(self.server.idle(), {"demask_mailboxes": None})

    def test_a_server_that_takes_nonsense_fails(self):
        # Python's own server answers many of these with 200, or with 5xx.
        passed, found = self.bar(soak.malformed)
        self.assertFalse(passed)
        self.assertTrue(found["wrong"], found)

    def test_the_corpus_has_a_name_for_each_case(self):
        cases = soak.corpus("m")
        self.assertEqual(len({name for name, _, _ in cases}), len(cases))
        self.assertLessEqual(soak.HARMLESS, {name for name, _, _ in cases})

    def test_replies_are_read(self):
        reply = soak.Reply(stream(part(0, "a")))
        self.assertEqual((reply.status, reply.body.count(b"data: ")), (200, 2))
        with self.assertRaises(ValueError):
            soak.Reply(b"SSH-2.0")
        self.assertEqual(asyncio.run(soak.ask(self.server, "GET", "/health")).body, b"{}")

    def test_texts_of_streams_are_those_of_whole_answers(self):
        found = soak.texts(
            soak.Reply(stream(part(1, "x"), part(0, "a", [1]), part(0, "b", [2], "stop"), {"choices": []}))
        )
        self.assertEqual(found, {1: ["x", [], None], 0: ["ab", [1, 2], "stop"]})
        self.assertIsNone(soak.texts(soak.Reply(stream(part(0, "a"), done=False))))
        self.assertIsNone(soak.texts(soak.Reply(stream({"error": {}}))))

    def test_loads_count_answers_and_refusals(self):
        self.mock.refuses = True
        bodies = [{"seed": seed} for seed in range(30)]
        for at_once, rate, late in ((4, None, 0), (8, 2000, 30)):
            found = asyncio.run(soak.load(self.server, bodies, random.Random(1), at_once, rate))
            self.assertEqual([found[name] for name in ("finished", "refused", "with_retry_after", "failed")], [20, 10, 5, 0])
            self.assertEqual((len(found["refusal_ms"]), len(found["late_ms"])), (10, late))
            self.assertGreater(found["per_second"], 0)
        self.mock.server_close()
        self.mock.shutdown()
        nobody = asyncio.run(soak.load(self.server, bodies[:3], random.Random(1), 1))
        self.assertEqual((nobody["finished"], nobody["failed"]), (0, 3))

    def test_replies_are_read_one_by_one_from_a_connection(self):
        async def both():
            reader = asyncio.StreamReader()
            reader.feed_data(stream(part(0, "a")) + b"HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\n{}")
            return [await soak.next_reply(reader) for _ in range(2)]

        first, second = asyncio.run(both())
        self.assertEqual((soak.texts(first), second.status, second.body), ({0: ["a", [], None]}, 503, b"{}"))

    def test_many_small_requests_must_not_fill_memory(self):
        counters = {"demask_requests_admitted_total": 40, "demask_answers_total": 40}
        self.mock.gauges |= counters
        with mock.patch.object(self.server, "resident", lambda: 1 << 20), mock.patch.object(self.server, "descriptors", int):
            passed, found = self.bar(soak.memory, one_step=True)
            self.assertTrue(passed and found["requests"] == 40, found)
            self.mock.gauges["demask_answers_total"] = 39
            self.assertFalse(self.bar(soak.memory, one_step=False)[0])
        sizes = iter(range(8 << 20, 1 << 30, 1 << 20))
        with mock.patch.object(self.server, "resident", lambda: next(sizes)), mock.patch.object(self.server, "descriptors", int):
            self.assertGreater(self.bar(soak.memory, one_step=True)[1]["grown_bytes"], 4 << 20)

    def test_ends_by_the_rule(self):
        whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
        self.assertTrue(soak.ends_by_rule(b""))
        self.assertTrue(soak.ends_by_rule(stream(part(0, "a"))))
        self.assertTrue(soak.ends_by_rule(whole + b"{}"))
        self.assertFalse(soak.ends_by_rule(stream(part(0, "a"), done=False)))
        with self.assertRaises(ValueError):
            soak.ends_by_rule(whole + b'{"choices": [')

    def test_lines_and_exit_status(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "demask"
            program.touch(0o755)
            good, bad = (lambda *_: (True, {"x": 1})), mock.Mock(side_effect=soak.Broken("no server"))
            told = io.StringIO()
            with mock.patch.dict(soak.BARS, {"memory": good, "slow": bad}), contextlib.redirect_stdout(told):
                with self.assertRaises(SystemExit) as caught:
                    soak.main([str(program), "--bars", "memory,slow"])
            self.assertEqual(caught.exception.code, 1)
            first, second = map(json.loads, told.getvalue().splitlines())
            self.assertEqual((first["bar"], first["passed"], first["x"]), ("memory", True, 1))
            self.assertEqual((second["passed"], second["error"]), (False, "Broken: no server"))
            for words in (["--bars", "nothing"], ["--requests", "0"]):
                with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                    soak.parse([str(program), *words])


if __name__ == "__main__":
    unittest.main()
