"""Answers to typed questions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Union

__all__ = ["Decision", "Decisions"]


class Decision(NamedTuple):
    """The answer to a question: one of its choices."""

    type: str
    """`"predicate"`, `"choice"` or `"score"`."""
    name: str | None
    """The question's name."""
    choice: bool | str | int
    """The most probable choice: of a predicate `True` for yes, of a score its value."""
    confidence: float
    """Its probability among the choices."""
    probabilities: dict[Union[bool, str, int], float]
    """The probability of each choice among the choices."""
    mass: float
    """Sum of the probabilities that the choices had among all texts that the model could have written."""
    score: float | None
    """Of a score: the mean of its values by their probabilities."""


class Decisions(NamedTuple):
    """The answers to the questions of one call, in their order."""

    answers: list[Decision]
    """An answer for each question."""
    input_tokens: int
    """Tokens that were given: the prompt's once, and those of the questions."""
    cached_tokens: int
    """Tokens that were not computed, because an earlier request had left their K/V: of autoregressive models."""
    forwards: int
    """Times that the model was asked."""
    flops: float
    """Floating point operations by formula."""
    seconds: float
    """Seconds in the network."""


def as_json(questions: Iterable[Mapping[str, Any]]) -> str:
    """Returns questions as the native half reads them.

    Raises `TypeError` for what is no list of mappings.
    """
    if isinstance(questions, (str, bytes, Mapping)):
        raise TypeError(f"the questions are of type {type(questions).__name__}, expected a list of mappings")
    found = list(questions)
    for question in found:
        if not isinstance(question, Mapping):
            raise TypeError(f"a question is of type {type(question).__name__}, expected a mapping")
    return json.dumps([dict(question) for question in found])


def decisions(found: str) -> Decisions:
    """Reads what the native half returns."""
    told = json.loads(found)
    return Decisions(answers=[_decision(answer) for answer in told.pop("answers")], **told)


def _decision(answer: dict[str, Any]) -> Decision:
    probabilities: dict[Union[bool, str, int], float]
    if answer["type"] == "predicate":
        yes = answer["probability"]
        # The choice has its confidence to the last bit.
        probabilities = {True: yes, False: 1.0 - yes if answer["choice"] else answer["confidence"]}
    else:
        probabilities = {one["value"]: one["probability"] for one in answer["probabilities"]}
    return Decision(
        type=answer["type"],
        name=answer["name"],
        choice=answer["choice"],
        confidence=answer["confidence"],
        probabilities=probabilities,
        mass=answer["mass"],
        score=answer.get("score"),
    )
