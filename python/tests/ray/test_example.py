"""The example of a batch on Ray, run as its first lines say."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pyarrow.parquet
from shared import ROOT, question

SCRIPT = ROOT / "python" / "examples" / "ray_batch.py"


def run(*words):
    """What the script prints, and its status."""
    # A cluster of its own, and not that of the other tests, which has lost nodes.
    alone = {**os.environ, "RAY_ADDRESS": "local"}
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=180, check=False, env=alone)
    return done.stdout, done.returncode, done.stderr[-2000:]


class Example(unittest.TestCase):
    def test_the_demo_and_a_file_of_questions(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "demo"
            told, status, errors = run("--out", str(out))
            self.assertEqual(status, 0, errors)
            self.assertTrue(told.endswith(f"12 answers in {out}, 0 rows could not be answered\n"), told)
            self.assertEqual(len(rows(out)), 12)
            file = Path(folder) / "questions.jsonl"
            lines = [{"key": number, "prompt": question(number)} for number in range(8)]
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
            both = []
            for workers in ("1", "2"):
                out = Path(folder) / workers
                told, status, errors = run(str(file), "--out", str(out), "--workers", workers)
                self.assertEqual(status, 0, errors)
                both.append(rows(out))
            self.assertEqual(both[0], both[1])
            self.assertEqual([row["key"] for row in both[0]], list(range(8)))


def rows(folder):
    """The rows of a folder of parquet, by key."""
    return sorted(pyarrow.parquet.read_table(folder).to_pylist(), key=lambda row: row["key"])
