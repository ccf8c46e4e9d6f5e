"""Where the time of the tests goes: builds and runs the README's test command in an empty folder; what was compiled, by
cargo's report (`--timings`), and each binary's seconds and tests, by when cargo names the next one."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from common import ROOT
from subjects import Broken


def test_command():
    """The command that the README names."""
    lines = iter((ROOT / "README.md").read_text().splitlines())
    next(line for line in lines if line == "<!-- test command -->")
    return next(line.strip() for line in lines if line.startswith("    "))


def stamped(command, environment):
    """Runs a command; each line of what it says with its time."""
    process = subprocess.Popen(
        command, shell=True, cwd=ROOT, env=environment, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = []
    for line in process.stdout:
        lines.append((time.monotonic(), line))
        sys.stderr.write(line)
    if process.wait():
        raise Broken(f"{command} failed")
    return [*lines, (time.monotonic(), "")]


def built(lines):
    """Packages and targets by the file names of their tests, from cargo's messages."""
    found = {}
    for message in map(json.loads, lines):
        if message.get("executable"):
            package = Path(message["manifest_path"]).parent.name
            found[Path(message["executable"]).name] = f"{package}: {message['target']['name']}"
    return found


def runs(lines, names):
    """Binaries in the order that they ran, from lines with the time of each: name, seconds, tests."""
    found = []
    for at, line in lines:
        if match := re.match(r"\s+Running .*\((\S+)\)", line) or re.match(r"\s+Doc-tests (\S+)", line):
            name = Path(match[1]).name
            found.append([names.get(name, f"documentation of {name}"), at, at, 0])
        elif found:
            found[-1][2] = at
            if match := re.match(r"test result: .* (\d+) passed; (\d+) failed; (\d+) ignored", line):
                found[-1][3] += sum(map(int, match.groups()))
    return {name: {"run_seconds": end - began, "tests": tests} for name, began, end, tests in found}


def compiled(report):
    """Seconds that units took with their links, by package and target; libraries and what others wrote are sums."""
    found = {}
    for unit in json.loads(re.search(r"const UNIT_DATA = (\[.*?\]);\n", report, re.S)[1]):
        ours, test = unit["name"].startswith("demask"), re.match(r'\s*(\S+) "\w+" \(test\)', unit["target"])
        what = "our libraries and programs" if ours else "dependencies"
        if ours and test:
            what = f"{unit['name'].removeprefix('demask-')}: {test[1]}"
        found[what] = {"compile_seconds": found.get(what, {}).get("compile_seconds", 0.0) + unit["duration"]}
    return found


class Tests:
    """The test command, built from nothing and run."""

    def __init__(self, bench, _values):
        self.target = bench.work / "tests"

    def turn(self):
        if self.target.exists():
            raise Broken(f"{self.target} is there: the build begins with nothing")
        environment = os.environ | {"CARGO_TARGET_DIR": str(self.target)}
        began = time.monotonic()
        stamped(f"{test_command()} --no-run --timings", environment)
        ended = time.monotonic()
        messages = subprocess.check_output(
            f"{test_command()} --no-run --message-format json", shell=True, cwd=ROOT, env=environment, text=True
        )
        again = time.monotonic()
        lines = stamped(test_command(), environment)
        compile_of = compiled((self.target / "cargo-timings/cargo-timing.html").read_text())
        run_of = runs(lines, built(messages.splitlines()))
        whole = {"what": "all, by the clock", "compile_seconds": ended - began, "run_seconds": lines[-1][0] - again}
        both = [compile_of.get(what, {}) | run_of.get(what, {}) | {"what": what} for what in {**compile_of, **run_of}]
        return [whole, *both]
