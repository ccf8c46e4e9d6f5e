"""Transfer rules of one's own: which predictions of a forward are taken."""

from __future__ import annotations

import inspect
import itertools
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Union

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Candidate", "Step", "Transfer"]

_COLUMNS = [("position", "<u4"), ("token", "<u4"), ("confidence", "<f4"), ("entropy", "<f4"), ("score", "<f8")]
_ROW = struct.Struct("<IIffd")
_ASKED_FOR = "_asked_for"
MOST = 20
"""The longest list of a prediction's most probable tokens, as `top_logprobs` has it."""


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

    __slots__ = ("_array", "_buffer", "_canvas", "_logits", "_top", "forward", "quota", "rate")

    quota: int
    """How many commits the schedule has for this step."""
    rate: float
    """The share of masks that Dream's schedule takes in this step; 0 for others."""
    forward: int
    """How many forwards of its request were shown to the rule before this one."""

    def __init__(
        self,
        buffer: bytes,
        quota: int,
        rate: float,
        forward: int = 0,
        canvas: bytes = b"",
        top: bytes = b"",
        logits: bytes = b"",
    ) -> None:
        self._buffer = buffer
        self._array: npt.NDArray[Any] | None = None
        self._canvas, self._top, self._logits = canvas, top, logits
        self.quota = quota
        self.rate = rate
        self.forward = forward

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

    @property
    def canvas(self) -> npt.NDArray[np.uint32]:
        """The canvas that the forward ran over: the prompt's tokens and the answer's, with the mask token (`Model.info["mask_token"]`)
        where nothing is decided."""
        import numpy

        return numpy.frombuffer(self._canvas, dtype="<u4")

    @property
    def top(self) -> npt.NDArray[Any]:
        """The most probable tokens of each prediction, `[n, wants_top]`, the best first: a structured array with the columns `token`
        and `probability`; `[n, 0]` unless the rule has `wants_top`."""
        import numpy

        found = numpy.frombuffer(self._top, dtype=[("token", "<u4"), ("probability", "<f4")])
        return found.reshape(len(self), -1) if len(self) else found.reshape(0, 0)

    @property
    def logits(self) -> npt.NDArray[np.float32]:
        """The logits of each prediction as the cache policy of the answer made them, `[n, vocabulary]`, raw; `[n, 0]` unless the rule has
        `wants_logits`."""
        import numpy

        found = numpy.frombuffer(self._logits, dtype="<f4")
        return found.reshape(len(self), -1) if len(self) else found.reshape(0, 0)

    def candidates(self) -> list[Candidate]:
        """Returns the predictions one by one, for rules without numpy."""
        return [Candidate(*row) for row in _ROW.iter_unpack(self._buffer)]

    def __repr__(self) -> str:
        return f"Step({len(self)} predictions, quota={self.quota})"


class Transfer:
    """A transfer rule: a subclass says in `choose` which predictions of a forward are taken. It decides in the loop over blocks
    that `static` and `threshold` decode by, under any cache policy, and is given as `transfer=Rule`: the class, or a function that
    returns a rule, makes one for each request, which may keep what it likes of it. `transfer=Rule()` is for one request.

    Rules are asked on the model's thread, with the interpreter taken once for all requests of a forward. So they must be quick,
    and cannot ask the model. What one raises ends its request alone, as `HookError`. Receipts say `custom:NAME` and claim
    nothing of the tokens.
    """

    name: str = ""
    """What receipts call it; the class's name if it is empty."""

    wants_entropy: bool = False
    """Whether `Step.entropy` is filled, which makes the head's product a little longer."""

    wants_top: int = 0
    """How many of the most probable tokens `Step.top` has of each prediction."""

    wants_logits: bool = False
    """Whether `Step.logits` is filled: four bytes for each token of the vocabulary and each mask of the block, in every forward."""

    def choose(self, step: Step) -> Union[Iterable[int], npt.NDArray[np.integer[Any]], npt.NDArray[np.bool_]]:
        """Returns which predictions are taken: indices into the step's arrays, at least one, in the order of their commits; or
        a mask of booleans, one for each prediction.
        """
        raise NotImplementedError(f"{type(self).__name__}.choose is not written: return indices of the predictions to take")


def alone(wanted: Iterable[Mapping[str, Any]]) -> None:
    """Refuses a rule that several requests of one call would share.

    Raises `TypeError` with what to give in its place.
    """
    counts: dict[int, tuple[Transfer, int]] = {}
    for options in wanted:
        rule = options.get("transfer")
        if isinstance(rule, Transfer):
            counts[id(rule)] = (rule, counts.get(id(rule), (rule, 0))[1] + 1)
    for rule, count in counts.values():
        if count > 1:
            raise _shared(rule, count)


def _shared(rule: Transfer, count: int) -> TypeError:
    name = type(rule).__name__
    return TypeError(
        f"`transfer` is one {name} for {count} requests, which would share what it keeps: give the class {name}, or a "
        "function that returns a rule, and each request has its own"
    )


Wishes = tuple[bool, int, bool]
"""What a rule wants to see of each prediction: its entropy, so many of the most probable tokens, its logits."""


def handed(rule: Any) -> tuple[str, Wishes, Any]:
    """Returns a rule as the native half takes it; a class or a function makes one.

    Raises `TypeError` for what is no rule, `ValueError` for a name that a receipt cannot show.
    """
    made = rule() if _makes_rules(rule) else rule
    if not isinstance(made, Transfer):
        what = type(made).__name__
        told = f"is of type {what}" if made is rule else f"made what is of type {what}"
        raise TypeError(f"`transfer` {told}, expected a subclass of demask.Transfer, or a function that returns its rule")
    return _asked_by_name(made)


def _makes_rules(rule: object) -> bool:
    """Reports whether it is a class of rules, or a function without parameters."""
    if isinstance(rule, Transfer) or not callable(rule):
        return False
    try:
        inspect.signature(rule).bind()
    except TypeError:
        return False
    return True


def _asked_by_name(rule: Transfer) -> tuple[str, Wishes, Callable[[bytes, int, float, bytes, bytes, bytes], list[int]]]:
    """Returns a rule's name, what it wants to see, and the function that asks it."""
    name: object = rule.name or type(rule).__name__
    if not isinstance(name, str):
        raise TypeError(f"the rule's name is of type {type(name).__name__}, expected str")
    if not name.isprintable():
        raise ValueError(f"the rule's name is {name!r}, expected printable characters: receipts show it")
    top: object = rule.wants_top
    if isinstance(top, bool) or not isinstance(top, int):
        raise TypeError(f"wants_top of {name} is of type {type(top).__name__}, expected a whole number from 0 on")
    if not 0 <= top <= MOST:
        raise ValueError(f"wants_top of {name} is {top}, expected 0 to {MOST}: wants_logits shows all tokens")
    called, forwards = name, itertools.count()

    def choose(buffer: bytes, quota: int, rate: float, canvas: bytes, top: bytes, logits: bytes) -> list[int]:
        forward = next(forwards)
        # Requests of several calls at the same time: none of them may go on with what the others have left.
        if forward and getattr(rule, _ASKED_FOR, None) is not forwards:
            object.__setattr__(rule, _ASKED_FOR, None)
            raise _shared(rule, 2)
        object.__setattr__(rule, _ASKED_FOR, forwards)
        step = Step(buffer, quota, rate, forward, canvas, top, logits)
        return _checked(rule.choose(step), len(buffer) // _ROW.size, called)

    return called, (bool(rule.wants_entropy), top, bool(rule.wants_logits)), choose


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
