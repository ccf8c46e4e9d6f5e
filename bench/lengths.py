"""Whether a client's habit changes answers: right answers of word problems over HTTP, by `max_tokens` and by `gen_length`.

    python bench/lengths.py target/release/demask
    python bench/lengths.py target/release/demask --models demo/demo-dream --problems 100 --out lengths.json

Each model is served by `demask serve`, and each problem asked once for each value at temperature 0. `max_tokens` bounds an
answer and must change none; `diffusion.gen_length` is the canvas, and changes them under full attention. The status is 1 if
right answers at any `max_tokens` are further than 2 in 100 from those at the first one. Needs nothing beside Python.
"""

import argparse
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = ROOT / "demo/wordmath-test.jsonl"
HOST = "127.0.0.1"
BOUNDS = [64, 128, 256, 512, 1024, 4096]
CANVASES = [32, 64, 128, 256, 512]
# Seconds that a server may take to start.
START = 60


class Server:
    """A server of a model on a free port."""

    def __init__(self, demask, model):
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self.command = [demask, "serve", "--port", str(self.port), "--model", model, "--no-log"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, cwd=ROOT, stderr=subprocess.DEVNULL)
        ends = time.monotonic() + START
        while self.process.poll() is None and time.monotonic() < ends:
            try:
                urllib.request.urlopen(f"http://{HOST}:{self.port}/health", timeout=5).close()
                return self
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        raise SystemExit(f"{' '.join(self.command)} did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def ask(self, question, more):
        """The text of an answer."""
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "seed": 0, **more}
        url = f"http://{HOST}:{self.port}/v1/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)["choices"][0]["message"]["content"]


def is_right(text, answer):
    """Whether a text ends in the answer of its problem."""
    found = re.search(r"The final answer is (-?\d+)", text)
    return found is not None and found.group(1) == str(answer)


def main():
    """Asks, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demask")
    parser.add_argument("--models", nargs="+", default=["demo/demo-llada", "demo/demo-dream"])
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--canvases", action="store_true", help="measure canvases that are asked for, too")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = PROBLEMS.read_text(encoding="utf-8").splitlines()[: arguments.problems]
    problems = [json.loads(line) for line in lines]
    columns = [("max_tokens", bound, {"max_tokens": bound}) for bound in BOUNDS]
    if arguments.canvases:
        columns += [("gen_length", length, {"diffusion": {"gen_length": length}}) for length in CANVASES]
    rows, steady = [], True
    for model in arguments.models:
        with Server(arguments.demask, model) as server:
            for field, value, more in columns:
                right = sum(is_right(server.ask(one["question"], more), one["answer"]) for one in problems)
                rows.append({"model": model, "field": field, "value": value, "right": right, "problems": len(problems)})
                print(f"| {Path(model).name} | `{field}` | {value} | {right} of {len(problems)} |", flush=True)
        bounded = [row["right"] for row in rows if row["model"] == model and row["field"] == "max_tokens"]
        steady &= all(abs(right - bounded[0]) * 100 <= 2 * len(problems) for right in bounded)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if steady else 1


if __name__ == "__main__":
    sys.exit(main())
