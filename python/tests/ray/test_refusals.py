"""What is not there or not as it should be: one clear exception each, with what to do."""

import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import demask
import demask_ray
import ray
from shared import OnCluster, question
from demask_ray._routing import chosen, prefix_of, ranked
from demask_ray._scaling import replicas

PYTHON = Path(__file__).resolve().parent


def said(program):
    """What a program of its own prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr[-500:]


class Absent(unittest.TestCase):
    def test_ray_is_asked_for_when_it_is_needed(self):
        for use in ("app()", "Generator", "evaluate('wordmath', out='x')", "PrefixRouter"):
            told = said(
                "import sys; sys.modules['ray'] = None\n"
                "import demask_ray\n"
                "demask_ray.Model('a/b', threads=2)\n"
                f"try: demask_ray.{use} if {use!r} != 'Generator' else demask_ray.generate(None)\n"
                "except demask_ray.RayMissing as error: print(type(error).__mro__[1].__name__, error)\n"
            )
            self.assertTrue(told.startswith("ImportError ray."), (use, told))
            self.assertIn("pip install 'demask[ray]'", told)

    def test_demask_is_asked_for_where_it_is_missing(self):
        told = said(
            "import sys; sys.modules['demask'] = None\n"
            "import demask_ray\n"
            "try: demask_ray.app()\n"
            "except demask_ray.WorkerError as error: print(error)\n"
        )
        self.assertIn("package demask cannot be imported", told)
        self.assertIn("pip install 'demask[ray]' on every node", told)

    def test_unknown_names_are_told_with_those_there_are(self):
        with self.assertRaises(AttributeError) as caught:
            demask_ray.serve
        self.assertIn("expected one of Autoscale, Generator, ", str(caught.exception))


class Options(unittest.TestCase):
    def test_a_models_options(self):
        for keywords, error, told in (
            ({"name": 3}, TypeError, "name is 3 (int): expected str or PathLike"),
            ({"threads": 0}, ValueError, "threads is 0: expected at least 1"),
            ({"threads": None}, TypeError, "threads is None (NoneType): expected int"),
            ({"threads": True}, TypeError, "threads is True (bool): expected int"),
            ({"quantize": 8}, TypeError, "quantize is 8 (int): expected str"),
            ({"prefix_cache": -1}, ValueError, "prefix_cache is -1: expected at least 0"),
            ({"guide": 3}, TypeError, "guide is 3 (int): expected str or Mapping"),
        ):
            with self.subTest(keywords), self.assertRaises(error) as caught:
                demask_ray.Model(**keywords)
            self.assertEqual(str(caught.exception), told)
        with self.assertRaises(TypeError) as caught:
            demask_ray.app(3)
        self.assertIn("expected a name, a path, a demask_ray.Model or None (the demo)", str(caught.exception))
        # What no node can take is the engine's to say, and says it before anything starts where that is possible.
        with self.assertRaises(demask.errors.OptionsError):
            demask_ray.Model(quantize="q7").load()

    def test_an_apps_options(self):
        for keywords, error, told in (
            ({"replicas": 0}, ValueError, "replicas is 0: expected at least 1"),
            ({"replicas": "2"}, TypeError, "replicas is '2' (str): expected int"),
            ({"fronts": 0}, ValueError, "fronts is 0"),
            ({"ongoing": 0}, ValueError, "ongoing is 0"),
            ({"queued": -1}, ValueError, "queued is -1: expected at least 0"),
            ({"retry_after": 1.5}, TypeError, "retry_after is 1.5 (float): expected int"),
            ({"drain": -1}, ValueError, "drain is -1: expected seconds, 0 or more"),
            ({"drain": float("nan")}, ValueError, "drain is nan"),
            ({"prefixes": 1}, TypeError, "prefixes is 1 (int): expected bool"),
            ({"names": "pears"}, TypeError, "names is 'pears' (str): expected a list of names"),
            ({"names": [3]}, TypeError, "names is [3] (list): expected a list of names"),
            ({"max_gen_length": 0}, ValueError, "max_gen_length is 0"),
            ({"body_bytes": 0}, ValueError, "body_bytes is 0"),
            ({"actor": 3}, TypeError, "actor is 3 (int): expected Mapping"),
            ({"autoscale": 4}, TypeError, "autoscale is 4 (int): expected Autoscale or Mapping"),
            ({"autoscale": {"max": 4}}, TypeError, "expected keywords of demask_ray.Autoscale"),
            ({"autoscale": {"least": 3, "most": 2}}, ValueError, "least is 3 and most 2"),
            ({"autoscale": {"most": 2}, "replicas": 3}, ValueError, "expected 1 to 2"),
            ({"autoscale": {"every": 0}}, ValueError, "look_back and every"),
            ({"autoscale": {"rows": 0}}, ValueError, "rows is 0: expected at least 1"),
            ({"modle": "x"}, TypeError, "modle"),
        ):
            with self.subTest(keywords), self.assertRaises(error) as caught:
                demask_ray.app(**keywords)
            self.assertIn(told, str(caught.exception))


class Rules(unittest.TestCase):
    def test_a_prefix_is_what_prompts_begin_with(self):
        system = '{"role": "system", "content": "' + "Be brief. " * 40 + '"}'
        one = b'{"messages": [' + system.encode() + b', {"role": "user", "content": "3+4?"}]}'
        self.assertEqual(prefix_of(one), prefix_of(one.replace(b"3+4?", b"5+6?")))
        self.assertNotEqual(prefix_of(one), prefix_of(one.replace(b"Be brief", b"Be quick")))
        self.assertNotEqual(prefix_of(one), prefix_of(one.replace(b'{"messages"', b'{"cache_salt": "a", "messages"')))
        self.assertEqual(prefix_of(b'{"prompt": "abc"}'), prefix_of(b'{"prompt": ["abc", "d"], "seed": 4}'))
        self.assertEqual(prefix_of(b'{"prompt": [1, 2]}'), prefix_of(b'{"prompt": [[1, 2], [3]]}'))
        self.assertNotEqual(prefix_of(b'{"prompt": [1, 2]}'), prefix_of(b'{"prompt": [1, 3]}'))
        for body in (b"", b"[]", b"{", b'{"input": 3}', b'{"prompt": 3}', b"\xff", b"[" * 100000):
            self.assertIsNone(prefix_of(body))

    def test_a_key_stays_where_it_is_when_others_come_and_go(self):
        names = [f"replica {number}" for number in range(8)]
        keys = [f"key {number}" for number in range(400)]
        homes = {key: names[ranked(key, names)[0]] for key in keys}
        self.assertGreater(min(list(homes.values()).count(name) for name in names), 25)
        fewer = names[:-1]
        moved = [key for key in keys if fewer[ranked(key, fewer)[0]] != homes[key]]
        self.assertEqual({homes[key] for key in moved}, {names[-1]})

    def test_who_is_much_fuller_than_the_others_comes_behind_them(self):
        self.assertEqual(chosen([2, 0, 1], [5, 5, 9], 8), [2, 0, 1])
        self.assertEqual(chosen([2, 0, 1], [0, 5, 9], 8), [0, 1, 2])
        self.assertEqual(chosen([], [], 8), [])

    def test_replicas_are_worth_their_rows(self):
        self.assertEqual(replicas(0, 0, 0, 512), 0)
        self.assertEqual(replicas(300, 1, 0, 512), 1)
        self.assertEqual(replicas(2000, 5, 0, 512), 4)
        self.assertEqual(replicas(2000, 5, 5, 512), 8, "queued requests count as the mean of the open ones")
        self.assertEqual(replicas(0, 0, 3, 512), 3)


class OnWorkers(OnCluster):
    def test_a_model_that_does_not_load_ends_the_deployment_with_its_reason(self):
        began = time.monotonic()
        with self.assertRaises(demask_ray.WorkerError) as caught:
            demask_ray.deploy(demask_ray.app("/nowhere/model"))
        self.assertIn("'/nowhere/model' does not load: ", str(caught.exception))
        self.assertIn("every node of the cluster has to reach the model", str(caught.exception))
        self.assertLess(time.monotonic() - began, 60)

    def test_a_wrong_word_for_the_engine_ends_the_deployment_with_its_reason(self):
        with self.assertRaises(demask_ray.WorkerError) as caught:
            demask_ray.deploy(demask_ray.app(demask_ray.Model(quantize="q7")))
        self.assertIn("q7", str(caught.exception))

    def test_a_worker_without_demask_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "demask").mkdir()
            (Path(folder) / "demask" / "__init__.py").write_text("raise ImportError('no such package')\n")
            actor = {"runtime_env": {"env_vars": {"PYTHONPATH": folder}}}
            data = ray.data.from_items([{"key": 1, "prompt": question(1)}])
            for call in (
                lambda: demask_ray.generate(data, actor=actor).take_all(),
                lambda: demask_ray.evaluate("wordmath", out=Path(folder) / "out", limit=2, actor=actor),
                lambda: demask_ray.deploy(demask_ray.app(actor=actor)),
            ):
                with self.assertRaises(Exception) as caught:
                    call()
                self.assertIn("package demask cannot be imported (no such package): pip install", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
