"""Transfer rules in Python: they decide like the library's, and what goes wrong in them ends their request alone."""

from __future__ import annotations

import asyncio
from typing import Any

import demask
import numpy as np
import pytest
from conftest import QUESTION, questions


class Threshold(demask.Transfer):
    """The library's `threshold:tau=0.9`, said again."""

    name = "threshold_again"

    def choose(self, step: demask.types.Step) -> Any:
        passing = np.flatnonzero(step.confidence >= np.float32(0.9))
        return passing if len(passing) else [0]


class Broken(demask.Transfer):
    """A rule that does what it is told, which is always wrong."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def choose(self, step: demask.types.Step) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("cache", ["none", "prefix", "dual", "freecache:block=16", "dllm"])
def test_a_rule_that_says_threshold_again_takes_its_tokens(engine: demask.Model, cache: str) -> None:
    for question in questions(12):
        own = engine.generate(question, transfer=Threshold(), cache=cache, gen_length=64, block_length=16)
        theirs = engine.generate(question, decoder="threshold:tau=0.9", cache=cache, gen_length=64, block_length=16)
        assert own.tokens == theirs.tokens and own.nfe == theirs.nfe
        assert own.receipt["decoder"] == "custom:threshold_again" and own.receipt["exactness"] == "approximate"


def test_rules_share_forwards_and_see_views(engine: demask.Model) -> None:
    seen: list[int] = []

    class Looking(demask.Transfer):
        wants_entropy = True

        def choose(self, step: demask.types.Step) -> Any:
            seen.append(len(step))
            assert step.array.base is not None and not step.confidence.flags.writeable
            assert step.quota >= 1 and len(step.candidates()) == len(step) == len(step.entropy)
            assert step.candidates()[0].position == step.positions[0] and (step.entropy >= 0).all()
            assert (np.diff(step.score) <= 0).all(), "the best first"
            return np.arange(len(step)) < 2

    async def all_of_them() -> list[demask.Generation]:
        return await asyncio.gather(*[engine.agenerate(question, transfer=Looking()) for question in questions(16)])

    before = engine.metrics()["networks"][0]["forwards"]
    answers = asyncio.run(all_of_them())
    forwards = engine.metrics()["networks"][0]["forwards"] - before
    assert len(seen) == sum(answer.nfe for answer in answers) > 2 * forwards
    assert all(answer.receipt["decoder"] == "custom:Looking" for answer in answers)


@pytest.mark.parametrize(
    ("answer", "cause", "told"),
    [
        (KeyError("boom"), KeyError, "boom"),
        ([], ValueError, "took nothing"),
        ([99], ValueError, "expected indices from 0 to"),
        ([-1], ValueError, "expected indices from 0 to"),
        ([0, 0], ValueError, "none of them twice"),
        (None, TypeError, "returned NoneType"),
        (["0"], TypeError, "no whole number"),
        ([True], ValueError, "1 booleans for"),
        (np.zeros((2, 2), dtype=np.int64), ValueError, r"shape \(2, 2\)"),
        (np.array([0.5]), ValueError, "dtype float64"),
    ],
)
def test_a_rule_that_goes_wrong_ends_its_request_alone(engine: demask.Model, answer: Any, cause: type, told: str) -> None:
    found = engine.generate([QUESTION, QUESTION], each=[{"transfer": Broken(answer)}, {"decoder": "static"}], errors="return")
    assert isinstance(found[0], demask.errors.HookError) and isinstance(found[0].__cause__, cause)
    with pytest.raises(demask.errors.HookError, match=told):
        engine.generate(QUESTION, transfer=Broken(answer))
    assert str(found[1]) == "3+4=7 pears.\nThe final answer is 7"
    assert engine.metrics()["leaks"] == 0 and engine.metrics()["networks"][0]["open"] == 0


def test_a_class_or_a_function_makes_a_rule_for_each_request(engine: demask.Model) -> None:
    made: list[Any] = []

    class Counting(demask.Transfer):
        """A rule with a memory: it takes as many as it was asked before."""

        def __init__(self) -> None:
            self.asked = 0
            made.append(self)

        def choose(self, step: demask.types.Step) -> Any:
            assert step.forward == self.asked
            self.asked += 1
            return list(range(min(self.asked, len(step))))

    batch = [question for question in questions(4)]
    together = engine.generate(batch, transfer=Counting)
    assert len(made) == 4 and all(rule.asked == answer.nfe for rule, answer in zip(made, together, strict=True))
    apart = [engine.generate(question, transfer=lambda: Counting()) for question in batch]
    assert [answer.tokens for answer in together] == [answer.tokens for answer in apart]
    told = "one Counting for 4 requests, which would share what it keeps: give the class Counting, or a function"
    with pytest.raises(TypeError, match=told):
        engine.generate(batch, transfer=Counting())
    rule = Counting()
    with pytest.raises(TypeError, match="one Counting for 2 requests"):
        engine.generate(batch[:2], each=[{"transfer": rule}, {"transfer": rule}])
    assert engine.generate(QUESTION, transfer=rule).receipt["decoder"] == "custom:Counting"


def test_calls_at_the_same_time_share_no_rule(engine: demask.Model) -> None:
    async def both(*rules: Any) -> list[Any]:
        asked = (engine.agenerate(question, transfer=rule) for question, rule in zip(questions(2), rules, strict=True))
        return await asyncio.gather(*asked, return_exceptions=True)

    class First(demask.Transfer):
        def choose(self, step: demask.types.Step) -> Any:
            return [0]

    one = First()
    found = asyncio.run(both(one, one))
    told = "one First for 2 requests, which would share what it keeps: give the class First, or a function"
    assert all(isinstance(error, demask.errors.HookError) and told in str(error.__cause__) for error in found), found
    assert all(isinstance(answer, demask.Generation) for answer in asyncio.run(both(First, First)))
    # One after the other is one request at a time.
    assert engine.generate(QUESTION, transfer=one).tokens == engine.generate(QUESTION, transfer=one).tokens


def test_what_is_no_rule_or_goes_with_none_is_refused(engine: demask.Model) -> None:
    with pytest.raises(TypeError, match="made what is of type int, expected a subclass of demask.Transfer"):
        engine.generate(QUESTION, transfer=lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="expected a subclass of demask.Transfer"):
        engine.generate(QUESTION, transfer=lambda step: [0])
    for name, kind in ((3, TypeError), ("two\nlines", ValueError)):
        rule = Threshold()
        rule.name = name  # type: ignore[assignment]
        with pytest.raises(kind, match="the rule's name is"):
            engine.generate(QUESTION, transfer=rule)
    for decoder in ("freedave", "threshold"):
        with pytest.raises(demask.errors.OptionsError, match=f"decoder {decoder} has its own rule: omit `decoder`"):
            engine.generate(QUESTION, transfer=Threshold(), decoder=decoder)
    with pytest.raises(demask.errors.HookError, match="not written"):
        engine.generate(QUESTION, transfer=demask.Transfer())


def test_a_rule_cannot_ask_the_engine_that_asks_it(engine: demask.Model) -> None:
    class Asking(demask.Transfer):
        def choose(self, step: demask.types.Step) -> Any:
            return engine.generate(QUESTION).tokens

    with pytest.raises(demask.errors.HookError, match="ask from elsewhere"):
        engine.generate(QUESTION, transfer=Asking())
