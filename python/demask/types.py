"""Types of what this package takes and gives, for annotations: results, parts of results, options of a service."""

from __future__ import annotations

from ._decision import Decision, Decisions
from ._generation import Commit, Logprob, PromptTokensDetails, Usage
from ._http import HttpResponse, Service
from ._native import Forward, Started, Update
from ._options import PromptOptions, RequestBounds, ServiceOptions
from ._prompt import Message, Prompt
from ._receipt import DeviceUse, Guided, MemoryUse, Receipt, Rounds, Seconds
from ._score import Score
from ._server import Server
from ._stream import AsyncStream, Stream
from ._tokenizer import Tokenizer
from ._trace import Frame
from ._transfer import Candidate, Step

__all__ = [
    "AsyncStream",
    "Candidate",
    "Commit",
    "Decision",
    "Decisions",
    "DeviceUse",
    "Forward",
    "Frame",
    "Guided",
    "HttpResponse",
    "Logprob",
    "MemoryUse",
    "Message",
    "Prompt",
    "PromptOptions",
    "PromptTokensDetails",
    "Receipt",
    "RequestBounds",
    "Rounds",
    "Score",
    "Seconds",
    "Server",
    "Service",
    "ServiceOptions",
    "Started",
    "Step",
    "Stream",
    "Tokenizer",
    "Update",
    "Usage",
]
