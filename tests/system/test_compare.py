"""The list of compare.py, which must leave nothing out, and what it tells of outputs that are made up."""

import contextlib
import io
import json
import re
import tempfile
import unittest
from pathlib import Path

import compare
from compare import Answer, Run, leaves

RUN = Run(("generate", "How many?", "--model", "demo/demo-llada"))
BATCHED = Run(("eval", "wordmath", "--batch", "8"))
RECEIPT = {
    "decoder": "static",
    "nfe": 4,
    "rows": 80,
    "flops": 1000.0,
    "acceptance": [4, 0, 1],
    "guide": {"accepted": 3},
    "seconds": {"total": 0.5},
    "memory": {"cache": 100, "peak": 5000},
}
REPLY = {"text": "7", "tokens": [1, 2, 3], "finish": "eos", "receipt": RECEIPT}
# A build that answers with what stands beside it, and writes records if it is asked to evaluate.
BUILD = """#!/bin/sh
here=$(dirname "$0")
out=; before=
for word; do [ "$before" = --out ] && out=$word; before=$word; done
[ -n "$out" ] && mkdir -p "$out" && cp "$here/records" "$out/results.jsonl"
cat "$here/errors" >&2
cat "$here/reply"
exit "$(cat "$here/code")"
"""


def documented():
    """Decoders and caches of docs/methods.md, and their parameters with the values that they can have, by name."""
    text = (compare.ROOT / "docs/methods.md").read_text()
    found = {"decoder": ({}, {}), "cache": ({}, {})}
    kind = None
    for line in text.splitlines():
        if line.startswith("## "):
            kind = {"## Decoders": "decoder", "## Caches": "cache"}.get(line)
        cells = [cell.strip() for cell in line.split("|")]
        if kind is None or len(cells) < 6:
            continue
        methods, parameters = found[kind]
        if name := re.fullmatch(r"\*\*`(\w+)`\*\*", cells[1]):
            methods[name[1]] = cells[4]
        elif name := re.fullmatch(r"`(\w+):(\w+)`", cells[1]):
            choices = re.fullmatch(r"one of ([\w, ]+)", cells[2])
            parameters[name.groups()] = choices[1].split(", ") if choices else [None]
    return found


def specified(runs, kind):
    """Methods that runs name, and their parameters with values: {name}, {(name, parameter, value)}."""
    names, parameters = set(), set()
    for run in runs:
        words = list(run.words)
        specs = [words[at + 1] for at, word in enumerate(words) if word == f"--{kind}"]
        for at, word in enumerate(words):
            if word == "--sweep":
                swept = dict(part.split("=", 1) for part in words[at + 1].split(";"))
                specs += swept.get(kind, "").split("|")
        for spec in filter(None, specs):
            name, _, more = spec.partition(":")
            names.add(name)
            for pair in filter(None, more.split(",")):
                parameter, _, value = pair.partition("=")
                parameters |= {(name, parameter, value), (name, parameter, None)}
    return names, parameters


class List(unittest.TestCase):
    def setUp(self):
        self.runs = compare.runs()
        self.answering = [run for run in self.runs if run.code == 0]

    def test_at_least_200_different_runs_answer(self):
        self.assertGreaterEqual(len(self.answering), 200)
        self.assertEqual(len({run.told() for run in self.runs}), len(self.runs))
        self.assertTrue(any(run.code == 2 for run in self.runs))

    def test_every_method_parameter_and_choice_is_in_it(self):
        # Attention by pass and a mask under causal attention, which no demo model has.
        without_a_model = {("selfspec", None), ("block", "masks"), ("isd", None)}
        for kind, (methods, parameters) in documented().items():
            methods = {name: about for name, about in methods.items() if (name, None) not in without_a_model}
            parameters = {
                (method, parameter): [value for value in values if (method, value) not in without_a_model]
                for (method, parameter), values in parameters.items()
                if method in methods
            }
            names, used = specified(self.answering, kind)
            self.assertGreaterEqual(len(methods), 8)
            self.assertGreater(len(parameters), 10)
            self.assertEqual(names, set(methods))
            for (method, parameter), values in parameters.items():
                for value in values:
                    self.assertIn((method, parameter, value), used)

    def test_every_demo_model_is_in_it(self):
        words = {word for run in self.answering for word in run.words}
        models = {f"demo/{path.parent.name}" for path in (compare.ROOT / "demo").glob("*/config.json")}
        self.assertEqual(len(models), 4)
        self.assertLessEqual(models, words)

    def test_every_sort_of_run_is_in_it(self):
        words = {word for run in self.answering for word in run.words}
        options = "--infill --stop --cfg-scale --temperature --seed --top-p --top-k --alg-temp --guide --score --batch"
        self.assertLessEqual(set(options.split()), words)
        self.assertLessEqual({*compare.REMASKINGS, "origin", "even", "dream", "dream_total"}, words)
        batches = {run.words[run.words.index("--batch") + 1] for run in self.answering if "--batch" in run.words}
        self.assertEqual(batches, {"1", "8"})


class Differences(unittest.TestCase):
    def told(self, after, run=RUN, allowed=(), before=REPLY):
        before, after = (Answer(0, dict(leaves(value))) for value in (before, after))
        return compare.compare(run, before, after, allowed)

    def changed(self, **more):
        return {**REPLY, "receipt": {**RECEIPT, **more}}

    def test_equal_answers_have_none(self):
        self.assertEqual(self.told(REPLY), ([], False))

    def test_seconds_and_peak_memory_do_not_count(self):
        memory = {"cache": 100, "peak": 6000}
        self.assertEqual(self.told(self.changed(seconds={"total": 9.0}, memory=memory)), ([], False))

    def test_each_number_counts(self):
        for name, value, line in (
            ("nfe", 5, "receipt.nfe: 4 became 5"),
            ("rows", 81, "receipt.rows: 80 became 81"),
            ("flops", 1001.0, "receipt.flops: 1000.0 became 1001.0"),
            ("acceptance", [4, 1, 1], "receipt.acceptance: 0 at 1 of 3 became 1 at 1 of 3"),
            ("guide", {"accepted": 2}, "receipt.guide.accepted: 3 became 2"),
            ("memory", {"cache": 101, "peak": 5000}, "receipt.memory.cache: 100 became 101"),
        ):
            lines, differs = self.told(self.changed(**{name: value}))
            self.assertEqual(lines, [f"{RUN.told()}: {line}"])
            self.assertTrue(differs)

    def test_words_and_tokens_count(self):
        lines, differs = self.told({**REPLY, "text": "8\n", "tokens": [1, 2], "finish": "length"})
        self.assertTrue(differs)
        ends = [line.removeprefix(f"{RUN.told()}: ") for line in lines]
        self.assertEqual(ends[0], "text: 7 became 8\\n")
        self.assertEqual(ends[1], "tokens: 3 at 2 of 3 became nothing at 2 of 2")
        self.assertEqual(ends[2], "finish: eos became length")

    def test_what_only_one_build_tells_counts(self):
        lines, differs = self.told(self.changed(idle=2))
        self.assertEqual((lines, differs), ([f"{RUN.told()}: receipt.idle: nothing became 2"], True))
        lines, differs = self.told(REPLY, before=self.changed(idle=2))
        self.assertEqual((lines, differs), ([f"{RUN.told()}: receipt.idle: 2 became nothing"], True))

    def test_operations_of_batches_can_be_allowed(self):
        after = self.changed(flops=2000.0)
        lines, differs = self.told(after, run=BATCHED, allowed=["flops"])
        self.assertEqual((len(lines), differs), (1, False))
        self.assertTrue(lines[0].startswith("allowed: "))
        self.assertTrue(self.told(after, run=BATCHED)[1])
        self.assertTrue(self.told(after, allowed=["flops"])[1])
        self.assertTrue(self.told(after, run=Run(("eval", "wordmath", "--batch", "1")), allowed=["flops"])[1])
        self.assertTrue(self.told(self.changed(rows=1), run=BATCHED, allowed=["flops"])[1])

    def test_exit_codes_and_refusals_count(self):
        refusal = lambda words, code=2: Answer(code, {"refusal": words})
        run = Run(("generate", "--cache", "dule"), code=2)
        self.assertEqual(compare.compare(run, refusal("no"), refusal("no")), ([], False))
        self.assertEqual(
            compare.compare(run, refusal("no"), refusal("never")),
            (["generate --cache dule: refusal: no became never"], True),
        )
        answer = Answer(0, dict(leaves(REPLY)))
        lines, differs = compare.compare(run, refusal("no"), answer)
        self.assertEqual((lines, differs), (["generate --cache dule: exit code: 2 no became 0"], True))
        lines, differs = compare.compare(RUN, refusal("no"), refusal("no"))
        self.assertEqual(lines, [f"{RUN.told()}: exit code 2 of both, expected 0: no"])
        self.assertTrue(differs)

    def test_records_are_in_the_order_of_problems(self):
        items = [{"task": "t", "run": "static", "index": index, "output": str(index)} for index in (0, 1, 2)]
        one, other = ("".join(f"{json.dumps(item)}\n" for item in order) for order in (items, items[::-1]))
        self.assertEqual(list(leaves(compare.records(one))), list(leaves(compare.records(other))))


class Builds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def build(self, name, reply=REPLY, code=0, errors="", records=()):
        here = self.folder / name
        here.mkdir()
        (here / "demask").write_text(BUILD)
        (here / "demask").chmod(0o755)
        (here / "demask-lab").symlink_to("demask")
        for file, content in (
            ("reply", json.dumps(reply)),
            ("code", str(code)),
            ("errors", errors),
            ("records", "".join(f"{json.dumps(record)}\n" for record in records)),
        ):
            (here / file).write_text(content)
        return str(here / "demask")

    def compared(self, *words):
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
            code = compare.main(words)
        return code, told.getvalue().splitlines()

    def test_equal_builds(self):
        builds = self.build("before"), self.build("after")
        out = self.folder / "new/record.json"
        code, lines = self.compared(*builds, "--only", "demo-qwen --gen-length 40 --decoder ar", "--out", str(out))
        self.assertEqual((code, lines), (0, ["4 runs equal, 0 differ"]))
        record = json.loads(out.read_text())
        self.assertEqual((record["answers"], len(record["runs"])), (4, 4))

    def test_a_build_that_decodes_otherwise(self):
        builds = self.build("before"), self.build("after", reply={**REPLY, "text": "8"})
        code, lines = self.compared(*builds, "--only", "demo-qwen --gen-length 40 --decoder ar")
        self.assertEqual((code, len(lines), lines[-1]), (1, 5, "0 runs equal, 4 differ"))

    def test_a_build_that_refuses(self):
        builds = self.build("before"), self.build("after", reply={}, code=2, errors="error: no")
        code, lines = self.compared(*builds, "--only", "demo-qwen --gen-length 40 --decoder ar --cache none")
        self.assertEqual((code, lines[-1]), (1, "0 runs equal, 2 differ"))
        self.assertTrue(lines[0].endswith(": exit code: 0 became 2 error: no"))

    def test_items_of_evaluations(self):
        item = {"task": "wordmath", "run": "static", "index": 1, "output": "7", "receipt": RECEIPT}
        table = {"rows": [{"accuracy": 1.0, "seconds_per_item": 1.0}], "seconds": 1.0}
        records = [item, {**item, "index": 0}]
        other = [{**item, "index": 0}, {**item, "receipt": {**RECEIPT, "flops": 5.0}}]
        builds = self.build("before", table, records=records), self.build("after", table, records=other)
        only = ["--only", "demo-qwen --gen-length 40 --batch 8"]
        code, lines = self.compared(*builds, *only)
        self.assertEqual((code, len(lines)), (1, 2))
        self.assertIn("records.wordmath static 1.receipt.flops: 1000.0 became 5.0", lines[0])
        self.assertEqual(self.compared(*builds, *only, "--allow", "flops")[0], 0)

    def test_mistakes_are_told(self):
        build = self.build("before")
        for words, message in (
            ([build, "/nowhere/demask"], "is no program"),
            ([build, build, "--only", "("], "is no regular expression"),
            ([build, build, "--allow", "rows"], "invalid choice"),
        ):
            told = io.StringIO()
            with contextlib.redirect_stderr(told), self.assertRaises(SystemExit) as ended:
                compare.main(words)
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(message, told.getvalue())
        with self.assertRaisesRegex(SystemExit, "no run has 'nothing of this'"):
            compare.main([build, build, "--only", "nothing of this"])


if __name__ == "__main__":
    unittest.main()
