"""What is known without running a model: what answers cost, and what this machine can do."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import LoadOptions, Options

__all__ = ["cost", "doctor"]


def cost(
    model: str | os.PathLike[str] | None = None,
    *,
    like: str | None = None,
    prompt_tokens: int = 256,
    acceptance: float = 0.0,
    settings: LoadOptions | None = None,
    **options: Unpack[Options],
) -> dict[str, Any]:
    """Returns what an answer takes, without weights: operations and bytes by module and step, memory, and the same of an
    autoregressive model of that shape. It is what `demask-lab cost --json` prints.

    The model is one that `load` takes, the built-in one if none is named, or a released shape by its name (`like="llada-8b"`).
    `acceptance` is the share of drafts that is taken to be accepted. Raises what `load` does, and `OptionsError`.
    """
    if model is not None and like is not None:
        raise TypeError("the model is given by name and by `like`: give it in one way")
    path = None if model is None else os.fspath(model)
    found: dict[str, Any] = json.loads(
        _native.cost(path, like, dict(settings or {}), prompt_tokens, acceptance, dict(options))
    )
    return found


def doctor(**settings: Unpack[LoadOptions]) -> dict[str, Any]:
    """Returns what this machine can do, and which methods are the defaults: processor, tiers, GPUs, memory, and what products
    and reading take at most. It is what `demask doctor --json` prints, and takes the processor for about a second.
    """
    found: dict[str, Any] = json.loads(_native.doctor(dict(settings)))
    return found
