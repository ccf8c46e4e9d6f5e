"""Batches on Ray Data: the same bytes whoever answers them, and each row once, whatever ends in between."""

import random
import threading
import time
import unittest

import demask
import demask_ray
import ray
from shared import BLOCKS, Machines, OnCluster, engine, question
from demask_ray import _batches

# Every answer depends on its seed.
OPTIONS = {"gen_length": 32, "temperature": 0.9}


def rows(count):
    return [{"key": number, "prompt": question(number), "place": number * 2} for number in range(count)]


def answered(rows, workers, blocks=8, model=None, options=OPTIONS, **keywords):
    """The rows with their answers, by key."""
    dataset = ray.data.from_items(rows, override_num_blocks=blocks)
    done = demask_ray.generate(dataset, model, workers=workers, batch=4, options=options, **keywords).take_all()
    return sorted(done, key=lambda row: row["key"])


class Batches(OnCluster):
    def setUp(self):
        super().setUp()
        ray.data.DataContext.get_current().enable_progress_bars = False

    def test_workers_order_and_reruns_change_no_byte(self):
        one = answered(rows(60), workers=1)
        shuffled = rows(60)
        random.Random(1).shuffle(shuffled)
        two = answered(shuffled, workers=2, blocks=11)
        self.assertEqual(one, two)
        self.assertEqual(list(one[0]), ["key", "prompt", "place", "text", "finish", "receipt", "nfe", "seed"])
        self.assertEqual([row["place"] for row in one], [number * 2 for number in range(60)])
        self.assertGreater(len({row["seed"] for row in one}), 59)
        with engine() as alone:
            for row in one:
                same = alone.generate(row["prompt"], seed=row["seed"], **OPTIONS)
                self.assertEqual((row["text"], row["finish"], row["nfe"]), (same.text, same.finish_reason, same.nfe))

    def test_keys_of_texts_and_another_seed(self):
        texts = [{**row, "key": f"row {row['key']}"} for row in rows(6)]
        first, again = answered(texts, 1), answered(texts, 1, seed=5)
        self.assertNotEqual([row["seed"] for row in first], [row["seed"] for row in again])
        self.assertNotEqual(demask_ray.seed_of("7"), demask_ray.seed_of(7))
        self.assertEqual(demask_ray.seed_of("row 0"), first[0]["seed"])

    def test_conversations_and_tokens_are_prompts_too(self):
        with engine() as alone:
            talk = [{"role": "user", "content": question(1)}]
            tokens = alone.tokenizer.encode("3+4=")
            for prompt, same in ((talk, talk), (tokens, demask.Tokens(tokens))):
                [row] = answered([{"key": 1, "prompt": prompt}], 1)
                self.assertEqual(row["text"], alone.generate(same, seed=row["seed"], **OPTIONS).text)

    def test_a_node_that_ends_costs_no_row_and_makes_none_twice(self):
        slow = {"gen_length": 64, "decoder": "static", "cache": "none", "ignore_eos": True}
        wanted = rows(160)
        lost = threading.Timer(4, Machines.lose_a_node)
        lost.start()
        began = time.monotonic()
        found = answered(wanted, workers=(1, 2), blocks=40, options=slow)
        took = time.monotonic() - began
        lost.join()
        self.assertGreater(took, 5, "the node ended while the job ran")
        self.assertEqual([row["key"] for row in found], [row["key"] for row in wanted])
        Machines.whole()
        self.assertEqual(found, answered(wanted, workers=2, blocks=40, options=slow))

    def test_rows_that_cannot_be_answered(self):
        mixed = [*rows(3), {"key": 3, "prompt": "7" * 5000, "place": 0}]
        found = answered(mixed, 1, errors="column")
        self.assertEqual([row["finish"] == "error" for row in found], [False, False, False, True])
        self.assertEqual([row["error"] for row in found[:3]], ["", "", ""])
        self.assertIn("exceed the model's context", found[3]["error"])
        self.refused("the row of key 3 cannot be answered: ", lambda: answered(mixed, 1))

    def test_wrong_columns_and_keys_are_told_in_one_line(self):
        data = ray.data.from_items(rows(4))
        told = "no column 'question' for prompts: the dataset has 'key', 'prompt', 'place'; name it with prompt="
        self.refused(told, lambda: demask_ray.generate(data, prompt="question").take_all())
        self.refused(told, lambda: self.mapped(data, prompt="question"))
        self.refused("no column 'id' for keys", lambda: demask_ray.generate(data, key="id").take_all())
        taken = ray.data.from_items([{**row, "text": ""} for row in rows(4)])
        self.refused("column 'text' is there already: rename it", lambda: demask_ray.generate(taken).take_all())
        # What a column has no value for comes as a number that is none.
        for key, shown in ((1.5, "1.5 (float)"), (None, "nan (float)"), ([1], "[1] (list)"), (True, "True (bool)")):
            wrong = ray.data.from_items([{"key": key, "prompt": "3"}])
            self.refused(f"a key is {shown}: expected a text", lambda wrong=wrong: demask_ray.generate(wrong).take_all())
        for prompt in (3, [], [1.5], None):
            wrong = ray.data.from_items([{"key": 1, "prompt": prompt}])
            self.refused("expected a text, a conversation", lambda wrong=wrong: demask_ray.generate(wrong).take_all())
        self.refused("batch_format='numpy'", lambda: self.mapped(data, batch_format="pandas"))

    def test_wrong_options_end_the_job_with_their_own_words(self):
        data = ray.data.from_items(rows(4))
        unknown = {"gen_lenght": 32}
        self.refused('did you mean "gen_length"?', lambda: demask_ray.generate(data, options=unknown).take_all())
        self.refused("gen_length", lambda: demask_ray.generate(data, options={"gen_length": "long"}).take_all())
        no_such = demask_ray.Model("/nowhere/model")
        self.refused("'/nowhere/model' does not load: ", lambda: demask_ray.generate(data, no_such).take_all())

    def mapped(self, data, batch_format="numpy", **keywords):
        pool = ray.data.ActorPoolStrategy(size=1)
        mapped = data.map_batches(
            demask_ray.Generator, fn_constructor_kwargs=keywords, batch_format=batch_format, compute=pool, num_cpus=1
        )
        return mapped.take_all()

    def refused(self, told, call):
        with self.assertRaises(Exception) as caught:
            call()
        self.assertIn(told, str(caught.exception))


class Columns(unittest.TestCase):
    """What needs no cluster."""

    def test_keywords_are_checked_before_anything_runs(self):
        for keywords, error, told in (
            ({"prompt": 3}, TypeError, "prompt is 3 (int): expected str"),
            ({"key": None}, TypeError, "key is None (NoneType): expected str"),
            ({"seed": -1}, ValueError, "seed is -1: expected at least 0"),
            ({"options": 3}, TypeError, "options is 3 (int): expected Mapping"),
            ({"options": {"seed": 3}}, ValueError, "options has a seed: a row's seed is made of its key"),
            ({"errors": "ignore"}, ValueError, "errors is 'ignore' (str): expected 'raise' or 'column'"),
            ({"timings": 1}, TypeError, "timings is 1 (int): expected bool"),
        ):
            with self.subTest(keywords), self.assertRaises(error) as caught:
                demask_ray.Generator(**keywords)
            self.assertIn(told, str(caught.exception))

    def test_a_generator_is_a_function_of_columns(self):
        import numpy

        answers = demask_ray.Generator(demask_ray.Model(BLOCKS), key="id", options={"gen_length": 16}, timings=True)
        batch = {"id": numpy.array(["a", "b"]), "prompt": numpy.array([question(1), question(2)], dtype=object)}
        columns = answers(batch)
        self.assertEqual(list(columns["id"]), ["a", "b"])
        self.assertTrue(all('"seconds":' in receipt for receipt in columns["receipt"]))
        empty = answers({"id": numpy.array([], dtype=object), "prompt": numpy.array([], dtype=object)})
        self.assertEqual({name: len(column) for name, column in empty.items()}, dict.fromkeys(columns, 0))

    def test_a_steady_receipt_has_no_times(self):
        receipt = {"nfe": 3, "seconds": {"total": 1.0}, "memory": {"weights": 5, "peak": 7, "device": {"peak": 6}}}
        self.assertEqual(_batches.steady(receipt), {"nfe": 3, "memory": {"weights": 5}})
