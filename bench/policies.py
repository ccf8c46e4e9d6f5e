"""Times whole answers of one model under each cache policy, and compares them with single forwards.

    demask synth --like llada-8b --out DIR
    python bench/policies.py --demask target/release/demask --model DIR --out bench/record/MACHINE/policies.json

For every policy: `demask generate` on a random prompt (seconds inside the network and elsewhere), `--explain` for the
rows, keys, computed rows and head rows of its forwards, and `demask bench step` at these counts, whose medians are
added up (linearly between the fewest and the most head rows). Policies that the record has already are left alone, so
that an interrupted run goes on. --under "chrt -f 50" keeps other work out where the system allows it.
"""

import argparse
import json
import random
import re
import shlex
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import date
from pathlib import Path

POLICIES = ["none", "prefix", "freecache:block=32", "dllm:prompt=50,response=7,count=forwards,rows=drift", "dllm", "dual"]


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


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.model = shlex.split(f"--model {arguments.model} --quantize {arguments.quantize}")
        random.seed(0)
        tokens = ",".join(str(random.randrange(1000, 100000)) for _ in range(arguments.prompt_length))
        self.prompt = ["--prompt-tokens", tokens]

    def demask(self, words, timed=True):
        command = [*(shlex.split(self.arguments.under) if timed else []), self.arguments.demask, *words, "--json", "-q"]
        shown = " ".join("TOKENS" if len(word) > 1000 else word for word in command)
        print(shown, file=sys.stderr)
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    def generate(self, policy, more):
        lengths = f"--gen-length {self.arguments.gen_length} --block-length {self.arguments.block_length}"
        methods = ["--decoder", "static", "--cache", policy]
        words = ["generate", *self.model, *self.prompt, *shlex.split(lengths), "--ignore-eos", *methods, *more]
        return self.demask(words, timed="--explain" not in more)

    def answer(self, policy):
        """One answer: seconds, counts, and the shapes of its forwards."""
        # Forwards without a cache are all alike: a few of them will do.
        steps = ["--steps", str(self.arguments.steps_of_none)] if policy == "none" else []
        receipt = self.generate(policy, steps)["receipt"]
        plans = self.generate(policy, [*steps, "--explain"])["plans"]
        shapes = Counter(shape(plan) for plan in plans if plan.startswith("step"))
        return {"receipt": receipt, "shapes": [[*key, count] for key, count in sorted(shapes.items(), key=str)]}

    def steps(self, shapes):
        """Medians of single forwards: {(rows, keys, computed, head rows): seconds}."""
        asked = defaultdict(set)
        for rows, keys, computed, head in shapes:
            asked[keys, computed, head].add(rows)
        seconds = {}
        for (keys, computed, head), rows in asked.items():
            words = ["--rows", ",".join(map(str, sorted(rows))), "--keys", str(keys), "--head-rows", str(head)]
            words += ["--computed", str(computed)] if computed else []
            words += ["--repeat", str(self.arguments.repeat)]
            for report in self.demask(["bench", "step", *self.model, *words]):
                seconds[report["rows"], keys, computed, head] = report["seconds"]["median"]
        return seconds


def ends(policies):
    """The fewest and the most head rows of each kind of forward."""
    heads = defaultdict(list)
    for entry in policies.values():
        for rows, keys, computed, head, _ in entry["shapes"]:
            heads[rows, keys, computed].append(head)
    return {kind: (min(found), max(found)) for kind, found in heads.items()}


def predicted(shapes, seconds, least_and_most):
    """The sum of the medians at the shapes that ran."""
    total = 0.0
    for rows, keys, computed, head, count in shapes:
        least, most = least_and_most[rows, keys, computed]
        low, high = (seconds[rows, keys, computed, end] for end in (least, most))
        part = (head - least) / (most - least) if most > least else 0.0
        total += count * (low + part * (high - low))
    return total


def compare(record, gen_length):
    """Adds seconds per token and speed-ups over none to a complete record."""
    for entry in record["policies"].values():
        receipt = entry["receipt"]
        per_forward = receipt["seconds"]["total"] / receipt["forwards"]
        tokens = gen_length if receipt["cache"] != "none" else receipt["forwards"]
        entry["seconds_per_token"] = per_forward * receipt["forwards"] / tokens
        entry["outside_network"] = 1 - receipt["seconds"]["model"] / receipt["seconds"]["total"]
    baseline = record["policies"].get("none")
    for policy, entry in record["policies"].items():
        if baseline:
            entry["speedup"] = baseline["seconds_per_token"] / entry["seconds_per_token"]
        line = {key: round(entry[key], 4) for key in ("seconds_per_token", "over_steps", "speedup") if key in entry}
        print(policy, line, file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demask", required=True, help="the binary")
    parser.add_argument("--model", required=True, help="a directory")
    parser.add_argument("--out", required=True, type=Path, help="the record, continued if it exists")
    parser.add_argument("--quantize", default="q8")
    parser.add_argument("--prompt-length", type=int, default=819)
    parser.add_argument("--gen-length", type=int, default=256)
    parser.add_argument("--block-length", type=int, default=32)
    parser.add_argument("--steps-of-none", type=int, default=16)
    parser.add_argument("--policies", nargs="*", default=POLICIES)
    parser.add_argument("--repeat", type=int, default=3, help="measured forwards of each shape")
    parser.add_argument("--machine", default="", help="a line about the machine")
    parser.add_argument("--conditions", default="", help="a line about what else ran")
    parser.add_argument("--under", default="", help="words in front of every command that is timed")
    parser.add_argument("--no-steps", action="store_true", help="answers only")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    record = {"machine": arguments.machine, "date": date.today().isoformat(), "conditions": arguments.conditions}
    shown = {name: value for name, value in vars(arguments).items() if name not in ("demask", "model", "out", "machine", "conditions")}
    record |= {"arguments": shown, "policies": {}, "steps": []}
    if arguments.out.exists():
        record |= json.loads(arguments.out.read_text())

    def save():
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        partial = arguments.out.with_suffix(".part")
        partial.write_text(json.dumps(record, indent=1) + "\n")
        partial.replace(arguments.out)

    for policy in arguments.policies:
        if policy not in record["policies"]:
            record["policies"][policy] = bench.answer(policy)
            save()
    known = {tuple(entry[:4]): entry[4] for entry in record["steps"]}
    if not arguments.no_steps:
        limits = ends(record["policies"])
        wanted = {(*kind, head) for kind, heads in limits.items() for head in heads}
        known |= bench.steps(sorted(wanted - known.keys(), key=str))
        record["steps"] = [[*key, value] for key, value in sorted(known.items(), key=str)]
        for entry in record["policies"].values():
            total = predicted(entry["shapes"], known, limits)
            entry["over_steps"] = entry["receipt"]["seconds"]["total"] / total
    compare(record, arguments.gen_length)
    save()


main()
