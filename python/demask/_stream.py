"""Answers as they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ._closing import AsyncClosing, Closing
from ._generation import Generation
from ._native import Bell, Ticket, Update
from ._waiting import waiting

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._native import Tokenizer

__all__ = ["AsyncStream", "Stream"]


class _Streamed:
    """Base of both kinds of streams."""

    __slots__ = ("_answer", "_then", "_ticket", "_tokenizer")

    def __init__(self, ticket: Ticket, tokenizer: Tokenizer) -> None:
        self._ticket = ticket
        self._tokenizer = tokenizer
        self._answer: Generation | None = None
        self._then: list[Callable[[Generation], object]] = []

    def then(self, call: Callable[[Generation], object]) -> None:
        """Calls a function with the answer, once the stream has come to its end."""
        self._then.append(call)

    def _end(self, answer: Generation) -> None:
        self._answer = answer
        for call in self._then:
            call(answer)

    @property
    def answer(self) -> Generation | None:
        """Returns the answer, once the stream has ended."""
        return self._answer


class Stream(_Streamed, Closing):
    """An answer while it is made: an iterator of `Update`, at most one for each forward.

    What nobody reads meanwhile is merged, never queued. Leaving the loop and dropping the stream, or `close()`, gives the
    request up before the next forward. Behind the end, `answer` is the `Generation`.
    """

    __slots__ = ()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Update:
        if self._answer is not None:
            raise StopIteration
        found = self._ticket.next()
        if isinstance(found, Update):
            return found
        self._end(Generation(found, self._tokenizer))
        raise StopIteration

    def close(self) -> None:
        """Gives the request up; nothing happens if it is over."""
        self._ticket.cancel()


class AsyncStream(_Streamed, AsyncClosing):
    """An answer while it is made: an asynchronous iterator of `Update`, at most one for each forward.

    Streams of one model share its forwards, however many there are. Cancelling the task, `aclose()`, or dropping the stream
    gives the request up before the next forward. Behind the end, `answer` is the `Generation`.
    """

    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    def _look(self, bell: Bell, number: int) -> Update | Generation | None:
        found = self._ticket.poll(bell, number)
        if found is None or isinstance(found, Update):
            return found
        return Generation(found, self._tokenizer)

    async def __anext__(self) -> Update:
        if self._answer is not None:
            raise StopAsyncIteration
        found = await waiting().until(self._look)
        if isinstance(found, Update):
            return found
        assert isinstance(found, Generation), "nothing ends the wait but news"
        self._end(found)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Gives the request up; nothing happens if it is over."""
        self._ticket.cancel()
