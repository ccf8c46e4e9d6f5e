"""Evaluations over a cluster: the results of one machine, whoever answers, ends or goes on."""

import json
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import demask
import demask_ray
from shared import BINARY, BLOCKS, Machines, OnCluster, steady


def by_command(out, *words):
    """What `demask-lab eval` writes."""
    command = [str(Path(BINARY).with_name("demask-lab")), "eval", *words, "--threads", "1", "--quiet", "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)


def lines(out):
    """Lines of the results, without seconds and peak memory: everything else to the byte."""
    text = (Path(out) / "results.jsonl").read_text()
    return [json.dumps(steady(json.loads(line), keep=("id",)), separators=(",", ":"), ensure_ascii=False) for line in text.splitlines()]


class Evaluations(OnCluster):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.one, self.many = Path(folder.name) / "one", Path(folder.name) / "many"

    def same(self):
        self.assertEqual(lines(self.one), lines(self.many))
        for file in ("run.json", "outline.json"):
            one, many = (json.loads((folder / file).read_text()) for folder in (self.one, self.many))
            # What made them is known of one machine alone.
            one.pop("made", None)
            many.pop("made", None)
            self.assertEqual(list(one.items()), list(many.items()), file)
        self.assertTrue((self.many / "report.html").exists())

    def test_two_workers_write_what_one_machine_writes(self):
        by_command(self.one, "wordmath", "--limit", "60", "--seed", "3", "--temperature", "0.7", "--gen-length", "48")
        rows = demask_ray.evaluate(
            "wordmath", out=self.many, workers=2, batch=4, limit=60, seed=3, options={"temperature": 0.7, "gen_length": 48}
        )
        self.same()
        self.assertEqual((len(rows), rows[0]["items"]), (1, 60))
        # The letters of a line are the command's, too: the order of fields, and how floats are written.
        first, other = ((self.one / "results.jsonl").read_text(), (self.many / "results.jsonl").read_text())
        self.assertEqual(first[: first.index('"seconds"')], other[: other.index('"seconds"')])

    def test_another_model_and_choices_by_likelihood(self):
        by_command(self.one, "wordmath", "--limit", "20", "--model", BLOCKS, "--decoder", "threshold:tau=0.8")
        model = demask_ray.Model(BLOCKS)
        demask_ray.evaluate(["wordmath"], model=model, out=self.many, workers=2, limit=20, options={"decoder": "threshold:tau=0.8"})
        self.same()

    def test_it_goes_on_where_it_ended_here_and_there(self):
        demask_ray.evaluate("wordmath", out=self.many, workers=2, limit=12)
        kept = (self.many / "results.jsonl").read_bytes()
        # Half a line, as a kill leaves it.
        with (self.many / "results.jsonl").open("ab") as file:
            file.write(b'{"run":"thre')
        demask_ray.evaluate("wordmath", out=self.many, workers=1, limit=30)
        self.assertTrue((self.many / "results.jsonl").read_bytes().startswith(kept))
        by_command(self.one, "wordmath", "--limit", "40")
        by_command(self.many, "wordmath", "--limit", "40")
        self.same()

    def test_a_node_that_ends_costs_no_item(self):
        words = ("--limit", "120", "--decoder", "static", "--cache", "none", "--ignore-eos")
        options = {"decoder": "static", "cache": "none", "ignore_eos": True}
        lost = threading.Timer(5, Machines.lose_a_node)
        lost.start()
        began = time.monotonic()
        demask_ray.evaluate("wordmath", out=self.many, workers=2, limit=120, options=options)
        took = time.monotonic() - began
        lost.join()
        self.assertGreater(took, 6, "the node ended while items were answered")
        by_command(self.one, "wordmath", *words)
        self.same()

    def test_what_is_wrong_is_told_before_any_worker_starts(self):
        for error, told, call in (
            (ValueError, "did you mean \"wordmath\"", {"tasks": "wordmat"}),
            (ValueError, "name some of", {"tasks": []}),
            (ValueError, "named twice", {"tasks": ["wordmath", "wordmath"]}),
            (ValueError, "allow it with `allow_code_execution`", {"tasks": "humaneval"}),
            (TypeError, "did you mean \"steps\"", {"options": {"step": 3}}),
            (demask.errors.ModelError, "/nowhere", {"model": "/nowhere/model"}),
            (TypeError, "lmit", {"lmit": 3}),
            (ValueError, "workers is 0: expected at least 1", {"workers": 0}),
            (TypeError, "out is 3 (int): expected str or PathLike", {"out": 3}),
        ):
            with self.subTest(call), self.assertRaises(error) as caught:
                demask_ray.evaluate(**{"tasks": "wordmath", "out": self.many, **call})
            self.assertIn(told, str(caught.exception))
        demask_ray.evaluate("wordmath", out=self.many, limit=3)
        with self.assertRaises(demask.Error) as caught:
            demask_ray.evaluate("wordmath", out=self.many, limit=3, seed=9)
        self.assertIn("holds results of another run: seed was 0 and is 9", str(caught.exception))

    def test_a_worker_that_lacks_the_model_or_has_another_one_is_named(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            # A name that means something where the caller is, and nothing or something else where the workers are.
            for there, told in ((False, "'model' does not load: "), (True, "and not")):
                folder = Path(elsewhere) / str(there)
                (folder / "here").mkdir(parents=True)
                (folder / "there").mkdir()
                (folder / "here" / "model").symlink_to(BLOCKS)
                if there:
                    (folder / "there" / "model").symlink_to(Path(BLOCKS).parent / "demo-llada")
                program = (
                    "import sys, os, ray, demask_ray\n"
                    f"os.chdir({str(folder / 'there')!r})\n"
                    "ray.init(address='local', num_cpus=1, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)\n"
                    f"os.chdir({str(folder / 'here')!r})\n"
                    "try: demask_ray.evaluate('wordmath', model='model', out='out', limit=3)\n"
                    "except demask_ray.WorkerError as error: print(error)\n"
                )
                done = subprocess.run(
                    [__import__("sys").executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
                )
                self.assertIn("node ", done.stdout, done.stderr[-2000:])
                self.assertIn(told, done.stdout)
