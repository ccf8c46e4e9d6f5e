"""Traces: what happened to an answer on its way, forward by forward."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _notebook
from .errors import Error
from ._generation import Generation

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Frame", "Trace"]

VERSION = 3
"""The newest version of the form that is read."""


class Frame(NamedTuple):
    """Canvas after a forward."""

    step: int
    """The forward, from 0."""
    nfe: int
    """NFE so far."""
    canvas: list[int | None]
    """The tokens behind the prompt; `None` where a mask stands."""
    text: str
    """Their texts, masks shown as `░`; ids where the trace has no texts."""


class Trace:
    """Record of an answer: a line for the canvas, for each commit and for each forward, in the form that
    `demask generate --trace` writes and `demask-lab trace` replays.
    """

    __slots__ = ("answer", "lines")

    lines: list[dict[str, Any]]
    """The lines in their order: the first is the header, those with `position` are commits, others name themselves in `event`."""
    answer: Generation | None
    """The answer; `None` of a trace that was read from a file."""

    def __init__(self, lines: list[dict[str, Any]], answer: Generation | None = None) -> None:
        self.lines = lines
        self.answer = answer

    @classmethod
    def parse(cls, text: str, answer: Generation | None = None) -> Trace:
        """Reads a trace from its text.

        Raises `demask.Error` if it is none, or newer than this package.
        """
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except ValueError:
                found = None
            if not isinstance(found, dict) or not ("position" in found or "event" in found):
                raise Error(f"line {number} of the trace is not a header, step, commit or prediction: expected what a trace has")
            lines.append(found)
        if not lines or lines[0].get("event") != "header":
            raise Error("the trace does not start with a header line: expected what demask generate --trace writes")
        version = lines[0].get("version", 1)
        if not isinstance(version, int) or version > VERSION:
            raise Error(f"the trace is of version {version}, this package reads up to {VERSION}: update demask")
        return cls(lines, answer)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Reads a trace from a file.

        Raises `OSError` if the file cannot be read, `demask.Error` if it is no trace.
        """
        return cls.parse(Path(path).read_text(encoding="utf-8"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace to a file, one line of JSON each: `demask-lab trace FILE` replays it."""
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in self.lines)
        Path(path).write_text(text, encoding="utf-8")

    @property
    def header(self) -> dict[str, Any]:
        """Header: model, prompt, length, methods, seed."""
        return self.lines[0]

    @property
    def commits(self) -> list[dict[str, Any]]:
        """Columns of the commits: `step`, `position`, `token`, `confidence`, and `text` where it is known."""
        return [line for line in self.lines if "position" in line]

    @property
    def replaced(self) -> list[dict[str, Any]]:
        """The changes of tokens by a decoder that edits: `step`, `at`, `from`, `to` (`None`: a mask again), `confidence`, `text`."""
        return [line for line in self.lines if line.get("event") == "replace"]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Columns of the forwards: `step`, `nfe`, `rows`, `drafts`, `accepted`, `rejected`."""
        return [line for line in self.lines if line.get("event") == "step"]

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the commits as columns, all of the same length: `step` u32, `position` u32, `token` u32, `confidence` f32.

        Raises `ModuleNotFoundError` where numpy is not installed.
        """
        import numpy

        kinds: dict[str, type[np.generic]] = {
            "step": numpy.uint32,
            "position": numpy.uint32,
            "token": numpy.uint32,
            "confidence": numpy.float32,
        }
        commits = self.commits
        return {name: numpy.array([line[name] for line in commits], dtype=kind) for name, kind in kinds.items()}

    def frames(self) -> Iterator[Frame]:
        """Yields the canvas behind each forward."""
        first, length = len(self.header["prompt"]), int(self.header["length"])
        canvas: list[int | None] = [None] * length
        texts = ["░"] * length

        def put(position: int, token: int | None, text: str | None) -> None:
            canvas[position - first] = token
            texts[position - first] = "░" if token is None else text if text is not None else f"<{token}>"

        for given in self.header.get("given", []):
            put(given["position"], given["token"], given.get("text"))
        for line in self.lines:
            if "position" in line:
                put(line["position"], line["token"], line.get("text"))
            elif line.get("event") == "replace":
                put(line["at"], line["to"], line.get("text"))
            elif line.get("event") == "step":
                yield Frame(line["step"], line["nfe"], list(canvas), "".join(texts))

    def replay(self, *, speed: float = 10.0) -> None:
        """Shows the canvas behind each forward on the standard output, so many forwards a second."""
        if not speed > 0:
            raise ValueError(f"speed is {speed}, expected forwards a second, a number above 0")
        for frame in self.frames():
            print(f"-- forward {frame.step}, NFE {frame.nfe}\n{frame.text}", flush=True)
            time.sleep(1 / speed)

    def __len__(self) -> int:
        return len(self.lines)

    def __repr__(self) -> str:
        header = self.header
        return f"<demask.Trace of {header['model']}, {header['decoder']}, {len(self.steps)} forwards, {len(self.commits)} commits>"

    def html(self) -> str:
        """Returns the canvas with its steps as HTML, without scripts: what a notebook shows."""
        return _notebook.trace(self)

    def _repr_html_(self) -> str:
        return self.html()
