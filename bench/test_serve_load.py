"""serve_load.py with a program that is made up: order of turns, medians, what the server adds, what is no measurement."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

import serve_load

# Answers as demask and aiperf do: a server on its port, an evaluation of 16 ms an item, a client that found 50 requests/s.
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
words = sys.argv[1:]
after = lambda name: words[words.index(name) + 1]
with open({log!r}, "a") as log:
    log.write(" ".join(words[:2]) + "\\n")
class Mock(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"data": [{{"id": "mock"}}]}}')
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open({log!r}, "a") as log:
            log.write("warm %s %s\\n" % (asked["model"], asked["max_tokens"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
if words[0] == "serve":
    HTTPServer(("127.0.0.1", int(after("--port"))), Mock).serve_forever()
if words[0] == "profile":
    prompts = pathlib.Path(after("--input-file")).read_text().splitlines()
    assert len(prompts) == int(after("--request-count")) and all(json.loads(line)["text"] for line in prompts)
    assert after("--model") == "mock" and json.loads(after("--extra-inputs")) == {{"max_tokens": 64, "top_k": 1}}
    found = {{
        "request_count": {{"avg": float(len(prompts) - {lost})}}, "request_throughput": {{"avg": 50.0}},
        "output_token_throughput": {{"avg": 500.0}}, "output_sequence_length": {{"avg": 10.0}},
        "request_latency": {{"avg": 20.0, "p50": 20.0}},
    }}
    (pathlib.Path(after("--output-artifact-dir")) / "profile_export_aiperf.json").write_text(json.dumps(found))
else:
    print(json.dumps({{"rows": [{{"seconds_per_item": 0.016, "nfe": 3.0}}]}}))
"""


@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
class Turns(unittest.TestCase):
    def run_with(self, *words, lost=0):
        with tempfile.TemporaryDirectory() as folder:
            program, log, out = (Path(folder) / name for name in ("demask", "log", "out.json"))
            program.write_text(PROGRAM.format(log=str(log), lost=lost))
            program.chmod(0o755)
            given = [str(program), "--client", str(program), "--body", '{"top_k": 1}', "--warm", "1"]
            given += ["--models", "some/model", "--requests", "4", "--out", str(out), *words]
            told = io.StringIO()
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
                serve_load.main(given)
            return json.loads(out.read_text()), log.read_text().split("\n"), told.getvalue()

    def test_added_time_is_of_requests_with_and_without_a_server(self):
        record, _, table = self.run_with("--concurrency", "1,4", "--rounds", "2")
        lone, many = record["found"]
        self.assertEqual((lone["concurrency"], many["concurrency"]), (1, 4))
        self.assertEqual((lone["server"]["requests_per_second"], lone["engine"]["requests_per_second"]), (50.0, 62.5))
        # 20 ms with the server, 16 ms without.
        self.assertEqual((lone["added_percent"], lone["added_ms"]), (25.0, 4.0))
        self.assertNotIn("added_ms", many)
        self.assertGreaterEqual(lone["server"]["processor_ms"], 0.0)
        # Texts that no answer had are not there rather than 0.
        self.assertNotIn("first_text_ms_p50", lone["server"])
        self.assertIn("| model | 4 | 50.0 | 500.0 |  | 20.0 | ", table)

    def test_every_other_round_goes_the_other_way(self):
        _, log, _ = self.run_with("--concurrency", "1", "--rounds", "2")
        turns = [words.split()[0] for words in log if words]
        # The first evaluation is of one problem, for what loading takes.
        self.assertEqual(turns, ["serve", "warm", "profile", "eval", "eval", "eval", "serve", "warm", "profile"])

    def test_a_rival_is_asked_in_the_same_way(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "rival"
            program.write_text(PROGRAM.format(log=str(Path(folder) / "log"), lost=0))
            rival = f"python3 {program} serve --port {{port}}"
            record, log, table = self.run_with("--concurrency", "1", "--rounds", "1", "--no-eval", "--rival", rival)
        self.assertEqual(record["found"][0]["rival"]["requests_per_second"], 50.0)
        self.assertEqual([words.split()[0] for words in log if words], ["serve", "warm", "profile", "profile"])
        self.assertIn("| model (rival) | 1 |", table)

    def test_requests_without_an_answer_are_no_measurement(self):
        with self.assertRaisesRegex(SystemExit, "3 of 4 requests were answered"):
            self.run_with("--concurrency", "1", "--rounds", "1", lost=1)

    def test_a_client_that_is_not_here_is_an_error(self):
        told = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(told), self.assertRaises(SystemExit):
            program = Path(folder) / "demask"
            program.touch(0o755)
            serve_load.parse([str(program), "--client", "/nowhere/aiperf"])
        self.assertIn("/nowhere/aiperf is not here", told.getvalue())

    def test_more_problems_than_there_are_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "lower it"):
            self.run_with("--requests", "1000000")


if __name__ == "__main__":
    unittest.main()
