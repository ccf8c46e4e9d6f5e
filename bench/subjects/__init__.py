"""What is measured. A subject has `turn()`, which returns its figures, or a list of them where one turn has several points.

A subject that is no command line is a class of a file of this folder: `Class(bench, values)`, with `about` (what is worth
knowing of it) and `close()` where there is something to close.
"""

import json
import os
import resource
import shlex
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, Programs
from definition import looked_up, plain, words


class Missing(Exception):
    """Why a subject cannot be measured here."""


class Broken(Exception):
    """Why a turn is no measurement."""


@dataclass
class Bench:
    """The programs of a build, words in front of every command, and a folder for what is made."""

    programs: Programs
    work: Path
    under: str = ""

    def values(self):
        paths = {"demask": str(self.programs.demask), "lab": str(self.programs.lab), "work": str(self.work)}
        return paths | {"threads": len(os.sched_getaffinity(0))}

    def shown(self, command):
        """A command without paths of this machine."""
        text = shlex.join(map(str, command)).replace(str(self.programs.lab), "demask-lab")
        return text.replace(str(self.programs.demask), "demask").replace(str(self.work), "WORK")

    def run(self, command, environment=None, **more):
        """What a command prints, its seconds by the clock and its processor seconds."""
        command = [*shlex.split(self.under), *map(str, command)]
        used, began = children_seconds(), time.perf_counter()
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **(environment or {})}, **more)
        wall = time.perf_counter() - began
        if done.returncode:
            told = (done.stderr.strip() or done.stdout.strip())[-500:]
            raise Broken(f"{shlex.join(command)} failed with status {done.returncode}: {told}")
        return done.stdout, wall, children_seconds() - used


def children_seconds():
    """Processor seconds of all processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parts(seconds, has_parts, rows, repeat):
    """Medians of forwards of each number of rows: with all logits, and its head by those with the last row's alone."""
    for count in rows:
        seconds(count, True)
        whole = statistics.median(seconds(count, True) for _ in range(repeat))
        found = {"rows": count, "seconds": whole}
        if has_parts:
            layers = statistics.median(seconds(count, False) for _ in range(repeat))
            found |= {"layers": layers, "head": whole - layers}
        yield found


class Command:
    """A command line: one run a turn."""

    def __init__(self, bench, subject):
        self.bench, self.subject = bench, subject
        self.command = words(subject["run"], subject["values"])

    def turn(self):
        text, wall, processor = self.bench.run(self.command, self.subject.get("environment"))
        both = {"wall": wall, "processor": processor}
        if "reads" in self.subject:
            text = Path(plain(self.subject["reads"], self.subject["values"])).read_text()
        if not self.subject.get("figures"):
            return both
        output, by = json.loads(text), self.subject.get("by")
        if by is None:
            return self.read(output) | both
        return [self.read(entry) | {by: entry[by]} | both for entry in looked_up(output, self.subject.get("entries", ""))]

    def read(self, output):
        """Figures of an output, or of an entry of one."""
        found = {name: looked_up(output, path) for name, path in self.subject["figures"].items()}
        return found | ({"output": output} if self.subject.get("keep") else {})
