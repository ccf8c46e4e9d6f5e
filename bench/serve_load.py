"""What a server costs: requests by how many ask at once, beside the same problems solved without a server.

    python bench/serve_load.py target/release/demask
    python bench/serve_load.py target/release/demask --rounds 5 --out bench/record/serve/load.json
    python bench/serve_load.py target/release/demask --models /tmp/shape --engine "--quantize q8" --requests 8 --max-tokens 16
    python bench/serve_load.py target/release/demask --models a.gguf --rival "python -m llama_cpp.server --model a.gguf --port {port}"
    python bench/serve_load.py target/release/demask --client /tmp/aiperf/bin/aiperf

The problems are the demo's word problems. For each model and number at once, a round has these turns, one after the other:

1. `demask serve --threads 1` on one core, asked by aiperf (of PyPI; `pip install aiperf==0.13.0`) from another one;
2. the server of --rival, if there is one, on the same core and asked in the same way;
3. `demask eval wordmath --batch N` on the server's core: the engine alone, with as many problems at once.

Every turn starts a process of its own, so that no server has kept anything of an earlier turn; the first requests of a
server (--warm) are not counted. Every other round goes the other way round, so that what else the machine does falls on
all. What is told are medians of the rounds, with the least and the most where they matter.

Processor seconds are those that the system counts for the server while it is asked. An evaluation's are those of the
whole run less those of a run of one problem, which loads the same model. `added_percent` is what a request takes of the
clock with the server beyond what it takes without, `added_processor_percent` the same of processor seconds; of requests
one by one, `added_ms` is the difference in milliseconds.

Needs Linux and two cores.
"""

import argparse
import json
import os
import platform
import re
import resource
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = ROOT / "demo/wordmath-test.jsonl"
TOKENIZER = ROOT / "demo/demo-llada"
HOST = "127.0.0.1"
# Seconds that a server may take to start, and one turn at most.
START, TURN = 300, 3600


class Broken(Exception):
    """Why a turn could not be measured."""


def on(core):
    """What keeps a process on a core."""
    return lambda: os.sched_setaffinity(0, {core})


def children_seconds():
    """Processor seconds of all processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command, core):
    """What a program prints, and the processor seconds that it took."""
    before = children_seconds()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TURN, cwd=ROOT, preexec_fn=on(core)
    )
    if done.returncode:
        raise Broken(f"{shlex.join(map(str, command))}: {(done.stderr.strip() or done.stdout.strip())[-500:]}")
    return done.stdout, children_seconds() - before


class Server:
    """A server on a free port, on a core of its own."""

    def __init__(self, command, core):
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
        self.process = subprocess.Popen(
            self.command, stdout=self.log, stderr=self.log, cwd=ROOT, preexec_fn=on(self.core)
        )
        ends = time.monotonic() + START
        while self.process.poll() is None and time.monotonic() < ends:
            try:
                urllib.request.urlopen(f"{self.url}/v1/models", timeout=5).close()
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


def serve(arguments, model):
    """Our server's command."""
    words = ["--model", model, "--threads", "1", "--no-log", "--max-queue", "512", *arguments.engine, *arguments.serve]
    return [arguments.demask, "serve", "--host", HOST, "--port", "{port}", *words]


def warmed(arguments, server, body):
    """The server's model, once some requests that are not counted were answered."""
    with urllib.request.urlopen(f"{server.url}/v1/models", timeout=TURN) as reply:
        model = json.loads(reply.read())["data"][0]["id"]
    for problem in arguments.problems[: arguments.warm]:
        asked = {**body, "model": model, "messages": [{"role": "user", "content": problem}]}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(asked).encode(), headers)
        urllib.request.urlopen(request, timeout=TURN).close()
    return model


def ask(arguments, command, at_once):
    """One turn of a server: what its client found."""
    own, other = arguments.cores
    body = {"max_tokens": arguments.max_tokens, **arguments.body}
    with tempfile.TemporaryDirectory() as folder, Server(command, own) as server:
        model = warmed(arguments, server, body)
        prompts = Path(folder) / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"text": problem}) + "\n" for problem in arguments.problems))
        # The server counts tokens: the tokenizer is one that the client wants to have, and is used for nothing.
        words = f"profile --url {server.url} --endpoint-type chat --streaming --use-server-token-count --ui none".split()
        words += "--custom-dataset-type single_turn --dataset-sampling-strategy sequential --no-gpu-telemetry".split()
        words += "--no-server-metrics --workers-max 1 --record-processors 1 --random-seed 0".split()
        words += ["--model", model, "--tokenizer", TOKENIZER, "--input-file", prompts, "--output-artifact-dir", folder]
        words += ["--request-count", arguments.requests, "--concurrency", at_once, "--extra-inputs", json.dumps(body)]
        before = processor_seconds(server.process.pid)
        run([arguments.client, *map(str, words)], other)
        used = processor_seconds(server.process.pid) - before
        found = json.loads((Path(folder) / "profile_export_aiperf.json").read_text())
    answered = int(value(found, "request_count") or 0)
    if answered != arguments.requests:
        raise Broken(f"{answered} of {arguments.requests} requests were answered: {server.told}")
    return {
        "requests_per_second": value(found, "request_throughput"),
        "answer_tokens_per_second": value(found, "output_token_throughput"),
        "tokens_of_an_answer": value(found, "output_sequence_length"),
        "first_text_ms_p50": value(found, "time_to_first_token", "p50"),
        "first_text_ms_p99": value(found, "time_to_first_token", "p99"),
        "whole_answer_ms_p50": value(found, "request_latency", "p50"),
        "whole_answer_ms_mean": value(found, "request_latency"),
        "processor_ms": 1e3 * used / arguments.requests,
    }


def value(found, name, statistic="avg"):
    """A figure of aiperf's; none if it has no such figure."""
    return found.get(name, {}).get(statistic)


def processor_seconds(pid):
    """Processor seconds that the system counts for a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def evaluate(arguments, model, at_once):
    """One turn of the engine without a server."""
    words = ["--model", model, "--threads", "1", "--gen-length", arguments.max_tokens, "--batch", at_once]
    command = [arguments.demask, "eval", "wordmath", *words, *arguments.engine, *arguments.eval, "--json", "-q"]

    def of(count):
        found, used = run([*map(str, command), "--limit", str(count)], arguments.cores[0])
        (row,) = json.loads(found)["rows"]
        return row, used

    # A large model takes long to load, and the same each time.
    if model not in arguments.loading:
        arguments.loading[model] = of(1)[1]
    row, used = of(arguments.requests)
    return {
        "requests_per_second": 1 / row["seconds_per_item"],
        "processor_ms": 1e3 * (used - arguments.loading[model]) / (arguments.requests - 1),
        "nfe": row["nfe"],
    }


def cell(arguments, model, at_once):
    """All rounds of a model and a number at once."""
    turns = {"server": lambda: ask(arguments, serve(arguments, model), at_once)}
    if arguments.rival:
        turns["rival"] = lambda: ask(arguments, arguments.rival, at_once)
    if not arguments.no_eval:
        turns["engine"] = lambda: evaluate(arguments, model, at_once)
    found = {name: [] for name in turns}
    for number in range(arguments.rounds):
        for name in list(turns) if number % 2 == 0 else list(turns)[::-1]:
            found[name].append(turns[name]())
    return summary(found, at_once)


def rounded(value):
    return round(value, 2 if abs(value) < 100 else 1)


def summary(found, at_once):
    """Medians of all turns, ranges of the rates, and what the server adds to the engine."""
    told = {}
    for name, turns in found.items():
        # A text that no answer has, since random weights choose tokens without one, has no time either.
        known = [key for key in turns[0] if all(turn[key] is not None for turn in turns)]
        told[name] = {key: rounded(statistics.median(turn[key] for turn in turns)) for key in known}
        rates = [turn["requests_per_second"] for turn in turns]
        told[name]["requests_per_second_range"] = [rounded(min(rates)), rounded(max(rates))]
    if "engine" in found:
        pairs = list(zip(found["server"], found["engine"]))
        # Of the same round: what the machine did meanwhile falls on both.
        clock = [100 * (alone["requests_per_second"] / turn["requests_per_second"] - 1) for turn, alone in pairs]
        processor = [100 * (turn["processor_ms"] / alone["processor_ms"] - 1) for turn, alone in pairs]
        told["added_percent"] = rounded(statistics.median(clock))
        told["added_percent_range"] = [rounded(min(clock)), rounded(max(clock))]
        told["added_processor_percent"] = rounded(statistics.median(processor))
        if at_once == 1:
            lone = [turn["whole_answer_ms_mean"] - 1e3 / alone["requests_per_second"] for turn, alone in pairs]
            told["added_ms"] = rounded(statistics.median(lone))
    return told


def machine():
    """The processor, in words."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", cpuinfo)
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_int8") if f" {flag}" in cpuinfo]
    return f"{name[1] if name else platform.machine()}, {os.cpu_count()} cores, {' '.join(known)}"


def table(rows):
    """Markdown of what was found."""
    yield "| model | at once | requests/s | tokens/s | first text, ms | whole answer, ms | processor, ms | engine alone, requests/s | its processor, ms | added |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        engine = row.get("engine", {})
        for name in ("server", "rival"):
            if (found := row.get(name)) is None:
                continue
            cells = [row["model"] + (" (rival)" if name == "rival" else ""), row["concurrency"]]
            keys = "requests_per_second answer_tokens_per_second first_text_ms_p50 whole_answer_ms_p50 processor_ms"
            cells += [found.get(key, "") for key in keys.split()]
            cells += [engine.get("requests_per_second", ""), engine.get("processor_ms", "")]
            cells += [f"{row['added_percent']} %" if name == "server" and engine else ""]
            yield "| " + " | ".join(map(str, cells)) + " |"


def number(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def numbers(text):
    return [number(part) for part in text.split(",")]


def fields(text):
    try:
        given = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no object")
    return given


def program(text):
    path = Path(text).resolve()
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"{text} is no program: build it with cargo build --release")
    return str(path)


def parse(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demask", type=program, help="the program, to start servers of")
    models = ["demo/demo-llada", "demo/demo-sdar"]
    parser.add_argument("--models", nargs="+", default=models, help=f"folders or files [default: {' '.join(models)}]")
    parser.add_argument("--concurrency", type=numbers, default=[1, 4, 16, 64], help="requests at once [default: 1,4,16,64]")
    parser.add_argument("--rounds", type=number, default=3, help="turns of each [default: 3]")
    parser.add_argument("--requests", type=number, default=200, help="requests of a turn [default: 200]")
    parser.add_argument("--warm", type=int, default=8, help="requests before them that are not counted [default: 8]")
    parser.add_argument("--max-tokens", type=number, default=64, help="tokens of an answer at most [default: 64]")
    parser.add_argument("--body", type=fields, default={}, help="fields of every request beside its own, as JSON")
    parser.add_argument("--client", default="aiperf", help="the program that asks [default: aiperf]")
    parser.add_argument("--engine", type=shlex.split, default=[], help="more words for `serve` and `eval` alike")
    parser.add_argument("--serve", type=shlex.split, default=[], help="more words for `serve` alone")
    parser.add_argument("--eval", type=shlex.split, default=[], help="more words for `eval` alone")
    parser.add_argument("--rival", type=shlex.split, help="command of another server, with {port} where its port stands")
    parser.add_argument("--no-eval", action="store_true", help="servers only")
    parser.add_argument("--out", type=Path, help="a file of JSON for what was found")
    arguments = parser.parse_args(given)
    client = shutil.which(arguments.client)
    if client is None:
        parser.error(f"{arguments.client} is not here: python -m venv DIR, DIR/bin/pip install aiperf==0.13.0, --client DIR/bin/aiperf")
    arguments.client = str(Path(client).absolute())
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        parser.error("server and client need a core each, and this process has one only")
    arguments.cores = cores[0], cores[-1]
    if arguments.requests < 2:
        parser.error("--requests is 1, and a turn needs at least 2: what loading takes is told apart by them")
    arguments.loading = {}
    return arguments


def main(given=None):
    arguments = parse(given)
    rows = []
    lines = PROBLEMS.read_text().splitlines()[: arguments.requests]
    if len(lines) < arguments.requests:
        sys.exit(f"error: --requests is {arguments.requests}, and there are {len(lines)} problems: lower it")
    arguments.problems = [json.loads(line)["question"] for line in lines]
    for model in arguments.models:
        for at_once in arguments.concurrency:
            try:
                found = cell(arguments, model, at_once)
            except (Broken, OSError, subprocess.TimeoutExpired) as error:
                sys.exit(f"error: {model}, {at_once} at once: {error}")
            rows.append({"model": Path(model).name, "concurrency": at_once, **found})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    record = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "command": ["python bench/serve_load.py", *(sys.argv[1:] if given is None else given)],
        "note": f"{arguments.requests} word problems, medians of {arguments.rounds} rounds; server and engine on one core "
        "with one thread, the client on another",
        "found": rows,
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
