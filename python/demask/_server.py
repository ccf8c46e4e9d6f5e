"""Servers on sockets, in this process."""

from __future__ import annotations

import time

from . import _native
from ._closing import Closing

__all__ = ["Server"]


class Server(Closing):
    """An OpenAI-compatible server over a model, on a thread of its own. `Model.serve` and `demask.serve` make one."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Server) -> None:
        self._native = native

    @property
    def url(self) -> str:
        """Address of the server: `http://127.0.0.1:8080`."""
        host, port = self._native.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def running(self) -> bool:
        """Reports whether the server runs."""
        return self._native.running

    def wait(self) -> None:
        """Waits until it ends; Ctrl-C ends it, once what is on its way is over."""
        try:
            while self.running:
                time.sleep(0.1)
        except KeyboardInterrupt:
            self.close(drain=True)

    def close(self, *, drain: bool = False) -> None:
        """Ends it at once, or when its running requests are over. Nothing happens if it has ended."""
        self._native.close(drain)

    def __repr__(self) -> str:
        return f"<demask.types.Server at {self.url}>"
