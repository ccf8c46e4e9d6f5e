"""Compares FreeDave, whose number of drafts is the device's, with static decoding by the clock.

    python bench/drafts.py demos --work DIR --out bench/record/drafts/clock.json
    python bench/drafts.py shape --work DIR --like sdar-4b --layers 4 --out bench/record/drafts/sdar-4b.json

`demos` answers problems with static decoding and with `freedave` in turns, and gives the ratio of their seconds for each pair of
demo model and cache. `shape` gives a large network random weights and the predictions of demo-sdar in place of its own, and times
each decoder of --decoders in turns. Runs are kept in --work.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

FULL_CACHES = ["none", "prefix", "dual", "freecache:block=16"]
MODELS = {
    "demo-llada": (["--block-length", "16"], FULL_CACHES),
    "demo-dream": (["--block-length", "16"], FULL_CACHES),
    "demo-sdar": ([], ["none", "block"]),
}
STATIC, FITTED = "static", "freedave"
QUESTION = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?"


def call(arguments, *words):
    done = subprocess.run([arguments.demask, *map(str, words)], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout


def evaluate(arguments, model, cache, decoder, out):
    """Runs a decoder over one cache and returns its items in order of the problems."""
    options, _ = MODELS[model]
    words = ["eval", "wordmath", "--model", f"demo/{model}", *options, "--decoder", decoder, "--cache", cache]
    call(arguments, *words, "--limit", arguments.limit, "--batch", 1, "--out", out, "-q")
    items = [json.loads(line) for line in (Path(out) / "results.jsonl").read_text().splitlines()]
    return sorted(items, key=lambda item: item["index"])


def demos(arguments):
    for model in arguments.models.split(",") if arguments.models else MODELS:
        for cache in MODELS[model][1]:
            yield pair(arguments, model, cache)


def pair(arguments, model, cache):
    """One round is a pair in turns, each first every other time."""
    ratios, runs = [], {}
    for number in range(arguments.rounds):
        seconds = {}
        for decoder in [STATIC, FITTED] if number % 2 == 0 else [FITTED, STATIC]:
            out = Path(arguments.work) / f"{model}-{cache.split(':')[0]}-{number}-{decoder}"
            runs[decoder] = evaluate(arguments, model, cache, decoder, out)
            seconds[decoder] = sum(item["receipt"]["seconds"]["total"] for item in runs[decoder])
        ratios.append(seconds[FITTED] / seconds[STATIC])
    found = {
        "model": model,
        "cache": cache,
        "ran": runs[FITTED][0]["receipt"]["decoder"],
        "items": arguments.limit,
        "nfe": [round(statistics.mean(item["receipt"]["nfe"] for item in runs[way]), 2) for way in (STATIC, FITTED)],
        "answers_unlike_static": sum(a["output"] != b["output"] for a, b in zip(runs[STATIC], runs[FITTED], strict=True)),
    }
    return {**found, **ratio(ratios)}


def ratio(ratios):
    """Median of ratios, and the interval that holds their mean with 95 %: Student's t of 19 degrees of freedom; of more it is
    smaller."""
    mean = statistics.mean(ratios)
    half = 2.093 * statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf
    interval = [round(mean - half, 4), round(mean + half, 4)]
    return {"rounds": len(ratios), "of_static": round(statistics.median(ratios), 4), "interval": interval}


def shape(arguments):
    work = Path(arguments.work)
    model = work / f"{arguments.like}-{arguments.layers}"
    if not model.exists():
        call(arguments, "synth", "--like", arguments.like, "--layers", arguments.layers, "--seed", 1, "--out", model)
    common = ["--cache", "block", "--gen-length", 64, "--ignore-eos"]
    decoders, seconds, receipts = arguments.decoders.split(";"), {}, {}
    for index, decoder in enumerate(decoders):
        trace = work / f"trace-{index}.jsonl"
        own = ["--model", "demo/demo-sdar", "--decoder", decoder, "--trace", trace, "--trace-predictions"]
        call(arguments, "generate", *own, *common, QUESTION)
    for _ in range(arguments.rounds):
        for index, decoder in enumerate(decoders):
            replay = ["--model", model, "--decoder", decoder, "--replay", work / f"trace-{index}.jsonl", "--repeat", 1]
            found = json.loads(call(arguments, "bench", "generate", *replay, *common, "--json"))
            seconds.setdefault(decoder, []).append(found["seconds"]["median"])
            receipts[decoder] = found["receipt"]
    for decoder in decoders:
        ratios = [one / static for one, static in zip(seconds[decoder], seconds[decoders[0]], strict=True)]
        receipt = receipts[decoder]
        ran = {"ran": receipt["decoder"], "forwards": receipt["forwards"], "rows": receipt["rows"]}
        yield {"decoder": decoder, **ran, "seconds": round(statistics.median(seconds[decoder]), 4), **ratio(ratios)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["demos", "shape"])
    parser.add_argument("--demask", default="target/release/demask")
    parser.add_argument("--work", required=True, help="folder of the runs")
    parser.add_argument("--out", help="the record")
    parser.add_argument("--limit", type=int, default=20, help="problems of a demo model")
    parser.add_argument("--rounds", type=int, default=20, help="rounds in turns")
    parser.add_argument("--models", help="only these demo models, separated by commas")
    parser.add_argument("--like", default="sdar-4b", help="shape of the large network")
    parser.add_argument("--layers", type=int, default=4, help="layers of it")
    ways = f"{STATIC};{FITTED};freedave:d=4;freedave:d=8,eager=true"
    parser.add_argument("--decoders", default=ways, help="the others are compared with the first")
    parser.add_argument("--machine", default="", help="what the record says of the machine")
    arguments = parser.parse_args()
    found = []
    for row in (demos if arguments.what == "demos" else shape)(arguments):
        found.append(row)
        print(json.dumps(row), file=sys.stderr)
    if arguments.out:
        command = ["python", "bench/drafts.py", *sys.argv[1:]]
        record = {"command": command, "machine": arguments.machine, "found": found}
        Path(arguments.out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
