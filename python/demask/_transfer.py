"""Transfer rules of one's own: which predictions of a forward are taken."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Union

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Candidate", "Step", "Transfer"]

_COLUMNS = [("position", "<u4"), ("token", "<u4"), ("confidence", "<f4"), ("entropy", "<f4"), ("score", "<f8")]
_ROW = struct.Struct("<IIffd")


class Candidate(NamedTuple):
    """A prediction that may be taken."""

    position: int
    """Where, in the canvas."""
    token: int
    """What."""
    confidence: float
    """The token's probability."""
    entropy: float
    """Entropy of the prediction in nats; 0 unless the rule has `wants_entropy`."""
    score: float
    """What the order goes by: higher stands earlier."""


class Step:
    """Predictions of one forward for the masks of the current block, n of them, in the total order of commits: score
    descending, position ascending. What `remasking` says is the score.

    Arrays are views, read-only, and of n entries: they share one buffer.
    """

    __slots__ = ("_array", "_buffer", "quota", "rate")

    quota: int
    """How many commits the schedule has for this step."""
    rate: float
    """The share of masks that Dream's schedule takes in this step; 0 for others."""

    def __init__(self, buffer: bytes, quota: int, rate: float) -> None:
        self._buffer = buffer
        self._array: npt.NDArray[Any] | None = None
        self.quota = quota
        self.rate = rate

    def __len__(self) -> int:
        return len(self._buffer) // _ROW.size

    @property
    def array(self) -> npt.NDArray[Any]:
        """Structured array of all columns, `[n]`."""
        if self._array is None:
            import numpy

            self._array = numpy.frombuffer(self._buffer, dtype=_COLUMNS)
        return self._array

    @property
    def positions(self) -> npt.NDArray[np.uint32]:
        """Positions in the canvas."""
        return self.array["position"]

    @property
    def tokens(self) -> npt.NDArray[np.uint32]:
        """Predicted tokens."""
        return self.array["token"]

    @property
    def confidence(self) -> npt.NDArray[np.float32]:
        """Their probabilities."""
        return self.array["confidence"]

    @property
    def entropy(self) -> npt.NDArray[np.float32]:
        """Entropies of the predictions in nats; 0 unless the rule has `wants_entropy`."""
        return self.array["entropy"]

    @property
    def score(self) -> npt.NDArray[np.float64]:
        """Score that the order goes by."""
        return self.array["score"]

    def candidates(self) -> list[Candidate]:
        """Returns the predictions one by one, for rules without numpy."""
        return [Candidate(*row) for row in _ROW.iter_unpack(self._buffer)]

    def __repr__(self) -> str:
        return f"Step({len(self)} predictions, quota={self.quota})"


class Transfer:
    """A transfer rule: a subclass says in `choose` which predictions of a forward are taken. It decides in the loop over blocks
    that `static` and `threshold` decode by, under any cache policy, and is given as `transfer=Rule()`.

    Rules are asked on the model's thread, with the interpreter taken once for all requests of a forward. So one rule object may
    serve many requests at the same time, must keep nothing of one of them, must be quick, and cannot ask the model. What it
    raises ends its request alone, as `HookError`. Receipts say `custom:NAME` and claim nothing of the tokens.
    """

    name: str = ""
    """What receipts call it; the class's name if it is empty."""

    wants_entropy: bool = False
    """Whether `Step.entropy` is filled, which makes the head's product a little longer."""

    def choose(self, step: Step) -> Union[Iterable[int], npt.NDArray[np.integer[Any]], npt.NDArray[np.bool_]]:
        """Returns which predictions are taken: indices into the step's arrays, at least one, in the order of their commits; or
        a mask of booleans, one for each prediction.
        """
        raise NotImplementedError(f"{type(self).__name__}.choose is not written: return indices of the predictions to take")


def handed(rule: object) -> tuple[str, bool, Any]:
    """Returns a rule as the native half takes it.

    Raises `TypeError` for what is no rule, `ValueError` for a name that a receipt cannot show.
    """
    if isinstance(rule, type) and issubclass(rule, Transfer):
        raise TypeError(f"`transfer` is the class {rule.__name__}, expected a rule: make one, {rule.__name__}()")
    if not isinstance(rule, Transfer):
        raise TypeError(f"`transfer` is of type {type(rule).__name__}, expected a subclass of demask.Transfer")
    name: object = rule.name or type(rule).__name__
    if not isinstance(name, str):
        raise TypeError(f"the rule's name is of type {type(name).__name__}, expected str")
    if not name.isprintable():
        raise ValueError(f"the rule's name is {name!r}, expected printable characters: receipts show it")
    called = name

    def choose(buffer: bytes, quota: int, rate: float) -> list[int]:
        return _checked(rule.choose(Step(buffer, quota, rate)), len(buffer) // _ROW.size, called)

    return called, bool(rule.wants_entropy), choose


def _checked(found: Any, count: int, name: str) -> list[int]:
    """Returns a choice as a list of indices.

    Raises `TypeError` or `ValueError` for what is none.
    """
    expected = f"expected indices from 0 to {count - 1}, at least one, or {count} booleans"
    dtype = getattr(found, "dtype", None)
    if dtype is not None:
        if len(found.shape) != 1 or dtype.kind not in "biu":
            raise ValueError(f"{name}.choose returned an array of shape {tuple(found.shape)} and dtype {dtype}, {expected}")
        found = found.tolist()
    try:
        listed = list(found)
    except TypeError:
        raise TypeError(f"{name}.choose returned {type(found).__name__}, {expected}") from None
    if listed and all(isinstance(one, bool) for one in listed):
        if len(listed) != count:
            raise ValueError(f"{name}.choose returned {len(listed)} booleans for {count} predictions, {expected}")
        listed = [index for index, taken in enumerate(listed) if taken]
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in listed):
        raise TypeError(f"{name}.choose returned what is no whole number, {expected}")
    if not listed:
        raise ValueError(f"{name}.choose took nothing, {expected}: a forward takes at least one prediction")
    if min(listed) < 0 or max(listed) >= count or len(set(listed)) != len(listed):
        raise ValueError(f"{name}.choose returned {listed[:8]}, {expected}, none of them twice")
    return listed
