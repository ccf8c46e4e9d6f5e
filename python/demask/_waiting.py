"""Waiting on an event loop for what a model's thread does, which never takes the interpreter for it."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import Callable, TypeVar

from ._native import Bell

T = TypeVar("T")


class Waiting:
    """Waiters on one event loop."""

    __slots__ = ("__weakref__", "_bell", "_futures", "_loop", "_numbers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._bell = Bell()
        self._loop = weakref.ref(loop)
        self._numbers = itertools.count()
        self._futures: dict[int, asyncio.Future[None]] = {}
        # The loop must not be kept alive by what watches it.
        heard = weakref.WeakMethod(self._heard)
        loop.add_reader(self._bell.fileno(), lambda: (found := heard()) and found())

    def _heard(self) -> None:
        for number in self._bell.heard():
            future = self._futures.pop(number, None)
            if future is not None and not future.done():
                future.set_result(None)

    async def until(self, look: Callable[[Bell, int], T | None]) -> T:
        """Waits until `look(bell, number)` finds something, and returns it."""
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        try:
            while (found := look(self._bell, number)) is None:
                future = self._futures[number] = loop.create_future()
                await future
            return found
        finally:
            self._futures.pop(number, None)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Waiting] = weakref.WeakKeyDictionary()


def waiting() -> Waiting:
    """Returns what waits on the running loop."""
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = Waiting(loop)
    return found
