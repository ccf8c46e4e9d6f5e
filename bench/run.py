"""Runs a benchmark of definitions/ and writes what was found to a record.

    python bench/run.py                                                   the benchmarks
    python bench/run.py rivals --demask target/release/demask file=FILE.gguf rows=32,256 --rounds 10 --out RECORD.json
    python bench/run.py scheduler --demask NEW --against OLD              two builds in turns
    python bench/run.py kernels --dry-run                                 the commands, and none is run

NAME=VALUE gives what a definition needs or lets choose; lists have commas between, or `|`. demask-lab is beside demask. An
interrupted call goes on where it was, from the record in --out; {NAME} in its path makes a record for each value. A record
has the machine (`demask doctor --json`), the programs' versions, what was given, and for each point and subject all values
of each figure with median, quartiles and, where subjects are compared, the ratios of the same round.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from datetime import date
from functools import partial
from pathlib import Path

import definition
import turns
from common import ROOT, Programs, number, write_whole
from definition import Wrong, plain, words
from subjects import Bench, Broken, Command, Missing


def made(bench, subject):
    """A subject that can take turns."""
    if "run" in subject:
        return Command(bench, subject)
    file, _, kind = subject["python"].partition(":")
    return getattr(importlib.import_module(f"subjects.{file}"), kind)(bench, subject["values"])


def builds_of(asked, tables, over):
    """Subjects of both builds with the one that each is compared with: the same one of the build of --against."""
    both = {name: (asked.bench, table) for name, table in tables.items()}
    pairs = [(name, base) for base in over for name in tables]
    if asked.against:
        other = Bench(asked.against, asked.bench.work, asked.bench.under)
        for name, table in tables.items():
            if not table.get("rival"):
                both[f"{name}, against"] = (other, {**table, "values": {**table["values"], **other.values()}})
                pairs.append((name, f"{name}, against"))
    return both, pairs


def prepare(bench, steps, values):
    for step in steps:
        makes = plain(step.get("makes", ""), values)
        if not makes or not Path(makes).exists():
            told(f"   {step['run']}")
            bench.run(words(step["run"], values))


def measured(both, missing):
    """Subjects that can be measured here, by name; why the others cannot goes to `missing`."""
    subjects = {}
    for name, (bench, table) in both.items():
        prepare(bench, table.get("prepare", []), table["values"])
        try:
            subjects[name] = made(bench, table)
        except (Missing, ImportError) as reason:
            missing[name] = str(reason)
            told(f"   without {name}: {reason}")
    return subjects


def cell(part, asked, values, done, keep):
    """All turns of a cell: its results, one for each point of them, what is worth knowing of subjects, and which are missing."""
    over = [part["over"]] if isinstance(part.get("over"), str) else part.get("over", [])
    prepare(asked.bench, part.get("prepare", []), values)
    both, pairs = builds_of(asked, definition.expanded(part, values), [plain(name, values) for name in over])
    missing = {}
    subjects = measured(both, missing)

    def turn(name):
        found = subjects[name].turn()
        told(f"   {name}: {json.dumps(found)[:160]}")
        return found

    try:
        rounds, warm = asked.rounds or part.get("rounds", 1), part.get("warm", 0)
        taken = turns.in_turns({name: partial(turn, name) for name in subjects}, rounds, warm, done, keep)
    finally:
        for subject in subjects.values():
            getattr(subject, "close", lambda: None)()
    results = [{"part": part.get("name", ""), "at": at, **of_point(part, points, both, pairs)} for at, points in by_point(taken, both)]
    for name, subject in subjects.items():
        for found in [result["subjects"][name] for result in results if isinstance(subject, Command) and name in result["subjects"]]:
            found["command"] = subject.bench.shown(subject.command)
            if "output" in found["facts"]:
                found["output"] = found["facts"].pop("output")
    about = {name: subject.about for name, subject in subjects.items() if hasattr(subject, "about")}
    return results, about, missing


def by_point(taken, both):
    """Turns of each point: a subject whose turns have no points of their own is beside every other one's."""
    split, keys = {}, {}
    for name, of_one in taken.items():
        by = both[name][1].get("by")
        for turn in of_one:
            for entry in turn if isinstance(turn, list) else [turn]:
                at = {by: entry[by]} if by else {}
                keys[json.dumps(at)] = at
                split.setdefault(name, {}).setdefault(json.dumps(at), []).append(dict(entry))
    if len(keys) > 1:
        keys.pop("{}", None)
    for key, at in keys.items():
        found = {name: of_one.get(key) or of_one.get("{}") for name, of_one in split.items()}
        yield at, {name: of_one for name, of_one in found.items() if of_one}


def of_point(part, points, both, pairs):
    """Spreads and ratios of a point, with what is derived from the figures of each round."""
    rounds = min(map(len, points.values()))
    for at in range(rounds):
        beside = {name: of_one[at] for name, of_one in points.items()}
        for name, of_one in points.items():
            table = both[name][1]
            definition.derive(table.get("derived", {}), of_one[at], beside, table["values"])
    found = {"subjects": turns.summary({name: of_one[:rounds] for name, of_one in points.items()}, pairs)}
    if told_unlike := turns.unlike(points, part.get("same", [])):
        found["unlike"] = told_unlike
    return found


def told(text):
    print(text, file=sys.stderr, flush=True)


def head(asked, values):
    """What a record begins with."""

    def printed(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()

    machine = json.loads(printed(asked.bench.programs.demask, "doctor", "--json"))
    machine.pop("defaults", None)
    versions = {"demask": printed(asked.bench.programs.demask, "--version")}
    if asked.against:
        versions["against"] = printed(asked.against.demask, "--version")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False)
    return {
        "definition": asked.name,
        "date": date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": machine,
        "conditions": asked.conditions,
        "under": asked.bench.under,
        "programs": versions,
        "given": values,
        "about": {},
        "missing": {},
        "results": [],
        "done": [],
    }


class Records:
    """Records by path, begun where there is none, and gone on with where there is one of the same values."""

    def __init__(self, asked, values):
        self.asked, self.values, self.by_path, self.head = asked, values, {}, None

    def at(self, path):
        if path not in self.by_path:
            there = json.loads(Path(path).read_text()) if path and Path(path).exists() else None
            if there and (there.get("definition"), there.get("given")) != (self.asked.name, self.values):
                raise Wrong(f"{path} has a record of other values: remove it, or name another one")
            self.head = self.head or head(self.asked, self.values)
            self.by_path[path] = there or json.loads(json.dumps(self.head))
        return self.by_path[path]


def bench(asked):
    """Runs all cells of a definition; the definition, and the records."""
    found = definition.read(asked.name)
    values = definition.settle(found, asked.words)
    records = Records(asked, values)
    for part in found["parts"]:
        if asked.only and part.get("name") not in asked.only or not definition.holds(part.get("when", "1"), values):
            continue
        for point in definition.cells(part):
            own = definition.computed_values(found, {**asked.bench.values(), **values, **point})
            if asked.dry_run:
                dry(asked, part, own)
            else:
                path = plain(asked.out, own) if asked.out else None
                go_on(asked, records.at(path), path, part, own, point)
    return found, list(records.by_path.values())


def go_on(asked, record, path, part, values, point):
    """Runs a cell, unless its results are in the record; every turn is kept there until they are."""
    key = {"part": part.get("name", ""), "cell": point}
    if key in record["done"]:
        return
    told(f"== {key['part']} {point or ''}")
    unfinished = record.pop("unfinished", {})
    before = unfinished.get("turns") if unfinished.items() >= key.items() else None
    save = write_whole if path else lambda *_: None
    results, about, missing = cell(part, asked, values, before, lambda taken: save(path, record | {"unfinished": key | {"turns": taken}}))
    record["results"] += [result | {"at": {**point, **result["at"]}} for result in results]
    record["about"] |= about
    record["missing"] |= missing
    record["done"].append(key)
    save(path, record)


def dry(asked, part, values):
    """Prints the commands of a cell."""
    for name, subject in definition.expanded(part, values).items():
        for step in [*part.get("prepare", []), *subject.get("prepare", [])]:
            print(asked.bench.shown(words(step["run"], subject["values"])))
        print(asked.bench.shown(words(subject["run"], subject["values"])) if "run" in subject else f"{name}: subjects/{subject['python']}")


def table(results, units):
    """Lines of Markdown about results: medians of the figures with a unit, ratios of the first of them."""
    points = list(dict.fromkeys(key for result in results for key in result["at"]))
    every = [subject for result in results for subject in result["subjects"].values()]
    shown = [name for name in units if any(name in subject["figures"] for subject in every)]
    bases = list(dict.fromkeys(base for subject in every for base in subject.get("over", {})))
    heads = [*points, "subject", *(heading(name, units[name]) for name in shown)]
    heads += [f"over {base}" for base in bases]
    yield "| " + " | ".join(heads) + " |\n|" + "---|" * len(points) + "---|" + "---:|" * (len(shown) + len(bases))
    for result in results:
        for name, subject in result["subjects"].items():
            cells = [str(result["at"].get(key, "")) for key in points] + [name]
            cells += [spread_shown(subject["figures"].get(figure), at == 0) for at, figure in enumerate(shown)]
            ratios = [subject.get("over", {}).get(base, {}) for base in bases]
            cells += [spread_shown(next((of[figure] for figure in shown if figure in of), None), True) for of in ratios]
            yield "| " + " | ".join(cells) + " |"


def heading(name, unit):
    """A figure's name with its unit, unless the name says it."""
    words = name.split("_")
    return " ".join(words) + (f", {unit}" if unit and unit not in words else "")


def spread_shown(spread, ends):
    """A median, with the quartiles where several turns made it and `ends` is set."""
    if spread is None:
        return ""
    low, high = spread["quartiles"]
    return f"{spread['median']:.4g}" + (f" ({low:.4g} to {high:.4g})" if ends and len(spread["values"]) > 1 else "")


def parse(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="a definition")
    parser.add_argument("words", nargs="*", metavar="NAME=VALUE", help="what the definition needs")
    parser.add_argument("--demask", type=Programs, default=str(ROOT / "target/release/demask"), help="the build")
    parser.add_argument("--against", type=Programs, help="another build, in turns with it")
    parser.add_argument("--rounds", type=number, help="turns of each subject [default: the definition's]")
    parser.add_argument("--only", type=lambda text: text.split(","), help="parts, with commas between")
    parser.add_argument("--under", default="", help='words in front of every command: "chrt -f 50"')
    parser.add_argument("--conditions", default="", help="a line about what else ran")
    parser.add_argument("--work", type=Path, help="a folder for what is made [default: one that is removed]")
    parser.add_argument("--out", help="the record; gone on with if it is there")
    parser.add_argument("--json", action="store_true", help="print the records, and no tables")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    return parser.parse_intermixed_args(given)


def main(given=None):
    asked = parse(given)
    if asked.name is None:
        for name in definition.names():
            print(f"{name:16} {definition.read(name)['about']}")
        return
    with tempfile.TemporaryDirectory() as folder:
        work = (asked.work or Path(folder)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        asked.bench = Bench(asked.demask, work, asked.under)
        try:
            if not asked.dry_run:
                for programs in filter(None, (asked.demask, asked.against)):
                    programs.checked()
            found, records = bench(asked)
        except (Wrong, Broken, OSError, subprocess.SubprocessError) as error:
            sys.exit(f"error: {error}")
    if asked.json:
        print(json.dumps(records))
        return
    for part in [part.get("name", "") for part in found["parts"]]:
        results = [result for record in records for result in record["results"] if result["part"] == part]
        if results:
            print("\n".join(filter(None, [f"\n{part}\n" if part else "", *table(results, found.get("units", {}))])))
        for result in results:
            print("".join(f"{line}\n" for line in result.get("unlike", [])), end="")


if __name__ == "__main__":
    main()
