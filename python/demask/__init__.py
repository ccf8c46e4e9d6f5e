"""Fast inference of diffusion language models.

    import demask

    with demask.demo() as model:
        answer = model.generate("Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?")
        print(answer, answer.nfe)

Exceptions are in `demask.errors`, types of results in `demask.types`, tables of tasks and methods in `demask.lab`, and vLLM's interface
in `demask.vllm`.
"""

from __future__ import annotations

import typing as _typing

from . import _native
from . import errors as errors
from . import lab as lab
from . import types as types
from . import vllm as vllm
from ._canvas import Canvas
from ._chat import Chat
from ._facts import cost, doctor
from ._generation import Generation
from ._model import Model, demo, load, serve
from ._options import LoadOptions, Options
from ._prompt import Hole, Infill, Raw, Tokens
from ._trace import Trace
from ._transfer import Transfer
from .errors import Error
from .vllm import LLM, SamplingParams

__version__ = _native.__version__

__all__ = [
    "LLM",
    "Canvas",
    "Chat",
    "Error",
    "Generation",
    "Hole",
    "Infill",
    "LoadOptions",
    "Model",
    "Options",
    "Raw",
    "SamplingParams",
    "Tokens",
    "Trace",
    "Transfer",
    "cost",
    "demo",
    "doctor",
    "load",
    "serve",
]

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> _typing.NoReturn:
        """Refuses a name, and says where it is if version 0.1.0 had it here."""
        moved = {one: f"{module.__name__}.{one}" for module in (errors, types, vllm) for one in module.__all__}
        moved["Engine"] = "demask.Model"
        where = f": version 0.1.0 had it, now it is {moved[name]}" if name in moved else ""
        raise AttributeError(f"module 'demask' has no attribute {name!r}{where}", name=name)
