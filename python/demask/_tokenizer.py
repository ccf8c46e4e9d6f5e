"""The words of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _native
from ._prompt import text as checked
from ._prompt import token_ids

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Tokenizer"]


class Tokenizer:
    """A model's tokenizer. All its methods raise `PromptError` if the model has none."""

    __slots__ = ("_native", "vocab_size")

    vocab_size: int
    """Tokens that the model knows."""

    def __init__(self, native: _native.Tokenizer, vocab_size: int) -> None:
        self._native = native
        self.vocab_size = vocab_size

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Returns the tokens of a text; `special` adds the tokens that the tokenizer puts around texts."""
        return self._native.encode(checked("the text", text), special)

    def decode(self, ids: Iterable[int] | npt.NDArray[np.integer[Any]], *, special: bool = False) -> str:
        """Returns the text of tokens; `special` keeps those that are no text."""
        return self._native.decode(token_ids(ids), special)

    def pieces(self, ids: Iterable[int] | npt.NDArray[np.integer[Any]]) -> list[str]:
        """Returns the piece of text that each token stands for; special tokens have their names."""
        return self._native.pieces(token_ids(ids))

    def token(self, token: int) -> bytes | None:
        """Returns the bytes of a token; `None` if it is no text."""
        return self._native.token(token)

    def __repr__(self) -> str:
        return f"<demask.types.Tokenizer of {self.vocab_size} tokens>"
