"""Prompts in their forms, and the one way in which the native half takes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, Union

from .errors import PromptError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Hole", "Infill", "Message", "Prompt", "Raw", "Tokens"]

Message = Mapping[str, Any]
"""A message of a conversation: `{"role": "user", "content": "..."}`. Other fields (`reasoning_content`, `name`) reach the model's
template."""


class Raw(str):
    """A prompt without the chat template: the text as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Raw({str.__repr__(self)})"


class Tokens:
    """A prompt as token ids, without template and tokenizer.

    `ids` is a sequence of whole numbers or a one-dimensional array of an integer type.
    """

    __slots__ = ("ids",)

    ids: list[int]

    def __init__(self, ids: Iterable[int] | npt.NDArray[np.integer[Any]]) -> None:
        self.ids = token_ids(ids)

    def __repr__(self) -> str:
        return f"Tokens({self.ids!r})"

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and self.ids == other.ids

    __hash__ = None  # type: ignore[assignment]


class Hole:
    """So many missing tokens, at least one, between the pieces of a text to fill."""

    __slots__ = ("size",)

    size: int

    def __init__(self, size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"a hole's size is of type {type(size).__name__}, expected a whole number from 1 on")
        if size < 1:
            raise ValueError(f"a hole's size is {size}, expected a whole number from 1 on")
        self.size = size

    def __repr__(self) -> str:
        return f"Hole({self.size})"


class Infill:
    """A text with holes: `"text with <mask:3>"`, or pieces of which only a `Hole` is one."""

    __slots__ = ("pieces",)

    pieces: str | list[str | Hole]

    def __init__(self, pieces: str | Iterable[str | Hole]) -> None:
        if isinstance(pieces, str):
            self.pieces = pieces
            return
        listed = list(pieces)
        for piece in listed:
            if not isinstance(piece, (str, Hole)):
                raise TypeError(f"a piece of a text to fill is of type {type(piece).__name__}, expected str or demask.Hole")
        self.pieces = listed

    def __repr__(self) -> str:
        return f"Infill({self.pieces!r})"


Prompt = Union[str, Raw, Tokens, Infill, Sequence[Message]]
"""A user's message, a text without template, tokens, a text with holes, or a conversation."""

EXPECTED = (
    "expected a str (a user's message), a list of messages {'role': ..., 'content': ...}, demask.Raw(text), "
    "demask.Tokens(ids) or demask.Infill(pieces)"
)

Native = tuple[str, Any]
"""A form and what it holds, as the native half takes it."""


def token_ids(ids: Any) -> list[int]:
    """Returns token ids as a list of whole numbers.

    Raises `TypeError` for anything but whole numbers, `ValueError` for an array of another shape or negative ids.
    """
    if isinstance(ids, (str, bytes, Mapping)):
        raise TypeError(f"token ids are of type {type(ids).__name__}, expected a list of whole numbers")
    shape = getattr(ids, "shape", None)
    if shape is not None:
        if len(shape) != 1:
            raise ValueError(f"token ids have the shape {tuple(shape)}, expected one dimension: use ids.ravel() or a row of it")
        if getattr(getattr(ids, "dtype", None), "kind", "i") not in "iu":
            raise TypeError(f"token ids are of dtype {ids.dtype}, expected an integer type: use ids.astype('uint32')")
        ids = ids.tolist()
    try:
        listed = list(ids)
    except TypeError:
        raise TypeError(f"token ids are of type {type(ids).__name__}, expected a list of whole numbers") from None
    for token in listed:
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise TypeError(f"a token id is of type {type(token).__name__}, expected whole numbers from 0 on")
        if not 0 <= token < 1 << 32:
            raise ValueError(f"a token id is {token}, expected whole numbers from 0 on, below the size of the vocabulary")
    return [int(token) for token in listed]


def text(what: str, found: object) -> str:
    """Returns a text, which `what` names in errors.

    Raises `TypeError` for anything else, `PromptError` for half of a surrogate pair, which is no character.
    """
    if not isinstance(found, str):
        raise TypeError(f"{what} is of type {type(found).__name__}, expected str")
    try:
        found.encode()
    except UnicodeEncodeError as error:
        half = f"{what} has half of a surrogate pair at index {error.start}, expected characters"
        raise PromptError(f"{half}: decode it with errors='replace' where it was read") from None
    return str(found)


def messages(listed: Iterable[Any]) -> list[tuple[str, str, str]]:
    """Returns a conversation as roles, contents, and JSON of all other fields.

    Raises `TypeError` if a message is none, `PromptError` if it holds what is no character.
    """
    found = []
    for message in listed:
        if not isinstance(message, Mapping):
            raise TypeError(f"a message is of type {type(message).__name__}, expected {{'role': ..., 'content': ...}}")
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise TypeError(f"a message has the keys {sorted(map(str, message))}, expected texts under 'role' and 'content'")
        others = {name: value for name, value in message.items() if name not in ("role", "content")}
        found.append((text("a role", role), text("a message", content), fields(others)))
    return found


def fields(others: Mapping[Any, Any]) -> str:
    """Returns the fields of a message beside role and content as JSON.

    Raises `TypeError` if a name is no text or a value has no form in JSON, `PromptError` if it holds what is no character.
    """
    for name in others:
        text("the name of a field of a message", name)
    try:
        return text("a field of a message", json.dumps(others, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        if isinstance(error, PromptError):
            raise
        raise TypeError(f"the fields {sorted(others)} of a message have no form in JSON: {error}") from None


def is_many(prompt: object) -> TypeGuard[Sequence[Prompt]]:
    """Returns whether this is a list of prompts; a list that begins with a message is one conversation."""
    if isinstance(prompt, (str, Tokens, Infill)) or not isinstance(prompt, (list, tuple)):
        return False
    return not (prompt and isinstance(prompt[0], Mapping))


def asked(prompt: object, system: object) -> Native:
    """Returns a prompt with a system message before it in the form that the native half takes.

    Raises what `native` does, `PromptError` for a prompt that the template does not put into words or that has roles of its own.
    """
    if system is None:
        return native(prompt)
    if not isinstance(prompt, str) or isinstance(prompt, Raw):
        raise PromptError(
            "system goes before a text, a user's message: omit it with demask.Raw, demask.Tokens and demask.Infill, and give a "
            "conversation a first message {'role': 'system', 'content': ...}"
        )
    return "chat", [("system", text("system", system), "{}"), ("user", text("the prompt", prompt), "{}")]


def native(prompt: object) -> Native:
    """Returns a prompt in the form that the native half takes.

    Raises `TypeError` for what is no prompt, `PromptError` if it holds what is no character.
    """
    if isinstance(prompt, Raw):
        return "raw", text("the prompt", prompt)
    if isinstance(prompt, str):
        return "chat", [("user", text("the prompt", prompt), "{}")]
    if isinstance(prompt, Tokens):
        return "tokens", prompt.ids
    if isinstance(prompt, Infill):
        pieces = prompt.pieces
        if isinstance(pieces, str):
            return "infill", text("the text to fill", pieces)
        return "infill", [one.size if isinstance(one, Hole) else text("a piece of a text to fill", one) for one in pieces]
    if isinstance(prompt, (bytes, os.PathLike)):
        raise TypeError(f"the prompt is of type {type(prompt).__name__}, {EXPECTED}")
    if isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
        return "chat", messages(prompt)
    if hasattr(prompt, "dtype") or (isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], int)):
        raise TypeError(f"the prompt is of type {type(prompt).__name__}: token ids are given as demask.Tokens(ids)")
    raise TypeError(f"the prompt is of type {type(prompt).__name__}, {EXPECTED}")
