"""What the tests share: engines that are loaded once, and the project's binary to compare with."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import demask
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# They need Ray, a cluster and an environment of their own: python/tests/ray/run.py.
collect_ignore = ["ray"]
QUESTION = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?"


@pytest.fixture(scope="session")
def engine() -> Iterator[demask.Model]:
    """The built-in model."""
    with demask.demo() as engine:
        yield engine


@pytest.fixture(scope="session")
def binary() -> Callable[..., dict[str, Any]]:
    """Runs `demask generate --json`; skips where DEMASK_BINARY does not name the binary."""
    path = os.environ.get("DEMASK_BINARY")
    if not path:
        pytest.skip("DEMASK_BINARY does not name the demask binary")

    def run(*arguments: str) -> dict[str, Any]:
        done = subprocess.run([path, "generate", "--json", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def questions(count: int) -> list[str]:
    """Returns so many different word problems."""
    names = ["Ada", "Ben", "Cleo", "Dan", "Eve"]
    things = ["pears", "cards", "coins", "books"]
    return [
        f"{names[i % 5]} has {3 + i % 17} {things[i % 4]}. {names[(i + 1) % 5]} gives {names[i % 5]} {1 + i % 9} more. "
        f"How many {things[i % 4]} are there in the end?"
        for i in range(count)
    ]
