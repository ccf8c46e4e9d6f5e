"""Fast inference of diffusion language models.

    import demask

    with demask.demo() as engine:
        answer = engine.generate("Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?")
        print(answer, answer.nfe)
"""

from __future__ import annotations

from . import _native
from ._chat import Chat
from ._engine import Engine, demo, load, serve
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
from ._facts import cost, doctor
from ._generation import Commit, Generation, Logprob
from ._http import HttpResponse, Service
from ._native import Forward, Started, Update
from ._options import LoadOptions, Options, ServiceOptions
from ._prompt import Hole, Infill, Message, Prompt, Raw, Tokens
from ._score import Score
from ._server import Server
from ._stream import AsyncStream, Stream
from ._tokenizer import Tokenizer
from ._trace import Frame, Trace
from ._transfer import Candidate, Step, Transfer
from ._vllm import LLM, CompletionOutput, RequestOutput, SamplingParams

__version__ = _native.__version__

__all__ = [
    "LLM",
    "AsyncStream",
    "Cancelled",
    "Candidate",
    "Chat",
    "Closed",
    "Commit",
    "CompletionOutput",
    "DeviceError",
    "Engine",
    "Error",
    "Expired",
    "ForkError",
    "Forward",
    "Frame",
    "Generation",
    "Hole",
    "HookError",
    "HttpResponse",
    "Infill",
    "LoadOptions",
    "Logprob",
    "Message",
    "ModelError",
    "Options",
    "OptionsError",
    "OutOfMemory",
    "Prompt",
    "PromptError",
    "Raw",
    "RequestOutput",
    "SamplingParams",
    "Score",
    "Server",
    "Service",
    "ServiceOptions",
    "Started",
    "Step",
    "Stream",
    "Tokenizer",
    "Tokens",
    "Trace",
    "Transfer",
    "Update",
    "cost",
    "demo",
    "doctor",
    "load",
    "serve",
]
