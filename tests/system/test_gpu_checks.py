"""The judges of gpu_checks.py on outputs that are made up: what must pass passes, what must fail fails."""

import contextlib
import io
import json
import tempfile
import time
import unittest
import unittest.mock
from array import array
from pathlib import Path

import gpu_checks
from gpu_checks import Command, Output, parse


def output(value="", code=0, errors="", memory=0):
    text = value if isinstance(value, str) else json.dumps(value)
    return Output(code, text, errors, 0.1, memory)


class Arguments(unittest.TestCase):
    def refused(self, *words):
        told = io.StringIO()
        with contextlib.redirect_stderr(told), self.assertRaises(SystemExit) as ended:
            parse(words)
        self.assertEqual(ended.exception.code, 2)
        return told.getvalue().splitlines()[-1]

    def test_groups_are_chosen(self):
        self.assertEqual(parse([]).groups, list(gpu_checks.GROUPS))
        self.assertEqual(parse(["--only", "speed,doctor", "--skip", "doctor"]).groups, ["speed"])

    def test_the_first_call_has_its_own_order_and_limits(self):
        first = parse(["--first"])
        self.assertEqual((first.groups, first.limits), (list(gpu_checks.FIRST), gpu_checks.FIRST))
        self.assertLessEqual(sum(gpu_checks.FIRST.values()), first.budget)
        self.assertLess(first.budget, 600)
        less = parse(["--first", "--skip", "sanitizer", "--limits", "kernels=30", "--budget", "300"])
        self.assertEqual((less.limits["kernels"], less.limits["doctor"], less.budget), (30, 60, 300))
        self.assertNotIn("sanitizer", less.groups)

    def test_mistakes_are_told(self):
        self.assertIn("'x' is unknown: use some of doctor,", self.refused("--limits", "x=1"))
        self.assertIn("'' is not a number from 1 on", self.refused("--limits", "doctor"))
        self.assertIn("'x' is unknown: use some of doctor,", self.refused("--only", "x"))
        self.assertIn("no group is left", self.refused("--only", "doctor", "--skip", "doctor"))
        self.assertIn("'0' is not a number from 1 on", self.refused("--budget", "0"))
        self.assertIn("'gpt' is unknown", self.refused("--shapes", "gpt"))


class Running(unittest.TestCase):
    def test_groups_of_several_runs_join(self):
        with tempfile.TemporaryDirectory() as work:
            demask = Path(work) / "demask"
            demask.write_text("#!/bin/sh\necho '{\"gpu\": {\"cards\": [{\"name\": \"A Card\"}]}}'\n")
            demask.chmod(0o755)
            demask.with_name("demask-lab").symlink_to("demask")
            out = Path(work) / "records/today.json"
            words = ["--demask", str(demask), "--work", work, "--out", str(out), "--device", "cpu"]
            told = io.StringIO()
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(gpu_checks.main([*words, "--only", "doctor"]), 0)
                for shape in gpu_checks.SHAPES:
                    speed = [*words, "--only", "speed", "--shapes", shape, "--python", str(demask)]
                    self.assertEqual(gpu_checks.main(speed), 1)
            record = json.loads(out.read_text())
        self.assertEqual(list(record["groups"]), ["doctor", *(f"speed {shape}" for shape in gpu_checks.SHAPES)])
        self.assertTrue(all(group["commands"] for group in record["groups"].values()))
        self.assertIn("1 of 3 targets passed", told.getvalue())

    def test_a_run_that_is_cut_off_leaves_what_it_has_found(self):
        with tempfile.TemporaryDirectory() as work:
            group = gpu_checks.Doctor(parse(["--work", work]))
            kept = []
            words = ["sh", "-c", "echo '{\"gpu\": {}}'"]
            group.commands = lambda: iter([Command("doctor", words), Command("second", ["true"])])
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                gpu_checks.check(group, time.monotonic() + 10, lambda unfinished: kept.append(json.dumps(unfinished)))
            first = json.loads(kept[0])
            self.assertEqual([command["name"] for command in first["commands"]], ["doctor"])
            self.assertEqual(first["figures"], {"gpu": {}})
            self.assertEqual(first["targets"][0]["found"], "cut off behind doctor")
            self.assertEqual(len(kept), 2)
            out = Path(work) / "deep/record.json"
            gpu_checks.write_whole(out, {"groups": {"doctor": first}})
            self.assertEqual(json.loads(out.read_text())["groups"]["doctor"], first)

    def test_a_group_has_its_own_limit(self):
        with tempfile.TemporaryDirectory() as work:
            demask = Path(work) / "demask"
            demask.write_text("#!/bin/sh\nsleep 30\n")
            demask.chmod(0o755)
            demask.with_name("demask-lab").symlink_to("demask")
            out = Path(work) / "record.json"
            words = ["--demask", str(demask), "--work", work, "--out", str(out), "--device", "cpu", "--only", "doctor"]
            begun = time.monotonic()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(gpu_checks.main([*words, "--limits", "doctor=1"]), 1)
            self.assertLess(time.monotonic() - begun, 15)
            (command,) = json.loads(out.read_text())["groups"]["doctor"]["commands"]
            self.assertEqual((command["code"], command["errors"]), (124, "took longer than 1 s"))

    def test_memory_that_nobody_tells_is_none(self):
        command = Command("watched", ["true"], watched=True)
        environment = {"PATH": "/nowhere"}
        with unittest.mock.patch.dict(gpu_checks.os.environ, environment):
            self.assertIsNone(gpu_checks.run(Command("watched", ["/bin/true"], watched=True), left=10).memory)
        self.assertEqual(gpu_checks.card_number(["demask", "--device", "cuda:3"]), 3)
        self.assertEqual(gpu_checks.card_number(command.words), 0)

    def test_a_command_that_hangs_ends(self):
        done = gpu_checks.run(Command("slow", ["sleep", "60"], seconds=1), left=100)
        self.assertEqual((done.code, done.errors), (124, "took longer than 1 s"))
        self.assertLess(done.seconds, 10)

    def test_what_a_command_has_started_ends_with_it(self):
        with tempfile.TemporaryDirectory() as work:
            mark = Path(work) / "mark"
            words = ["sh", "-c", f"(sleep 3; touch {mark}) & sleep 60"]
            self.assertEqual(gpu_checks.run(Command("slow", words, seconds=1), left=100).code, 124)
            time.sleep(3)
            self.assertFalse(mark.exists())

    def test_a_command_that_is_not_there_is_told(self):
        self.assertEqual(gpu_checks.run(Command("none", ["/nowhere/demask"]), left=1).code, 127)

    def test_what_does_not_begin_in_time_has_failed(self):
        with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(io.StringIO()):
            group = gpu_checks.Doctor(parse(["--work", work]))
            checked = gpu_checks.check(group, deadline=0)
        self.assertTrue(all(not target["passed"] for target in checked["targets"]))
        self.assertEqual(checked["targets"][0]["found"], "no time left")


class Judges(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.arguments = parse(["--work", folder.name, "--shapes", "llada-8b"])

    def failed(self, group, outputs):
        return [target.name for target in group.judge(outputs) if not target.passed]

    def speed(self, **changed):
        values = {"gbs": 4000, "tflops": 400, "window": 0.004, "drafts": 0.008, "small": 2.5, "large": 1.2, "memory": 17}
        values |= changed
        report = lambda seconds: [
            {
                "seconds": {"median": seconds},
                "gbs": values["gbs"],
                "peak_gbs": 4500,
                "tflops": values["tflops"],
                "peak_tflops": 600,
            }
        ]
        figures = {"matrix_tflops": {"median": 700}}
        torch = lambda ratio: {"figures": figures, "over": {"demask": {"seconds": {"median": ratio}}}}
        beside = lambda rows, ratio: {"at": {"rows": rows}, "subjects": {"torch bf16": torch(ratio)}}
        memory = {"device": "cuda", "dtype": "bf16", "weights": 16 << 30, "cache_per_1000_positions": 500 << 20}
        used = values["memory"]
        return {
            "window": output(report(values["window"])),
            "answer": output("{}", memory=used and used << 30),
            "large": output(report(0.1)),
            "drafts": output(report(values["drafts"])),
            "inspect": output({"memory": [memory]}),
            "torch": output([{"missing": {}, "results": [beside(32, values["small"]), beside(1024, values["large"])]}]),
        }

    def test_speeds(self):
        (group,) = gpu_checks.Speed.all(self.arguments)
        self.assertEqual(group.key, "speed llada-8b")
        self.assertEqual(self.failed(group, self.speed()), [])
        for change, name in (
            ({"gbs": 3000}, "over reading the weights"),
            ({"tflops": 380}, "share of the matrix rate"),
            ({"drafts": 0.01}, "8 drafts"),
            ({"small": 1.9}, "32 rows, times as fast"),
            ({"large": 1.0}, "1024 rows, times as fast"),
            ({"memory": 18}, "GiB beside"),
            ({"memory": None}, "GiB beside"),
        ):
            failed = self.failed(group, self.speed(**change))
            self.assertEqual(len(failed), 1, failed)
            self.assertIn(name, failed[0])

    def test_what_needs_no_pytorch_is_judged_without_it(self):
        (group,) = gpu_checks.Speed.all(self.arguments)
        missing = {"torch bf16": "No module named 'torch'"}
        outputs = self.speed() | {"torch": output([{"missing": missing, "results": []}])}
        with contextlib.redirect_stdout(io.StringIO()):
            checked = gpu_checks.judged(group, outputs, [])
        passed = [target.passed for target in checked]
        self.assertEqual(passed, [True, True, True, False])
        self.assertIn("No module named 'torch'", checked[-1].found)

    def test_sanitizer(self):
        group = gpu_checks.Sanitizer(self.arguments)
        group.prepare()
        clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
        races = "========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)\n"
        outputs = {f"{tool} {name}": output() for name, tool, _ in group.runs()}
        self.assertEqual(list(group.judge(outputs)), [], "no summary is no judgement: it was not allowed to run")
        for name, tool, _ in group.runs():
            group.log(name, tool).write_text(clean)
        self.assertEqual(self.failed(group, outputs), [])
        self.assertEqual(len(list(group.judge(outputs))), len(outputs))
        group.log("answer", "racecheck").write_text(races)
        outputs["memcheck answer"] = output(code=1)
        self.assertEqual(self.failed(group, outputs), ["memcheck of answer", "racecheck of answer"])
        self.assertIn("3 hazards", group.figures(outputs)["logs"]["racecheck-answer"])

    def test_the_sanitizer_is_found_among_packages_and_done_without(self):
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder) / "bin/python"
            program = Path(folder) / "lib/python3.11/site-packages" / gpu_checks.Sanitizer.packaged[0]
            arguments = parse(["--python", str(python), "--work", folder])
            group = gpu_checks.Sanitizer(arguments)
            environment = {"PATH": "/nowhere", "CUDA_HOME": folder}
            with (
                unittest.mock.patch.dict(gpu_checks.os.environ, environment),
                unittest.mock.patch.object(gpu_checks.sys, "path", [""]),
                unittest.mock.patch.object(gpu_checks.Sanitizer, "toolkit", ("nothing",)),
            ):
                self.assertEqual((group.found(), list(group.commands())), (None, []))
                program.parent.mkdir(parents=True)
                program.write_text("")
                program.chmod(0o755)
                self.assertEqual(group.found(), str(program))
                commands = list(group.commands())
            self.assertEqual({str(command.words[0]) for command in commands}, {str(program)})
            self.assertNotIn("--injection-path", commands[0].words)
            library = program.parent.parent / "lib/libsanitizer-collection.so"
            library.parent.mkdir()
            library.write_text("")
            self.assertEqual(group.libraries(program), ["--injection-path", library.parent])
            self.assertEqual(len({command.name for command in commands}), len(commands))

    def test_kernels(self):
        group = gpu_checks.Kernels(self.arguments)

        def report(rows, kernel, seconds, **more):
            return {"rows": rows, "kernel": kernel, "seconds": {"median": seconds}, "tflops": 1.0} | more

        good = [report(1, "a", 2.0, chosen=True), report(1, "b", 1.9, chosen=False), report(8, "a", 1.0, chosen=True)]
        self.assertEqual(self.failed(group, {"linear": output(good)}), [])
        self.assertEqual(group.choices(good), {1: 2.0 / 1.9})
        bad = [*good, report(8, "c", 0.8, chosen=False)]
        self.assertEqual(self.failed(group, {"linear": output(bad)}), ["linear: time of the chosen kernels over the fastest"])
        stopped = [report(1, "a", 2.0) | {"tflops": 0.0}]
        self.assertEqual(self.failed(group, {"linear": output(stopped)}), ["linear: kernels without a rate"])

    def test_commits(self):
        group = gpu_checks.Agreement(self.arguments)
        group.prepare()
        outputs = {
            f"{model} {index} {device}": output({}) for model, index in group.runs() for device in ("cpu", "cuda")
        }

        def write(model, device, commits):
            names = ("step", "position", "token", "confidence")
            lines = [json.dumps({"event": "header"}), *(json.dumps(dict(zip(names, commit))) for commit in commits)]
            group.trace(model, 0, device).write_text("\n".join(lines))

        group.questions = 1
        for model in group.models:
            for device in ("cpu", "cuda"):
                write(model, device, [(0, 5, 7, 0.9), (1, 6, 8, 0.8)])
        self.assertEqual(self.failed(group, outputs), [])
        write("demo-sdar", "cuda", [(0, 5, 7, 0.9), (1, 7, 8, 0.797)])
        self.assertEqual(self.failed(group, outputs), [], "a tie")
        write("demo-sdar", "cuda", [(0, 5, 7, 0.9), (1, 7, 8, 0.7)])
        self.assertEqual(len(self.failed(group, outputs)), 1)

    def test_bits(self):
        group = gpu_checks.Invariants(self.arguments)
        group.prepare()
        width = 4
        logits = array("f", range(max(gpu_checks.PREFIXES) * width))

        def write(name, spoiled=None):
            header, data = {}, b""
            for index, rows in enumerate(gpu_checks.PREFIXES):
                own = logits[: rows * width]
                if index == spoiled:
                    own[0] += 1e-3
                header[f"{index}.logits"] = {
                    "dtype": "F32",
                    "shape": [rows, width],
                    "data_offsets": [len(data), len(data) + 4 * len(own)],
                }
                data += own.tobytes()
            text = json.dumps(header).encode()
            (group.work / f"{name}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)

        outputs = {f"prefixes {name}": output() for name in group.formats}
        for model in group.models:
            for drafts in (0, 1, 2, 4, 8):
                nfe = 64 // max(1, drafts)
                outputs[f"{model} {drafts}"] = output({"tokens": [1, 2], "receipt": {"nfe": nfe}})
        for batch in (1, 3, 8):
            (group.work / f"batch-{batch}").mkdir()
            (group.work / f"batch-{batch}/results.jsonl").write_text(json.dumps({"index": 0, "output": "7"}))
        for name in group.formats:
            write(name)
        self.assertEqual(self.failed(group, outputs), [])
        write("q4", spoiled=3)
        self.assertEqual(self.failed(group, outputs), ["numbers of rows that change bits in q4"])
        outputs["demo-sdar 8"] = output({"tokens": [1, 3], "receipt": {"nfe": 8}})
        self.assertEqual(len(self.failed(group, outputs)), 2)

    def test_refusals(self):
        refused = gpu_checks.BadInput.refused
        self.assertTrue(refused("x", output(code=1, errors="error: there is no GPU\n"), 1, "no GPU").passed)
        self.assertFalse(refused("x", output(code=2, errors="error: there is no GPU\n"), 1, "no GPU").passed)
        self.assertFalse(refused("x", output(code=1, errors="error: there is\nno GPU\n"), 1, "GPU").passed)
        self.assertFalse(refused("x", output(code=101, errors="thread panicked: no GPU"), 101, "no GPU").passed)


if __name__ == "__main__":
    unittest.main()
