"""Fast inference of diffusion language models.

    import demask

    with demask.demo() as engine:
        answer = engine.generate("Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?")
        print(answer, answer.nfe)
"""

from __future__ import annotations

from ._engine import Engine, demo, load
from ._errors import (
    Cancelled,
    Closed,
    DeviceError,
    Error,
    Expired,
    ForkError,
    HookError,
    ModelError,
    OptionsError,
    OutOfMemory,
    PromptError,
)
from ._generation import Commit, Generation, Logprob
from ._http import HttpResponse, Service
from ._native import Forward, Started, Update
from ._prompt import Hole, Infill, Message, Prompt, Raw, Tokens
from ._stream import AsyncStream, Stream
from ._tokenizer import Tokenizer

__version__ = "0.1.0"
