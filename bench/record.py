"""Runs the commands of docs/performance.md one after the other and writes what they printed, with the commands, to a
record.

    demask synth --like llada-8b --layers 4 --out DIR
    python bench/record.py --demask target/release/demask --model DIR --out bench/record/MACHINE/DATE.json

--under "chrt -f 1" keeps other work out where the system allows it; --torch PYTHON (a Python that has torch) compares
with PyTorch too; --only linear,step runs parts. Needs nothing beside Python.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

LINEAR = "bench linear --in 4096 --out 12288 --json"
ROWS = "--rows 1,2,4,8,32,256,512"
ATTENTION = "bench attention --rows 256 --keys 2048 --heads 32 --kv-heads 32 --head-dim 128 --json"


def plan(model):
    """Parts of a record: a name, an environment, arguments of demask."""
    step = f"bench step --model {model} --dtype bf16 --json"
    int8 = "--quantize {} --activations int8"
    yield "doctor", {}, "doctor --json"
    yield "linear", {}, f"{LINEAR} {ROWS} --dtype bf16"
    for weights in ("q8", "q4"):
        yield "linear", {}, f"{LINEAR} {ROWS} --dtype {weights} --activations bf16"
        yield "linear", {}, f"{LINEAR} {ROWS} --dtype {weights} --activations int8"
    yield "f32", {"DEMASK_ISA": "avx512"}, f"{LINEAR} --rows 1,8,32,256,512 --dtype f32"
    yield "attention", {}, f"{ATTENTION} --dtype bf16"
    if model:
        yield "step", {}, f"{step} --rows 32,256"
        yield "step", {}, f"{step} --rows 256 --head-rows 32"
        yield "step", {}, f"{step} --rows 32,256 {int8.format('q8')}"
        yield "step", {}, f"{step} --rows 32,256 {int8.format('q4')}"


def told(output):
    """One line for each measurement of an output."""
    for entry in output if isinstance(output, list) else []:
        seconds, rows = entry["seconds"]["median"], entry.get("rows")
        yield f"    {rows} rows: {seconds:.6f} s, {entry['tflops']:.3f} TFLOP/s, {entry['gbs']:.1f} GB/s, {entry['fraction']:.0%}"


def run(command, environment):
    words = " ".join([*(f"{name}={value}" for name, value in environment.items()), shlex.join(command)])
    print(words, file=sys.stderr)
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demask", required=True, help="the binary")
    parser.add_argument("--model", help="a directory for the steps")
    parser.add_argument("--out", required=True, type=Path, help="the record")
    parser.add_argument("--machine", default="", help="a line about the machine")
    parser.add_argument("--conditions", default="", help="a line about what else ran")
    parser.add_argument("--under", default="", help="words in front of every command")
    parser.add_argument("--torch", help="a Python that has torch")
    parser.add_argument("--only", default="", help="parts, with commas between")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    under = shlex.split(arguments.under)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    record = {
        "machine": arguments.machine,
        "date": date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "conditions": arguments.conditions,
        "under": arguments.under,
        "runs": [],
    }
    parts = [(part, environment, [arguments.demask, *shlex.split(words)]) for part, environment, words in plan(arguments.model)]
    if arguments.torch and arguments.model:
        script = str(Path(__file__).parent / "pytorch_step.py")
        words = f"--model {arguments.model} --rows 32,256 --demask {arguments.demask} --quantize q8 --activations int8 --json"
        parts.append(("pytorch", {}, [arguments.torch, script, *shlex.split(words)]))
    for part, environment, command in parts:
        if only and part not in only:
            continue
        output = run([*under, *command], environment)
        for line in told(output):
            print(line, file=sys.stderr)
        shown = shlex.join(["demask" if word == arguments.demask else word for word in command])
        shown = shown.replace(str(arguments.model), "DIR").replace(str(arguments.torch), "python")
        shown = shown.replace(f"{Path(__file__).parent}{os.sep}", "bench/")
        record["runs"].append({"environment": environment, "command": shown, "output": output})
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    partial = arguments.out.with_suffix(".part")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    partial.replace(arguments.out)


main()
