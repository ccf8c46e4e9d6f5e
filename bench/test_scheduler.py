"""scheduler.py on builds that are made up: whose turn it is, what is made of the turns, and what is not compared."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import scheduler

# A build that notes its name in the log beside its folder, and tells the row of seconds that stands beside it.
BUILD = """#!/bin/sh
here=$(dirname "$0")
echo "$(basename "$here") $*" >>"$here/../log"
cat "$here/reply"
"""
ROW = {"items": 4, "correct": 3, "nfe": 30.5, "seconds_per_item": 0.004}


class Turns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def build(self, name, **changed):
        here = self.folder / name
        here.mkdir()
        (here / "demask").write_text(BUILD)
        (here / "demask").chmod(0o755)
        (here / "reply").write_text(json.dumps({"rows": [{**ROW, **changed}]}))
        return str(here / "demask")

    def measured(self, *words):
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
            scheduler.main(words)
        return told.getvalue().splitlines()

    def test_builds_take_turns(self):
        out = self.folder / "new/record.json"
        builds = self.build("first"), self.build("second", seconds_per_item=0.003)
        lines = self.measured(*builds, "--rounds", "2", "--out", str(out))
        log = [line.split() for line in (self.folder / "log").read_text().splitlines()]
        order = [line[0] for line in log]
        self.assertEqual(order, [*["second", "first"] * 2, *["first", "second"] * 2, *["second", "first"] * 2])
        caches = [line[line.index("--cache") + 1] for line in log]
        self.assertEqual(caches, ["none", "none", "dual", "dual"] * 3)
        self.assertTrue(all("--batch 16 --limit 100" in " ".join(line) for line in log))
        self.assertEqual(lines[0], "| cache | of a problem | old, ms | new, ms | new by old |")
        seconds = "| seconds | 4.00 (4.00 to 4.00) | 3.00 (3.00 to 3.00) | 0.750 (0.750 to 0.750) |"
        self.assertEqual((lines[2], lines[4]), (f"| `none` {seconds}", f"| `dual` {seconds}"))
        record = json.loads(out.read_text())
        self.assertEqual([len(of_build) for of_build in record["turns"]["dual"].values()], [2, 2])
        self.assertEqual(record["summary"]["none"]["seconds"]["ratio"]["median"], 0.75)

    def test_one_build_alone(self):
        lines = self.measured(self.build("only"), "--rounds", "1", "--caches", "dual")
        self.assertEqual(len((self.folder / "log").read_text().splitlines()), 2)
        self.assertEqual(lines[2], "| `dual` | seconds | 4.00 (4.00 to 4.00) |")

    def test_other_work_is_told(self):
        builds = self.build("first"), self.build("second", nfe=31.0, correct=2)
        lines = self.measured(*builds, "--rounds", "1", "--caches", "none")
        self.assertEqual(
            lines[-2:],
            [
                "cache none: correct of old is 3, of new 2: not the same work",
                "cache none: nfe of old is 30.5, of new 31.0: not the same work",
            ],
        )

    def test_medians_of_ratios_are_of_the_same_round(self):
        turn = lambda seconds: {"seconds": seconds, "processor_seconds": 2 * seconds}
        turns = {"old": [turn(1.0), turn(2.0), turn(4.0)], "new": [turn(2.0), turn(2.0), turn(2.0)]}
        found = scheduler.summary(turns)
        self.assertEqual(found["seconds"]["ratio"], {"median": 1.0, "least": 0.5, "most": 2.0})
        self.assertEqual(found["processor_seconds"]["old"], {"median": 4.0, "least": 2.0, "most": 8.0})


if __name__ == "__main__":
    unittest.main()
