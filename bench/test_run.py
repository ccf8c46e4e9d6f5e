"""The runner on builds that are made up: whose turn it is, what is made of the turns, what is refused, what goes on."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import definition
import run
import turns
from subjects import Bench

# A build that notes its name and words in the log beside its folder, and prints the reply that is beside it.
BUILD = """#!/bin/sh
here=$(dirname "$0")
case "$1" in
doctor) echo '{"cpu": {"model": "A Processor"}, "defaults": []}' ;;
--version) echo "demask of $(basename "$here")" ;;
*) echo "$(basename "$here") $(basename "$0") $*" >>"$here/../log"; cat "$here/reply"; [ ! -e "$here/fails" ] ;;
esac
"""
ROW = {"items": 4, "correct": 3, "nfe": 30.5, "seconds_per_item": 0.004}


class MadeUp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def build(self, name, **changed):
        here = self.folder / name
        here.mkdir()
        for program in ("demask", "demask-lab"):
            (here / program).write_text(BUILD)
            (here / program).chmod(0o755)
        (here / "reply").write_text(json.dumps({"rows": [{**ROW, **changed}]}))
        return str(here / "demask")

    def log(self):
        return [line.split() for line in (self.folder / "log").read_text().splitlines()]

    def measured(self, *words):
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
            run.main(words)
        return told.getvalue().splitlines()

    def define(self, text):
        """Definitions of this text alone, named `made-up`."""
        (self.folder / "made-up.toml").write_text(text)
        there, definition.FOLDER = definition.FOLDER, self.folder
        self.addCleanup(setattr, definition, "FOLDER", there)


class Turns(MadeUp):
    def test_builds_take_turns(self):
        out = self.folder / "new/record.json"
        builds = ["--demask", self.build("new"), "--against", self.build("old", seconds_per_item=0.005)]
        lines = self.measured("scheduler", *builds, "--rounds", "2", "--out", str(out))
        # A round that is not counted, then every other one begins with the other build.
        order = ["old", "new", "new", "old", "old", "new"]
        self.assertEqual([line[0] for line in self.log()], order * 2)
        self.assertEqual([line[line.index("--cache") + 1] for line in self.log()], ["none"] * 6 + ["dual"] * 6)
        self.assertTrue(all("demask-lab" == line[1] and "--batch 16 --limit 100" in " ".join(line) for line in self.log()))
        self.assertIn("| cache | subject | seconds, s of a problem | processor seconds, s of processors | over demask, against |", lines)
        self.assertTrue(any(line.startswith("| none | demask | 0.004 (0.004 to 0.004) |") for line in lines))
        self.assertTrue(any(line.endswith("| 0.8 (0.8 to 0.8) |") for line in lines))
        record = json.loads(out.read_text())
        self.assertEqual(record["machine"], {"cpu": {"model": "A Processor"}})
        self.assertEqual(record["programs"], {"demask": "demask of new", "against": "demask of old"})
        self.assertNotIn("unfinished", record)
        dual = next(result for result in record["results"] if result["at"] == {"cache": "dual"})
        self.assertEqual(dual["subjects"]["demask"]["over"]["demask, against"]["seconds"]["values"], [0.8, 0.8])
        self.assertEqual(dual["subjects"]["demask"]["figures"]["seconds"]["values"], [0.004, 0.004])
        self.assertTrue(dual["subjects"]["demask"]["command"].startswith("demask-lab eval wordmath --model demo/demo-llada"))

    def test_one_build_alone(self):
        lines = self.measured("scheduler", "--demask", self.build("only"), "--rounds", "1", "cache=dual")
        self.assertEqual(len(self.log()), 2)
        self.assertIn("| dual | demask | 0.004 |", " ".join(lines))

    def test_other_work_is_told(self):
        builds = ["--demask", self.build("new", nfe=31.0, correct=2), "--against", self.build("old")]
        lines = self.measured("scheduler", *builds, "--rounds", "1", "cache=none")
        told = [
            "correct of demask is 2, of demask, against 3: not the same work",
            "nfe of demask is 31.0, of demask, against 30.5: not the same work",
        ]
        self.assertEqual(lines[-2:], told)

    def test_an_interrupted_call_goes_on_where_it_was(self):
        build, out = self.build("only"), self.folder / "record.json"
        words = ["scheduler", "--demask", build, "--rounds", "2", "--out", str(out)]
        self.measured(*words, "cache=none")
        record = json.loads(out.read_text())
        # As if it had ended within the next cell.
        key = {"part": "", "cell": {"cache": "dual"}}
        (self.folder / "log").unlink()
        out.write_text(json.dumps(record | {"unfinished": key | {"turns": {"demask": [{"seconds": 9.0, "items": 4}]}}}))
        self.measured(*words)
        self.assertEqual(len(self.log()), 2, "a round that does not count, and the one that is missing")
        results = json.loads(out.read_text())["results"]
        self.assertEqual([result["at"]["cache"] for result in results], ["none", "dual"])
        self.assertEqual(results[1]["subjects"]["demask"]["figures"]["seconds"]["values"], [9.0, 0.004])
        with self.assertRaisesRegex(SystemExit, "a record of other values"):
            self.measured(*words, "limit=5")

    def test_programs_take_turns_and_a_failure_is_no_measurement(self):
        build = self.build("only")
        lines = self.measured("programs", "--demask", build, "first=true x", "second=true", "--rounds", "3")
        self.assertTrue(any(line.startswith("| second |") for line in lines))
        with self.assertRaisesRegex(SystemExit, "false.* failed with status 1"):
            self.measured("programs", "--demask", build, "first=false", "second=true")

    def test_recipes_have_a_record_each(self):
        build, out = self.build("only"), str(self.folder / "{recipe}.json")
        work = self.folder / "work"
        for name in ("a", "b"):
            (work / name).mkdir(parents=True)
            (work / name / "summary.json").write_text(json.dumps({"title": name, "rows": []}))
        self.measured("papers", "--demask", build, "--work", str(work), "--out", out, "recipe=a,b")
        record = json.loads((self.folder / "b.json").read_text())
        self.assertEqual(record["results"][0]["subjects"]["eval"]["output"], {"title": "b", "rows": []})
        self.assertEqual(len(record["results"]), 1)

    def test_a_folder_without_the_laboratory_is_refused(self):
        build = self.build("only")
        Path(build).with_name("demask-lab").unlink()
        with self.assertRaisesRegex(SystemExit, "demask-lab is no program: expected demask and demask-lab in one folder"):
            self.measured("scheduler", "--demask", build)


class Points(MadeUp):
    TEXT = """
    about = "x"
    [given]
    rows = [4, 8]
    [units]
    seconds = "s"
    [[parts]]
    over = "ours"
    rounds = 2
    [[parts.subjects]]
    name = "ours"
    run = "{lab} bench --rows {rows}"
    by = "rows"
    figures = { seconds = "s", kind = "kind" }
    derived = { share = "seconds / whole.wall", half = "seconds / 2", none = "seconds / nobody.seconds" }
    [[parts.subjects]]
    name = "whole"
    run = "{lab} all"
    [[parts.subjects]]
    name = "not here"
    python = "made_up:Nothing"
    rival = true
    """

    def test_entries_are_points_and_a_rival_that_is_not_installed_is_left_out(self):
        self.define(self.TEXT)
        build, out = self.build("only"), self.folder / "record.json"
        entries = [{"rows": rows, "s": rows / 10, "kind": "k"} for rows in (4, 8)]
        (self.folder / "only/reply").write_text(json.dumps(entries))
        lines = self.measured("made-up", "--demask", build, "--out", str(out))
        record = json.loads(out.read_text())
        self.assertEqual(list(record["missing"]), ["not here"])
        self.assertEqual([result["at"] for result in record["results"]], [{"rows": 4}, {"rows": 8}])
        ours = record["results"][1]["subjects"]["ours"]
        self.assertEqual((ours["figures"]["half"]["median"], ours["facts"]["kind"]), (0.4, "k"))
        self.assertIn("share", ours["figures"])
        self.assertNotIn("none", ours["figures"])
        self.assertIn("whole", record["results"][0]["subjects"])
        self.assertIn("| 8 | ours | 0.8 (0.8 to 0.8) |", " ".join(lines))


class Definitions(MadeUp):
    NEEDS = {"file": "F", "model": "M", "first": "true", "second": "true"}

    def test_every_definition_is_one(self):
        """All of its commands can be written, and each subject in Python is a class of a file of subjects/."""
        self.assertGreaterEqual(len(definition.names()), 15)
        for name in definition.names():
            found = definition.read(name)
            given = [f"{need}={self.NEEDS[need]}" for need in found.get("needs", {})]
            told = io.StringIO()
            with contextlib.redirect_stdout(told):
                run.main([name, "--demask", "/nowhere/demask", "--dry-run", *given])
            self.assertTrue(told.getvalue(), name)
            for subject in [subject for part in found["parts"] for subject in part["subjects"]]:
                if "python" in subject:
                    file, _, kind = subject["python"].partition(":")
                    source = (Path(definition.__file__).parent / f"subjects/{file}.py").read_text()
                    self.assertIn(f"class {kind}", source, name)
            subjects = [subject for part in found["parts"] for subject in part["subjects"]]
            if all("run" in subject for subject in subjects):
                known = {key for one in subjects for kind in ("figures", "derived") for key in one.get(kind, {})}
                self.assertLessEqual(set(found["units"]), known | {"wall", "processor"}, name)

    def test_all_recipes_of_the_demo_are_those_of_the_papers(self):
        recipes = definition.read("papers")["parts"][0]["axes"]["recipe"]
        self.assertCountEqual(recipes, (path.stem for path in (run.ROOT / "recipes/demo").glob("*.toml")))

    def test_mistakes_are_told(self):
        build = self.build("only")
        for words, message in (
            (["nothing"], "no definition 'nothing': expected one of autoregression, "),
            (["rivals"], "file=VALUE is missing: a GGUF file"),
            (["scheduler", "limits=3"], "gives nothing that is known: expected NAME=VALUE with one of model, decoder, "),
            (["scheduler", "limit=x"], "limit=x is no int"),
        ):
            with self.assertRaises(SystemExit) as ended:
                self.measured(*words, "--demask", build)
            self.assertIn(message, str(ended.exception))
        for text, message in (
            ('about = "x"\nrounds = 1', "unknown key 'rounds'"),
            ('about = "x"\n[[parts]]\n[[parts.subjects]]\nname = "a"\nrun = "x"\nfigure = 1', "unknown key 'figure'"),
            ('about = "x"\n[[parts]]\n[[parts.subjects]]\nname = "a"', "has both run and python, or none"),
            ('about = "x"\n[[parts]]\n[[parts.subjects]]\nname = "a"\nrun = "{nothing}"', "{nothing} is unknown"),
        ):
            self.define(text)
            with self.assertRaises(SystemExit) as ended:
                self.measured("made-up", "--demask", build)
            self.assertIn(message, str(ended.exception))

    def test_a_value_is_one_word_unless_it_begins_with_a_dash(self):
        values = {"one": "a b", "more": "--c d", "none": "", "list": [1, 2]}
        words = definition.words("x {one} {more} {none} --rows {list} '{\"a\": 1}'", values)
        self.assertEqual(words, ["x", "a b", "--c", "d", "--rows", "1,2", '{"a": 1}'])

    def test_paths_of_this_machine_are_not_shown(self):
        bench = Bench(run.Programs("/x/demask"), Path("/tmp/work"))
        self.assertEqual(bench.shown(["/x/demask-lab", "/x/demask", "/tmp/work/a"]), "demask-lab demask WORK/a")


class Statistics(unittest.TestCase):
    def test_ratios_are_of_turns_not_of_medians(self):
        found = turns.summary({"ours": [{"s": 1.0}, {"s": 2.0}, {"s": 4.0}], "theirs": [{"s": 2.0}, {"s": 2.0}, {"s": 2.0}]}, [("theirs", "ours")])
        over = found["theirs"]["over"]["ours"]["s"]
        self.assertEqual((over["median"], over["least"], over["most"]), (1.0, 0.5, 2.0))
        self.assertNotIn("over", found["ours"])

    def test_one_value_is_its_own_spread(self):
        found = turns.spread([3.0])
        self.assertEqual((found["median"], found["quartiles"]), (3.0, [3.0, 3.0]))
        self.assertNotIn("interval", turns.ratio([3.0], [1.0]))

    def test_the_interval_of_a_mean_is_students(self):
        # 20 rounds: 2.093 standard errors.
        low, high = turns.ratio([1.0, 2.0] * 10, [1.0] * 20)["interval"]
        self.assertAlmostEqual((low + high) / 2, 1.5)
        self.assertAlmostEqual((high - low) / 2, 2.093 * 0.512989 / 20**0.5, places=5)

    def test_a_figure_that_a_turn_lacks_is_left_out(self):
        found = turns.summary({"a": [{"s": 1.0, "t": None, "kind": "k"}, {"s": 2.0, "t": 1.0, "kind": "k"}]})
        self.assertEqual(list(found["a"]["figures"]), ["s"])
        self.assertEqual(found["a"]["facts"], {"kind": "k"})


if __name__ == "__main__":
    unittest.main()
