"""Options as types, for those who check them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict, Union

__all__ = ["LoadOptions", "Options"]


class LoadOptions(TypedDict, total=False):
    """What `load` and `demo` take as keywords. `None` is not set."""

    device: str | None
    dtype: str | None
    quantize: str | None
    activations: str | None
    threads: int | None
    guide: Union[str, os.PathLike[str], Mapping[str, str], None]
    prefix_cache: int | None


class Options(TypedDict, total=False):
    """How a prompt is answered."""

    gen_length: int | None
    block_length: int | None
    steps: int | None
    decoder: Any
    cache: Any
    temperature: float | None
    seed: int | None
