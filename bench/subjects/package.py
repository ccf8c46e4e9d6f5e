"""The Python package, by an interpreter that has it installed: lone answers, batches, a transfer rule in Python."""

import json
import statistics
import time

import demask
import numpy as np

from common import ROOT


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


RULES = {"threshold": Threshold, "first": First}


class Package:
    """An engine of the demo with its problems, some of which it has answered."""

    def __init__(self, _bench, values):
        self.values = values
        self.engine = demask.load(ROOT / "demo/demo-llada")
        lines = (ROOT / "demo/wordmath-test.jsonl").read_text().splitlines()
        self.problems = [json.loads(line) for line in lines[: values.get("problems", 64)]]
        self.questions = [problem["question"] for problem in self.problems]
        self.engine.generate(self.questions[:64])
        self.about = self.engine.info["device"]

    def close(self):
        self.engine.close()


class Lone(Package):
    """Milliseconds of an answer, and how much longer it takes than in the library (`wall` of its receipt)."""

    def turn(self):
        options = {"decoder": self.values["decoder"]} if self.values["decoder"] else {}
        began = time.perf_counter()
        answer = self.engine.generate(self.questions[0], **options)
        wall = time.perf_counter() - began
        return {"ms": wall * 1e3, "more_than_library_ms": (wall - answer.receipt["seconds"]["wall"]) * 1e3}


class Batch(Package):
    """All problems in one call. Processor seconds are without those of one problem, as those of `eval` beside it."""

    def of(self, count):
        options = {"gen_length": 64, "block_length": 16, "decoder": "threshold:tau=0.9", "cache": "dual"}
        began, used = time.perf_counter(), time.process_time()
        answers = self.engine.generate(self.questions[:count], batch=self.values["batch"], **options)
        return answers, time.perf_counter() - began, time.process_time() - used

    def turn(self):
        one = self.of(1)[2]
        answers, clock, processor = self.of(len(self.questions))
        right = sum(str(answer).endswith(f"answer is {problem['answer']}") for answer, problem in zip(answers, self.problems))
        nfe = statistics.mean(answer.nfe for answer in answers)
        return {"seconds": clock, "processor_seconds": processor - one, "right": right, "nfe": nfe}


class Rule(Package):
    """An answer, or 32 in one call, by a rule in Python or by the library's decoder of the same name."""

    def turn(self):
        question = self.questions[0] if self.values["at_once"] == 1 else [self.questions[0]] * self.values["at_once"]
        name = self.values["rule"]
        options = {"transfer": RULES[name]()} if self.values["python_rule"] else {"decoder": self.values["decoder"]}
        began = time.perf_counter()
        found = self.engine.generate(question, cache="dual", gen_length=64, block_length=16, **options)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "nfe": getattr(found[0] if isinstance(found, list) else found, "nfe", None)}
