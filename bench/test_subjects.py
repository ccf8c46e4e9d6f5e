"""Subjects that are no command, on programs that are made up: what a server adds, what is no measurement, what is read."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

import run
import subjects
from subjects import policies, cargo_times

# Answers as demask, demask-lab and aiperf do: a server on its port, an evaluation of 16 ms an item, a client that found 50
# requests/s.
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
            log.write("warm %s %s\\n" % (asked.get("model"), asked.get("max_tokens") or asked["diffusion"]["gen_length"]))
        self.send_response(200)
        self.end_headers()
        text = "The final answer is %s" % ({answer} if asked.get("max_tokens") == 64 else "no number")
        self.wfile.write(json.dumps({{"choices": [{{"message": {{"content": text}}}}]}}).encode())
    def log_message(self, *_):
        pass
if words[0] == "doctor":
    print("{{}}")
elif words[0] == "--version":
    print("demask")
elif words[0] == "serve":
    HTTPServer(("127.0.0.1", int(after("--port"))), Mock).serve_forever()
elif words[0] == "profile":
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


def problem():
    """The first problem of the demo."""
    return json.loads((run.ROOT / "demo/wordmath-test.jsonl").read_text().splitlines()[0])


class Served(unittest.TestCase):
    def run_with(self, name, *words, lost=0):
        with tempfile.TemporaryDirectory() as folder:
            program, log, out = (Path(folder) / name for name in ("demask", "log", "out.json"))
            program.write_text(PROGRAM.format(log=str(log), lost=lost, answer=problem()["answer"]))
            program.chmod(0o755)
            program.with_name("demask-lab").symlink_to("demask")
            told = io.StringIO()
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
                run.main([name, "--demask", str(program), "--out", str(out), *(word.replace("PROGRAM", str(program)) for word in words)])
            record = json.loads(out.read_text())
            turns = [line for line in log.read_text().splitlines() if line.split()[0] not in ("doctor", "--version")]
            return record, turns, told.getvalue()


@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
class Load(Served):
    WORDS = ["client=PROGRAM", 'body={"top_k": 1}', "warm=1", "model=some/model", "requests=4"]

    def test_added_time_is_of_requests_with_and_without_a_server(self):
        record, _, table = self.run_with("serve-load", *self.WORDS, "at_once=1,4", "--rounds", "2")
        lone, many = record["results"]
        self.assertEqual((lone["at"]["at_once"], many["at"]["at_once"]), (1, 4))
        medians = lambda result, name: {key: value["median"] for key, value in result["subjects"][name]["figures"].items()}
        self.assertEqual(medians(lone, "server")["requests_per_second"], 50.0)
        self.assertEqual(medians(lone, "engine")["requests_per_second"], 62.5)
        # 20 ms with the server, 16 ms without.
        self.assertEqual((medians(lone, "server")["added_percent"], medians(lone, "server")["added_ms"]), (25.0, 4.0))
        self.assertNotIn("added_ms", medians(many, "server"))
        self.assertGreaterEqual(medians(lone, "server")["processor_ms"], 0.0)
        # Texts that no answer had are not there rather than 0.
        self.assertNotIn("first_text_ms_p50", medians(lone, "server"))
        self.assertIn("| some/model | 4 | server | 50 (50 to 50) | 500 | 20 |", table)

    def test_every_other_round_goes_the_other_way(self):
        _, log, _ = self.run_with("serve-load", *self.WORDS, "at_once=1", "--rounds", "2")
        # The first evaluation is of one problem, for what loading takes.
        order = ["serve", "warm", "profile", "eval", "eval", "eval", "serve", "warm", "profile"]
        self.assertEqual([words.split()[0] for words in log], order)

    def test_a_rival_is_asked_in_the_same_way(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "rival"
            program.write_text(PROGRAM.format(log=str(Path(folder) / "log"), lost=0, answer=0))
            rival = f"rival=python3 {program} serve --port {{port}}"
            record, log, table = self.run_with("serve-load", *self.WORDS, "at_once=1", "--rounds", "1", "without_eval=1", rival)
        figures = record["results"][0]["subjects"]["rival"]["figures"]
        self.assertEqual(figures["requests_per_second"]["median"], 50.0)
        self.assertEqual([words.split()[0] for words in log], ["serve", "warm", "profile", "profile"])
        self.assertIn("| some/model | 1 | rival |", table)

    def test_what_is_no_measurement_is_refused(self):
        for words, lost, message in (
            ([], 1, "3 of 4 requests were answered"),
            (["client=/nowhere/aiperf"], 0, "/nowhere/aiperf is not here"),
            (["requests=1000000"], 0, "lower it"),
            (["requests=1"], 0, "needs at least 2"),
        ):
            with self.assertRaisesRegex(SystemExit, message):
                self.run_with("serve-load", *self.WORDS, "at_once=1", "--rounds", "1", *words, lost=lost)


class Lengths(Served):
    def test_a_bound_that_changes_answers_is_told(self):
        record, log, table = self.run_with("lengths", "--only", "bounds", "model=m", "problems=1")
        self.assertEqual([result["at"] for result in record["results"]], [{"model": "m"}])
        right = {name: one["figures"]["right"]["median"] for name, one in record["results"][0]["subjects"].items()}
        self.assertEqual([words for words in log if words.startswith("warm")][1], "warm None 128")
        self.assertEqual([right.pop("max_tokens 64"), *set(right.values())], [1, 0])
        self.assertIn("right of max_tokens 64 is 1, of max_tokens 128 0: not the same work", table)

    def test_canvases_are_asked_for(self):
        _, log, _ = self.run_with("lengths", "--only", "canvases", "model=m", "problems=1")
        self.assertEqual([words.split()[2] for words in log if words.startswith("warm")], ["32", "64", "128", "256", "512"])


class Parts(unittest.TestCase):
    def test_a_turn_keeps_the_parts_that_a_rival_has(self):
        seconds = lambda rows, all_logits: 3.0 if all_logits else 2.0
        self.assertEqual(list(subjects.parts(seconds, True, [4], 3)), [{"rows": 4, "seconds": 3.0, "head": 1.0, "layers": 2.0}])
        self.assertEqual(list(subjects.parts(seconds, False, [4], 3)), [{"rows": 4, "seconds": 3.0}])


class Policies(unittest.TestCase):
    def test_shapes_are_read_from_plans(self):
        whole = "step 1 live 0..1075 visible 1075 predict 819..851 must commit 819"
        self.assertEqual(policies.shape(whole), (1075, 1075, None, 32))
        partial = "step 2 live 0..100 visible 100 compute 3, 14..30 and 8 of 100 predict 90..100"
        self.assertEqual(policies.shape(partial), (100, 100, 25, 10))

    def test_head_rows_between_the_ends_are_between_in_seconds(self):
        shapes = {(10, 20, None, 2): 1, (10, 20, None, 4): 2, (10, 20, None, 6): 1}
        seconds = {(10, 20, None, 2): 1.0, (10, 20, None, 6): 3.0}
        self.assertEqual(policies.predicted(shapes, seconds), 1.0 + 2 * 2.0 + 3.0)


class TestTimes(unittest.TestCase):
    def test_binaries_of_one_name_are_told_apart_by_their_packages(self):
        artifact = lambda package, file: json.dumps({"manifest_path": f"/x/{package}/Cargo.toml", "executable": f"/t/{file}", "target": {"name": "all"}})
        names = cargo_times.built([artifact("cpu", "all-1"), artifact("eval", "all-2"), '{"reason": "build-finished"}'])
        lines = [(0.0, "     Running tests/main.rs (target/all-1)"), (2.0, "test result: ok. 3 passed; 0 failed; 1 ignored; x")]
        lines += [(2.5, "     Running tests/main.rs (target/all-2)"), (4.0, "test result: ok. 2 passed; 0 failed; 0 ignored; x")]
        found = cargo_times.runs([*lines, (4.0, "   Doc-tests demask"), (5.0, "")], names)
        expected = {"cpu: all": (2.0, 4), "eval: all": (1.5, 2), "documentation of demask": (1.0, 0)}
        self.assertEqual({name: (one["run_seconds"], one["tests"]) for name, one in found.items()}, expected)

    def test_units_of_others_are_one(self):
        unit = lambda name, target, seconds: {"name": name, "target": target, "duration": seconds}
        units = [unit("serde", "", 1.0), unit("rand", "", 2.0), unit("demask-cpu", "", 3.0), unit("demask-cpu", ' all "test" (test)', 4.0)]
        found = cargo_times.compiled(f"const UNIT_DATA = {json.dumps(units)};\n")
        seconds = {"dependencies": 3.0, "our libraries and programs": 3.0, "cpu: all": 4.0}
        self.assertEqual({name: one["compile_seconds"] for name, one in found.items()}, seconds)


if __name__ == "__main__":
    unittest.main()
