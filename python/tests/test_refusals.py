"""Bad input: each kind gets one clear exception that says what to do, and the engine lives on."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import demask
import numpy as np
import pytest
from conftest import QUESTION

Call = Callable[[demask.Model], object]


@pytest.fixture(autouse=True)
def lives_on(engine: demask.Model) -> Iterator[None]:
    """Whatever was asked, the next answer is right."""
    yield
    assert str(engine.generate(QUESTION)) == "3+4=7 pears.\nThe final answer is 7"


CASES: list[tuple[Call, type[Exception], str]] = [
    # Names.
    (lambda e: e.generate(QUESTION, step=3), TypeError, 'unknown option "step", did you mean "steps"'),
    (lambda e: e.stream(QUESTION, decodr="static"), TypeError, 'did you mean "decoder"'),
    (lambda e: demask.demo(devise="cpu"), TypeError, 'unknown setting "devise", did you mean "device"'),
    (lambda e: e.service(max_que=3), TypeError, "max_que"),
    # Types.
    (lambda e: e.generate(5), TypeError, "the prompt is of type int, expected a str"),
    (lambda e: e.generate(None), TypeError, "the prompt is of type NoneType"),
    (lambda e: e.generate(b"bytes"), TypeError, "the prompt is of type bytes"),
    (lambda e: e.generate([1, 2]), TypeError, "the prompt is of type int"),
    (lambda e: e.generate(np.array([1, 2])), TypeError, "demask.Tokens"),
    (lambda e: e.generate([{"role": "user"}]), TypeError, "expected texts under 'role' and 'content'"),
    (lambda e: e.generate([{"role": "user", "content": 3}]), TypeError, "expected texts"),
    (lambda e: e.generate(QUESTION, steps="x"), TypeError, '`steps` is "x", expected a whole number'),
    (lambda e: e.generate(QUESTION, steps=1.5), TypeError, "`steps` is 1.5, expected a whole number"),
    (lambda e: e.generate(QUESTION, temperature="hot"), TypeError, "expected a number"),
    (lambda e: e.generate(QUESTION, ignore_eos=3), TypeError, "expected true or false"),
    (lambda e: e.generate(QUESTION, seed=object()), TypeError, "a value is of type object"),
    (lambda e: e.generate(QUESTION, each=[{}]), TypeError, "each and errors go with a list"),
    (lambda e: demask.Tokens("12"), TypeError, "token ids are of type str"),
    (lambda e: demask.Tokens([1.5]), TypeError, "a token id is of type float"),
    (lambda e: demask.Tokens([True]), TypeError, "a token id is of type bool"),
    (lambda e: demask.Hole("3"), TypeError, "a hole's size is of type str"),
    (lambda e: demask.Infill(["a", 3]), TypeError, "expected str or demask.Hole"),
    (lambda e: demask.load(3), TypeError, "expected str"),
    (lambda e: demask.demo(threads="2"), TypeError, '`threads` is "2", expected a whole number'),
    (lambda e: demask.demo(device=3), TypeError, "`device` is 3, expected a name"),
    (lambda e: e.generate([QUESTION], each=[3]), TypeError, "each has an entry of type int, expected a dict"),
    (lambda e: e.generate([QUESTION], progress=3), TypeError, "progress is of type int, expected True, False or a function"),
    (lambda e: demask.demo(progress="x"), TypeError, "progress is of type str"),
    (lambda e: e.hidden([1], 1.5), TypeError, "layer is of type float"),
    (lambda e: e.score(QUESTION, 7), TypeError, "the continuation is of type int, expected str"),
    (lambda e: e.decide(QUESTION, "7"), TypeError, "the questions are of type str, expected a list of mappings"),
    (lambda e: e.decide(QUESTION, [7]), TypeError, "a question is of type int, expected a mapping"),
    (lambda e: e.tokenizer.encode(3), TypeError, "the text is of type int, expected str"),
    (lambda e: demask.Chat("demo"), TypeError, "model is of type str, expected what demask.load"),
    (lambda e: asyncio.run(e.http(3, "/")), TypeError, "method is of type int, expected str"),
    (lambda e: asyncio.run(e.http("POST", "/", None, "{}")), TypeError, "use body.encode()"),
    # Values.
    (lambda e: e.serve(port="x"), demask.errors.OptionsError, "`port` is \"x\", expected"),
    (lambda e: e.serve(port=99999), demask.errors.OptionsError, "`port` is 99999, expected"),
    (lambda e: e.generate(QUESTION, seed=2**70), demask.errors.OptionsError, "below 2 to the power of 64"),
    (lambda e: e.generate(QUESTION, steps=-1), demask.errors.OptionsError, "`steps` is -1, expected a whole number from 0 on"),
    (lambda e: e.generate(QUESTION, decoder="treshold"), demask.errors.OptionsError, 'did you mean "threshold"'),
    (lambda e: e.generate(QUESTION, decoder="threshold:tau=9"), demask.errors.OptionsError, "expected a number from 0 to 1"),
    (lambda e: e.generate(QUESTION, decoder="ar"), demask.errors.OptionsError, "ar"),
    (lambda e: e.generate(QUESTION, temperature=-1.0), demask.errors.OptionsError, "temperature"),
    (lambda e: e.generate(QUESTION, temperature=float("nan")), demask.errors.OptionsError, "expected a number"),
    (lambda e: e.generate(QUESTION, top_logprobs=21), demask.errors.OptionsError, "from 0 to 20"),
    (lambda e: e.generate(QUESTION, guide="big"), demask.errors.OptionsError, "guide"),
    (lambda e: e.generate(QUESTION, decoder="guided"), demask.errors.OptionsError, "guide"),
    (lambda e: e.generate(QUESTION, cost_curve="shipped"), demask.errors.OptionsError, "version 0.1.0 had it"),
    (lambda e: e.generate([QUESTION], each=[]), ValueError, "each has 0 options for 1 prompts"),
    (lambda e: e.generate([QUESTION], batch=0), ValueError, "batch is 0, expected a whole number from 1 on"),
    (lambda e: e.generate([QUESTION], batch="8"), TypeError, "batch is of type str"),
    (lambda e: e.generate([QUESTION], errors="ignore"), ValueError, "expected 'raise' or 'return'"),
    (lambda e: demask.demo(device="tpu"), demask.errors.OptionsError, '"tpu" is unknown'),
    (lambda e: demask.demo(threads=10**6), demask.errors.OptionsError, "threads were asked for"),
    (lambda e: demask.demo(threads=-1), demask.errors.OptionsError, "`threads` is -1"),
    (lambda e: e.service(keys="one"), demask.errors.OptionsError, "line 1 of the keys"),
    (lambda e: e.serve("256.0.0.1"), demask.errors.OptionsError, "expected an address of this machine"),
    (lambda e: demask.cost(like="gpt"), demask.errors.OptionsError, "gpt"),
    (lambda e: demask.cost(prompt_tokens=0), demask.errors.OptionsError, "expected at least 1"),
    (lambda e: demask.cost(acceptance=2.0), demask.errors.OptionsError, "expected a share from 0 to 1"),
    (lambda e: demask.Hole(0), ValueError, "expected a whole number from 1 on"),
    (lambda e: demask.SamplingParams(n=0), ValueError, "expected at least 1"),
    # Prompts.
    (lambda e: e.generate("\ud800"), demask.errors.PromptError, "half of a surrogate pair at index 0"),
    (lambda e: e.generate(demask.Raw("a\ud800")), demask.errors.PromptError, "at index 1"),
    (lambda e: e.infill(["\ud800", demask.Hole(1)]), demask.errors.PromptError, "a piece of a text to fill has half"),
    (lambda e: e.chat_template([{"role": "user", "content": "\udfff"}]), demask.errors.PromptError, "a message has half"),
    (lambda e: e.generate(demask.Tokens([10**6])), demask.errors.PromptError, "outside the vocabulary of 489"),
    (lambda e: e.generate(demask.Tokens([1] * 5000)), demask.errors.PromptError, "exceed the model's context"),
    (lambda e: e.generate(QUESTION, gen_length=10**6), demask.errors.PromptError, "lower `gen_length`"),
    (lambda e: e.infill("no hole"), demask.errors.PromptError, "write <mask:N>"),
    (lambda e: e.infill("<mask:x>"), demask.errors.PromptError, "is not the size of a hole"),
    (lambda e: e.infill(["a", demask.Hole(10**6)]), demask.errors.PromptError, "is not the size of a hole"),
    (lambda e: e.score(QUESTION, ""), demask.errors.PromptError, "empty"),
    (lambda e: e.score(QUESTION, "7", draws=0), demask.errors.OptionsError, "expected at least 1"),
    (lambda e: e.decide(QUESTION, []), demask.errors.OptionsError, "there are 0, expected 1 to 400"),
    (lambda e: e.decide(QUESTION, [{"type": "noul"}]), demask.errors.OptionsError, r"`questions\[0\].instructions`: it is missing"),
    (lambda e: e.decide(QUESTION, [{"type": "predicate", "instructions": "\ud800"}]), demask.errors.PromptError, "cannot be read"),
    (lambda e: e.logits([]), demask.errors.PromptError, "no tokens"),
    (lambda e: e.logits([10**6]), demask.errors.PromptError, "outside the vocabulary"),
    (lambda e: e.logits([1] * 5000), demask.errors.PromptError, "exceed the model's context"),
    # Arrays.
    (lambda e: demask.Tokens(np.zeros((2, 2), dtype=np.int64)), ValueError, r"shape \(2, 2\), expected one dimension"),
    (lambda e: demask.Tokens(np.zeros(2)), TypeError, "dtype float64, expected an integer type"),
    (lambda e: demask.Tokens(np.array([-1])), ValueError, "a token id is -1"),
    (lambda e: e.logits(np.zeros((1, 2, 3), dtype=np.int32)), ValueError, "expected one dimension"),
    (lambda e: e.hidden([1], "last"), IndexError, "expected one from 0 to 5, 'embedding' or 'final'"),
    (lambda e: e.hidden([1], -1), IndexError, "expected one from 0 to 5"),
    # Models.
    (lambda e: demask.load("/nowhere"), demask.errors.ModelError, 'no model at "/nowhere"'),
    (lambda e: demask.demo(guide="/nowhere"), demask.errors.ModelError, "nowhere"),
]


@pytest.mark.parametrize(("call", "kind", "told"), CASES)
def test_what_is_wrong_is_told_in_one_line(engine: demask.Model, call: Call, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told) as error:
        call(engine)
    assert type(error.value).__module__ in ("builtins", "demask.errors") and "\n" not in str(error.value)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(demask.errors.ModelError, match=r"config\.json"):
        demask.load(str(tmp_path))


def test_exceptions_are_one_tree_and_pickle() -> None:
    trees = {
        demask.errors.OptionsError: ValueError,
        demask.errors.PromptError: ValueError,
        demask.errors.OutOfMemory: MemoryError,
        demask.errors.Expired: TimeoutError,
    }
    kinds = [demask.errors.ModelError, demask.errors.DeviceError, demask.errors.Cancelled, demask.errors.Closed, demask.errors.ForkError, demask.errors.HookError, *trees]
    for kind in kinds:
        copy = pickle.loads(pickle.dumps(kind("what to do")))
        assert type(copy) is kind and copy.args == ("what to do",) and isinstance(copy, demask.Error)
        assert isinstance(copy, trees.get(kind, Exception))


def test_a_deadline_is_kept(engine: demask.Model) -> None:
    answer = engine.generate(QUESTION, decoder="static", cache="none", gen_length=512, block_length=512, ignore_eos=True, deadline_ms=60)
    assert answer.finish_reason == "length" and answer.to_dict()["finish"] == "deadline" and answer.receipt["given_up"] > 0


def test_loading_is_ended_by_what_shows_it() -> None:
    def stop(name: str, done: int, total: int) -> None:
        raise RuntimeError(f"{name}: enough")

    with pytest.raises(RuntimeError, match="enough"):
        demask.demo(progress=stop)
    told: list[Any] = []
    demask.demo(progress=lambda *found: told.append(found)).close()
    assert told and told[-1][1] == told[-1][2]


def test_a_name_of_the_version_before_is_refused_with_where_it_is(engine: demask.Model) -> None:
    for name, where in [("Engine", "demask.Model"), ("PromptError", "demask.errors.PromptError"), ("Stream", "demask.types.Stream")]:
        with pytest.raises(AttributeError, match=f"version 0.1.0 had it, now it is {where}$"):
            getattr(demask, name)
    answer = engine.generate(QUESTION)
    with pytest.raises(AttributeError, match="version 0.1.0 had it, now it is finish_reason"):
        getattr(answer, "finish")  # noqa: B009
    for nothing in (demask, answer):
        with pytest.raises(AttributeError, match="has no attribute 'wrong'$"):
            getattr(nothing, "wrong")  # noqa: B009
