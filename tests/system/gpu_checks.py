"""Everything that must hold on a GPU, checked in one run, and written with its figures to a record.

    python tests/system/gpu_checks.py --demask target/release/demask

Needs the binary, a GPU with its driver, NVRTC, and a Python with torch (for PyTorch's side of the comparison alone).
What is checked and how is told in docs/gpu-checks.md. --only and --skip choose groups; groups of several runs with the
same --out join in one record, and each shape of a group is a group of its own there. --dry-run prints the commands and
runs none. Every command has a time limit, and all of them together have one (--budget): what does not begin in time is
told as not run, and counts as failed. --first is the call for a card that was never seen: the most valuable groups, each
with a share of ten minutes. With --out the record is written after every command, so that a run which is cut off leaves
what it has found.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time
from array import array
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
from common import Programs, number, write_whole

SHAPES = ("dream-7b", "llada-8b")
# Rows of one forward that end in different buckets and kernels.
PREFIXES = (1, 2, 7, 8, 9, 16, 17, 31, 33, 48, 64)
GIBIBYTE = 1 << 30
MEBIBYTE = 1 << 20
# Relative distance of two bf16 numbers next to each other: two confidences as near as that are a tie.
TIE = 2.0**-7


@dataclass
class Command:
    """One program to run: `name` is what judges find its output by."""

    name: str
    words: list
    seconds: int = 60
    environment: dict = field(default_factory=dict)
    # Whether the memory that the GPU has in use is watched while it runs.
    watched: bool = False


@dataclass
class Output:
    code: int
    text: str
    errors: str
    seconds: float
    # Bytes of the card's memory at most; nothing where they were not watched, or nobody tells.
    memory: int | None = None

    def succeeded(self):
        if self.code != 0:
            raise ValueError(f"exit code {self.code}: {self.errors.strip()[-500:]}")
        return self

    def json(self):
        return json.loads(self.succeeded().text)

    def first(self):
        """The first of several reports."""
        return self.json()[0]


@dataclass
class Target:
    """What was expected, what was found, and whether that will do."""

    name: str
    passed: bool
    found: object
    expected: object

    def told(self):
        found, expected = (str(value)[:200] for value in (self.found, self.expected))
        return f"{'pass' if self.passed else 'FAIL'}  {self.name}: found {found}, expected {expected}"


def at_most(name, found, most):
    return Target(name, found <= most, found, f"at most {most}")


def at_least(name, found, least):
    return Target(name, found >= least, found, f"at least {least}")


def same(name, found, expected):
    return Target(name, found == expected, found, expected)


def read_tensors(path):
    """Tensors of f32 and ids of a safetensors file as arrays with their shapes, without any package. Others are left out."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    codes = {"F32": "f", "I64": "q", "I32": "i"}
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in codes:
            continue
        values = array(codes[entry["dtype"]])
        first, last = entry["data_offsets"]
        values.frombytes(data[8 + length + first : 8 + length + last])
        tensors[name] = (values, entry["shape"])
    return tensors


def distance(found, expected):
    """Largest absolute difference, relative to the largest expected magnitude."""
    if len(found) != len(expected):
        return float("inf")
    scale = max(abs(value) for value in expected)
    worst = max(abs(a - b) for a, b in zip(found, expected))
    return worst / scale if worst == worst else float("inf")


class Group:
    """A group of checks: its commands, known before any is run, and what their outputs say."""

    name = ""

    def __init__(self, arguments):
        self.arguments = arguments
        self.work = arguments.work / self.name

    @classmethod
    def all(cls, arguments):
        """Those of a run: one, unless the group has shapes."""
        return [cls(arguments)]

    @property
    def key(self):
        """Its name in the record."""
        return self.name

    def demask(self, name, words, device=None, **more):
        words = [*shlex.split(words)] if isinstance(words, str) else [str(word) for word in words]
        return Command(name, [self.arguments.demask.of(words[0]), *words, "--device", device or self.arguments.device], **more)

    def prepare(self):
        """Writes what the commands read."""
        self.work.mkdir(parents=True, exist_ok=True)

    def commands(self):
        raise NotImplementedError

    def judge(self, outputs):
        raise NotImplementedError

    def figures(self, outputs):
        """What is worth keeping beside the targets."""
        return {}


class Doctor(Group):
    """The card, its driver and its compiler."""

    name = "doctor"

    def commands(self):
        yield self.demask("doctor", "doctor --json", seconds=120)

    def judge(self, outputs):
        gpu = outputs["doctor"].json()["gpu"]
        yield Target("doctor finds a card", bool(gpu.get("cards")), gpu, "cards")

    def figures(self, outputs):
        return outputs["doctor"].json()


class Sanitizer(Group):
    """NVIDIA's compute-sanitizer over forwards, answers and single kernels: accesses, races and barriers.

    It comes with a toolkit, and as a package of Python's. Where it is not there, or not allowed to run (it needs more
    rights than a process in a sandbox may have), the group says so in its figures and judges nothing.
    """

    name = "sanitizer"
    # Where packages of Python's have it, below their folder.
    packaged = (
        "nvidia/cuda_sanitizer_api/bin/compute-sanitizer",
        "nvidia/cu13/compute-sanitizer/compute-sanitizer",
    )
    toolkit = ("bin/compute-sanitizer", "compute-sanitizer/compute-sanitizer")

    def found(self):
        """The program; nothing where it is not."""
        folders = [*sys.path, *(str(path) for path in Path(self.arguments.python).parent.parent.glob("lib/python3*/site-packages"))]
        homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
        candidates = [Path(folder) / name for folder in folders if folder for name in self.packaged]
        candidates += [Path(home) / name for home in homes if home for name in self.toolkit]
        system = shutil.which("compute-sanitizer")
        return system or next((str(path) for path in candidates if os.access(path, os.X_OK) and path.is_file()), None)

    def runs(self):
        """Name, tool and words of each run, the most telling first."""
        demo, short = ROOT / "demo/demo-llada", [question(0), "--gen-length", "16", "-q"]
        lines = self.work / "few.tokens"
        forward = ["logits", "--model", demo, "--tokens-file", lines, "--out", self.work / "few.safetensors", "-q"]
        sizes = ["--rows", "33", "--repeat", "1", "--json", "--every-kernel"]
        linear = ["bench", "linear", "--in", "192", "--out", "200", *sizes]
        attention = ["bench", "attention", "--heads", "4", "--kv-heads", "2", "--keys", "300", *sizes]
        answer = ["generate", *short, "--model", demo, "--decoder", "freedave:d=4", "--cache", "dual"]
        yield "forward f32", "memcheck", [*forward, "--dtype", "f32"]
        yield "forward bf16", "memcheck", [*forward, "--dtype", "bf16"]
        yield "answer", "memcheck", answer
        yield "attention", "memcheck", [*attention, "--dtype", "bf16"]
        for dtype in ("bf16", "q8", "q4", "f32"):
            yield f"linear {dtype}", "memcheck", [*linear, "--dtype", dtype]
        for tool in ("racecheck", "synccheck"):
            yield "forward bf16", tool, [*forward, "--dtype", "bf16"]
            yield "attention", tool, [*attention, "--dtype", "bf16"]
            yield "linear q4", tool, [*linear, "--dtype", "q4"]
            yield "answer", tool, answer
        yield "forward bf16", "initcheck", [*forward, "--dtype", "bf16"]

    def prepare(self):
        super().prepare()
        (self.work / "few.tokens").write_text(f"{[(index * 37 + 11) % 60 for index in range(33)]}\n")

    def log(self, name, tool):
        return self.work / f"{tool}-{name.replace(' ', '-')}.log"

    def commands(self):
        program = self.found() or (self.arguments.dry_run and "compute-sanitizer")
        if not program or self.arguments.device == "cpu":
            return
        for name, tool, words in self.runs():
            own = self.demask("", words).words
            flags = [*self.libraries(program), "--tool", tool, "--error-exitcode", "77", "--launch-timeout", "60", "--print-limit", "20"]
            # A kernel is looked up module by module: the driver's answers to such calls are the program's to judge.
            flags += ["--report-api-errors", "no"] if tool == "memcheck" else []
            yield Command(f"{tool} {name}", [program, *flags, "--log-file", self.log(name, tool), *own], seconds=60)

    @staticmethod
    def libraries(program):
        """The package for CUDA 12 has its libraries where the program does not look for them."""
        folder = Path(program).parent.parent / "lib"
        return ["--injection-path", folder] if (folder / "libsanitizer-collection.so").exists() else []

    def summary(self, name, tool):
        """How many errors the tool counts; nothing where it has not come to an end."""
        log = self.log(name, tool)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        counts = [line.split("SUMMARY:")[1].split()[0] for line in lines if "SUMMARY:" in line]
        return int(counts[-1]) if counts and counts[-1].isdecimal() else None

    def judge(self, outputs):
        for name, tool, _ in self.runs():
            output = outputs.get(f"{tool} {name}")
            errors = self.summary(name, tool)
            if output and errors is not None:
                clean = (errors, output.code) == (0, 0)
                yield Target(f"{tool} of {name}", clean, f"{errors} errors, exit {output.code}", "0 errors, exit 0")

    def figures(self, outputs):
        logs = {log.stem: log.read_text(errors="replace")[-4000:] for log in sorted(self.work.glob("*.log"))}
        return {"program": self.found(), "logs": logs}


class Goldens(Group):
    """Logits and hidden states of the official implementations, in f32; greedy traces of their samplers."""

    name = "goldens"
    most = 1e-4
    # Cases of each sampler: loading takes longer than decoding.
    cases = 4

    def forwards(self):
        for path in sorted((ROOT / "golden/forward").glob("*.json")):
            described = json.loads(path.read_text())
            if self.arguments.device != "cpu" and self.has_experts(described["model"]):
                continue
            by_mask, blocks = {}, any("block" in given for given in described["inputs"])
            for given in filter(self.can_be_asked, described["inputs"]):
                by_mask.setdefault(self.mask(given, blocks), []).append(given)
            for mask, inputs in by_mask.items():
                name = "-".join([path.stem, *mask.replace("--", "").split()])
                yield name, path, described["model"], mask, inputs

    @staticmethod
    def has_experts(model):
        """GPU kernels take none: such models are refused before anything is read."""
        config = json.loads((ROOT / "golden/ckpt" / model / "config.json").read_text())
        return any("experts" in key for key in config)

    @staticmethod
    def can_be_asked(given):
        """The command has no flag for blocks that begin at an offset, nor for a context that is seen causally."""
        return "offset" not in given and given["attention"] != "causal context"

    @staticmethod
    def mask(given, blocks):
        if given["attention"] == "block causal":
            return f"--block-causal {given['block']}"
        if given["attention"] == "causal":
            return "--causal"
        # Full attention has no flag: where a model has blocks, one that is longer than the input is the same.
        return "--block-causal 1000" if blocks else ""

    @staticmethod
    def ids(tensors, given):
        ids = list(tensors[f"{given['tag']}.ids"][0])
        if given.get("rows"):
            # Padding on the left, which nobody sees, is left away: "7..26 of the ids".
            first, last = given["rows"].split()[0].split("..")
            ids = ids[int(first) : int(last)]
        return ids

    def prepare(self):
        super().prepare()
        for name, path, _, _, inputs in self.forwards():
            tensors = read_tensors(path.with_suffix(".safetensors"))
            (self.work / f"{name}.tokens").write_text("".join(f"{self.ids(tensors, given)}\n" for given in inputs))

    def commands(self):
        for name, _, model, mask, _ in self.forwards():
            lines = self.work / f"{name}.tokens"
            words = ["logits", "--model", ROOT / "golden/ckpt" / model, "--dtype", "f32", "--tokens-file", lines]
            words += ["--layers", "--out", self.work / f"{name}.safetensors", "-q", *mask.split()]
            yield self.demask(f"forward {name}", words)
        for case in self.decoded():
            words = ["generate", "--json", "--dtype", "f32", "--model", ROOT / "golden/ckpt" / case["model"]]
            words += ["--prompt-tokens", ",".join(map(str, case["prompt"])), "--ignore-eos", *self.flags(case["params"])]
            yield self.demask(case["id"], words)

    def decoded(self):
        for method in ("llada_generate", "dream_generate"):
            yield from json.loads((ROOT / f"golden/decode/{method}.json").read_text())["cases"][: self.cases]

    @staticmethod
    def flags(params):
        names = {"max_new_tokens": "gen-length", "alg": "remasking"}
        switches = {"logits_eos_inf": "suppress-eos", "confidence_eos_eot_inf": "eos-confidence-zero"}
        flags = ["--decoder", "static", "--cache", "none"]
        if "max_new_tokens" in params:
            flags += ["--schedule", "dream", "--temperature", "0"]
        for name, value in params.items():
            if name in switches:
                flags += [f"--{switches[name]}"] if value else []
            elif value is not None:
                flags += [f"--{names.get(name, name).replace('_', '-')}", str(value)]
        return flags

    def judge(self, outputs):
        worst = {}
        for name, path, model, mask, inputs in self.forwards():
            if outputs[f"forward {name}"].code != 0:
                yield Target(f"forward {name}", False, outputs[f"forward {name}"].errors.strip(), "logits")
                continue
            expected = read_tensors(path.with_suffix(".safetensors"))
            found = read_tensors(self.work / f"{name}.safetensors")
            for index, given in enumerate(inputs):
                prefix = "" if len(inputs) == 1 else f"{index}."
                for own, theirs in self.pairs(found, prefix):
                    wanted = expected.get(f"{given['tag']}.{theirs}")
                    if wanted:
                        worst[model] = max(worst.get(model, 0), distance(found[own][0], wanted[0]))
        for model, most in sorted(worst.items()):
            yield at_most(f"distance of {model}'s logits and hidden states", most, self.most)
        for case in self.decoded():
            answer = outputs[case["id"]].json()
            yield same(f"tokens of {case['id']}", answer["tokens"], case["output"][len(case["prompt"]) :])
            yield same(f"forwards of {case['id']}", answer["receipt"]["nfe"], case["nfe"])

    @staticmethod
    def pairs(found, prefix):
        yield f"{prefix}logits", "logits"
        for own, theirs in (("embed", "embed"), ("final", "final")):
            yield f"{prefix}hidden.{own}", theirs
        layers = [name for name in found if name.startswith(f"{prefix}hidden.") and name.rsplit(".", 1)[1].isdigit()]
        for name in layers:
            yield name, f"layer{name.rsplit('.', 1)[1]}"


class Invariants(Group):
    """A row's bits do not depend on what else runs; FreeDave writes what static decoding writes."""

    name = "invariants"
    formats = {"f32": "--dtype f32", "bf16": "--dtype bf16", "q8": "--quantize q8", "q4": "--quantize q4"}
    models = {"demo-llada": "dual", "demo-dream": "dual", "demo-sdar": "block"}

    def prepare(self):
        super().prepare()
        ids = [(index * 37 + 11) % 400 for index in range(max(PREFIXES))]
        (self.work / "prefixes.tokens").write_text("".join(f"{ids[:rows]}\n" for rows in PREFIXES))

    def commands(self):
        lines = self.work / "prefixes.tokens"
        for name, flags in self.formats.items():
            words = ["logits", "--model", ROOT / "demo/demo-llada", "--tokens-file", lines, "--causal", "-q"]
            words += ["--out", self.work / f"{name}.safetensors", *flags.split()]
            yield self.demask(f"prefixes {name}", words)
        for model, cache in self.models.items():
            for drafts in (0, 1, 2, 4, 8):
                decoder = f"freedave:d={drafts}" if drafts else "static"
                words = ["generate", "--json", "--model", ROOT / "demo" / model, "--decoder", decoder, "--cache", cache]
                words += [question(0), "--gen-length", "64", "--ignore-eos"]
                yield self.demask(f"{model} {drafts}", words)
        for batch in (1, 3, 8):
            words = ["eval", "wordmath", "--limit", "8", "--batch", batch, "--json", "--out", self.work / f"batch-{batch}"]
            yield self.demask(f"batch {batch}", [*words, "--decoder", "freedave:d=4", "--cache", "dual"], seconds=120)

    def judge(self, outputs):
        for name in self.formats:
            outputs[f"prefixes {name}"].succeeded()
            found = read_tensors(self.work / f"{name}.safetensors")
            (longest, shape) = found[f"{len(PREFIXES) - 1}.logits"]
            different = [
                rows
                for index, rows in enumerate(PREFIXES)
                if found[f"{index}.logits"][0].tobytes() != longest[: rows * shape[1]].tobytes()
            ]
            yield same(f"numbers of rows that change bits in {name}", different, [])
        for model in self.models:
            answers = {drafts: outputs[f"{model} {drafts}"].json() for drafts in (0, 1, 2, 4, 8)}
            others = [drafts for drafts, answer in answers.items() if answer["tokens"] != answers[0]["tokens"]]
            yield same(f"drafts that change tokens of {model}", others, [])
            saved = answers[4]["receipt"]["nfe"] < answers[0]["receipt"]["nfe"]
            yield Target(f"four drafts save forwards of {model}", saved, answers[4]["receipt"]["nfe"], "fewer than static")
        alone = self.answers(1)
        for batch in (3, 8):
            yield Target(f"answers in batches of {batch}", self.answers(batch) == alone, "compared", "those of one by one")

    def answers(self, batch):
        lines = (self.work / f"batch-{batch}/results.jsonl").read_text().splitlines()
        return {record["index"]: record["output"] for record in map(json.loads, lines)}


class Agreement(Group):
    """What the GPU commits in bf16 is what the CPU commits, unless two confidences are as good as equal."""

    name = "agreement"
    models = ("demo-llada", "demo-dream", "demo-sdar")
    questions = 3

    def runs(self):
        for model in self.models:
            for index in range(self.questions):
                yield model, index

    def commands(self):
        for model, index in self.runs():
            for device in ("cpu", self.arguments.device):
                words = ["generate", "--json", "--model", ROOT / "demo" / model, "--dtype", "bf16", "--decoder", "static"]
                words += ["--cache", "none", "--trace", self.trace(model, index, device), question(index)]
                yield self.demask(f"{model} {index} {device}", words, device=device)

    def trace(self, model, index, device):
        return self.work / f"{model}-{index}-{device.replace(':', '-')}.jsonl"

    def judge(self, outputs):
        equal = ties = differ = 0
        for model, index in self.runs():
            for device in ("cpu", self.arguments.device):
                outputs[f"{model} {index} {device}"].json()
            ours, theirs = (self.commits(self.trace(model, index, device)) for device in (self.arguments.device, "cpu"))
            for own, other in zip(ours, theirs):
                if own[:3] == other[:3]:
                    equal += 1
                    continue
                # From here on the two canvases are not the same: only the first difference says something.
                near = abs(own[3] - other[3]) <= TIE * max(own[3], other[3])
                ties, differ = ties + near, differ + (not near)
                break
        yield Target("commits that differ by more than a tie", differ == 0, f"{differ} ({ties} ties, {equal} equal)", 0)
        yield at_least("commits that are equal", equal, 1)

    @staticmethod
    def commits(path):
        records = map(json.loads, path.read_text().splitlines())
        commits = [record for record in records if "position" in record]
        return sorted((c["step"], c["position"], c["token"], c["confidence"]) for c in commits)


class Shaped(Group):
    """A group of each shape."""

    def __init__(self, arguments, shape):
        super().__init__(arguments)
        self.shape = shape

    @classmethod
    def all(cls, arguments):
        return [cls(arguments, shape) for shape in arguments.shapes]

    @property
    def key(self):
        return f"{self.name} {self.shape}"


class Speed(Shaped):
    """Forwards of a real shape beside what the card can do, and beside PyTorch."""

    name = "speed"

    def commands(self):
        model, making = checkpoint(self.arguments, self.shape, self.arguments.layers)
        yield from making
        step = ["bench", "step", "--json", "--model", model, "--dtype", "bf16"]
        measured = {"window": "--rows 32 --keys 1024", "small": "--rows 32", "large": "--rows 1024"}
        measured |= {"drafts": "--rows 32 --keys 1024 --drafts 8"}
        for name, flags in measured.items():
            yield self.demask(name, [*step, *flags.split()], seconds=120)
        # An answer, which measures no ceilings: those read through 2 GiB of their own.
        answer = ["generate", "--json", "--model", model, "--dtype", "bf16", "--prompt-tokens", "1,2,3", "--ignore-eos"]
        answer += ["--gen-length", "32", "--steps", "4", "--cache", "none"]
        yield self.demask("answer", answer, seconds=120, watched=True)
        yield self.demask("inspect", ["inspect", "--json", "--model", model])
        rival = [self.arguments.python, str(ROOT / "bench/run.py"), "pytorch", f"device={self.arguments.device}", f"file={model}"]
        rival += ["rows=32,1024", "--demask", str(self.arguments.demask.demask), "--rounds", "2", "--json"]
        yield Command("torch", rival, seconds=180)

    def judge(self, outputs):
        window, large = outputs["window"].first(), outputs["large"].first()
        # Seconds over the seconds in which the same bytes are read at the measured bandwidth.
        yield at_most("32 rows, 1024 slots, over reading the weights", window["peak_gbs"] / window["gbs"], 1.35)
        drafts = outputs["drafts"].first()["seconds"]["median"] / window["seconds"]["median"]
        yield at_most("8 drafts of 32 rows over one", drafts, 2.2)
        if self.arguments.device != "cpu":
            yield self.memory(outputs)
        record = outputs["torch"].first()
        if record["missing"]:
            raise ValueError(f"without {record['missing']}")
        beside = {result["at"]["rows"]: result["subjects"]["torch bf16"] for result in record["results"]}
        own = beside[1024]["figures"].get("matrix_tflops", {"median": 0})["median"]
        yield at_least("1024 rows, share of the matrix rate", large["tflops"] / max(large["peak_tflops"], own), 0.55)
        ratios = {rows: torch["over"]["demask"]["seconds"]["median"] for rows, torch in beside.items()}
        yield at_least("32 rows, times as fast as PyTorch", ratios[32], 2.0)
        yield at_least("1024 rows, times as fast as PyTorch", ratios[1024], 1.1)

    def memory(self, outputs):
        """Memory of the process on the card beside weights and K/V."""
        most, answer = 1.0, outputs["answer"].succeeded()
        if answer.memory is None:
            return Target("GiB beside weights and K/V", False, "nvidia-smi tells nothing", f"at most {most}")
        planned = outputs["inspect"].json()["memory"]
        memory = next(entry for entry in planned if (entry["device"], entry["dtype"]) == ("cuda", "bf16"))
        needed = memory["weights"] + memory["cache_per_1000_positions"] * 64 // 1000
        return at_most("GiB beside weights and K/V", (answer.memory - needed) / GIBIBYTE, most)

    def figures(self, outputs):
        return reports(outputs)


class Kernels(Group):
    """Single kernels at full size beside the ceilings: what is to be calibrated on a card, and where a step's time goes."""

    name = "kernels"
    # Inputs and outputs of the largest and of the smallest product of a layer, and those of a head.
    products = ((4096, 24576), (3584, 3584), (4096, 126464))
    rows = (8, 32, 64, 128, 256, 1024)
    keys = (256, 1024, 4096)

    def commands(self):
        for dtype in ("bf16", "q8", "q4"):
            # A head is bf16 with either quantisation.
            for inputs, outputs in self.scaled(self.products if dtype == "bf16" else self.products[:2]):
                words = ["bench", "linear", "--json", "--repeat", "2", "--dtype", dtype, "--in", inputs, "--out", outputs]
                words += ["--rows", ",".join(map(str, self.rows)), *self.every()]
                yield self.demask(f"linear {dtype} {inputs}x{outputs}", words, seconds=90)
        for (keys,) in self.scaled([(keys,) for keys in self.keys]):
            words = ["bench", "attention", "--json", "--repeat", "3", "--dtype", "bf16", "--keys", keys]
            words += ["--heads", "28", "--kv-heads", "4", "--rows", ",".join(map(str, self.rows)), *self.every()]
            yield self.demask(f"attention {keys}", words, seconds=60)

    def every(self):
        """The processor has one kernel for everything."""
        return [] if self.arguments.device == "cpu" else ["--every-kernel"]

    def scaled(self, sizes):
        """Sizes as they are, or all of them divided, for a device that is slow."""
        return [tuple(max(64, size // self.arguments.divide) for size in group) for group in sizes]

    def judge(self, outputs):
        for name, output in outputs.items():
            slow = [report["kernel"] for report in output.json() if not report["tflops"] > 0]
            yield same(f"{name}: kernels without a rate", slow, [])
            choice = self.choices(output.json())
            if choice:
                # What was chosen, over the fastest: above 1 the measure that it is chosen by is off.
                yield at_most(f"{name}: time of the chosen kernels over the fastest", max(choice.values()), 1.15)

    @staticmethod
    def choices(found):
        """For each number of rows the time of the chosen kernel over the fastest one's, where several were measured."""
        times = {}
        for report in found:
            times.setdefault(report["rows"], []).append((report["seconds"]["median"], report.get("chosen", True)))
        chosen = lambda all_times: min(seconds for seconds, chosen in all_times if chosen)
        return {rows: chosen(of) / min(of)[0] for rows, of in times.items() if len(of) > 1}

    def figures(self, outputs):
        return reports(outputs)


def reports(outputs):
    """What commands told as JSON."""
    return {name: json.loads(output.text) for name, output in outputs.items() if output.code == 0 and output.text.strip()}


def checkpoint(arguments, shape, layers):
    """A random checkpoint of a shape, and the command that makes it where it is not there."""
    model = arguments.work / f"{shape}-{layers or 'all'}"
    if (model / "config.json").exists():
        return model, []
    words = [arguments.demask.of("synth"), "synth", "--like", shape, *(["--layers", str(layers)] if layers else [])]
    return model, [Command(f"synth {model.name}", [*words, "--out", str(model), "-q"], seconds=240)]


class BadInput(Group):
    """What cannot be done is one line, an exit code, and no panic."""

    name = "bad-input"

    def cases(self):
        """Name, words, environment, exit code, a part of the line."""
        cuda = self.arguments.device
        empty = {"XDG_CACHE_HOME": str(self.work / "empty")}
        yield "number", "generate hi --device cuda:99", {}, 2, "there is no GPU number 99"
        yield "driver", f"generate hi --device {cuda}", {"DEMASK_CUDA_DRIVER": "/nowhere/libcuda.so.1"}, 1, "no NVIDIA driver"
        yield "compiler", f"generate hi --device {cuda}", {"DEMASK_NVRTC": "/nowhere/libnvrtc.so", **empty}, 1, "not compiled"
        yield "integers", f"generate hi --device {cuda} --quantize q8 --activations int8", {}, 2, "int8"
        yield "threads", f"generate hi --device {cuda} --threads 2", {}, 2, "--threads"

    def commands(self):
        for name, words, environment, _, _ in self.cases():
            words = words.split()
            yield Command(name, [self.arguments.demask.of(words[0]), *words], environment=environment)
        cache = self.work / "spoiled"
        kept = {"XDG_CACHE_HOME": str(cache)}
        yield self.demask("fill", ["generate", question(0), "--gen-length", "16"], seconds=120, environment=kept)
        yield Command("spoil", [self.arguments.python, "-c", SPOIL, str(cache)])
        yield self.demask("spoiled", ["generate", question(0), "--gen-length", "16"], seconds=120, environment=kept)
        # More than is left free, and soon made.
        model, making = checkpoint(self.arguments, "dream-7b", 4)
        yield from making
        step = self.demask("memory", ["bench", "step", "--rows", "32", "--dtype", "bf16", "--model", model])
        yield Command("memory", [self.arguments.python, "-c", OCCUPY, *map(str, step.words)], seconds=120)

    def judge(self, outputs):
        for name, _, _, code, part in self.cases():
            yield self.refused(name, outputs[name], code, part)
        yield same("a spoiled cache is made anew", (outputs["spoiled"].code, "made anew" in outputs["spoiled"].errors), (0, True))
        yield same("its answer", outputs["spoiled"].text, outputs["fill"].text)
        yield self.refused("memory", outputs["memory"], 1, "MiB are available")

    @staticmethod
    def refused(name, output, code, part):
        lines = output.errors.strip().splitlines()
        passed = output.code == code and len(lines) == 1 and part in output.errors and "panicked" not in output.errors
        return Target(f"refusal: {name}", passed, f"exit {output.code}: {output.errors.strip()}", f"exit {code}: {part}")


# Changes the last byte of every compiled kernel of a folder.
SPOIL = """
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.kernels"):
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
"""

# Takes all but 2 GiB of the GPU's memory while a command runs.
OCCUPY = """
import ctypes, os, subprocess, sys
cuda = ctypes.CDLL(os.environ.get("DEMASK_CUDA_DRIVER", "libcuda.so.1"))
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        sys.exit(f"{name}: error {code}")
device, context, free, total, held = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
number = [word[5:] for word in sys.argv if word.startswith("cuda:")]
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), int(number[0]) if number else 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
call("cuMemAlloc_v2", ctypes.byref(held), ctypes.c_size_t(max(1, free.value - (2 << 30))))
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True, text=True)
sys.stdout.write(done.stdout)
sys.stderr.write(done.stderr)
sys.exit(done.returncode)
"""

# The most valuable first.
GROUPS = {group.name: group for group in (Doctor, Sanitizer, Goldens, Invariants, Agreement, Speed, Kernels, BadInput)}
# What is run first on a card that was never seen, and how many seconds each may take: less than ten minutes together.
FIRST = {"doctor": 60, "goldens": 90, "sanitizer": 150, "invariants": 110, "agreement": 60, "kernels": 100}


def question(index):
    lines = (ROOT / "demo/wordmath-test.jsonl").read_text().splitlines()
    return json.loads(lines[index])["question"]


class MemoryWatch(threading.Thread):
    """The most memory that the GPU has in use, beyond what it had when this began."""

    def __init__(self, number):
        super().__init__(daemon=True)
        self.number = number
        self.done = threading.Event()
        self.before = self.used()
        self.most = None

    def used(self):
        """Nothing where nobody tells."""
        query = ["nvidia-smi", f"--id={self.number}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        try:
            told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
            return int(told.splitlines()[0]) * MEBIBYTE
        except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
            return None

    def run(self):
        while self.before is not None and not self.done.wait(0.1):
            used = self.used()
            if used is not None:
                self.most = max(self.most or 0, used - self.before)

    def stop(self):
        self.done.set()
        self.join()
        return self.most


def run(command, left):
    """Runs a command for as long as it may, and never longer than what is left of the budget."""
    watch = MemoryWatch(card_number(command.words)) if command.watched else None
    if watch:
        watch.start()
    started = time.monotonic()
    limit = max(1, min(command.seconds, left))
    try:
        # A Python that has torch has NVRTC too, whether its environment was activated or not.
        environment = {"VIRTUAL_ENV": sys.prefix, **os.environ, **command.environment}
        code, text, errors = finish(command.words, environment, limit)
    except OSError as error:
        code, text, errors = 127, "", str(error)
    return Output(code, text, errors, time.monotonic() - started, watch.stop() if watch else None)


def finish(words, environment, limit):
    """Runs a program to its end, or ends it and all that it has started."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(list(map(str, words)), env=environment, start_new_session=True, **pipes) as program:
        try:
            text, errors = program.communicate(timeout=limit)
            return program.returncode, text, errors
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            return 124, "", f"took longer than {limit:.0f} s"


def card_number(words):
    """Number of the card that a command computes on."""
    numbers = [word[5:] for word in words if isinstance(word, str) and word.startswith("cuda:")]
    return int(numbers[-1]) if numbers else 0


def told(command):
    environment = [f"{name}={shlex.quote(value)}" for name, value in command.environment.items()]
    return " ".join([*environment, shlex.join(map(str, command.words))])


def check(group, deadline, keep=lambda unfinished: None):
    """Runs a group's commands and judges them; whatever goes wrong is a target that failed. `keep` gets what there is after
    each command."""
    outputs, targets, commands = {}, [], []
    group.prepare()
    for command in group.commands():
        left = deadline - time.monotonic()
        if left <= 0:
            targets.append(Target(f"{group.key}: {command.name}", False, "no time left", "run"))
            continue
        print(f"  {told(command)[:200]}", file=sys.stderr, flush=True)
        output = outputs[command.name] = run(command, left)
        ended = {"code": output.code, "seconds": output.seconds, "errors": output.errors.strip()[-500:]}
        commands.append({"name": command.name, "command": told(command)} | ended)
        unfinished = Target(f"{group.key} is finished", False, f"cut off behind {command.name}", "all commands")
        keep({"targets": [vars(unfinished)], "commands": commands, "figures": figures(group, outputs)})
    targets = judged(group, outputs, targets)
    for target in targets:
        print(target.told(), flush=True)
    return {
        "targets": [vars(target) for target in targets],
        "commands": commands,
        "figures": figures(group, outputs),
        "seconds": statistics.fsum(command["seconds"] for command in commands),
    }


# What reading outputs that are not there, or not what they should be, ends with.
UNREADABLE = (KeyError, ValueError, OSError, StopIteration, IndexError, TypeError, ZeroDivisionError)


def judged(group, outputs, targets):
    """Targets, and a group's further ones as far as its outputs can be read."""
    targets = list(targets)
    try:
        for target in group.judge(outputs):
            targets.append(target)
    except UNREADABLE as error:
        targets.append(Target(f"{group.key} can be judged", False, f"{type(error).__name__}: {error}", "all outputs"))
    return targets


def figures(group, outputs):
    """A group's figures; none where they cannot be read."""
    try:
        return group.figures(outputs)
    except UNREADABLE:
        return {}


def parse(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda known: lambda text: tuple(chosen(text, known))
    parser.add_argument("--demask", type=Programs, default=str(ROOT / "target/release/demask"), help="the program; demask-lab is beside it")
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N; cpu tries the script itself [default: cuda]")
    parser.add_argument("--out", type=Path, help="the record [default: bench/record/CARD/DATE.json]")
    parser.add_argument("--work", type=Path, default=Path("gpu-checks"), help="a folder for checkpoints, 36 GB with both shapes")
    parser.add_argument("--shapes", type=names(SHAPES), default=SHAPES, help=f"of {','.join(SHAPES)}")
    parser.add_argument("--layers", type=number, help="layers of the shapes [default: all]")
    parser.add_argument("--divide", type=number, default=1, help="sizes of single kernels, divided [default: 1]")
    parser.add_argument("--only", type=names(GROUPS), default=tuple(GROUPS), help=f"groups of {','.join(GROUPS)}")
    parser.add_argument("--skip", type=names(GROUPS), default=(), help="groups to leave out")
    parser.add_argument("--budget", type=number, default=1500, help="seconds for all commands together [default: 1500]")
    parser.add_argument("--limits", type=limits, default={}, help="seconds of groups, as kernels=100,speed=300")
    parser.add_argument("--first", action="store_true", help=f"{told_limits(FIRST)} and --budget 570, in this order")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    arguments = parser.parse_args(words)
    order = GROUPS
    if arguments.first:
        order, arguments.limits = FIRST, FIRST | arguments.limits
        arguments.budget = min(arguments.budget, 570)
    arguments.groups = [name for name in order if name in arguments.only and name not in arguments.skip]
    if not arguments.groups:
        parser.error("no group is left: change --only or --skip")
    return arguments


def chosen(text, known):
    for name in text.split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is unknown: use some of {','.join(known)}")
        yield name


def limits(text):
    found = {}
    for part in text.split(","):
        name, _, seconds = part.partition("=")
        (name,) = chosen(name, GROUPS)
        found[name] = number(seconds)
    return found


def told_limits(seconds):
    return ",".join(f"{name}={most}" for name, most in seconds.items())


def card_name(record):
    cards = record["groups"].get("doctor", {}).get("figures", {}).get("gpu", {}).get("cards") or [{"name": "no-gpu"}]
    return "-".join(cards[0]["name"].lower().split())


def main(words=None):
    arguments = parse(words)
    arguments.work = arguments.work.resolve()
    groups = [group for name in arguments.groups for group in GROUPS[name].all(arguments)]
    if arguments.dry_run:
        for command in (command for group in groups for command in group.commands()):
            print(told(command))
        return 0
    arguments.demask.checked()
    record = {"date": date.today().isoformat(), "layers": arguments.layers or "all", "groups": {}}
    if arguments.out and arguments.out.exists():
        record |= json.loads(arguments.out.read_text())
    deadline = time.monotonic() + arguments.budget
    for group in groups:
        print(f"== {group.key}", file=sys.stderr, flush=True)
        own = min(deadline, time.monotonic() + arguments.limits.get(group.name, arguments.budget))

        def keep(unfinished, key=group.key):
            # Where the record has no name yet, that is the card's, which only whole groups know.
            if arguments.out:
                write_whole(arguments.out, record | {"groups": record["groups"] | {key: unfinished}})

        record["groups"][group.key] = check(group, own, keep)
        out = arguments.out or ROOT / "bench/record" / card_name(record) / f"{record['date']}.json"
        write_whole(out, record)
    targets = [target for group in record["groups"].values() for target in group["targets"]]
    failed = sum(not target["passed"] for target in targets)
    print(f"{len(targets) - failed} of {len(targets)} targets passed; {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
