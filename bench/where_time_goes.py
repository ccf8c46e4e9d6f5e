#!/usr/bin/env python3
"""Where the time of the tests goes: builds and runs the README's test command in an empty folder and prints tables of
what each binary takes to compile, to link and to run. `docs/testing.md` has some.

    python3 bench/where_time_goes.py [--target FOLDER] [--project FOLDER] [--rows 1.0]

Cargo tells what it compiles when (`--timings`). Links are timed by this program, which stands in for the linker; runs by
when cargo names the next binary. Compiling and linking count seconds of cores, of which several work at a time.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time

# Where links are told to; set for the program's second life as a linker.
LINKS = "DEMASK_LINKS"


def link() -> int:
    """Links with the system's compiler, and tells what took how long."""
    began = time.monotonic()
    code = subprocess.call(["cc", *sys.argv[1:]])
    words = sys.argv[1:]
    for name in [word[1:] for word in words if word.startswith("@")]:
        words += pathlib.Path(name).read_text(errors="replace").split()
    output = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "-o"), "")
    line = {
        "package": os.environ.get("CARGO_PKG_NAME", ""),
        "output": pathlib.Path(output.strip('"')).name,
        "seconds": time.monotonic() - began,
    }
    with open(os.environ[LINKS], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return code


def test_command(project: pathlib.Path) -> str:
    """The command that the README names."""
    lines = iter((project / "README.md").read_text().splitlines())
    next(line for line in lines if line == "<!-- test command -->")
    return next(line.strip() for line in lines if line.startswith("    "))


def units(report: str) -> list[dict]:
    """What cargo's report says of all that was compiled."""
    return json.loads(re.search(r"const UNIT_DATA = (\[.*?\]);\n", report, re.S).group(1))


def runs(lines):
    """Binaries in the order that they ran, from lines with the time of each: name, seconds, tests."""
    found = []
    for at, line in lines:
        if match := re.match(r"\s+Running .*\((\S+)\)", line) or re.match(r"\s+Doc-tests (\S+)", line):
            found.append([pathlib.Path(match.group(1)).name, at, at, 0])
        elif found:
            found[-1][2] = at
            if match := re.match(r"test result: .* (\d+) passed; (\d+) failed; (\d+) ignored", line):
                found[-1][3] += sum(map(int, match.groups()))
    return [(name, end - began, tests) for name, began, end, tests in found]


def run_stamped(command: str, project: pathlib.Path, environment: dict) -> tuple[int, list]:
    """Runs a command and stamps each line of what it says."""
    process = subprocess.Popen(
        command, shell=True, cwd=project, env=environment, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    lines = []
    for line in process.stdout:
        lines.append((time.monotonic(), line))
        sys.stderr.write(line)
    code = process.wait()
    lines.append((time.monotonic(), ""))
    return code, lines


def table(units: list[dict], links: list[dict], ran: list, least: float) -> list[str]:
    """Lines of the table: what was compiled for users, then each binary of tests."""
    # Of each binary: seconds to compile with its link, seconds of the link, seconds to run, tests.
    rows = collections.OrderedDict()
    link_of, package_of = collections.defaultdict(list), {}
    for entry in links:
        name = entry["output"].rsplit("-", 1)[0]
        link_of[entry["package"], name].append(entry["seconds"])
        package_of[entry["output"]] = entry["package"]
    others = collections.Counter()
    for unit in units:
        ours, target = unit["name"].startswith("demask"), unit["target"].strip()
        match = re.match(r'(\S+) "(lib|bin|test|bench)"( \(test\))?', target)
        if ours and match and (match.group(3) or match.group(2) == "bin"):
            name, test = match.group(1).replace("-", "_"), bool(match.group(3))
            seconds = link_of[unit["name"], name]
            rows[unit["name"], name, test] = [unit["duration"], seconds.pop(0) if seconds else 0.0, 0.0, 0]
        else:
            others["our libraries" if ours else "dependencies"] += unit["duration"]
            others["our libraries, number" if ours else "dependencies, number"] += 1
    documented = [0.0, 0]
    for name, seconds, tests in ran:
        if name in package_of:
            row = rows[package_of[name], name.rsplit("-", 1)[0], True]
            row[2], row[3] = seconds, tests
        else:
            documented = [documented[0] + seconds, documented[1] + tests]
    lines = ["| what | compile, s | link, s | run, s | tests |", "|---|---:|---:|---:|---:|"]
    for kind in ["dependencies", "our libraries"]:
        lines.append(f"| {kind} ({others[kind + ', number']} units) | {others[kind]:.1f} | | | |")
    small = [0, 0.0, 0.0, 0.0, 0]
    for (package, name, test), (total, linking, running, tests) in rows.items():
        what = f"`{package}`: `{name}`" + ("" if test else ", the binary")
        if total + running < least:
            small = [a + b for a, b in zip(small, [1, total - linking, linking, running, tests])]
            continue
        told = f"{running:.1f} | {tests}" if test else "| "
        lines.append(f"| {what} | {total - linking:.1f} | {linking:.1f} | {told} |")
    if small[0]:
        lines.append("| {} binaries below {} s | {:.1f} | {:.1f} | {:.1f} | {} |".format(small[0], least, *small[1:]))
    lines.append(f"| examples in documentation | | | {documented[0]:.1f} | {documented[1]} |")
    sums = [sum(row[column] for row in rows.values()) for column in range(4)]
    compiled = sums[0] - sums[1] + others["dependencies"] + others["our libraries"]
    lines.append(
        f"| all ({len([1 for key in rows if key[2]])} binaries of tests) | {compiled:.0f} | {sums[1]:.0f} "
        f"| {sums[2] + documented[0]:.0f} | {sums[3] + documented[1]} |"
    )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, default=pathlib.Path("target/where-time-goes"))
    parser.add_argument("--project", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--rows", type=float, default=3.0, help="binaries that take less, in seconds, share a row")
    given = parser.parse_args()
    target = given.target.resolve()
    if target.exists():
        parser.error(f"{target} is there: the build begins with nothing")
    command, links = test_command(given.project), target / "links.jsonl"
    target.mkdir(parents=True)
    links.touch()
    host = re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True)).group(1)
    linker = f"CARGO_TARGET_{host.upper().replace('-', '_')}_LINKER"
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(target), LINKS: str(links), linker: str(pathlib.Path(__file__).resolve()),
    }
    began = time.monotonic()
    code, _ = run_stamped(f"{command} --no-run --timings", given.project, environment)
    built = time.monotonic()
    if code:
        return code
    code, lines = run_stamped(command, given.project, environment)
    ended = time.monotonic()
    report = (target / "cargo-timings/cargo-timing.html").read_text()
    told = [json.loads(line) for line in links.read_text().splitlines()]
    print(f"{os.cpu_count()} cores, `{command}`: built in {built - began:.0f} s, ran in {ended - built:.0f} s\n")
    print("\n".join(table(units(report), told, runs(lines), given.rows)))
    return code


if __name__ == "__main__":
    sys.exit(link() if LINKS in os.environ else main())
