"""lm_eval/server.py and the harness's class on it, against a server that is made up."""

import contextlib
import io
import json
import os
import sys
import threading
import types
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

FOLDER = Path(__file__).parent / "lm_eval"


def harness():
    """The parts of the harness that model.py names, empty: the class is tested without its hundred megabytes."""
    names = ("lm_eval", "lm_eval.api", "lm_eval.api.model", "lm_eval.evaluator", "lm_eval.tasks")
    modules = {name: types.ModuleType(name) for name in names}
    modules["lm_eval.api.model"].LM = type("LM", (), {})
    modules["lm_eval.evaluator"].simple_evaluate = None
    modules["lm_eval.tasks"].TaskManager = None
    return modules


with mock.patch.dict(sys.modules, harness()), mock.patch.object(sys, "path", [str(FOLDER), *sys.path]):
    import model
    import server

RECEIPT = {"nfe": 3, "seconds": {"total": 0.5}}


class Mock(BaseHTTPRequestHandler):
    """Completes with the prompt backwards, scores with lengths."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(200, {"data": [{"id": "mock"}] if self.server.models else []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body, self.headers.get("Authorization")))
        if self.server.refusals:
            status, headers = self.server.refusals.pop(0)
            return self.reply(status, {"error": {"message": "not now"}}, headers)
        return self.reply(200, {**self.found(body), **self.server.instead})

    def found(self, body):
        if self.path == "/v1/score":
            pairs = zip(body["context"], body["continuation"])
            rows = [{"index": at, "log_probability": -len(a + b), "bound": True} for at, (a, b) in enumerate(pairs)]
            return {"data": rows[::-1]}
        chat = self.path == "/v1/chat/completions"
        text = (body["messages"][0]["content"] if chat else body["prompt"])[::-1]
        choice = {"message": {"content": text}} if chat else {"text": text}
        return {"choices": [choice], "diffusion": {"receipt": RECEIPT}}

    def reply(self, status, found, headers=()):
        data = json.dumps(found).encode()
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class Requests(unittest.TestCase):
    def setUp(self):
        self.mock = ThreadingHTTPServer(("127.0.0.1", 0), Mock)
        self.mock.asked, self.mock.refusals, self.mock.models, self.mock.instead = [], [], True, {}
        threading.Thread(target=self.mock.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.mock.server_close)
        self.addCleanup(self.mock.shutdown)
        self.url = f"http://127.0.0.1:{self.mock.server_port}"
        self.waits = []

    def server(self, **given):
        return server.Server(self.url + "/v1", wait=self.waits.append, **given)

    def refusal(self, work):
        with self.assertRaises(server.ServerError) as caught:
            work()
        return str(caught.exception)

    def requests(self, *pairs):
        return [types.SimpleNamespace(args=pair) for pair in pairs]

    def test_generation_carries_the_harness_s_options(self):
        asked = self.server(key="sk-1")
        options = {"until": ["3", "x"], "max_gen_toks": 9, "temperature": 0.0, "do_sample": False}
        self.assertEqual(asked.generate("54321", options, diffusion={"steps": 4}), ("12", RECEIPT))
        path, body, key = self.mock.asked[0]
        expected = {"model": "mock", "prompt": "54321", "max_tokens": 9, "temperature": 0.0, "stop": ["3", "x"]}
        self.assertEqual((path, key), ("/v1/completions", "Bearer sk-1"))
        self.assertEqual(body, {**expected, "diffusion": {"steps": 4, "receipt": True}})
        self.assertEqual(asked.generate("ab", {"until": ""}, chat=True)[0], "ba")
        self.assertEqual(self.mock.asked[1][1]["messages"], [{"role": "user", "content": "ab"}])
        self.assertNotIn("stop", self.mock.asked[1][1])

    def test_stops_beyond_the_server_s_limit_are_cut_here(self):
        text, _ = self.server(model="m").generate("fedcba", {"until": list("uvwxydc")})
        self.assertEqual((text, self.mock.asked[0][1]["stop"]), ("ab", list("uvwx")))
        self.assertIn("num_beams=2", self.refusal(lambda: self.server().generate("a", {"num_beams": 2})))

    def test_refused_requests_are_sent_again_when_the_server_says(self):
        self.mock.refusals = [(503, [("Retry-After", "2")]), (429, []), (503, [("Retry-After", "9999")])]
        self.assertEqual(self.server().generate("ab", {})[0], "ba")
        self.assertEqual((self.waits, len(self.mock.asked)), ([2.0, 1.0, server.LONGEST_WAIT], 4))
        self.mock.refusals = [(503, [])] * 3
        told = self.refusal(lambda: self.server(tries=3).generate("ab", {}))
        self.assertEqual(told, "/v1/completions: HTTP 503: not now")
        self.mock.refusals = [(400, [])]
        self.assertEqual(self.refusal(lambda: self.server().score([("a", "b")])), "/v1/score: HTTP 400: not now")

    def test_scores_keep_their_order(self):
        asked = self.server(model="m")
        self.assertEqual(asked.score([("a", "b"), ("cc", "d")], draws=8, seed=3), [(-2.0, True), (-3.0, True)])
        expected = {"model": "m", "context": ["a", "cc"], "continuation": ["b", "d"], "draws": 8, "seed": 3}
        self.assertEqual(self.mock.asked[0][:2], ("/v1/score", expected))

    def test_answers_of_another_kind_are_told(self):
        self.mock.instead = {"data": [{"index": 0}], "diffusion": None}
        self.assertIn("without index", self.refusal(lambda: self.server().score([("a", "b")])))
        self.assertIn("without text or receipt", self.refusal(lambda: self.server().generate("a", {})))
        self.mock.instead = {"data": []}
        self.assertIn("0 rows, expected 1", self.refusal(lambda: self.server().score([("a", "b")])))
        self.mock.models = False
        self.assertIn("lists no model: --model NAME", self.refusal(self.server))
        self.assertIn("refused", self.refusal(lambda: server.Server("http://127.0.0.1:1", wait=self.waits.append)))

    def test_the_harness_s_class(self):
        asked = model.DemaskServer(self.server(), at_once=3, batch=2)
        texts = [f"{at}." for at in range(10)]
        found = asked.generate_until(self.requests(*((text, {}) for text in texts)))
        self.assertEqual(found, [text[::-1] for text in texts])
        self.assertEqual(asked.receipts, [RECEIPT] * 10)
        pairs = [("a" * at, "b") for at in range(5)]
        self.assertEqual(asked.loglikelihood(self.requests(*pairs)), [(-float(at + 1), False) for at in range(5)])
        scored = [body["context"] for path, body, _ in self.mock.asked if path == "/v1/score"]
        self.assertEqual(sorted(map(len, scored)), [1, 2, 2])
        for work in (
            lambda: model.DemaskServer(asked.asked, chat=True).loglikelihood([]),
            lambda: asked.loglikelihood_rolling([]),
        ):
            with self.assertRaises(SystemExit):
                work()

    def called(self, *words, behind=()):
        """What the command line makes of its words, up to the evaluation."""
        seen = []
        given = ["model.py", "--tasks", "t", *words, *(["--", *behind] if behind else [])]
        with (
            mock.patch.object(sys, "argv", given),
            mock.patch.object(model, "evaluate", lambda _, asked: seen.append(asked)),
        ):
            model.main()
        return seen[0]

    def test_the_command_line(self):
        asked = self.called("--url", self.url, "--diffusion", '{"steps": 4}', "--at-once", "2", "--draws", "16")
        self.assertEqual((asked.diffusion, asked.at_once, asked.draws), ({"steps": 4}, 2, 16))
        self.assertIsInstance(self.called("--binary", "x", behind=["--steps", "4"]), model.Demask)
        for words, told in (
            (["--url", self.url, "--", "--steps", "4"], "give --diffusion JSON"),
            (["--draws", "8"], "--draws goes with --url"),
            (["--url", self.url, "--api-key-env", "NO_SUCH_KEY"], "the environment has no NO_SUCH_KEY"),
            (["--url", "http://127.0.0.1:1"], "refused"),
        ):
            with self.assertRaises(SystemExit) as caught:
                self.called(*words)
            self.assertIn(told, str(caught.exception))
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as told:
            self.called("--url", self.url, "--diffusion", "[]")
        self.assertIn("expected an object", told.getvalue())
        with mock.patch.dict(os.environ, {"MOCK_KEY": "sk-2"}):
            asked = self.called("--url", self.url, "--api-key-env", "MOCK_KEY")
        asked.asked.generate("a", {})
        self.assertEqual(self.mock.asked[-1][2], "Bearer sk-2")


if __name__ == "__main__":
    unittest.main()
