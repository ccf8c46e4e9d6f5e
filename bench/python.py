#!/usr/bin/env python3
"""What the Python package adds to the library: a lone answer, a batch beside `eval --batch`, and a transfer rule in Python.

    python bench/python.py target/release/demask [--rounds 3] [--problems 500] [--batch 64]

Run by an interpreter that has the package installed, on a machine that does nothing else; prints one JSON document. The
library's own time of an answer is that of its receipt (`wall`: from its preparation to its end, by the clock).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

import demask
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Threshold(demask.Transfer):
    """The library's `threshold:tau=0.9`, said again."""

    def choose(self, step):
        """Returns those that pass, or the best one."""
        passing = np.flatnonzero(step.confidence >= np.float32(0.9))
        return passing if len(passing) else [0]


class First(demask.Transfer):
    """One token a forward."""

    def choose(self, step):
        """Returns the best one."""
        return [0]


def lone(engine, question, count=300, **options):
    """Milliseconds of answers through Python, and how much longer they are than in the library."""
    walls, overheads = [], []
    for _ in range(count):
        began = time.perf_counter()
        answer = engine.generate(question, **options)
        wall = time.perf_counter() - began
        walls.append(wall * 1e3)
        overheads.append((wall - answer.receipt["seconds"]["wall"]) * 1e3)
    overheads.sort()
    return {"ms": statistics.median(walls), "more_than_library_ms": statistics.median(overheads), "p95_ms": overheads[int(0.95 * count)]}


def batch(binary, engine, problems, size, rounds):
    """Seconds of all problems in one call of `generate`, in turns with `eval --batch`."""
    questions = [problem["question"] for problem in problems]
    own, theirs = [], []
    options = {"gen_length": 64, "block_length": 16, "decoder": "threshold:tau=0.9", "cache": "dual"}
    flags = ["--gen-length", "64", "--block-length", "16", "--decoder", "threshold:tau=0.9", "--cache", "dual"]
    for _ in range(rounds):
        began = time.perf_counter()
        answers = engine.generate(questions, **options)
        own.append(time.perf_counter() - began)
        words = ["eval", "wordmath", "--model", str(ROOT / "demo/demo-llada"), *flags, "--limit", str(len(problems)), "--batch", str(size), "--json", "-q"]
        told = subprocess.run([binary, *words], capture_output=True, text=True, check=True).stdout
        theirs.append(json.loads(told)["seconds"])
    right = sum(str(answer).endswith(f"answer is {problem['answer']}") for answer, problem in zip(answers, problems))
    return {"python_s": own, "eval_s": theirs, "ratio": statistics.median(own) / statistics.median(theirs), "right": right, "nfe": sum(answer.nfe for answer in answers) / len(answers)}


def rules(engine, question):
    """Milliseconds that a rule in Python adds to a forward."""
    common = {"cache": "dual", "gen_length": 64, "block_length": 16}
    found = {}
    for name, rule, decoder in [("first", First(), "static"), ("threshold", Threshold(), "threshold:tau=0.9")]:
        nfe = engine.generate(question, transfer=rule, **common).nfe
        slow, fast = [], []
        for _ in range(100):
            for times, options in [(slow, {"transfer": rule}), (fast, {"decoder": decoder})]:
                began = time.perf_counter()
                engine.generate(question, **options, **common)
                times.append(time.perf_counter() - began)
        added = (statistics.median(slow) - statistics.median(fast)) / nfe
        found[name] = {"nfe": nfe, "us_a_forward": added * 1e6, "forward_us": statistics.median(fast) / nfe * 1e6}
    many = [question] * 32
    for name, options in [("batch_rule_s", {"transfer": First()}), ("batch_static_s", {"decoder": "static"})]:
        times = []
        for _ in range(10):
            began = time.perf_counter()
            engine.generate(many, **options, **common)
            times.append(time.perf_counter() - began)
        found[name] = statistics.median(times)
    return found


def main():
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--batch", type=int, default=64)
    asked = parser.parse_args()
    problems = [json.loads(line) for line in (ROOT / "demo/wordmath-test.jsonl").open()][: asked.problems]
    with demask.load(ROOT / "demo/demo-llada") as engine:
        question = problems[0]["question"]
        engine.generate([problem["question"] for problem in problems[:64]])
        found = {
            "device": engine.info["device"],
            "lone": lone(engine, question),
            "lone_static": lone(engine, question, 60, decoder="static"),
            "batch": batch(asked.binary, engine, problems, asked.batch, asked.rounds),
            "rules": rules(engine, question),
        }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
