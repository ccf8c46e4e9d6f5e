"""Decodes the demo's problems by every decoder over every cache, and puts accuracy, forwards and seconds in one record.

    python bench/decoders.py --demask target/release/demask --work DIR --out bench/record/MACHINE/DATE-demo-decoders.json

Accuracy and forwards are of batches of 8 (all 500 problems, or --limit where the list below says so); seconds are of
single answers one after the other, for the first --timed problems. --count leaves the seconds by the clock to a later call,
when nothing else runs. The runs are kept in --work, and an interrupted call goes on where it was. --under "chrt -f 50" keeps other work out of the seconds where the system allows it.
"""

import argparse
import json
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

DECODERS = [
    "static",
    "threshold",
    "freedave",
    *(f"freedave:d={drafts}" for drafts in (2, 4, 8, 16)),
    "guided",
    "guided:match=topk,k=2",
    "guided:match=topk_relative,k=2,tau=0.5",
]
# What only a block model's drafts can do: they span blocks, and forwards are counted as published.
AS_PUBLISHED = [f"freedave:d={drafts},mode=reference" for drafts in (2, 4, 8, 16)]
BLOCK_DECODERS = [*DECODERS, "freedave:d=4,eager", "freedave:d=8,eager", *AS_PUBLISHED]
FULL = ["none", "prefix", "dual", "freecache:block=16"]
PART = ["dllm"]
# model: its decoders, its further options, and its caches, each with whether it answers all problems or --limit.
MODELS = {
    "demo-llada": (DECODERS, "--block-length 16", {**dict.fromkeys(FULL, True), **dict.fromkeys(PART, False)}),
    "demo-dream": (DECODERS, "--block-length 16", {**dict.fromkeys(FULL, True), **dict.fromkeys(PART, False)}),
    "demo-sdar": (BLOCK_DECODERS, "", {"none": True, "block": True}),
}


def decoders_over(decoders, cache):
    """Without stored blocks there are no forwards that store them, which is what the further decoders differ in."""
    return decoders if cache != "none" else [decoder for decoder in decoders if decoder in DECODERS]


def evaluate(arguments, model, cache, timed, complete=True):
    """Runs all decoders over one cache and returns its items by run, in order."""
    decoders, options, _ = MODELS[model]
    kind = "timed" if timed else "counted"
    directory = Path(arguments.work) / f"{model}-{cache.split(':')[0]}-{kind}"
    sweep = "decoder=" + "|".join(decoders_over(decoders, cache)) + f";cache={cache}"
    words = ["eval", "wordmath", "--model", f"demo/{model}", "--guide", "demo/demo-qwen", *shlex.split(options)]
    words += ["--sweep", sweep, "--batch", "1" if timed else "8", "--out", str(directory), "-q"]
    if timed or not complete:
        words += ["--limit", str(arguments.timed if timed else arguments.limit)]
    command = [*(shlex.split(arguments.under) if timed else []), arguments.demask, *words]
    print(shlex.join(command), file=sys.stderr)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    runs = {run: {} for run in json.loads((directory / "run.json").read_text())["rows"]}
    for line in (directory / "results.jsonl").read_text().splitlines():
        item = json.loads(line)
        runs[item["run"]][item["index"]] = item
    return runs


def total(items, key):
    return sum(key(item) for item in items.values())


def entry(run, items, static, timed):
    """One run's sums over its problems; FreeDave's also against static decoding over the same cache."""
    receipt = next(iter(items.values()))["receipt"]
    found = {
        "run": run,
        "items": len(items),
        "right": total(items, lambda item: int(item["correct"])),
        "nfe": total(items, lambda item: item["receipt"]["nfe"]),
        "forwards": total(items, lambda item: item["receipt"]["forwards"]),
        "guide_nfe": total(items, lambda item: item["receipt"]["guide_nfe"]),
        "tokens": total(items, lambda item: item["tokens"]),
        "flops": total(items, lambda item: item["receipt"]["flops"]),
        "exactness": receipt["exactness"],
    }
    if run.startswith("freedave"):
        found["answers_unlike_static"] = sum(items[i]["output"] != static[i]["output"] for i in items)
        more = (items[i]["receipt"]["nfe"] > static[i]["receipt"]["nfe"] for i in items)
        found["items_with_more_nfe_than_static"] = sum(more)
    seconds = total(timed, lambda item: item["receipt"]["seconds"]["total"]) / len(timed)
    return {**found, "seconds_per_item": round(seconds, 4)}


def table(arguments, model):
    entries = []
    for cache, complete in MODELS[model][2].items():
        counted = evaluate(arguments, model, cache, timed=False, complete=complete)
        if arguments.count:
            continue
        timed = evaluate(arguments, model, cache, timed=True)
        static = next(items for run, items in counted.items() if run.startswith("static"))
        entries += [entry(run, items, static, timed[run]) for run, items in counted.items()]
    return entries


def shown(model, found):
    """One line of Markdown."""
    decoder, cache = found["run"].split(", cache ")
    cells = [model, f"`{decoder}`", f"`{cache}`", found["items"], f"{100 * found['right'] / found['items']:.1f} %"]
    cells += [f"{found['nfe'] / found['items']:.1f}", f"{found['tokens'] / found['nfe']:.2f}"]
    cells += [f"{found['seconds_per_item']:.3f}", found["exactness"]]
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demask", default="target/release/demask")
    parser.add_argument("--work", required=True, help="folder of the runs")
    parser.add_argument("--out", required=True, help="the record")
    parser.add_argument("--limit", type=int, default=100, help="problems over caches that need not answer all")
    parser.add_argument("--timed", type=int, default=30, help="problems for the seconds")
    parser.add_argument("--count", action="store_true", help="make no seconds by the clock, and no record")
    parser.add_argument("--under", default="", help="command before demask for what is timed")
    parser.add_argument("--machine", default="", help="what the record says of the machine")
    arguments = parser.parse_args()
    record = {
        "machine": arguments.machine,
        "date": str(date.today()),
        "version": subprocess.run([arguments.demask, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip(),
        "command": shlex.join(["python", "bench/decoders.py", *sys.argv[1:]]),
        "seconds": f"of single answers one after the other, first {arguments.timed} problems; the rest is of all items",
        "models": {model: table(arguments, model) for model in MODELS},
    }
    if arguments.count:
        return
    Path(arguments.out).write_text(json.dumps(record, indent=1) + "\n")
    for model, entries in record["models"].items():
        for found in entries:
            print(shown(model, found))


if __name__ == "__main__":
    main()
