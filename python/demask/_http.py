"""The server's request layer on any event loop, without sockets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from . import _native
from ._closing import AsyncClosing
from ._native import Bell
from ._waiting import waiting

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["HttpResponse", "Service"]

Headers = Union[Mapping[str, str], Mapping[bytes, bytes], Iterable[tuple[Union[str, bytes], Union[str, bytes]]]]
"""Names and values of a request's headers."""


class HttpResponse(AsyncClosing):
    """A response: its head, and an asynchronous iterator over its body.

    An event stream comes message by message, any other body as one piece. Dropping it, `cancel()`, or cancelling the task that
    reads it cancels its answers before the next forward.
    """

    __slots__ = ("_reply", "headers", "status")

    status: int
    """The status, 200 for what was served."""
    headers: list[tuple[str, str]]
    """Names, in small letters, and values of the headers."""

    def __init__(self, reply: _native.Reply, status: int, headers: list[tuple[str, str]]) -> None:
        self._reply = reply
        self.status = status
        self.headers = headers

    def header(self, name: str) -> str | None:
        """Returns the value of a header, `None` if it is not there."""
        return next((value for known, value in self.headers if known == name.lower()), None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        def look(bell: Bell, number: int) -> tuple[bytes | None] | None:
            there, piece = self._reply.chunk(bell, number)
            return (piece,) if there else None

        (piece,) = await waiting().until(look)
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def read(self) -> bytes:
        """Returns the rest of the body."""
        return b"".join([piece async for piece in self])

    def cancel(self) -> None:
        """Cancels the request before the next forward; nothing happens if it is over."""
        self._reply.cancel()

    async def aclose(self) -> None:
        """Cancels the request, as `cancel()` does."""
        self.cancel()

    def __repr__(self) -> str:
        return f"HttpResponse(status={self.status}, content_type={self.header('content-type')!r})"


class Service:
    """An OpenAI-compatible server over a model without sockets: bounds, keys, counters and a queue of its own.

    `Model.service` makes one.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Service) -> None:
        self._native = native

    async def http(self, method: str, path: str, headers: Headers | None = None, body: Any = b"") -> HttpResponse:
        """Serves one request, and returns its response once the head is known.

        `path` may have a query, `body` is anything with bytes. What is wrong with a request is a response with a status of 4xx,
        as the server's manual has it. Raises `demask.errors.Closed` if the model was closed, `TypeError` and `ValueError` for what is no
        request at all.
        """
        for what, found in (("method", method), ("path", path)):
            if not isinstance(found, str):
                raise TypeError(f"{what} is of type {type(found).__name__}, expected str")
        if isinstance(body, str):
            raise TypeError("body is of type str, expected bytes: use body.encode()")
        reply = self._native.handle(method, path, _pairs(headers), bytes(memoryview(body)))
        status, pairs = await waiting().until(reply.head)
        return HttpResponse(reply, status, pairs)

    def drain(self) -> None:
        """Refuses new requests from now on. Running ones go on."""
        self._native.drain()

    @property
    def busy(self) -> bool:
        """Reports whether a request is under way."""
        return self._native.busy


def _pairs(headers: Headers | None) -> list[tuple[bytes, bytes]]:
    if headers is None:
        return []
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    return [(_latin(name), _latin(value)) for name, value in pairs]


def _latin(text: object) -> bytes:
    if isinstance(text, str):
        return text.encode("latin-1")
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise TypeError(f"a header is of type {type(text).__name__}, expected str or bytes")
