"""Decodes one list of runs with two builds of demask, and tells every number and word in which they differ.

    python tests/system/compare.py BEFORE AFTER [--out FILE] [--only PATTERN]

BEFORE and AFTER are paths of demask; demask-lab, which evaluates, is beside each. The list has at least 200 runs that answer, over all decoders, cache policies and demo
models, with guides, guidance, temperatures, infilling, stop texts, quantised weights, batches and likelihoods, and some
that must be refused. Of each are compared: the exit code; of an answer everything in its JSON (text, tokens, finish,
counts of forwards and rows, operations, acceptance, the guide's counts, memory of weights and cache) but seconds and
peak memory; of a refusal its words; of an evaluation the table, and every item's record by the item's number.

Each difference is a line: the run, what differs, how it was and how it is. The last line is the sum; the exit code is
1 if a run differs, or ends otherwise than the list says. `--commits` also compares the steps, positions, tokens and
confidences that `generate --trace` writes, which finds differences that no token shows: for changes that must keep
every bit. The environment goes on to both builds: DEMASK_ISA=avx2 compares them on that tier.

`--allow flops` lets runs with `--batch` above 1 differ in their operations, and still tells it. Builds before the
change that counts each request's own operations count a forward that computes all of its rows in another way while it
shares a launch with partly computed ones (cache dllm), so that the count depends on the company. Single answers have no
company, and must not differ.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
from common import programs, write_whole

# Seconds that one run may take.
LIMIT = 120
# What two runs of the same build differ in, wherever it stands in an answer.
UNSTEADY = {"seconds", "seconds_per_item", "speed_up", "guide_share", "peak", "peak_memory", "own_peak_memory", "device_memory"}
# Of a card's memory, in which others are too.
UNSTEADY |= {"current", "in_use"}
# Follows from other counts, and older builds do not write it.
UNSTEADY |= {"rounds"}
# The program's own version, and what older builds do not write.
UNSTEADY |= {"version", "settings", "made"}
# Operations, and what is computed from them.
FLOPS = {"flops", "gflop_per_token"}
MISSING = "nothing"

FULL_MODELS = ("demo-llada", "demo-dream")
GUIDE = "--guide demo/demo-qwen"
# A problem that no demo model knows how to solve: their confidences are of all sizes, and the guide rejects drafts.
STRANGE = "Zoe sells 47 of 12 boxes with 8 hats. 30 are lost. How many hats has Paul?"
# Four blocks: the end of the text lies in the third or behind it.
CANVAS = "--gen-length 32 --block-length 8"

STATIC = ["static", "static:steps=8"]
THRESHOLD = [
    "threshold",
    "threshold:tau=0.6,confidence=tempered",
    "threshold:tau=0.999,strict",
    "threshold:tau=0.999,quota",
    "threshold:tau=0.5,cap,confidence=clean",
    "threshold:sub=4",
]
FACTOR = [
    "factor",
    "factor:f=0.1,confidence=tempered",
    "factor:f=0.5,rule=code",
    "factor:f=2,rule=clean,confidence=clean",
]
ENTROPY = [
    "entropy_bounded",
    "entropy_bounded:eb=0.01,confidence=clean",
    "entropy_bounded:eb=2,confidence=tempered",
    "entropy_bounded:rule=sdar",
    "entropy_bounded:rule=rnd1",
]
SLOWFAST = [
    "slowfast",
    "slowfast:explore=3,tau_min=0.6,tau=0.7,confidence=tempered",
    "slowfast:window=3,sigma=0.5,tau=1.1,confidence=clean",
]
# Those that change what they have written.
EDIT = [
    "edit",
    "edit:tau=0.6,edit=0.5,least=2,confidence=tempered",
    "edit:tau=0.5,edit=0.6,post=2,confirm,penalty=0.5,confidence=clean",
]
FREEDAVE = [
    "freedave",
    "freedave:d=1",
    "freedave:d=2",
    "freedave:d=8",
    "freedave:d=16",
    "freedave:eager=false",
    "freedave:mode=reference",
    "freedave:d=8,mode=reference,rule=subset",
    "freedave:tau=0.9,confidence=clean",
    "freedave:tau=0.99,strict,rule=subset,confidence=tempered",
    "freedave:d=8,tau=0.99,quota,mode=reference",
    "freedave:mode=rolling,rule=exact,tau=0.6",
]
GUIDED = [
    "guided",
    "guided:match=exact,verify=2",
    "guided:match=topk",
    "guided:match=topk,k=3",
    "guided:match=topk_relative,tau=0.2",
    "guided:match=confidence,tau=0.8",
    "guided:fallback=dlm,target=dlm,verify=4",
]
# What writes the guide's ids, which demo-llada does not share.
GUIDED_IDS = [
    "guided:align=ids",
    "guided:target=guide",
    "guided:match=topk,k=3,fallback=ar",
    "guided:match=topk_relative,k=4,tau=0.9,target=guide",
    "guided:fallback=ar,verify=3",
]
ALIGNED = ["guided:align=bytes", "guided:align=bytes,match=topk,verify=5"]
DECODERS = [*STATIC, *THRESHOLD, *FACTOR, *ENTROPY, *SLOWFAST, *FREEDAVE]
BLOCK_DECODERS = [
    "static",
    "static:steps=18",
    *THRESHOLD,
    *FACTOR,
    *ENTROPY,
    *EDIT,
    *FREEDAVE,
    "freedave:d=8,eager",
    "freedave:d=2,eager,tau=0.9",
]

CACHES = [
    "none",
    "prefix",
    "prefix:horizon=8",
    "prefix:idle",
    "prefix:prompt=2",
    "dual",
    "dual:horizon=4",
    "dual:idle",
    "dual:prompt=first",
    "freecache",
    "freecache:block=8",
    "freecache:block=8,freeze=exact,lag=2",
    "freecache:block=8,freeze=reference",
    "freecache:freeze=prompt",
    "freecache:block=8,lookahead=12",
    "dkv",
    "dkv:variant=decode,refresh=4",
    "dkv:variant=prefill",
    "dkv:variant=pd,refresh=3",
    "dllm",
    "dllm:prompt=50,response=7,count=forwards,rows=drift",
    "dllm:prompt=10,response=3",
    "dllm:prompt=4,response=2,rho=0",
    "dllm:rho=0.5,probe=k",
    "dllm:rho=0.5,probe=random",
    "dllm:probe=v,first_layer=same",
    "dllm:response=3,first_layer=full,boundary=response",
    "dllm:response=3,phase=up,count=forwards,rows=drift",
    "dllm:response=4,count=tokens,rows=block",
    "dllm:rho=0.4,rows=drift,probe=k",
]
# What only models whose rows predict the next token have.
SHIFTED = [
    "prefix:start=all",
    "prefix:start=one",
    "dual:prompt=2,start=all",
    "dual:start=one",
    "dllm:prompt=10,response=3,boundary=before",
    "dkv:shift=un",
    "dkv:shift=un_right",
    "dkv:variant=pd,shift=un_right",
]
# One decoder of each kind over one cache of each kind.
PLAIN_DECODERS = ["factor", "entropy_bounded", "slowfast", "freedave", "guided"]
PLAIN_CACHES = ["prefix", "dual", "freecache:block=8", "dkv", "dllm:response=3"]
REMASKINGS = ["low_confidence", "random", "margin", "entropy", "maskgit_plus", "topk_margin", "left_to_right"]

# Flags that go with every decoder and cache.
OPTIONS = [
    "--temperature 0.7",
    "--temperature 0.7 --seed 3",
    "--temperature 1 --top-p 0.9 --seed 1",
    "--temperature 1 --top-k 4 --seed 2",
    "--temperature 0.5 --top-p 0.95 --top-k 8 --seed 4",
    "--cfg-scale 0.5",
    "--cfg-scale 1.5 --temperature 0.4",
    "--ignore-eos",
    "--no-early-stop",
    "--stop-rule block",
    "--stop-rule whole-block",
    "--stop-rule prefix-fill",
    "--stop-rule fill",
    "--stop-rule end-run:run=2",
    "--suppress-eos",
    "--eos-confidence-zero",
    "--stop cookies",
    "--stop final --stop 4=",
    "--dtype f32",
    "--quantize q8",
    "--quantize q4",
    "--quantize q8 --activations int8",
    "--raw",
    "--system Count.",
    "--threads 1",
]
OVER = ["--decoder static --cache none", "--decoder threshold --cache dual", "--decoder freedave --cache prefix"]
INFILLS = [
    "19+6=<mask:2> cups.\nThe final answer is 2<mask:1>",
    "28<mask:1>4=32 cookies.<mask:3> answer is <mask:2>",
]

# Problems in the schemas of two tasks that are asked by likelihood, invented here.
CHOICES = {
    "arc-challenge": [
        {
            "id": "1",
            "question": "Ann has 3 cups and buys 4. How many cups are there?",
            "choices": {"text": ["7", "8", "12"], "label": ["A", "B", "C"]},
            "answerKey": "A",
        },
        {
            "id": "2",
            "question": "What is left of 9 pears when 5 are lost?",
            "choices": {"text": ["14 pears", "4 pears", "5 pears"], "label": ["A", "B", "C"]},
            "answerKey": "B",
        },
    ],
    "winogrande": [
        {
            "sentence": "The cup does not fit in the box because the _ is too small.",
            "option1": "cup",
            "option2": "box",
            "answer": "2",
        },
        {
            "sentence": "Paul gave Eva 4 pears because _ had too many.",
            "option1": "Paul",
            "option2": "Eva",
            "answer": "1",
        },
    ],
}


@dataclass(frozen=True)
class Run:
    """Arguments of demask without its name; `code` is the exit code that both builds must have."""

    words: tuple
    code: int = 0

    def told(self):
        return shlex.join(self.words)

    @property
    def evaluates(self):
        return self.words[0] == "eval"

    @property
    def task(self):
        """The task whose problems are invented here, if it is one of these."""
        return next((task for task in CHOICES if self.evaluates and task in self.words), None)

    @property
    def batched(self):
        return "--batch" in self.words and self.words[self.words.index("--batch") + 1] != "1"


def questions():
    """Three problems that the demo models solve: one, two and three operations, in 17 to 40 tokens."""
    lines = (ROOT / "demo/wordmath-test.jsonl").read_text().splitlines()
    return [json.loads(lines[index])["question"] for index in (1, 2, 0)]


def runs():
    """The list, without one twice."""
    return list(dict.fromkeys([*generated(), *evaluated(), *refused()]))


def generated():
    """Single answers."""
    short, middle, long = questions()

    def run(model, options, question, canvas=CANVAS):
        return Run(("generate", question, "--model", f"demo/{model}", *shlex.split(canvas), *shlex.split(options)))

    def guided(decoder):
        return f"--decoder {decoder}" + (f" {GUIDE}" if decoder.startswith("guided") else "")

    for model in FULL_MODELS:
        shifted = model == "demo-dream"
        yield run(model, "", short, canvas="")
        for decoder in [*DECODERS, *GUIDED, *ALIGNED, *(GUIDED_IDS if shifted else [])]:
            cache = "dual" if shifted else "none"
            yield run(model, f"{guided(decoder)} --cache {cache}", STRANGE)
        yield run(model, "--decoder p2 --steps 16 --cache none", STRANGE)
        for cache in [*CACHES, *(SHIFTED if shifted else [])]:
            yield run(model, f"--decoder static --steps 24 --cache {cache}", middle)
            yield run(model, f"--decoder threshold --cache {cache}", STRANGE)
        yield run(model, "--decoder static --steps 24 --cache dllm:phase=down,count=forwards", middle)
        for cache in ("dkv:variant=greedy", "dkv:variant=greedy,refresh=3,window=2"):
            yield run(model, f"--decoder static --remasking random --cache {cache}", short)
            yield run(model, f"--decoder static --remasking left_to_right --cache {cache}", short)
        for decoder in PLAIN_DECODERS:
            for cache in PLAIN_CACHES:
                yield run(model, f"{guided(decoder)} --cache {cache}", long)
        for remasking in REMASKINGS:
            schedule = "dream" if shifted else "even"
            yield run(model, f"--decoder static --remasking {remasking} --schedule {schedule} --steps 16", short)
            yield run(model, f"--decoder threshold --remasking {remasking} --cache prefix", STRANGE)
        for schedule in ("dream", "dream_total --eps 0.01", "rnd1"):
            options = f"--decoder static --schedule {schedule} --steps 12 --cache none"
            yield run(model, options, short)
            yield run(model, f"{options} --alg-temp 0.5 --temperature 0.3 --seed 5", short)
        yield run(model, "--decoder static --schedule dream --remasking origin --steps 12", short)
        for number, options in enumerate(OPTIONS):
            yield run(model, f"{OVER[number % len(OVER)]} {options}", short)
        for cache in ("dllm:response=3,cfg=3", "freecache:block=8", "dkv"):
            yield run(model, f"--cfg-scale 1 --decoder threshold --cache {cache}", short)
        yield run(model, f"{guided('guided')} --temperature 0.6 --seed 6 --cache none", STRANGE)
        yield run(model, "--decoder static --cache none", middle, canvas="--gen-length 27 --block-length 27")
        yield run(model, "--decoder freedave:d=8 --cache none", middle, canvas="--gen-length 30 --block-length 5")
        for text in INFILLS:
            words = ("generate", text, "--infill", "--model", f"demo/{model}")
            yield Run(words)
            yield Run((*words, "--decoder", "threshold", "--cache", "dllm:response=2"))
            yield Run((*words, "--decoder", "freedave", "--cache", "none"))

    yield run("demo-sdar", "", short, canvas="")
    for decoder in [*BLOCK_DECODERS, *GUIDED, *GUIDED_IDS, *ALIGNED]:
        yield run("demo-sdar", f"{guided(decoder)} --cache block", STRANGE, canvas="--gen-length 32")
    for cache in ("block:canvas=seeded,live=whole", "block:live=dual", "block:store=alone", "block:store=fused"):
        yield run("demo-sdar", f"--decoder threshold:sub=2 --cache {cache}", STRANGE, canvas="--gen-length 24")
    for decoder in ["static", "threshold", "factor", "entropy_bounded", "freedave", "freedave:d=8,eager", "guided"]:
        yield run("demo-sdar", f"{guided(decoder)} --cache none", STRANGE, canvas="--gen-length 24")
    for remasking in REMASKINGS:
        options = f"--decoder static --remasking {remasking} --cache block"
        yield run("demo-sdar", options, short, canvas="--gen-length 20")
    for number, options in enumerate(OPTIONS):
        decoder = ("static", "threshold", "freedave:d=4")[number % 3]
        yield run("demo-sdar", f"--decoder {decoder} --cache block {options}", short, canvas="--gen-length 24")

    for cache in ("none", "causal"):
        for question in (short, long):
            yield run("demo-qwen", f"--decoder ar --cache {cache}", question, canvas="--gen-length 40")
        for options in OPTIONS[:5]:
            yield run("demo-qwen", f"--cache {cache} {options}", short, canvas="--gen-length 24")
    yield run("demo-qwen", "--stop cookies --quantize q8", short, canvas="--gen-length 24")


def evaluated():
    """Problems one after the other and at the same time, and likelihoods of given answers."""

    def run(words):
        return Run(("eval", *shlex.split(words)))

    sweep = '--sweep "decoder=static|threshold|freedave|guided;cache=none|dual|freecache:block=8|dllm:response=3"'
    for batch in (1, 8):
        for model in FULL_MODELS:
            yield run(f"wordmath --limit 8 --model demo/{model} {CANVAS} {GUIDE} {sweep} --batch {batch}")
            yield run(f"wordmath --limit 8 --model demo/{model} {CANVAS} --temperature 0.8 --batch {batch}")
            yield run(f"wordmath --limit 8 --model demo/{model} {CANVAS} --cache dkv --steps 16 --batch {batch}")
        block = '--sweep "decoder=static|threshold|freedave:d=8|guided;cache=none|block"'
        yield run(f"wordmath --limit 8 --model demo/demo-sdar --gen-length 32 {GUIDE} {block} --batch {batch}")
        yield run(f"wordmath --limit 8 --model demo/demo-qwen --gen-length 40 --batch {batch}")
        yield run(f"wordmath --limit 3 --model demo/demo-llada {CANVAS} --cfg-scale 1 --decoder static --cache dllm --batch {batch}")
    for task in CHOICES:
        likelihood = f"{task} --score likelihood --shots 0"
        for model in FULL_MODELS:
            yield run(f"{likelihood} --likelihood-draws 8 --model demo/{model}")
        yield run(f"{likelihood} --likelihood-draws 3 --cfg-scale 0.5 --seed 1 --model demo/demo-llada")
        yield run(f"{likelihood} --model demo/demo-qwen")


def refused():
    """What no model can decode, and what is written wrongly."""
    for model, options in (
        ("demo-llada", "--cache block"),
        ("demo-llada", "--decoder ar"),
        ("demo-llada", "--decoder freedave:eager --cache dual"),
        ("demo-llada", "--decoder threshold --cache dkv:variant=greedy"),
        ("demo-llada", "--decoder threshold --remasking origin"),
        ("demo-llada", "--decoder threshold:tau=2"),
        ("demo-llada", "--decoder guided"),
        ("demo-llada", f"--decoder guided:fallback=ar {GUIDE}"),
        ("demo-llada", f"--decoder guided:target=guide {GUIDE}"),
        ("demo-llada", f"--decoder guided:align=ids {GUIDE}"),
        ("demo-llada", "--cache dule"),
        ("demo-llada", "--remasking foo"),
        ("demo-dream", "--cache causal"),
        ("demo-sdar", "--cache dual"),
        ("demo-sdar", "--decoder slowfast"),
        ("demo-sdar", "--decoder static --steps 7 --cache block --gen-length 32"),
        ("demo-qwen", "--decoder static"),
        ("demo-qwen", "--cache prefix"),
    ):
        yield Run(("generate", "How many?", "--model", f"demo/{model}", *shlex.split(options)), code=2)
    yield Run(("generate", "a <mask:2>", "--infill", "--model", "demo/demo-sdar"), code=2)
    yield Run(("eval", "arc-challenge", "--score", "likelihood", "--model", "demo/demo-sdar"), code=2)


@dataclass
class Answer:
    """What a build made of a run: its exit code, and the values that are compared, by their names."""

    code: int
    values: dict
    seconds: float = 0.0


def execute(build, run, commits=False):
    """Runs one in a folder of its own, with paths that do not depend on it."""
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        words = [build.of(run.words[0]), *run.words, "--json", "-q"]
        if run.task:
            lines = map(json.dumps, CHOICES[run.task])
            (work / "data.jsonl").write_text("".join(f"{line}\n" for line in lines))
            words += ["--data", str(work / "data.jsonl")]
        if run.evaluates:
            words += ["--out", str(work / "out")]
        elif commits:
            words += ["--trace", str(work / "trace.jsonl")]
        begun = time.monotonic()
        try:
            done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return Answer(124, {"refusal": f"took longer than {LIMIT} s"}, LIMIT)
        seconds = time.monotonic() - begun
        if done.returncode != 0:
            return Answer(done.returncode, {"refusal": done.stderr.strip().replace(str(work), "WORK")}, seconds)
        value = json.loads(done.stdout)
        if run.evaluates:
            value["records"] = records((work / "out/results.jsonl").read_text())
        elif commits:
            value["commits"] = (work / "trace.jsonl").read_text().splitlines()
        return Answer(0, dict(leaves(value)), seconds)


def records(text):
    """Items by run and number: a batch writes them in the order in which they are done."""
    items = {}
    for line in text.splitlines():
        item = json.loads(line)
        items[f"{item['task']} {item['run']} {item['index']}"] = item
    return {name: items[name] for name in sorted(items)}


def leaves(value, name=""):
    """Names and values of what is compared: lists of numbers and texts are one value each."""
    if isinstance(value, dict):
        for key, below in value.items():
            # Rates, and their ratios, by their names.
            if key not in UNSTEADY and "per_second" not in key:
                yield from leaves(below, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(below, dict) for below in value):
        for number, below in enumerate(value):
            yield from leaves(below, f"{name}[{number}]")
    else:
        yield name, value


def differences(before, after):
    """What differs: name, old value, new value."""
    if before.code != after.code:
        shown = [f"{answer.code} {answer.values.get('refusal', '')}".strip() for answer in (before, after)]
        return [("exit code", *shown)]
    found = []
    for name in dict.fromkeys([*before.values, *after.values]):
        was, now = (answer.values.get(name, MISSING) for answer in (before, after))
        # 1 and 1.0 and true are equal to Python alone.
        if (was, type(was)) != (now, type(now)):
            found.append((name, *narrowed(was, now)))
    return found


def narrowed(was, now):
    """Of two lists their first difference, with its place."""
    if not isinstance(was, list) or not isinstance(now, list):
        return was, now
    for place, (old, new) in enumerate(zip_longest(was, now, fillvalue=MISSING)):
        if old != new:
            return tuple(f"{value} at {place} of {len(values)}" for value, values in ((old, was), (new, now)))
    return was, now


def is_allowed(run, name, allowed):
    """Whether a difference is told and does not count."""
    return "flops" in allowed and run.batched and name.rpartition(".")[2] in FLOPS


def compare(run, before, after, allowed=()):
    """Lines about one run, and whether it differs."""
    found = differences(before, after)
    lines = []
    differs = False
    for name, was, now in found:
        harmless = is_allowed(run, name, allowed)
        differs |= not harmless
        shown = (str(value)[:300] for value in (was, now))
        lines.append(f"{'allowed: ' if harmless else ''}{run.told()}: {name}: {' became '.join(shown)}")
    if before.code == after.code != run.code:
        differs = True
        told = before.values.get("refusal", "an answer")
        lines.append(f"{run.told()}: exit code {before.code} of both, expected {run.code}: {told}")
    return [line.replace("\n", "\\n") for line in lines], differs


def version(build):
    return subprocess.run([build.demask, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def parse(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=programs, help="demask of the build that is right")
    parser.add_argument("after", type=programs, help="demask of the build in question")
    parser.add_argument("--out", type=Path, help="a JSON file for versions, seconds and differences")
    parser.add_argument("--only", type=pattern, default=pattern(""), help="a regular expression: runs that have it")
    parser.add_argument("--allow", action="append", default=[], choices=["flops"], help="told, but not counted")
    parser.add_argument("--commits", action="store_true", help="compare every commit with its confidence, too")
    return parser.parse_args(words)


def main(words=None):
    arguments = parse(words)
    chosen = [run for run in runs() if arguments.only.search(run.told())]
    if not chosen:
        sys.exit(f"no run has {arguments.only.pattern!r} in it")
    builds = {"before": arguments.before, "after": arguments.after}
    seconds = dict.fromkeys(builds, 0.0)
    entries = []
    for number, run in enumerate(chosen):
        if number % 50 == 0:
            print(f"{number} of {len(chosen)}", file=sys.stderr, flush=True)
        answers = {name: execute(build, run, arguments.commits) for name, build in builds.items()}
        for name, answer in answers.items():
            seconds[name] += answer.seconds
        lines, differs = compare(run, answers["before"], answers["after"], arguments.allow)
        for line in lines:
            print(line, flush=True)
        codes = {name: answer.code for name, answer in answers.items()}
        entries.append({"run": run.told(), "codes": codes, "differs": differs, "lines": lines})
    differing = sum(entry["differs"] for entry in entries)
    answered = sum(set(entry["codes"].values()) == {0} for entry in entries)
    if arguments.out:
        record = {
            "date": date.today().isoformat(),
            "versions": {name: version(build) for name, build in builds.items()},
            "seconds": {name: round(value, 1) for name, value in seconds.items()},
            "answers": answered,
            "runs": entries,
        }
        write_whole(arguments.out, record)
    told = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    print(f"{answered} answered by both, {len(entries) - answered} not; {told}", file=sys.stderr)
    print(f"{len(entries) - differing} runs equal, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
