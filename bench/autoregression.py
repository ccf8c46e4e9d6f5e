"""Whole answers of one shape, in turns: decoder isd at assumed acceptances beside ar, in demask and in llama.cpp.

    pip install gguf numpy
    python tools/gguf/random_model.py qwen3-8b q4_k_m qwen3-8b.gguf
    demask synth --like qwen3-8b --adapter-rank 128 --out qwen3-8b-lora
    python bench/autoregression.py --demask target/release/demask --file qwen3-8b.gguf --adapter qwen3-8b-lora \
        --llama libllama.so --out bench/record/CPU/autoregression-qwen3-8b.json

Random weights: `bench generate --acceptance P` runs every forward of the network and lets a draft come true with probability P.
The record has the seconds of a prompt, of an answer after it, tokens a second, forwards, and the seconds of forwards of 1, 4 and 7
rows in the same run, from which follows what the formula of the method expects:
(2 + p + .. + p^(N-2)) / (c(2N-1) + (1 - p^(N-1)) c(N)), c(r) being a forward of r rows over one of one row.
"""

import argparse
import ctypes
import json
import os
import platform
import shlex
import statistics
import subprocess
import time
from pathlib import Path

from rivals import LlamaCpp

STRIDE = 4


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(map(str, command))} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Demask:
    """Answers of one configuration, one process a turn."""

    def __init__(self, arguments, quantize, decoder, acceptance=None, adapter=None):
        self.name = f"{quantize} {decoder}" + (f" {acceptance}" if acceptance else "") + (" adapter" if adapter else "")
        self.arguments, self.decoder, self.acceptance = arguments, decoder, acceptance
        self.shared = ["--model", arguments.file, "--threads", str(arguments.threads), "--json"]
        self.shared += [] if quantize == "file" else ["--quantize", quantize]
        self.shared += ["--activations", arguments.activations]
        self.shared += ["--adapter", adapter, "--adapter-use", "masks"] if adapter else []
        self.quantize, self.adapter = quantize, bool(adapter)

    def answer(self, length):
        command = [self.arguments.demask, "bench", "generate", *self.shared, "--repeat", "1"]
        command += ["--prompt-length", str(self.arguments.prompt), "--gen-length", str(length), "--decoder", self.decoder]
        command += ["--acceptance", str(self.acceptance)] if self.acceptance else []
        return run(command)

    def turn(self, prompt):
        """Seconds of the prompt, unless they are known, and of the answer after it."""
        prompt = prompt or self.answer(1)["seconds"]["median"]
        whole = self.answer(self.arguments.answer)
        return {
            "prompt": prompt,
            "answer": whole["seconds"]["median"] - prompt,
            "forwards": whole["receipt"]["forwards"],
            "rows": whole["rows"],
        }

    def steps(self):
        command = [self.arguments.demask, "bench", "step", *self.shared, "--rows", f"1,{STRIDE},{2 * STRIDE - 1}"]
        command += ["--keys", str(self.arguments.prompt + self.arguments.answer // 2)]
        return {report["rows"]: report["seconds"]["median"] for report in run(command)}


class Llama:
    """Answers of llama.cpp, a token at a time."""

    def __init__(self, arguments):
        self.name, self.arguments = "llama.cpp ar", arguments
        self.decoder, self.acceptance, self.quantize, self.adapter = "ar", None, "file", False
        self.library = LlamaCpp(
            arguments.llama, arguments.file, arguments.threads, arguments.prompt, arguments.prompt + arguments.answer
        )
        self.library.library.llama_set_causal_attn(self.library.context, True)

    def decode(self, first, rows):
        library, batch = self.library, self.library.batch
        batch.n_tokens = rows
        for row in range(rows):
            batch.token[row], batch.pos[row], batch.n_seq_id[row] = (first + row) % 250, first + row, 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = int(row == rows - 1)
        if library.library.llama_decode(library.context, batch):
            raise SystemExit("llama.cpp's forward failed")
        library.library.llama_synchronize(ctypes.c_void_p(library.context))

    def turn(self, _):
        library = self.library.library
        library.llama_memory_clear(library.llama_get_memory(self.library.context), True)
        started = time.perf_counter()
        self.decode(0, self.arguments.prompt)
        prompt = time.perf_counter() - started
        started = time.perf_counter()
        for position in range(self.arguments.answer - 1):
            self.decode(self.arguments.prompt + position, 1)
        answer = time.perf_counter() - started
        return {"prompt": prompt, "answer": answer, "forwards": self.arguments.answer, "rows": None}


def expected(steps, acceptance):
    """The formula's ratio to ar, from seconds by rows."""
    one, cold, verify = (steps[rows] for rows in (1, STRIDE, 2 * STRIDE - 1))
    settled = 2 + sum(acceptance**power for power in range(1, STRIDE - 1))
    return settled / (verify / one + (1 - acceptance ** (STRIDE - 1)) * cold / one)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demask", default="target/release/demask")
    parser.add_argument("--file", required=True, help="a GGUF file")
    parser.add_argument("--adapter", help="a folder with an adapter for its shape")
    parser.add_argument("--llama", help="llama.cpp's library")
    parser.add_argument("--quantize", default="file,q4,q8", help="file: as the file has them")
    parser.add_argument("--activations", default="int8")
    parser.add_argument("--acceptance", default="0.8,0.85,0.905,0.95")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--answer", type=int, default=256)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    acceptances = [float(acceptance) for acceptance in arguments.acceptance.split(",")]
    result = {"shape": Path(arguments.file).stem, "prompt": arguments.prompt, "answer": arguments.answer, "rows": []}
    result["machine"] = {"cpu": cpu(), "threads": arguments.threads, "turns": arguments.turns}
    result["activations"] = arguments.activations
    rivals = [Llama(arguments)] if arguments.llama else []
    if rivals:
        result["machine"]["llama.cpp"] = rivals[0].library.about()
    for quantize in arguments.quantize.split(","):
        subjects = rivals + [Demask(arguments, quantize, "ar")]
        subjects += [Demask(arguments, quantize, f"isd:stride={STRIDE}", acceptance) for acceptance in acceptances]
        if arguments.adapter:
            subjects.append(Demask(arguments, quantize, f"isd:stride={STRIDE}", 0.905, arguments.adapter))
        turns = {subject.name: [] for subject in subjects}
        steps = []
        for _ in range(arguments.turns):
            prompt = None
            for subject in subjects:
                # All decoders read the prompt by the same rows, but for three of masks.
                turns[subject.name].append(subject.turn(prompt))
                prompt = turns[subject.name][-1]["prompt"] if isinstance(subject, Demask) else None
            steps.append(Demask(arguments, quantize, "ar").steps())
        steps = {rows: statistics.median(turn[rows] for turn in steps) for rows in steps[0]}
        result["rows"] += rows_of(subjects, turns, steps, arguments)
        Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    for row in result["rows"]:
        print(f"{row['weights']:5} {row['name']:28} {row['tokens_per_second']:7.2f} tok/s {row['over_ar']:5.2f} x ar")


def rows_of(subjects, turns, steps, arguments):
    median = lambda subject, key: statistics.median(turn[key] for turn in turns[subject.name])
    own = next(subject for subject in subjects if isinstance(subject, Demask) and subject.decoder == "ar")
    for subject in subjects:
        answer = median(subject, "answer")
        # The first token comes of the prompt's forward.
        row = {
            "weights": own.quantize,
            "name": subject.name,
            "acceptance": subject.acceptance,
            "adapter": subject.adapter,
            "prompt_seconds": median(subject, "prompt"),
            "answer_seconds": answer,
            "tokens_per_second": (arguments.answer - 1) / answer,
            "forwards": turns[subject.name][0]["forwards"],
            "over_ar": median(own, "answer") / answer,
            "turns": [turn["answer"] for turn in turns[subject.name]],
        }
        if subject.acceptance:
            row["formula"] = expected(steps, subject.acceptance)
        if isinstance(subject, Demask):
            row["step_seconds"] = steps
        yield row


def cpu():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
