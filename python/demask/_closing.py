"""Context managers: what is open until the end of its block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AsyncClosing", "Closing"]


class Closing:
    """A context manager whose end calls `close`."""

    __slots__ = ()

    def close(self) -> None:
        """Releases what the object holds. Every subclass has its own."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClosing:
    """An asynchronous context manager whose end awaits `aclose`."""

    __slots__ = ()

    async def aclose(self) -> None:
        """Releases what the object holds. Every subclass has its own."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
