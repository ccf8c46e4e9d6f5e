"""Answers, and how each was made."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from . import _notebook

if TYPE_CHECKING:
    from ._native import Tokenizer
    from ._receipt import Receipt

__all__ = ["Commit", "Generation", "Logprob", "PromptTokensDetails", "Usage"]


class Logprob(NamedTuple):
    """Log-probability of a token at its commit."""

    logprob: float | None
    """Its natural-log probability; `None` where a rule, not the model, put it there."""
    top: list[tuple[int, float]]
    """The most probable tokens in its place with their log-probabilities, the best first."""


class Commit(NamedTuple):
    """A token that was committed to a position."""

    step: int
    """The forward whose prediction was taken, from 0."""
    position: int
    """The position in the canvas, from 0; the prompt's are the first."""
    token: int
    """The id of the token."""
    confidence: float
    """Its probability when it was committed; 1 where a rule chose it."""


class PromptTokensDetails(NamedTuple):
    """Facts about the tokens of a prompt."""

    cached_tokens: int
    """Those that were not computed, because an earlier request had left their K/V."""


class Usage(NamedTuple):
    """Tokens of an answer, under the names of the server's `usage`."""

    prompt_tokens: int
    """Tokens of the prompt; of a text with holes everything that was given."""
    completion_tokens: int
    """Tokens that were decoded: those of the answer, or those in the holes."""
    total_tokens: int
    """Both together."""
    prompt_tokens_details: PromptTokensDetails
    """Facts about the tokens of the prompt."""


class Generation:
    """An answer. `str(answer)` is its text; a notebook shows the canvas with its steps.

    Answers may be pickled, and compare by what they hold.
    """

    __slots__ = ("_commits", "_finish", "_pieces", "_receipt", "canvas", "end_token", "holes", "logprobs", "prompt_tokens",
                 "receipt_json", "stop_text", "text", "tokens", "usage")

    text: str | None
    """The text without special tokens; `None` if the model has no tokenizer. Of a text that was filled, all of it."""
    tokens: list[int]
    """All tokens behind the prompt, up to and including the end token."""
    holes: list[str]
    """The text of each hole that was filled, in their order; empty if the answer stands behind a prompt."""
    end_token: int | None
    """The end token that ended it."""
    stop_text: str | None
    """The stop text that ended it."""
    logprobs: list[Logprob] | None
    """How probable each token was when it was committed; `None` unless `top_logprobs` is set."""
    prompt_tokens: int
    """Tokens of the prompt."""
    usage: Usage
    """Tokens of the prompt and of the answer, counted as the server counts them."""
    canvas: list[int]
    """All tokens of the canvas, the prompt's first; what was left undecided holds the mask."""
    receipt_json: str
    """How it was made, as JSON: the text that the command line prints under `receipt`."""

    def __init__(self, fields: dict[str, Any], tokenizer: Tokenizer | None = None) -> None:
        """Takes the fields as the native half names them."""
        for name in ("text", "tokens", "holes", "end_token", "stop_text", "prompt_tokens", "canvas", "receipt_json"):
            setattr(self, name, fields[name])
        listed = fields["logprobs"]
        self.logprobs = None if listed is None else [Logprob(*one) for one in listed]
        prompt, completion, cached = fields["usage"]
        self.usage = Usage(prompt, completion, prompt + completion, PromptTokensDetails(cached))
        self._finish: str = fields["finish"]
        self._commits: bytes = fields["commits"]
        self._receipt: Receipt | None = None
        self._pieces: Tokenizer | list[str] | None = tokenizer

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """Reason why it ends where it ends, in OpenAI's words: `stop` at an end token (`end_token`) or a stop text (`stop_text`),
        `length` at its length or its deadline (`"given_up" in receipt`).
        """
        return "stop" if self._finish in ("eos", "stop") else "length"

    @property
    def receipt(self) -> Receipt:
        """Receipt of the answer: methods, NFE, forwards, rows, operations, seconds, memory, and the claim of its tokens."""
        if self._receipt is None:
            self._receipt = cast("Receipt", json.loads(self.receipt_json))
        return self._receipt

    @property
    def nfe(self) -> int:
        """Forwards as the method's paper counts them."""
        return int(self.receipt["nfe"])

    @property
    def generated_tokens(self) -> int:
        """Tokens that were decoded: those of the answer, or those in the holes."""
        return self.usage.completion_tokens

    @property
    def commits(self) -> list[Commit]:
        """Commits in their order; of a position that was committed again, the last."""
        return [Commit(*columns) for columns in struct.iter_unpack("<IIIf", self._commits)]

    def pieces(self) -> list[str]:
        """Returns the piece of text that each token of the canvas stands for; special tokens have their names."""
        if not isinstance(self._pieces, list):
            native = self._pieces
            self._pieces = [f"{token} " for token in self.canvas] if native is None else native.pieces(self.canvas)
        return self._pieces

    def to_dict(self) -> dict[str, Any]:
        """Returns what the command line prints with `--json`: plain lists, texts and numbers."""
        found: dict[str, Any] = {"text": self.text, "tokens": self.tokens, "finish": self._finish}
        if self.holes:
            found["holes"] = self.holes
        if self.end_token is not None:
            found["end_token"] = self.end_token
        if self.stop_text is not None:
            found["stop_text"] = self.stop_text
        if self.logprobs is not None:
            told = zip(self.tokens, self.logprobs, strict=True)
            found["logprobs"] = [{"token": token, "logprob": one.logprob, "top": one.top} for token, one in told]
        return found | {
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
            "receipt": self.receipt,
        }

    def to_json(self) -> str:
        """Returns `to_dict()` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            where = ": version 0.1.0 had it, now it is finish_reason, in OpenAI's words" if name == "finish" else ""
            raise AttributeError(f"'Generation' has no attribute {name!r}{where}", name=name)

    def __str__(self) -> str:
        return self.text if self.text is not None else ",".join(map(str, self.tokens))

    def __repr__(self) -> str:
        return f"Generation(text={self.text!r}, finish_reason={self.finish_reason!r}, tokens={len(self.tokens)}, nfe={self.nfe})"

    def html(self) -> str:
        """Returns the canvas with its steps and the receipt as HTML, without scripts: what a notebook shows."""
        return _notebook.generation(self)

    def _repr_html_(self) -> str:
        return self.html()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Generation):
            return NotImplemented
        return self.__getstate__() == other.__getstate__()

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        # What draws the canvas goes along, the tokenizer does not.
        kept = {name: getattr(self, name) for name in self.__slots__ if name not in ("_receipt", "_pieces")}
        return kept | {"_pieces": self.pieces()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._receipt = None
        for name, value in state.items():
            setattr(self, name, value)
