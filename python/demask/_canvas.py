"""A canvas that moves: what has been decided so far, for a notebook to show again after each update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _notebook

if TYPE_CHECKING:
    from ._model import Model
    from ._native import Update

__all__ = ["Canvas"]


class Canvas:
    """The canvas of an answer while it is made, drawn in a notebook: add each `Update` of a stream and show it again.

        canvas = demask.Canvas(model)
        shown = display(canvas, display_id=True)
        for update in model.stream(prompt):
            canvas.add(update)
            shown.update(canvas)
    """

    __slots__ = ("_commits", "_given", "_masks", "_model", "_rows", "_tokens")

    def __init__(self, model: Model) -> None:
        self._model = model
        self._tokens: list[int] = []
        self._given: set[int] = set()
        self._masks: set[int] = set()
        self._commits: dict[int, tuple[int, float]] = {}
        self._rows: dict[str, str] = {"model": model.name}

    @property
    def tokens(self) -> list[int | None]:
        """All tokens of the canvas, the prompt's first; `None` where a mask stands."""
        return [None if position in self._masks else token for position, token in enumerate(self._tokens)]

    def add(self, update: Update) -> None:
        """Takes what has happened since the last update."""
        if update.started is not None:
            started = update.started
            self._tokens = list(started.canvas)
            holes = started.holes or [(started.prompt_tokens, len(self._tokens))]
            self._masks = {position for first, end in holes for position in range(first, end)}
            self._given = set(range(len(self._tokens))) - self._masks
            self._commits.clear()
            self._rows["decoder, cache"] = f"{started.decoder}, {started.cache}"
        for position in update.taken_back:
            self._masks.add(position)
            self._commits.pop(position, None)
        for commit in update.commits:
            self._tokens[commit.position] = commit.token
            self._masks.discard(commit.position)
            self._commits[commit.position] = (commit.step, commit.confidence)
        if update.nfe:
            self._rows["NFE"] = str(update.nfe)

    def html(self) -> str:
        """Returns the canvas as it is now as HTML, without scripts: what a notebook shows."""
        pieces = self._model.tokenizer.pieces(self._tokens)
        return _notebook.canvas(pieces, self._given, self._commits, self._masks, list(self._rows.items()))

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return f"<demask.Canvas of {self._model.name}, {len(self._masks)} masks left>"
