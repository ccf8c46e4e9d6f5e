"""Whole answers under a cache policy beside the sum of single forwards of the same shapes.

`demask generate` on a random prompt has the seconds of an answer, inside the network and elsewhere; `--explain` the rows,
keys, computed rows and head rows of its forwards; `demask-lab bench step` the medians at these counts, linearly between the
fewest and the most head rows.
"""

import json
import random
import re
import shlex
from collections import Counter, defaultdict


def span(text):
    """How many positions `3, 14..30` names."""
    total = 0
    for piece in re.findall(r"(\d+)(?:\.\.(\d+))?", text):
        total += int(piece[1]) - int(piece[0]) if piece[1] else 1
    return total


def shape(plan):
    """Rows, keys, computed rows (None: all) and head rows of a plan as `generate --explain` writes it."""
    live = span(re.search(r"live (.*?) visible", plan)[1])
    keys = int(re.search(r"visible (\d+)", plan)[1])
    partial = re.search(r"compute (.*?) and (\d+) of", plan)
    head = span(re.search(r"predict (.*?)(?: must| hint|$)", plan)[1])
    return live, keys, (span(partial[1]) + int(partial[2])) if partial else None, head


def ends(shapes):
    """The fewest and the most head rows of each kind of forward."""
    heads = defaultdict(list)
    for rows, keys, computed, head in shapes:
        heads[rows, keys, computed].append(head)
    return {kind: (min(found), max(found)) for kind, found in heads.items()}


def predicted(shapes, seconds):
    """The sum of the medians at the shapes that ran."""
    total, least_and_most = 0.0, ends(shapes)
    for (*kind, head), count in shapes.items():
        least, most = least_and_most[tuple(kind)]
        low, high = (seconds[*kind, end] for end in (least, most))
        part = (head - least) / (most - least) if most > least else 0.0
        total += count * (low + part * (high - low))
    return total


class Answer:
    """An answer of a policy."""

    # Medians of single forwards, which policies share.
    seconds = {}

    def __init__(self, bench, values):
        self.bench, self.values = bench, values
        self.model = ["--model", values["model"], "--quantize", values["quantize"]]
        numbers = random.Random(0)
        self.prompt = ",".join(str(numbers.randrange(1000, 100000)) for _ in range(values["prompt"]))

    def json(self, program, words):
        return json.loads(self.bench.run([program, *words, "--json", "-q"])[0])

    def generate(self, *more):
        values = self.values
        words = f"--gen-length {values['answer']} --block-length {values['block']} --ignore-eos --decoder static"
        # Forwards without a cache are all alike: a few of them will do.
        words += f" --steps {values['steps_of_none']}" if values["cache"] == "none" else ""
        words = ["generate", *self.model, "--prompt-tokens", self.prompt, *shlex.split(words), "--cache", values["cache"]]
        return self.json(self.bench.programs.demask, [*words, *more])

    def turn(self):
        receipt = self.generate()["receipt"]
        shapes = Counter(shape(plan) for plan in self.generate("--explain")["plans"] if plan.startswith("step"))
        total, forwards = receipt["seconds"]["total"], receipt["forwards"]
        tokens = self.values["answer"] if self.values["cache"] != "none" else forwards
        found = {"seconds_per_token": total / tokens, "outside_network": 1 - receipt["seconds"]["model"] / total}
        found |= {"seconds": total, "forwards": forwards, "rows": receipt["rows"]}
        if self.values["single_forwards"]:
            self.measure({(*kind, head) for kind, heads in ends(shapes).items() for head in heads})
            found["over_steps"] = total / predicted(shapes, self.seconds)
        return found | {"shapes": [[*key, count] for key, count in sorted(shapes.items(), key=str)]}

    def measure(self, shapes):
        """Medians of forwards that are not known yet."""
        asked = defaultdict(set)
        for rows, *kind in shapes - self.seconds.keys():
            asked[tuple(kind)].add(rows)
        for (keys, computed, head), rows in asked.items():
            words = ["--rows", ",".join(map(str, sorted(rows))), "--keys", str(keys), "--head-rows", str(head)]
            words += ["--computed", str(computed)] if computed else []
            words += ["--repeat", str(self.values["repeat"])]
            for report in self.json(self.bench.programs.lab, ["bench", "step", *self.model, *words]):
                self.seconds[report["rows"], keys, computed, head] = report["seconds"]["median"]
