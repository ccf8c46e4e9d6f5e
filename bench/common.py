"""What scripts share that run the programs: `demask` with `demask-lab` beside it, words of a command line, whole files."""

import argparse
import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Commands of demask-lab; all others are demask's.
LAB = {"eval", "recipe", "report", "tune", "bench", "analyze", "trace", "synth", "logits", "cost"}


class Programs:
    """The program at a path, and the laboratory in the same folder."""

    def __init__(self, demask):
        # Links stay: the laboratory is beside the name that was given.
        self.demask = Path(os.path.abspath(demask))
        self.lab = self.demask.with_name("demask-lab" + self.demask.suffix)

    def of(self, verb):
        """The program that has a command."""
        return str(self.lab if verb in LAB else self.demask)

    def checked(self):
        """Itself, if both are there."""
        for path in (self.demask, self.lab):
            if not is_program(path):
                raise SystemExit(f"{path} is no program: expected demask and demask-lab in one folder (cargo build --release)")
        return self


def is_program(path):
    return path.is_file() and os.access(path, os.X_OK)


def program(text):
    """A binary's path that holds in any folder."""
    path = Path(os.path.abspath(text))
    if not is_program(path):
        raise argparse.ArgumentTypeError(f"{text} is no program: build it with cargo build --release")
    return str(path)


def programs(text):
    """Both programs, by the path of demask."""
    found = Programs(program(text))
    if not is_program(found.lab):
        raise argparse.ArgumentTypeError(f"{found.lab} is no program: expected demask-lab beside demask (cargo build --release)")
    return found


def number(text):
    """A number from 1 on."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def write_whole(path, value):
    """Writes JSON, whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    part.replace(path)
