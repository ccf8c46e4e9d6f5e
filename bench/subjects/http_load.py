"""Servers that are asked over HTTP: by aiperf, by how many ask at once, beside the same problems without a server; and one
problem after the other, whose answers are judged. Needs Linux; aiperf needs a core beside the server's.
"""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from common import ROOT
from subjects import Broken, Missing

PROBLEMS = ROOT / "demo/wordmath-test.jsonl"
TOKENIZER = ROOT / "demo/demo-llada"
HOST = "127.0.0.1"
# Seconds that a server may take to start, and one turn at most.
START, TURN = 300, 3600


def on(core):
    """What keeps a process on a core; nothing without one."""
    return None if core is None else lambda: os.sched_setaffinity(0, {core})


class Server:
    """A server on a free port, on a core of its own if one is named."""

    def __init__(self, command, core=None):
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = free.getsockname()[1]
        self.url = f"http://{HOST}:{port}"
        self.command = [word.replace("{port}", str(port)) for word in command]
        self.core = core
        # The end of what it has written, once it is stopped.
        self.told = ""

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, cwd=ROOT, preexec_fn=on(self.core))
        ends = time.monotonic() + START
        while self.process.poll() is None and time.monotonic() < ends:
            try:
                self.ask("/v1/models")
                return self
            except OSError:
                time.sleep(0.02)
        self.__exit__()
        raise Broken(f"{shlex.join(self.command)} did not start: {self.told}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.seek(0)
        self.told = self.log.read()[-500:]
        self.log.close()

    def ask(self, path, body=None):
        """The bytes of a reply."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=TURN) as reply:
            return reply.read()

    def processor_seconds(self):
        """What the system counts for the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def problems(count):
    lines = PROBLEMS.read_text(encoding="utf-8").splitlines()[:count]
    if len(lines) < count:
        raise Broken(f"{count} problems are wanted, and there are {len(lines)}: lower it")
    return [json.loads(line) for line in lines]


def serve(bench, values):
    """Our server's command."""
    own = [str(bench.programs.demask), "serve", "--host", HOST, "--port", "{port}", "--no-log", "--model", values["model"]]
    return own + shlex.split(values["serve"])


def cores():
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        raise Missing("server and client need a core each, and this process has one only")
    return found[0], found[-1]


class Load:
    """A server that aiperf asks: ours, or the command of `rival`."""

    def __init__(self, bench, values):
        self.bench, self.values, self.cores = bench, values, cores()
        client = shutil.which(values["client"])
        if client is None:
            raise Broken(f"{values['client']} is not here: python -m venv DIR, DIR/bin/pip install aiperf==0.13.0, client=DIR/bin/aiperf")
        self.client = str(Path(client).absolute())
        words = f"--threads 1 --max-queue 512 {values['engine']}"
        own = serve(bench, values) + shlex.split(words)
        self.command = shlex.split(values["rival"]) if values.get("foreign") else own
        self.problems = [problem["question"] for problem in problems(values["requests"])]
        self.body = {"max_tokens": values["max_tokens"], **json.loads(values["body"])}

    def turn(self):
        count = self.values["requests"]
        with tempfile.TemporaryDirectory() as folder, Server(self.command, self.cores[0]) as server:
            model = self.warmed(server)
            prompts = Path(folder) / "prompts.jsonl"
            prompts.write_text("".join(json.dumps({"text": problem}) + "\n" for problem in self.problems))
            # The server counts tokens: the tokenizer is one that the client wants to have, and is used for nothing.
            words = f"profile --url {server.url} --endpoint-type chat --streaming --use-server-token-count --ui none".split()
            words += "--custom-dataset-type single_turn --dataset-sampling-strategy sequential --no-gpu-telemetry".split()
            words += "--no-server-metrics --workers-max 1 --record-processors 1 --random-seed 0".split()
            words += ["--model", model, "--tokenizer", TOKENIZER, "--input-file", prompts, "--output-artifact-dir", folder]
            words += ["--request-count", count, "--concurrency", self.values["at_once"], "--extra-inputs", json.dumps(self.body)]
            before = server.processor_seconds()
            self.bench.run([self.client, *words], timeout=TURN, preexec_fn=on(self.cores[1]))
            used = server.processor_seconds() - before
            found = json.loads((Path(folder) / "profile_export_aiperf.json").read_text())
        value = lambda name, statistic="avg": found.get(name, {}).get(statistic)
        answered = int(value("request_count") or 0)
        if answered != count:
            raise Broken(f"{answered} of {count} requests were answered: {server.told}")
        return {
            "requests_per_second": value("request_throughput"),
            "answer_tokens_per_second": value("output_token_throughput"),
            "tokens_of_an_answer": value("output_sequence_length"),
            "first_text_ms_p50": value("time_to_first_token", "p50"),
            "first_text_ms_p99": value("time_to_first_token", "p99"),
            "whole_answer_ms_p50": value("request_latency", "p50"),
            "whole_answer_ms_mean": value("request_latency"),
            "processor_ms": 1e3 * used / count,
        }

    def warmed(self, server):
        """The server's model, once some requests that are not counted were answered."""
        model = json.loads(server.ask("/v1/models"))["data"][0]["id"]
        for problem in self.problems[: self.values["warm"]]:
            server.ask("/v1/chat/completions", {**self.body, "model": model, "messages": [{"role": "user", "content": problem}]})
        return model


class Engine:
    """`demask-lab eval` on the server's core: the engine alone, with as many problems at once."""

    # Processor seconds of a run of one problem, which loads the same model, by the model.
    loading = {}

    def __init__(self, bench, values):
        self.bench, self.values, self.core = bench, values, cores()[0]
        if values["requests"] < 2:
            raise Broken("requests=1, and a turn needs at least 2: what loading takes is told apart by them")

    def of(self, count):
        values = self.values
        words = ["--model", values["model"], "--threads", "1", "--gen-length", values["max_tokens"], "--batch", values["at_once"]]
        words += [*shlex.split(values["engine"]), *shlex.split(values["eval"]), "--json", "-q", "--limit", count]
        text, _, used = self.bench.run([self.bench.programs.lab, "eval", "wordmath", *words], preexec_fn=on(self.core))
        return json.loads(text)["rows"][0], used

    def turn(self):
        key = self.bench.programs.lab, self.values["model"]
        if key not in self.loading:
            self.loading[key] = self.of(1)[1]
        row, used = self.of(self.values["requests"])
        processor = 1e3 * (used - self.loading[key]) / (self.values["requests"] - 1)
        return {"requests_per_second": 1 / row["seconds_per_item"], "processor_ms": processor, "nfe": row["nfe"]}


class Right:
    """Problems over HTTP, one after the other: how many answers are right."""

    def __init__(self, bench, values):
        self.values, self.command = values, serve(bench, values)
        self.problems = problems(values["problems"])
        bounds = {"max_tokens": values["max_tokens"]} if "max_tokens" in values else {}
        self.more = bounds or {"diffusion": {"gen_length": values["gen_length"]}}

    def turn(self):
        right = 0
        with Server(self.command) as server:
            for problem in self.problems:
                body = {"messages": [{"role": "user", "content": problem["question"]}], "temperature": 0, "seed": 0, **self.more}
                text = json.loads(server.ask("/v1/chat/completions", body))["choices"][0]["message"]["content"]
                found = re.search(r"The final answer is (-?\d+)", text)
                right += found is not None and found[1] == str(problem["answer"])
        return {"right": right, "problems": len(self.problems)}
