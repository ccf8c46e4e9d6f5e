"""The parts of rivals.py that need no rival."""

import argparse
import unittest

import rivals


class Rivals(unittest.TestCase):
    def test_ratios_are_of_turns_not_of_medians(self):
        turns = {
            "demask": [{8: {"step": 1.0, "layers": 0.6, "head": 0.4}}, {8: {"step": 4.0, "layers": 3.0, "head": 1.0}}],
            "other": [{8: {"step": 2.0}}, {8: {"step": 12.0}}],
        }
        (line,) = rivals.summary(turns, [8])
        self.assertEqual(line["other"]["over_demask"]["median"], 2.5)
        self.assertNotIn("head", line["other"])
        self.assertEqual(line["demask"]["head"]["median"], 0.7)
        self.assertIn("2.50 x demask", rivals.shown([line]))

    def test_one_value_is_its_own_spread(self):
        self.assertEqual(rivals.spread([3.0]), {"median": 3.0, "quartiles": [3.0, 3.0]})

    def test_answers_need_a_name_and_a_command(self):
        self.assertEqual(rivals.named("ours=demask generate --model {file}"), ("ours", "demask generate --model {file}"))
        for wrong in ("demask", "=demask", "ours="):
            with self.assertRaises(argparse.ArgumentTypeError):
                rivals.named(wrong)

    def test_programs_take_turns(self):
        found = rivals.answers([("a", "true {file}"), ("b", "true")], "x.gguf", 3)
        self.assertEqual(found["a"]["over_first"]["median"], 1.0)
        with self.assertRaises(SystemExit) as refused:
            rivals.answers([("a", "false")], "x.gguf", 1)
        self.assertIn("false failed", str(refused.exception))

    def test_a_turn_keeps_the_parts_that_a_rival_has(self):
        class Rival:
            has_parts = True

            def seconds(self, rows, all_logits):
                return 3.0 if all_logits else 2.0

        self.assertEqual(rivals.of_rival(Rival(), [4], 3), {4: {"step": 3.0, "head": 1.0, "layers": 2.0}})


if __name__ == "__main__":
    unittest.main()
