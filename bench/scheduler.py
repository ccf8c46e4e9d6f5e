"""Times batches of problems with two builds of demask in turns: seconds of a problem, their medians and ratios.

    python bench/scheduler.py OLD NEW [--rounds N] [--out FILE]
    python bench/scheduler.py BINARY

One measurement is `demask eval wordmath --model demo/demo-llada --batch 16` over the first --limit problems, decoded by
--decoder (static: the most forwards): what the scheduler of requests costs shows where many share a forward. In each
round every build has one turn for each cache, and every other round begins with the other build, so that what else the
machine does falls on both. A round before the first is not counted.

Seconds are a share of the clock, loading left out; processor-seconds are those of all threads, as the system counts
them, loading included. A ratio is NEW by OLD, of the same round: below 1, NEW is faster. Builds that take another
number of forwards, or solve another number of problems, are told: their seconds are not of the same work. One binary
alone has its seconds measured. --under "chrt -f 50" keeps other work out where the system allows it.
"""

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

# What a comparison needs to be of the same work.
WORK = ("items", "correct", "nfe")
KINDS = {"seconds": "seconds", "processor_seconds": "processor-seconds"}


def words(arguments, cache):
    """An evaluation's arguments."""
    given = f"eval wordmath --model {arguments.model} --decoder {arguments.decoder} --cache {cache}"
    return [*shlex.split(given), "--batch", str(arguments.batch), "--limit", str(arguments.limit), "--json", "-q"]


def processor_seconds():
    """Of all processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(arguments, binary, cache):
    """One turn: seconds of a problem, and what work they are of."""
    before = processor_seconds()
    command = [*shlex.split(arguments.under), str(binary), *words(arguments, cache)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    used = processor_seconds() - before
    (row,) = json.loads(done.stdout)["rows"]
    turn = {"seconds": row["seconds_per_item"], "processor_seconds": used / row["items"]}
    return turn, {name: row[name] for name in WORK}


def in_turns(builds, number):
    """Builds in the order of a round."""
    names = list(builds)
    return names if number % 2 == 0 else names[::-1]


def summary(turns):
    """Medians and ranges of builds, and of the ratios of the second to the first: {kind: {name: values}}."""
    found = {}
    for kind in KINDS:
        values = {name: [turn[kind] for turn in of_build] for name, of_build in turns.items()}
        if len(values) == 2:
            old, new = values.values()
            values["ratio"] = [after / before for before, after in zip(old, new)]
        found[kind] = {
            name: {"median": statistics.median(given), "least": min(given), "most": max(given)}
            for name, given in values.items()
        }
    return found


def told(cache, found):
    """Lines of Markdown about one cache."""
    for kind, values in found.items():
        cells = [f"`{cache}`", KINDS[kind]]
        for name, value in values.items():
            unit, digits = (1, 3) if name == "ratio" else (1000, 2)
            median, least, most = (f"{value[key] * unit:.{digits}f}" for key in ("median", "least", "most"))
            cells.append(f"{median} ({least} to {most})")
        yield "| " + " | ".join(cells) + " |"


def unlike(cache, work):
    """What tells that two builds did other work, if they did."""
    if len(work) == 2:
        (old, before), (new, after) = work.items()
        for name in WORK:
            if before[name] != after[name]:
                yield f"cache {cache}: {name} of {old} is {before[name]}, of {new} {after[name]}: not the same work"


def number(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def program(text):
    """A binary's path that holds in any folder."""
    path = Path(text).resolve()
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"{text} is no program: build it with cargo build --release")
    return path


def parse(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=program, help="the binary, or the first of two")
    parser.add_argument("new", type=program, nargs="?", help="the binary that it is compared with")
    parser.add_argument("--rounds", type=number, default=5, help="turns of each build [default: 5]")
    parser.add_argument("--limit", type=number, default=100, help="problems of a turn [default: 100]")
    parser.add_argument("--batch", type=number, default=16, help="problems at the same time [default: 16]")
    parser.add_argument("--model", default="demo/demo-llada", help="a model's folder [default: demo/demo-llada]")
    parser.add_argument("--decoder", default="static", help="how problems are decoded [default: static]")
    parser.add_argument("--caches", nargs="+", default=["none", "dual"], help="cache policies [default: none dual]")
    parser.add_argument("--under", default="", help="words in front of every command")
    parser.add_argument("--machine", default="", help="what the record says of the machine")
    parser.add_argument("--out", type=Path, help="a JSON file for all turns and their summary")
    return parser.parse_args(given)


def main(given=None):
    arguments = parse(given)
    builds = {"old": arguments.old, "new": arguments.new} if arguments.new else {"build": arguments.old}
    turns = {cache: {name: [] for name in builds} for cache in arguments.caches}
    work = {cache: dict.fromkeys(builds) for cache in arguments.caches}
    for round_number in range(-1, arguments.rounds):
        for cache in arguments.caches:
            for name in in_turns(builds, round_number):
                turn, work[cache][name] = measure(arguments, builds[name], cache)
                shown = f"{1000 * turn['seconds']:.2f} ms, {1000 * turn['processor_seconds']:.2f} ms of processors"
                counted = f"round {round_number + 1}" if round_number >= 0 else "not counted"
                print(f"{counted}, cache {cache}, {name}: {shown}", file=sys.stderr, flush=True)
                if round_number >= 0:
                    turns[cache][name].append(turn)
    found = {cache: summary(of_cache) for cache, of_cache in turns.items()}
    heads = ["cache", "of a problem", *(f"{name}, ms" for name in builds), *(["new by old"] if arguments.new else [])]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for cache in arguments.caches:
        print("\n".join(told(cache, found[cache])))
    for cache in arguments.caches:
        for line in unlike(cache, work[cache]):
            print(line)
    if arguments.out:
        commands = [shlex.join(["demask", *words(arguments, cache)]) for cache in arguments.caches]
        record = {"machine": arguments.machine, "date": date.today().isoformat(), "under": arguments.under}
        record |= {"commands": commands, "work": work, "summary": found, "turns": turns}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
