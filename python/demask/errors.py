"""Exceptions of the package: one tree, each with one line that says what was found, what was expected and what to try."""

from __future__ import annotations

__all__ = [
    "Cancelled",
    "Closed",
    "DeviceError",
    "Error",
    "Expired",
    "ForkError",
    "HookError",
    "ModelError",
    "OptionsError",
    "OutOfMemory",
    "PromptError",
]


class Error(Exception):
    """Root of all exceptions of this package; raised itself where no other exception fits."""


class OptionsError(Error, ValueError):
    """An option has a value that cannot be, or several contradict each other or the model."""


class PromptError(Error, ValueError):
    """A prompt cannot be put into tokens, is too long, or has no hole to fill."""


class ModelError(Error):
    """A model is not there, cannot be fetched, or cannot be read."""


class OutOfMemory(Error, MemoryError):
    """There is too little memory for a model, or for a request."""


class DeviceError(Error):
    """Raised when the device cannot be used, or failed."""


class Cancelled(Error):
    """Raised when a request was cancelled."""


class Expired(Error, TimeoutError):
    """Raised when a request's deadline passed while it waited for memory: nothing was decoded."""


class Closed(Error):
    """Raised when the model was closed."""


class ForkError(Error):
    """Raised when the model was loaded by the process that this one was forked from."""


class HookError(Error):
    """A transfer rule raised, or returned what is no choice; what it raised is the `__cause__`."""
