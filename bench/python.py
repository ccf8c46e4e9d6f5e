#!/usr/bin/env python3
"""What the Python package adds to the library: a lone answer, a batch beside `eval --batch`, and a transfer rule in Python.

    python bench/python.py target/release/demask [--rounds 3] [--problems 500] [--batch 64] [--part lone|batch|rules]

Run by an interpreter that has the package installed, on a machine that does nothing else; prints one JSON document. The
library's own time of an answer is that of its receipt (`wall`: from its preparation to its end, by the clock).
"""

import argparse
import json
import pathlib
import resource
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
    """Seconds of all problems in one call of `generate`, in turns with `eval --batch`, whose first round is left out.

    Seconds of the clock are those of the machine's other programs, too; processor-seconds less so. Those of `eval` are without
    what it takes to start and to load: a run of one problem is subtracted, on both sides.
    """
    questions = [problem["question"] for problem in problems]
    options = {"gen_length": 64, "block_length": 16, "decoder": "threshold:tau=0.9", "cache": "dual"}
    flags = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]
    words = [binary, "eval", "wordmath", "--model", str(ROOT / "demo/demo-llada"), *flags, "--batch", str(size), "--json", "-q", "--limit"]
    answers = []

    def own(count):
        began, used = time.perf_counter(), time.process_time()
        answers[:] = engine.generate(questions[:count], batch=size, **options)
        return time.perf_counter() - began, time.process_time() - used

    def theirs(count):
        used = of_children()
        printed = subprocess.run([*words, str(count)], capture_output=True, text=True, check=True).stdout
        return json.loads(printed)["seconds"], of_children() - used

    found = {"python_s": [], "eval_s": [], "python_processor_s": [], "eval_processor_s": []}
    for number in range(rounds + 1):
        for name, side in [("python", own), ("eval", theirs)]:
            one = side(1)[1]
            clock, processor = side(len(questions))
            if number:
                found[f"{name}_s"].append(round(clock, 4))
                found[f"{name}_processor_s"].append(round(processor - one, 4))
    for of in ("", "_processor"):
        pairs = list(zip(found[f"python{of}_s"], found[f"eval{of}_s"]))
        found[f"ratio_of_medians{of}"] = statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)
        found[f"median_of_ratios{of}"] = statistics.median(a / b for a, b in pairs)
        found[f"quartiles_of_ratios{of}"] = statistics.quantiles([a / b for a, b in pairs], n=4)[::2]
    right = sum(str(answer).endswith(f"answer is {problem['answer']}") for answer, problem in zip(answers, problems))
    return {**found, "right": right, "nfe": sum(answer.nfe for answer in answers) / len(answers)}


def of_children():
    """Processor-seconds of the programs that were run and are over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    parser.add_argument("--part", choices=["lone", "batch", "rules"])
    asked = parser.parse_args()
    problems = [json.loads(line) for line in (ROOT / "demo/wordmath-test.jsonl").open()][: asked.problems]
    with demask.load(ROOT / "demo/demo-llada") as engine:
        question = problems[0]["question"]
        engine.generate([problem["question"] for problem in problems[:64]])
        parts = {
            "lone": lambda: lone(engine, question),
            "lone_static": lambda: lone(engine, question, 60, decoder="static"),
            "batch": lambda: batch(asked.binary, engine, problems, asked.batch, asked.rounds),
            "rules": lambda: rules(engine, question),
        }
        found = {"device": engine.info["device"]}
        for name, measured in parts.items():
            if asked.part in (None, name.split("_")[0]):
                found[name] = measured()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
