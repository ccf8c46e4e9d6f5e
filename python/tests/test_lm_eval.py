"""The package as a model of lm-evaluation-harness. Where the harness is not installed, a stand-in of its base class serves."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import demask
import pytest
from conftest import QUESTION, ROOT, questions

INSTALLED = importlib.util.find_spec("lm_eval") is not None
GREEDY = {"until": ["\n"], "do_sample": False, "max_gen_toks": 64, "temperature": 0.0}


class Asked:
    """A request of the harness, as far as models look at it."""

    def __init__(self, *args: Any) -> None:
        self.args = args


class Kept:
    """What the harness keeps of answers."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Any, Any]] = []

    def add_partial(self, kind: str, request: Any, found: Any) -> None:
        self.found.append((kind, request, found))


def stand_in() -> dict[str, types.ModuleType]:
    """Returns the parts of the harness that the package names."""
    names = ("lm_eval", "lm_eval.__main__", "lm_eval.api", "lm_eval.api.model", "lm_eval.api.registry", "lm_eval.utils")
    modules: dict[str, Any] = {name: types.ModuleType(name) for name in names}
    modules["lm_eval.__main__"].cli_evaluate = lambda: None
    modules["lm_eval.api.model"].LM = type("LM", (), {})
    modules["lm_eval.api.registry"].register_model = lambda *names: lambda of: of
    modules["lm_eval.utils"].simple_parse_args_string = lambda text: dict(one.split("=", 1) for one in text.split(","))
    return modules


@pytest.fixture(scope="module")
def harness() -> Iterator[Any]:
    """The module under test."""
    added = {} if INSTALLED else stand_in()
    sys.modules.update(added)
    yield importlib.import_module("demask.lm_eval")
    for name in (*added, "demask.lm_eval"):
        del sys.modules[name]
    del vars(demask)["lm_eval"]


def model(harness: Any, name: str, **settings: Any) -> Any:
    """Returns a model of the harness."""
    found = harness.Demask(name if name == "demo" else str(ROOT / "demo" / name), **settings)
    found.cache_hook = Kept()
    return found


def test_answers_are_the_models_and_end_where_the_task_says(harness: Any) -> None:
    own = model(harness, "demo", batch_size=4, decoder="static")
    prompts = [own.apply_chat_template([{"role": "user", "content": question}]) for question in questions(6)]
    found = own.generate_until([Asked(prompt, GREEDY) for prompt in prompts], disable_tqdm=True)
    alone = [own.model.generate(demask.Raw(prompt), stop=["\n"], max_tokens=64, decoder="static") for prompt in prompts]
    assert found == [answer.text for answer in alone] and all(text and "\n" not in text for text in found)
    told = own.get_model_info()
    assert (told["demask_answers"], told["demask_nfe"]) == (6, sum(answer.nfe for answer in alone))
    assert [one[2] for one in own.cache_hook.found] == found
    own.model.close()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (GREEDY, {"stop": ["\n"], "max_tokens": 64}),
        ({"until": "Q:", "max_new_tokens": 8}, {"stop": ["Q:"], "max_tokens": 8}),
        ({"until": ["", None], "num_beams": 1, "repetition_penalty": 1}, {"stop": None}),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0.9}, {}),
        ({"do_sample": True, "top_p": 0.9}, {"top_p": 0.9, "temperature": 1.0}),
        ({"temperature": 0.7, "top_k": 5}, {"temperature": 0.7, "top_k": 5}),
    ],
)
def test_what_a_task_asks_of_generation(harness: Any, asked: dict[str, Any], found: dict[str, Any]) -> None:
    assert harness.options(asked) == found


def test_what_demask_cannot_do_for_a_task_is_refused(harness: Any) -> None:
    with pytest.raises(demask.errors.OptionsError, match="the task asks for num_beams=4"):
        harness.options({"num_beams": 4})
    with pytest.raises(demask.errors.OptionsError, match="wrong is no setting of a model or of an answer"):
        harness.Demask("demo", wrong=1)
    for wrong in (0, "many", "-1"):
        with pytest.raises(demask.errors.OptionsError, match=f"batch_size is {wrong}, expected a whole number from 1 on, or auto"):
            harness.Demask("demo", batch_size=wrong)


def test_several_answers_to_a_prompt_have_seeds_of_their_own(harness: Any) -> None:
    own = model(harness, "demo", decoder="static", cache="dual", seed=3)
    prompt = own.apply_chat_template([{"role": "user", "content": QUESTION}])
    asked = Asked(prompt, {"do_sample": True, "temperature": 6.0, "max_gen_toks": 64})
    found = own.generate_until([asked] * 4, disable_tqdm=True)
    alone = [
        str(own.model.generate(demask.Raw(prompt), temperature=6.0, max_tokens=64, seed=seed, decoder="static", cache="dual"))
        for seed in (3, 4, 5, 6)
    ]
    assert found == alone and len(set(found)) > 1
    own.model.close()


def test_likelihoods_of_an_autoregressive_model_say_what_is_greedy(harness: Any) -> None:
    own = model(harness, "demo-qwen")
    prompt = own.apply_chat_template([{"role": "user", "content": QUESTION}])
    greedy = own.model.generate(demask.Raw(prompt), max_tokens=4).text
    pairs = [(prompt, greedy), (prompt, "Ada Ada"), ("", greedy)]
    found = own.loglikelihood([Asked(*pair) for pair in pairs])
    assert [is_greedy for _, is_greedy in found] == [True, False, False]
    assert found[0][0] == own.model.score(demask.Raw(prompt), greedy).log_probability > found[1][0]
    assert own.loglikelihood_rolling([Asked(greedy)]) == [found[2][0]]
    own.model.close()


def test_likelihoods_of_a_diffusion_model_are_bounds_from_draws(harness: Any) -> None:
    own = model(harness, "demo", draws=4)
    [(value, greedy)] = own.loglikelihood([Asked("3+4=", "7 pears.")])
    assert value == own.model.score(demask.Raw("3+4="), "7 pears.", draws=4).log_probability and not greedy
    own.model.close()


def test_a_model_without_likelihoods_refuses_them_in_a_line(harness: Any) -> None:
    own = model(harness, "demo-sdar")
    with pytest.raises(demask.errors.OptionsError, match="have no estimate of a text's likelihood"):
        own.loglikelihood([Asked("3+4=", "7 pears.")])
    own.model.close()


def test_the_harness_default_device_is_no_wish(harness: Any) -> None:
    flags = {"device": "cuda:0", "batch_size": "auto", "max_batch_size": None}
    for own in (
        harness.Demask.create_from_arg_string("model=demo,decoder=static", flags),
        harness.Demask.create_from_arg_obj({"model": "demo", "device": "cpu"}, flags | {"device": "cuda:1"}),
    ):
        assert own.model.info["device"].startswith("cpu") and own.batch == 64
        own.model.close()


@pytest.mark.long
def test_the_harness_own_command_knows_the_model(tmp_path: Any) -> None:
    assert INSTALLED, "the long tests need lm-eval: tools/python/wheel.py --long installs it"
    tasks = {"wordmath": ("demo", ["--apply_chat_template"]), "wordmath_choice": (str(ROOT / "demo/demo-qwen"), [])}
    for task, (name, more) in tasks.items():
        words = ["run", "--model", "demask", "--model_args", f"model={name}", "--tasks", task, "--limit", "20", "--batch_size", "auto"]
        folders = ["--include_path", str(ROOT / "bench/lm_eval"), "--output_path", str(tmp_path / task)]
        # The tasks name their file from the root of the repository.
        subprocess.run([sys.executable, "-m", "demask.lm_eval", *words, *folders, *more], check=True, cwd=ROOT, timeout=600)
        [file] = (tmp_path / task).rglob("results_*.json")
        found = json.loads(file.read_text())
        assert found["config"]["demask_name"] in ("demo-llada", "demo-qwen")
        metric = "exact_match,last-number" if task == "wordmath" else "acc,none"
        assert found["results"][task][metric] >= (0.8 if task == "wordmath" else 0.0)
